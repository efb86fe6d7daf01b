"""What a click is bid for: the advertiser's init-bid, and the platform's opt-bid (optimised CPC).

rho = pCVR(request, ad) / E[pCVR of that ad].
ocpc        opt-bid = init-bid * clip(rho, 1 - range, 1 + range). Where the click is worth less than
            usual the bid falls, never below b(1-r); where it is worth more it rises, never beyond
            b*min(1+r, rho): the advertiser's return is kept or raised.
target_cpa  opt-bid = CPA* * pCVR with CPA* = init-bid / E[pCVR], so init-bid * rho, without bounds.
none        opt-bid = init-bid.
pCVR is the platform's prediction, not the truth: it knows the conversion features, with an error of
its own for every ad, and nothing of the hidden pair noise.
"""

import copy

import numpy as np
from numba import njit

from cascade_sim import draws
from cascade_sim.kernels import dot, pad_lanes
from cascade_sim.world.world import World

USERS_FOR_MEAN = 512


class BidRules:
    """init-bid and opt-bid of (request, ad) pairs; padding bids 0."""

    def __init__(self, world: World, conversion):
        weight = conversion.weight / np.sqrt(conversion.dims)
        self.init_bid = world.init_bid
        self._user = pad_lanes(world.user_features["conversion"] * weight)
        self._ad = pad_lanes(world.ad_features["conversion"])
        error = draws.normal(world.seed, "pcvr error", np.arange(world.n_ads))
        self._offset = (conversion.base_logit + conversion.pcvr_error * error).astype(np.float32)
        step = max(1, world.n_users // USERS_FOR_MEAN)
        self._users_for_mean = self._user[::step].copy()
        self._mean_pcvr = np.full(world.n_ads, np.nan)  # of ads that nobody asked for yet

    @property
    def mean_pcvr(self) -> np.ndarray:
        """The mean over users of each ad's predicted conversion rate.  [A] float64"""
        _fill_means(self._mean_pcvr, self._users_for_mean, self._ad, self._offset)
        return self._mean_pcvr

    def pcvr(self, block, ids: np.ndarray) -> np.ndarray:
        """The platform's predicted conversion rate after a click.  [R, m] float32"""
        return _pcvr(self._user[block.users], self._ad, self._offset, ids)

    def bid(self, kind: str, block, ids: np.ndarray, rule: str, reach: float) -> np.ndarray:
        """Bids per click of the named kind ("init", "opt", or "none" = 1 for all).  [R, m] float64"""
        if kind == "none":
            return (ids >= 0).astype(np.float64)
        if kind == "init" or rule == "none":
            return _gather(self.init_bid, ids)
        low, high = (0.0, np.inf) if rule == "target_cpa" else (1.0 - reach, 1.0 + reach)
        return _opt_bid(
            self._user[block.users], self._ad, self._offset, self._mean_pcvr, self._users_for_mean,
            self.init_bid, ids, low, high,
        )  # fmt: skip

    def with_bids(self, init_bid: np.ndarray) -> "BidRules":
        """The same rules with other init-bids [A]; all else is shared."""
        other = copy.copy(self)
        other.init_bid = init_bid
        return other

    def with_bid(self, ad: int, bid: float) -> "BidRules":
        """The same rules with another init-bid for one ad; all else is shared, and nothing here changes."""
        init_bid = self.init_bid.copy()
        init_bid[ad] = bid
        return self.with_bids(init_bid)


@njit(cache=True, nogil=True)
def _gather(values, ids):
    out = np.empty(ids.shape, np.float64)
    for r in range(ids.shape[0]):
        for j in range(ids.shape[1]):
            value = values[np.uint64(max(ids[r, j], 0))]  # unsigned: numba then does not look for a wrap
            out[r, j] = value if ids[r, j] >= 0 else 0.0
    return out


@njit(cache=True, nogil=True)
def _pcvr(user, ad, offset, ids):
    out = np.zeros(ids.shape, np.float32)
    one = np.float32(1.0)
    for r in range(ids.shape[0]):
        for j in range(ids.shape[1]):
            a = ids[r, j]
            if a >= 0:
                out[r, j] = one / (one + np.exp(-(offset[a] + dot(user, r, ad, a, user.shape[1]))))
    return out


@njit(cache=True, nogil=True)
def _opt_bid(user, ad, offset, mean, users_for_mean, init_bid, ids, low, high):
    """Means that are not known yet are computed and kept: threads that meet here write the same."""
    out = np.zeros(ids.shape, np.float64)
    one = np.float32(1.0)
    for r in range(ids.shape[0]):
        for j in range(ids.shape[1]):
            a = ids[r, j]
            if a >= 0:
                if np.isnan(mean[a]):
                    mean[a] = _mean_of(users_for_mean, ad, offset, a)
                pcvr = one / (one + np.exp(-(offset[a] + dot(user, r, ad, a, user.shape[1]))))
                out[r, j] = init_bid[a] * min(max(pcvr / mean[a], low), high)
    return out


@njit(cache=True, nogil=True)
def _mean_of(users, ad, offset, a):
    """The mean predicted conversion rate of one ad."""
    total, one = 0.0, np.float32(1.0)
    for u in range(len(users)):
        total += one / (one + np.exp(-(offset[a] + dot(users, u, ad, a, users.shape[1]))))
    return total / len(users)


@njit(cache=True, nogil=True)
def _fill_means(mean, users, ad, offset):
    for a in range(len(mean)):
        if np.isnan(mean[a]):
            mean[a] = _mean_of(users, ad, offset, a)
