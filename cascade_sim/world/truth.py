"""The ground truth: click and conversion rates that no model ever sees.

logit CTR(r, a) = base + w_q quality_a + w_t tier_a + w_u user_u + w_c context_r
                + sum_g w_g <u_g, a_g> / sqrt(d_g) + w_m max(0, <u_h, a_h>/sqrt(d_h) - threshold)
                + sigma * noise(u, a)
logit CVR(r, a) = base' + w' <u_v, a_v> / sqrt(d_v) + sigma' * noise'(u, a)

A scenario may add to the CTR what no feature shows: the intent of a request, effects of identities, tastes
u_g that turn with time, and seasons of the base and of the w_g. All of it is drawn here, keyed by the
world's seed, and lies nowhere else.
"""

from collections.abc import Callable

import numpy as np

from cascade_sim.agents.users import click_probability
from cascade_sim.foundation import random as draws
from cascade_sim.foundation.compilation import kernel
from cascade_sim.foundation.kernels import dot, dot_scores, pad_lanes
from cascade_sim.world.visible import World

DAY = 86_400.0  # seconds
SATURDAY_NOON = 5.5  # days from the beginning of a Monday


class GroundTruth:
    """True CTR and CVR of (request, ad) pairs. Only outcomes and measurement may ask.

    Pure: a value depends on its request (id, user, context, time) and its ad alone.
    """

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
        self._intent = None if spec.intent is None else _Intent(world, spec)
        self._identities = None if spec.id_effects is None else _Identities(world, spec.id_effects)
        self._turning = None if spec.drift is None else _Turning(world, spec)
        self._seasons = None if spec.seasonality is None else _Seasons(spec)

    def ctr_without_noise(self, block, ids: np.ndarray) -> np.ndarray:
        """CTR of slot 1 with what no feature shows at its mean: the best any model of features could know.

        That is the pair noise, the intent, the effects of identities and the seasons at 0, and the tastes of
        users as far as those of time 0, which the features show, still tell them. A model that learns an
        embedding of ids, or learns again and again as time goes by, may come to know more.
        """
        if self._turning is None:
            return _sigmoid(self._lasting(block.users, block.context, ids))
        code = self._turning.faded(self._user_code[block.users], block.times)
        return _sigmoid(self._logit(code, _rows(code), block.users, block.context, ids))

    def ctr(self, block, ids: np.ndarray) -> np.ndarray:
        """True CTR in a fully examined slot; 0 for padding.  [R, m] -> [R, m] float64"""
        if self._turning is None and self._seasons is None:
            logit = self._lasting(block.users, block.context, ids)
        else:
            code = self._code_now(block)
            logit = self._logit(code, _rows(code), block.users, block.context, ids)
        if self._seasons is not None:
            logit += self._seasons.level(block.times)[:, None]
        if self._identities is not None:
            logit += self._identities.logit(block.users, ids)
        if self._intent is not None:
            logit += self._intent.logit(block, ids)
        if self._spec.pair_noise > 0:
            logit += self._spec.pair_noise * self._pair_noise("ctr noise", block, ids)
        return np.where(ids >= 0, _sigmoid(logit), 0.0)

    def on_page(
        self, block, win_set: np.ndarray, slot_effects: np.ndarray, find: Callable[[], np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray, None]:
        """True CTRs of the ads on pages, and expected clicks in their slots; nothing is observed.  [R, k]

        `find` gives the CTRs: they may be known already.
        """
        true_ctr = find()
        return true_ctr, click_probability(true_ctr, slot_effects, win_set >= 0), None

    def exposed(self, block, slots: int) -> np.ndarray | None:
        """Chances that slots are seen, as impressions are charged by; None: all that is shown.  [R, slots]"""
        return None

    def cvr(self, block, ids: np.ndarray) -> np.ndarray:
        """True conversion rate after a click; 0 for padding.  [R, m] float64"""
        conversion = self._spec.conversion
        code = self._conversion_user[block.users]
        logit = conversion.base_logit + dot_scores(code, self._conversion_ad, ids).astype(np.float64)
        if conversion.pair_noise > 0:
            logit += conversion.pair_noise * self._pair_noise("cvr noise", block, ids)
        return np.where(ids >= 0, _sigmoid(logit), 0.0)

    def lasting_logit(self, users: np.ndarray, ids: np.ndarray) -> np.ndarray:
        """Logit of the CTR by what stays with user and ad: features and identities, at time 0 and context 0.

        Without intent, seasons and noise.  [m], [m, n] -> [m, n] float64
        """
        logit = self._lasting(users, np.zeros(len(users), np.float32), ids)
        return logit if self._identities is None else logit + self._identities.logit(users, ids)

    def _code_now(self, block) -> np.ndarray:
        """What the users of these requests are like when they come.  [R, D] float32"""
        code = self._user_code[block.users]
        if self._turning is not None:
            code = self._turning.turned(code, block.users, block.times)
        return code if self._seasons is None else self._seasons.weighted(code, block.times)

    def _lasting(self, users: np.ndarray, context: np.ndarray, ids: np.ndarray) -> np.ndarray:
        """Of users as they are at time 0."""
        return self._logit(self._user_code, users, users, context, ids)

    def _logit(
        self, code: np.ndarray, rows: np.ndarray, users: np.ndarray, context: np.ndarray, ids: np.ndarray
    ) -> np.ndarray:
        """By the features, with code[rows[r]] for request r.  [R, m] float64"""
        spec = self._spec
        return _feature_logits(
            code, rows, self._ad_code, self._mismatch_user, users, self._mismatch_ad,
            context.astype(np.float32, copy=False), ids,
            *map(np.float32, (spec.effects.context, spec.mismatch.threshold, spec.mismatch.weight)),
        )  # fmt: skip

    def _pair_noise(self, purpose: str, block, ids: np.ndarray) -> np.ndarray:
        return draws.normal(self._seed, purpose, block.users[:, None], ids)


@kernel
def _feature_logits(
    code, rows, ad_code, mismatch_user, users, mismatch_ad, context, ids, by_context, threshold, by_mismatch
):
    """<code, ad_code> + by_context * context + by_mismatch * max(0, <mismatch> - threshold).  [R, m] float64

    Terms are float32, their sum is float64. The products of padding are 0.
    """
    n_requests, n = ids.shape
    out = np.empty((n_requests, n), np.float64)
    zero = np.float32(0.0)
    for r in range(n_requests):
        of_context = np.float64(by_context * context[r])
        for j in range(n):
            a, product, mismatch = ids[r, j], zero, zero
            if a >= 0:
                product = dot(code, rows[r], ad_code, a, code.shape[1])
                mismatch = max(
                    zero, dot(mismatch_user, users[r], mismatch_ad, a, mismatch_user.shape[1]) - threshold
                )
            out[r, j] = np.float64(product) + of_context + np.float64(by_mismatch * mismatch)
    return out


def _rows(code: np.ndarray) -> np.ndarray:
    """Where each request has a row of its own."""
    return np.arange(len(code), dtype=np.int32)


class _Intent:
    """weight * <intent, a> / sqrt(d) + common_shift_sd * z, drawn by request, or by user and day."""

    def __init__(self, world: World, spec):
        self._spec, self._seed = spec.intent, world.seed
        group = self._spec.group
        self._dims = (self._spec.dims or 4) if group is None else spec.groups[group].dims

        def vectors(at: slice) -> np.ndarray:
            if group is not None:
                return world.ad_features[group][at]
            return _latent(world.seed, "ad.intent", at, self._dims)

        self._ad = _in_parts(world.n_ads, vectors)

    def logit(self, block, ids: np.ndarray) -> np.ndarray:
        """[R, m] float64"""
        unit = [block.requests]
        if self._spec.per == "user_day":
            unit = [block.users, np.floor(block.times / DAY).astype(np.int64)]
        dims = np.arange(self._dims)[None, :]
        intent = draws.normal(self._seed, "intent", *(part[:, None] for part in unit), dims)
        code = pad_lanes(intent * (self._spec.weight / np.sqrt(self._dims)))
        logit = dot_scores(code, self._ad, ids).astype(np.float64)
        if self._spec.common_shift_sd > 0:
            logit += self._spec.common_shift_sd * draws.normal(self._seed, "intent level", *unit)[:, None]
        return logit


class _Identities:
    """bias_u + bias_a + bias_owner(a) + weight * <v_u, v_a> / sqrt(d), with all of it hidden."""

    def __init__(self, world: World, spec):
        seed, scale = world.seed, spec.weight / np.sqrt(spec.dims)
        owners = np.arange(world.n_advertisers)
        of_owner = spec.advertiser * draws.normal(seed, "advertiser.id", owners)

        def user_code(at: slice) -> np.ndarray:
            vector = scale * _latent(seed, "user.id vector", at, spec.dims)
            bias = spec.user * _latent(seed, "user.id", at, 1)
            return np.hstack([vector, bias, np.ones_like(bias)])

        def ad_code(at: slice) -> np.ndarray:
            bias = spec.ad * _latent(seed, "ad.id", at, 1) + of_owner[world.advertiser[at], None]
            return np.hstack([_latent(seed, "ad.id vector", at, spec.dims), np.ones_like(bias), bias])

        self._user = _in_parts(world.n_users, user_code)
        self._ad = _in_parts(world.n_ads, ad_code)

    def logit(self, users: np.ndarray, ids: np.ndarray) -> np.ndarray:
        """[m], [m, n] -> [m, n] float64"""
        return dot_scores(self._user[users], self._ad, ids).astype(np.float64)


class _Turning:
    """Tastes that turn: u(t) = cos(s t) u(0) + sin(s t) v, each entry with its own hidden v and speed s.

    u(0) and v are independent standard normals, so u(t) is one at any time. Speeds are Cauchy of scale
    -ln(1 - per_day) a day, whose characteristic function makes the correlation of u(0) and u(t), over users,
    (1 - per_day)^t: that of an autoregression by day, without its days to go through.
    """

    def __init__(self, world: World, spec):
        groups, seed = spec.groups, world.seed
        self._rate = -np.log1p(-spec.drift.per_day)
        self._width = sum(group.dims for group in groups.values())

        def other(at: slice) -> np.ndarray:
            tables = [
                _latent(seed, f"drift.{name}", at, group.dims) * (group.weight / np.sqrt(group.dims))
                for name, group in groups.items()
            ]
            return np.hstack(tables)

        def speed(at: slice) -> np.ndarray:
            ids = np.arange(at.start, at.stop)[:, None]
            draw = [
                draws.uniform(seed, f"drift speed.{name}", ids, np.arange(group.dims)[None, :])
                for name, group in groups.items()
            ]
            return self._rate * np.tan(np.pi * (np.hstack(draw) - 0.5))

        self._other, self._speed = _in_parts(world.n_users, other), _in_parts(world.n_users, speed)

    def turned(self, code: np.ndarray, users: np.ndarray, times: np.ndarray) -> np.ndarray:
        """The users' code at these times, from that of time 0.  [R, D]"""
        at, now = slice(0, self._width), code.copy()
        angle = self._speed[users, at].astype(np.float64) * (times / DAY)[:, None]
        now[:, at] = np.cos(angle) * code[:, at] + np.sin(angle) * self._other[users, at]
        return now

    def faded(self, code: np.ndarray, times: np.ndarray) -> np.ndarray:
        """Its mean for who knows the code of time 0.  [R, D]"""
        at, now = slice(0, self._width), code.copy()
        now[:, at] = np.exp(-self._rate * times / DAY)[:, None] * code[:, at]
        return now


class _Seasons:
    """Waves over the day and the week: of the base logit, and of the weights of groups."""

    def __init__(self, spec):
        self._spec = spec.seasonality
        shares = [
            np.full(group.dims, self._spec.groups.get(name, 0.0)) for name, group in spec.groups.items()
        ]
        self._share = np.concatenate(shares)

    def level(self, times: np.ndarray) -> np.ndarray:
        """Shift of the logit.  [R]"""
        weekly = np.cos(2 * np.pi * (times / DAY - SATURDAY_NOON) / 7.0)
        return self._spec.daily * self._of_day(times) + self._spec.weekly * weekly

    def weighted(self, code: np.ndarray, times: np.ndarray) -> np.ndarray:
        """The users' code with the weights that groups have at these times.  [R, D]"""
        now = code.copy()
        now[:, : len(self._share)] *= 1.0 + self._share * self._of_day(times)[:, None]
        return now

    def _of_day(self, times: np.ndarray) -> np.ndarray:
        return np.cos(2 * np.pi * (times / DAY - self._spec.peak_hour / 24.0))


def _latent(seed: int, purpose: str, at: slice, dims: int) -> np.ndarray:
    """Standard normals of these ids.  [n, dims]"""
    return draws.normal(seed, purpose, np.arange(at.start, at.stop)[:, None], np.arange(dims)[None, :])


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
