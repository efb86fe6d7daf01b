"""What a click is bid for: the advertiser's init-bid, and the platform's opt-bid (optimised CPC).

rho = pCVR(request, ad) / E[pCVR of that ad].
ocpc        opt-bid = init-bid * clip(rho, 1 - range, 1 + range). Where the click is worth less than
            usual the bid falls, never below b(1-r); where it is worth more it rises, never beyond
            b*min(1+r, rho): the advertiser's return is kept or raised.
target_cpa  opt-bid = CPA* * pCVR with CPA* = init-bid / E[pCVR], so init-bid * rho, without bounds.
none        opt-bid = init-bid.
pCVR is the platform's prediction, not the truth. It is given (`KnownRates`): it knows the conversion
features, with an error of its own for every ad, and nothing of the hidden pair noise. Or it is learned: a
trained model's (`learned_rates`), in the same kernel where the model is a dot product of codes.
"""

import copy
from typing import NamedTuple, Protocol

import numpy as np

from cascade_sim.cascade.cost import cost_of
from cascade_sim.cascade.scorers import ModelScorer, TowersScorer
from cascade_sim.foundation import random as draws
from cascade_sim.foundation.compilation import kernel
from cascade_sim.foundation.kernels import dot, pad_lanes
from cascade_sim.protocols import Cost
from cascade_sim.world.world import World

USERS_FOR_MEAN = 512
ADS_AT_ONCE = 1024  # of a learned mean; fixed, since a net's last bits may depend on it
MIN_MEAN = 1e-300  # a model that predicts 0 for all ads still has a ratio


class Rates(Protocol):
    """Predicted conversion rates after a click, and the opt-bids that follow from them.

    `by_pair`: a rate depends, to the last bit, on its request and ad alone.
    """

    name: str
    by_pair: bool

    @property
    def mean(self) -> np.ndarray: ...

    def pcvr(self, block, ids: np.ndarray) -> np.ndarray: ...

    def opt_bid(
        self, init_bid: np.ndarray, block, ids: np.ndarray, low: float, high: float
    ) -> np.ndarray: ...


class Visitors(NamedTuple):
    """Requests as scorers look at them, of the users that a mean is taken over."""

    requests: np.ndarray
    users: np.ndarray
    context: np.ndarray


class DotRates:
    """logit pCVR = offset of the ad + <code of the request, code of the ad>, in a fused kernel."""

    by_pair = True

    def __init__(self, name: str, ad: np.ndarray, offset: np.ndarray, users_for_mean: np.ndarray):
        self.name, self._ad, self._offset, self._users_for_mean = name, ad, offset, users_for_mean
        self._mean = np.full(len(ad), np.nan)  # of ads not asked for yet

    def code(self, block) -> np.ndarray:
        """Codes of the requests.  [R, d] float32"""
        raise NotImplementedError

    @property
    def mean(self) -> np.ndarray:
        """The mean over users of each ad's predicted conversion rate.  [A] float64"""
        _fill_means(self._mean, self._users_for_mean, self._ad, self._offset)
        return self._mean

    def pcvr(self, block, ids: np.ndarray) -> np.ndarray:
        """The predicted conversion rate after a click; 0 for padding.  [R, m] float32"""
        return _pcvr(self.code(block), self._ad, self._offset, ids)

    def opt_bid(self, init_bid: np.ndarray, block, ids: np.ndarray, low: float, high: float) -> np.ndarray:
        """init-bid * clip(rho, low, high); 0 for padding.  [R, m] float64"""
        return _opt_bid(
            self.code(block), self._ad, self._offset, self._mean, self._users_for_mean,
            init_bid, ids, low, high,
        )  # fmt: skip


class KnownRates(DotRates):
    """The world's own conversion affinity, with a fixed error of each ad."""

    def __init__(self, world: World, conversion):
        weight = conversion.weight / np.sqrt(conversion.dims)
        self._user = pad_lanes(world.user_features["conversion"] * weight)
        error = draws.normal(world.seed, "pcvr error", np.arange(world.n_ads))
        offset = (conversion.base_logit + conversion.pcvr_error * error).astype(np.float32)
        ad = pad_lanes(world.ad_features["conversion"])
        super().__init__("known", ad, offset, self._user[users_for_mean(world)])

    @property
    def cost(self) -> Cost:
        """It is given: no model is asked."""
        return Cost()

    def code(self, block) -> np.ndarray:
        return self._user[block.users]


class TowersRates(DotRates):
    """Of a trained two-tower model, whose logit is a dot product already."""

    def __init__(self, scorer: TowersScorer, visitors: Visitors):
        self._scorer, ad = scorer, scorer.ad_code
        super().__init__(scorer.name, ad, np.zeros(len(ad), np.float32), scorer.request_code(visitors))

    @property
    def cost(self) -> Cost:
        return self._scorer.cost

    def code(self, block) -> np.ndarray:
        return self._scorer.request_code(block)


class BatchedRates:
    """Of any other trained model. The first to ask waits for the means of all ads."""

    def __init__(self, scorer: ModelScorer, visitors: Visitors):
        self.name, self.by_pair = scorer.name, scorer.by_pair
        self._scorer, self._visitors = scorer, visitors
        self._n_ads = len(scorer.view.ad_table)
        self._mean: np.ndarray | None = None

    @property
    def cost(self) -> Cost | None:
        return cost_of(self._scorer)

    @property
    def mean(self) -> np.ndarray:
        """The mean over users of each ad's predicted conversion rate.  [A] float64"""
        if self._mean is None:  # threads that meet here compute the same
            parts = [self._mean_of(start) for start in range(0, self._n_ads, ADS_AT_ONCE)]
            self._mean = np.maximum(np.concatenate(parts), MIN_MEAN)
        return self._mean

    def _mean_of(self, start: int) -> np.ndarray:
        ads = np.arange(start, min(start + ADS_AT_ONCE, self._n_ads), dtype=np.int32)
        ids = np.repeat(ads[None, :], len(self._visitors.users), axis=0)
        return self._scorer.predict(self._visitors, ids).mean(axis=0, dtype=np.float64)

    def pcvr(self, block, ids: np.ndarray) -> np.ndarray:
        """The predicted conversion rate after a click; 0 for padding.  [R, m] float32"""
        return np.where(ids >= 0, self._scorer.predict(block, ids), np.float32(0.0))

    def opt_bid(self, init_bid: np.ndarray, block, ids: np.ndarray, low: float, high: float) -> np.ndarray:
        """init-bid * clip(rho, low, high); 0 for padding.  [R, m] float64"""
        ratio = np.clip(self.pcvr(block, ids) / self.mean[ids], low, high)
        return np.where(ids >= 0, init_bid[ids] * ratio, 0.0)


def learned_rates(scorer: ModelScorer, world: World) -> Rates:
    """The rates of a trained model of conversions; its means are over the same users as the known ones."""
    users = np.arange(world.n_users, dtype=np.int32)[users_for_mean(world)]
    context = draws.normal(world.seed, "context of a mean pcvr", users).astype(np.float32)
    visitors = Visitors(users.astype(np.int64), users, context)
    if isinstance(scorer, TowersScorer):
        return TowersRates(scorer, visitors)
    return BatchedRates(scorer, visitors)


def users_for_mean(world: World) -> slice:
    """The users that the mean pCVR of an ad is taken over: all, or evenly some of very many."""
    return slice(None, None, max(1, world.n_users // USERS_FOR_MEAN))


class BidRules:
    """init-bid and opt-bid of (request, ad) pairs; padding bids 0.

    Who asks with no rates of a model is answered by the known ones.
    """

    def __init__(self, world: World, conversion):
        self.init_bid = world.init_bid
        self.known = KnownRates(world, conversion)

    @property
    def mean_pcvr(self) -> np.ndarray:
        """The mean over users of each ad's known conversion rate.  [A] float64"""
        return self.known.mean

    def pcvr(self, block, ids: np.ndarray, rates: Rates | None = None) -> np.ndarray:
        """The platform's predicted conversion rate after a click.  [R, m] float32"""
        return (rates or self.known).pcvr(block, ids)

    def bid(
        self, kind: str, block, ids: np.ndarray, rule: str, reach: float, rates: Rates | None = None
    ) -> np.ndarray:
        """Bids per click of the named kind ("init", "opt", or "none" = 1 for all).  [R, m] float64"""
        if kind == "none":
            return (ids >= 0).astype(np.float64)
        if kind == "init" or rule == "none":
            return _gather(self.init_bid, ids)
        low, high = (0.0, np.inf) if rule == "target_cpa" else (1.0 - reach, 1.0 + reach)
        return (rates or self.known).opt_bid(self.init_bid, block, ids, low, high)

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


@kernel
def _gather(values, ids):
    out = np.empty(ids.shape, np.float64)
    for r in range(ids.shape[0]):
        for j in range(ids.shape[1]):
            value = values[np.uint64(max(ids[r, j], 0))]  # unsigned: numba then does not look for a wrap
            out[r, j] = value if ids[r, j] >= 0 else 0.0
    return out


@kernel
def _rate(user, r, ad, a, offset):
    """The predicted conversion rate of ad a for row r of the users."""
    one = np.float32(1.0)
    return one / (one + np.exp(-(offset[a] + dot(user, r, ad, a, user.shape[1]))))


@kernel
def _pcvr(user, ad, offset, ids):
    out = np.zeros(ids.shape, np.float32)
    for r in range(ids.shape[0]):
        for j in range(ids.shape[1]):
            a = ids[r, j]
            if a >= 0:
                out[r, j] = _rate(user, r, ad, a, offset)
    return out


@kernel
def _opt_bid(user, ad, offset, mean, users_for_mean, init_bid, ids, low, high):
    """Means that are not known yet are computed and kept: threads that meet here write the same."""
    out = np.zeros(ids.shape, np.float64)
    for r in range(ids.shape[0]):
        for j in range(ids.shape[1]):
            a = ids[r, j]
            if a >= 0:
                if np.isnan(mean[a]):
                    mean[a] = _mean_of(users_for_mean, ad, offset, a)
                pcvr = _rate(user, r, ad, a, offset)
                out[r, j] = init_bid[a] * min(max(pcvr / mean[a], low), high)
    return out


@kernel
def _mean_of(users, ad, offset, a):
    """The mean predicted conversion rate of one ad."""
    total = 0.0
    for u in range(len(users)):
        total += _rate(users, u, ad, a, offset)
    return max(total / len(users), MIN_MEAN)


@kernel
def _fill_means(mean, users, ad, offset):
    for a in range(len(mean)):
        if np.isnan(mean[a]):
            mean[a] = _mean_of(users, ad, offset, a)
