"""The hidden truth: click and conversion rates that no model ever sees.

logit CTR(r, a) = base + w_q quality_a + w_t tier_a + w_u user_u + w_c context_r
                + sum_g w_g <u_g, a_g> / sqrt(d_g) + w_m max(0, <u_h, a_h>/sqrt(d_h) - threshold)
                + sigma * noise(u, a)
logit CVR(r, a) = base' + w' <u_v, a_v> / sqrt(d_v) + sigma' * noise'(u, a)
"""

from collections.abc import Callable

import numpy as np

from cascade_sim import draws
from cascade_sim.kernels import dot_scores, hinge_scores, pad_lanes
from cascade_sim.world.world import World


class Truth:
    """True CTR and CVR of (request, ad) pairs. Only outcomes and measurement may ask."""

    def __init__(self, world: World, spec):
        effects = spec.effects
        users, ads = world.user_features, world.ad_features

        def user_code(at: slice) -> np.ndarray:
            weighted = [
                users[name][at] * (group.weight / np.sqrt(group.dims)) for name, group in spec.groups.items()
            ]
            base = spec.base_logit + effects.user * users["user"][at]
            return np.hstack([*weighted, np.ones_like(base), base])

        def ad_code(at: slice) -> np.ndarray:
            own = effects.quality * ads["quality"][at] + effects.tier * ads["tier"][at]
            return np.hstack([*(ads[name][at] for name in spec.groups), own, np.ones_like(own)])

        self._user_code = _in_parts(world.n_users, user_code)
        self._ad_code = _in_parts(world.n_ads, ad_code)
        self._mismatch_user = pad_lanes(users["mismatch"] / np.sqrt(spec.mismatch.dims))
        self._mismatch_ad = pad_lanes(ads["mismatch"])
        self._conversion_user = pad_lanes(
            users["conversion"] * (spec.conversion.weight / np.sqrt(spec.conversion.dims))
        )
        self._conversion_ad = pad_lanes(ads["conversion"])
        self._spec = spec
        self._seed = world.seed

    def ctr_without_noise(self, block, ids: np.ndarray) -> np.ndarray:
        """CTR of slot 1 with the pair noise at its mean: the best any model of features could know."""
        return _sigmoid(self._logit(block, ids))

    def ctr(self, block, ids: np.ndarray) -> np.ndarray:
        """True CTR in a fully examined slot; 0 for padding.  [R, m] -> [R, m] float64"""
        logit = self._logit(block, ids)
        if self._spec.pair_noise > 0:
            logit += self._spec.pair_noise * self._pair_noise("ctr noise", block, ids)
        return np.where(ids >= 0, _sigmoid(logit), 0.0)

    def cvr(self, block, ids: np.ndarray) -> np.ndarray:
        """True conversion rate after a click; 0 for padding.  [R, m] float64"""
        conversion = self._spec.conversion
        code = self._conversion_user[block.users]
        logit = conversion.base_logit + dot_scores(code, self._conversion_ad, ids).astype(np.float64)
        if conversion.pair_noise > 0:
            logit += conversion.pair_noise * self._pair_noise("cvr noise", block, ids)
        return np.where(ids >= 0, _sigmoid(logit), 0.0)

    def _logit(self, block, ids: np.ndarray) -> np.ndarray:
        logit = dot_scores(self._user_code[block.users], self._ad_code, ids).astype(np.float64)
        logit += self._spec.effects.context * block.context[:, None]
        mismatch = hinge_scores(
            self._mismatch_user[block.users], self._mismatch_ad, ids, self._spec.mismatch.threshold
        )
        return logit + self._spec.mismatch.weight * mismatch

    def _pair_noise(self, purpose: str, block, ids: np.ndarray) -> np.ndarray:
        return draws.normal(self._seed, purpose, block.users[:, None], ids)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    from scipy.special import expit

    return expit(x)


def _in_parts(n: int, make: Callable[[slice], np.ndarray]) -> np.ndarray:
    """pad_lanes of what `make` gives for all n rows."""
    first, *others = draws.parts(n)
    table = pad_lanes(make(first))
    if not others:
        return table
    whole = np.empty((n, table.shape[1]), np.float32)
    whole[first] = table
    for at in others:
        whole[at] = pad_lanes(make(at))
    return whole
