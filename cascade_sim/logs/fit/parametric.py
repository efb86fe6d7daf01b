"""A synthetic world whose parameters are fitted to a log: shareable, for no row of the log is in it.

Most parameters have a statistic of their own and follow from it. Variances of the logit of the pCTR between
ads, between users, between requests and between pairs are the squared weights of the features that vary with
them; bids give their own law; slots, sizes, users and conversions are counted. Two numbers go through the
cascade, so they are found by simulating it: the base logit (winners have a higher CTR than candidates) and
the weight of popularity in retrieval. Draws are keyed, so each simulated statistic rises smoothly with its
number, and bisection finds it; a search that does not use this takes several times as many simulations to
come as near (docs/how_to/fit_world.md has the figures).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cascade_sim.agents.advertisers import MIN_HAZARD
from cascade_sim.foundation.errors import UserError
from cascade_sim.logs.audit.study import completed
from cascade_sim.logs.fidelity import summary_statistics as stats
from cascade_sim.logs.fidelity.sample import DAY, HOUR, Sample, take
from cascade_sim.logs.store.format import OTHER_NAMES

SIMULATED = 1024  # requests of a trial
MAX_SIMULATED_USERS = 4000
MIN_CLICKS = 100
NEAR = 0.1  # relative gap of a statistic that was reached
GROUPS = {"G1": 0.2, "G2": 0.15, "G3": 0.2, "G4": 0.45}  # shares of the variance between pairs
DIMS = {"G1": 4, "G2": 2, "G3": 4, "G4": 4}
MIN_LOGIT, MAX_LOGIT = -14.0, 3.0
SEEN = ["user", "context", "quality", "tier", "mismatch", "G1", "G2", "G3"]


@dataclass
class Fit:
    """A scenario as data, how near each statistic came, and what could not be reached."""

    scenario: dict[str, Any]
    rows: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    simulations: int = 0


@dataclass(frozen=True)
class Components:
    """Variances of the logit of the pCTR of candidates, by what they vary with."""

    ad: float
    tier: float  # of `ad`, what goes with the ad's log-bid; the correlation is `sign`
    sign: float
    user: float
    request: float  # beyond the user
    pair: float


def fit_parametric(store: Any, seed: int = 1, name: str | None = None) -> Fit:
    """The scenario of a synthetic world with the summary statistics of a log."""
    if store.about.charging != "click":
        raise UserError(
            f"{store.about.name} charges per impression; the bids of a synthetic world are per click, so no "
            "such "
            "world can be fitted. fit-world without --parametric keeps the log's bids"
        )
    sample = take(store)
    if not sample.has("click") or int(np.sum(sample.candidates["click"] == 1)) < MIN_CLICKS:
        raise UserError(
            f"{store.about.name} has too few clicks to fit a world to; {MIN_CLICKS} or more are needed"
        )
    fit = Fit(_closed(store, sample, name or f"{_plain(store.about.name)}-world", seed))
    parts = components(sample)
    if parts is None:
        fit.notes.append(
            "No pCTR is logged: how much CTRs differ between pairs is not known, and the weights of feature "
            "groups are those of the default world."
        )
    else:
        _set_effects(fit.scenario, parts, slope_of(sample))
    _through_the_cascade(fit, sample, seed)
    _tell(fit, sample, seed)
    return fit


def _plain(name: str) -> str:
    return (
        "".join(sign if sign.isascii() and sign.isalnum() else "-" for sign in name.lower())[:80] or "market"
    )


def components(sample: Sample) -> Components | None:
    """Variance components of the logit of the pCTR by moments of products; None where it is not logged.

    Two candidates of one ad in two requests have the ad in common, two candidates of one request the request:
    the mean products of their deviations are the variances. Those of two requests of one user are the user's.
    """
    from scipy.special import logit

    if not sample.has("pctr"):
        return None
    pctr = sample.candidates["pctr"].astype(np.float64)
    at = np.flatnonzero((pctr > 0) & (pctr < 1))
    if len(at) < 100:
        return None
    value = logit(pctr[at])
    value -= value.mean()
    request, ad = sample.request[at], sample.candidates["ad"][at]
    total = float(np.mean(value**2))
    own_ad = max(0.0, _common(value, ad))
    own_request = max(0.0, _common(value, request))
    user = sample.codes("user")[request] if "user" in sample.requests else None
    own_user = 0.0
    if user is not None and np.any(sample.visits > 0):
        # pairs of one user in different requests: all of the user less those of one request
        own_user = min(own_request, max(0.0, _common(value, user, apart=request)))
    bids = sample.candidates["bid"][at]
    tier, sign = 0.0, -1.0
    known = np.isfinite(bids) & (bids > 0)
    if own_ad > 0 and known.any():
        slope_of = _ad_means(ad[known], np.stack([value[known], np.log(bids[known])]))
        correlation = _weighted_correlation(*slope_of)
        tier, sign = own_ad * min(1.0, correlation**2), float(np.sign(correlation) or -1.0)
    rest = max(0.0, total - own_ad - own_request)
    return Components(own_ad, tier, sign, own_user, max(0.0, own_request - own_user), rest)


def _common(value: np.ndarray, group: np.ndarray, apart: np.ndarray | None = None) -> float:
    """Mean product of two values of a group; with `apart`, of two that lie in different ones of these."""
    sums, counts = np.bincount(group, value), np.bincount(group)
    products = np.sum(sums**2) - np.sum(value**2)
    pairs = float(np.sum(counts.astype(np.float64) ** 2) - len(value))
    if apart is not None:
        sums, counts = np.bincount(apart, value), np.bincount(apart)
        products -= np.sum(sums**2) - np.sum(value**2)
        pairs -= float(np.sum(counts.astype(np.float64) ** 2) - len(value))
    return float(products / pairs) if pairs > 0 else 0.0


def _ad_means(ad: np.ndarray, columns: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    n = np.bincount(ad)
    there = np.flatnonzero(n)
    means = [np.bincount(ad, column)[there] / n[there] for column in columns]
    return means[0], means[1], n[there].astype(np.float64)


def _weighted_correlation(a: np.ndarray, b: np.ndarray, weight: np.ndarray) -> float:
    a, b = (x - np.average(x, weights=weight) for x in (a, b))
    scale = np.sqrt(np.sum(weight * a * a) * np.sum(weight * b * b))
    return float(np.sum(weight * a * b) / scale) if scale > 0 else 0.0


def _closed(store: Any, sample: Sample, name: str, seed: int) -> dict[str, Any]:
    """What follows from the log without simulating anything."""
    one = np.ones(len(sample))
    ranked = max(2, round(stats._count(stats.ranked_of)(sample, one)))
    slots = max(1, round(float(sample.requests["slots"].mean())))
    retrieved = max(ranked, round(stats._count(stats.candidates_of)(sample, one)), slots + 1)
    n_ads = max(store.n_ads, retrieved)
    users, activity = visitors(sample)
    span = max(float(np.ptp(store.requests["time"])), 1.0)
    world: dict[str, Any] = {
        "users": users,
        "ads": n_ads,
        "advertisers": max(1, min(store.n_advertisers, n_ads)),
        "user_activity": activity,
        "popularity": 0.0,
        "base_logit": -4.0,
        "effects": {"quality": 0.25, "tier": -0.3, "user": 0.3, "context": 0.2},
        "groups": {key: {"dims": DIMS[key], "weight": 0.4} for key in GROUPS},
        "mismatch": {"dims": 4, "weight": 0.0, "threshold": 0.2},
        "pair_noise": 0.0,
        "bids": bid_law(sample),
        "slot_effects": [round(float(x), 4) for x in slot_effects(sample, slots)],
        "conversion": conversions(sample),
    }
    wave = daily_wave(sample)
    if wave is not None:
        world["seasonality"] = wave
    within = stats.spread_within_ad(sample, one) if sample.has("bid") else 0.0
    bidding: dict[str, Any] = {"rule": "none"}
    if within > 0.05:  # a bid that changes from request to request, as the platform's rule makes it
        bidding = {"rule": "target_cpa"}
        world["conversion"]["weight"] = round(float(within), 4)
        world["conversion"]["pcvr_error"] = 0.0
    return {
        "name": name,
        "seed": seed,
        "world": world,
        "traffic": {"requests_per_second": round(max(store.n_requests / span, 1e-6), 6)},
        "cascade": {
            "retrieval": {"size": retrieved, "group": "G1", "overlap": 0.0},
            "pre_ranking": {"model": "logloss", "bid": "init", "size": max(ranked, slots + 1)},
            "ranking": {"model": "rank", "bid": "opt"},
            "slots": slots,
        },
        "auction": _auction(completed(store)),
        "bidding": bidding,
        "models": {
            "rank": {"kind": "coaction", "features": [*SEEN, "G4"], "data": ["log"], "hidden": 32, "dims": 16,
                     "learning_rate": 0.005},
            "logloss": {"features": SEEN, "data": ["log"], "dims": 12, "learning_rate": 0.005},
        },
        "phases": {"cold_start": 20_000, "log": 40_000, "exploration": 0.02, "shadow": 0, "evaluate": 8192},
        "arms": {"production": {}},
    }  # fmt: skip


def _auction(rule: Any) -> dict[str, Any]:
    """The section of the rule that the log's mapping declares; of a log without one, GSP."""
    if rule is None:
        return {"pricing": "gsp"}
    pricing = rule.pricing or "gsp"
    keys = ["squashing", "reserve_cpc", "score_floor", "rounding", "increment"]
    keys += ["rounding_how"] if rule.rounding else []
    keys += ["soft_floor"] if pricing == "soft_floor" else []
    given = {key: getattr(rule, key) for key in keys}
    return {
        "pricing": OTHER_NAMES.get(pricing, pricing),
        **{key: value for key, value in given.items() if value is not None},
    }


def bid_law(sample: Sample) -> dict[str, float]:
    """Median, sigma and, where the highest bids are more than a log-normal law has, the Pareto index.

    sigma comes from the middle half of the bids: a heavy tail would blow up the standard deviation.
    """
    one = np.ones(len(sample))
    if not sample.has("bid") or not len(sample.log_bids[0]):
        return {"median": 1.0, "sigma": 0.35, "tier_share": 0.5}
    logs, at = sample.log_bids
    weight = one[sample.request[at]]
    low, middle, high = (stats.quantile(logs, weight, share) for share in (0.25, 0.5, 0.75))
    sigma = float(np.clip((high - low) / 1.349, 0.01, 3.0))
    law = {"median": round(float(np.exp(middle)), 6), "sigma": round(sigma, 4)}
    tail = stats.tail_index(sample, one)
    normal = 2.0627 / sigma  # Hill's estimate of the top 5 % of a log-normal law: hazard there, over sigma
    if np.isfinite(tail) and tail < 0.9 * normal and tail > 1.0:
        law["tail"] = round(float(max(tail, 1.01, MIN_HAZARD / sigma + 1e-3)), 4)
    spread = stats.bid_spread(sample, one)
    within = stats.spread_within_ad(sample, one)
    # what varies with an ad's own requests is the platform's; an ad's own bid is all that tier may explain
    law["sigma"] = round(
        float(sigma * np.sqrt(max(0.05, 1 - (within / spread) ** 2))) if spread > 0 else sigma, 4
    )
    if "tail" in law:
        law["tail"] = round(float(max(law["tail"], MIN_HAZARD / law["sigma"] + 1e-3)), 4)
    return {**law, "tier_share": 1.0}


def slot_effects(sample: Sample, slots: int) -> np.ndarray:
    """Clicks over predicted clicks by slot against the first, never rising."""
    from scipy.optimize import isotonic_regression

    known = sample.is_shown & (sample.candidates["click"] >= 0)
    known &= sample.candidates["slot"] < slots
    slot = sample.candidates["slot"][known].astype(np.int64)
    clicks = np.bincount(slot, sample.candidates["click"][known] == 1, slots)
    expected = sample.candidates["pctr"][known] if sample.has("pctr") else np.ones(len(slot))
    weight = np.bincount(slot, expected, slots)
    rate = np.divide(clicks, weight, out=np.zeros(slots), where=weight > 0)
    seen = weight > 0
    if not seen.all():  # a slot that was never filled is taken to be as the last that was
        rate[~seen] = rate[seen][-1]
    fitted = isotonic_regression(rate, weights=np.maximum(weight, 1e-9), increasing=False).x
    return np.clip(fitted / max(fitted[0], 1e-12), 1e-3, 1.0)


def visitors(sample: Sample) -> tuple[int, float]:
    """Users and the Zipf exponent of their visits: as many different ones, and as many pairs of one user.

    Expectations of both follow from the law; two equations are solved for the two numbers.
    """
    from scipy.optimize import least_squares

    known = sample.visits >= 0
    if not known.any():
        return 4000, 0.56
    codes = np.unique(sample.requests["user"][known], return_inverse=True)[1]
    counts = np.bincount(codes).astype(np.float64)
    n = int(counts.sum())
    different, pairs = len(counts), float(np.sum(counts * (counts - 1)) / max(n * (n - 1.0), 1.0))
    if different < 2 or pairs <= 0:
        return max(1, 50 * n), 0.0

    def gaps(x: np.ndarray) -> np.ndarray:
        users = int(round(np.exp(x[0])))
        share = np.arange(1, users + 1, dtype=np.float64) ** -x[1]
        share /= share.sum()
        return np.array([
            np.log(-np.expm1(n * np.log1p(-np.minimum(share, 1 - 1e-12))).sum() / different),
            np.log(np.sum(share**2) / pairs),
        ])  # fmt: skip

    start = np.array([np.log(1.5 * different), 0.5])
    bounds = (np.array([np.log(max(2, different)), 0.0]), np.array([np.log(2e6), 3.0]))
    found = least_squares(
        gaps, np.clip(start, bounds[0] + 1e-6, bounds[1] - 1e-6), bounds=bounds, diff_step=0.02
    )
    return int(round(np.exp(found.x[0]))), round(float(found.x[1]), 4)


def daily_wave(sample: Sample) -> dict[str, float] | None:
    """The wave of the CTR over the day: the first harmonic of clicks by hour, if significantly."""
    known = np.flatnonzero(sample.is_shown & (sample.candidates["click"] >= 0))
    if sample.days < 1 or not len(known):
        return None
    hour = (sample.requests["time"] / HOUR % 24)[sample.request[known]]
    y = sample.candidates["click"][known] == 1
    mean = y.mean()
    angle = 2 * np.pi * hour / 24
    parts = np.array([np.mean((y - mean) * np.cos(angle)), np.mean((y - mean) * np.sin(angle))])
    height = 2 * float(np.hypot(*parts)) / (mean * (1 - mean))
    noise = np.sqrt(2 / (len(y) * mean * (1 - mean)))
    if height < 3 * noise:
        return None
    peak = float(np.arctan2(parts[1], parts[0]) * 24 / (2 * np.pi) % 24)
    return {"daily": round(height, 4), "peak_hour": round(peak, 2) % 24}


def conversions(sample: Sample) -> dict[str, Any]:
    """Conversions per click as a base logit, and their delays as a mixture of exponentials."""
    from scipy.special import logit

    found: dict[str, Any] = {"base_logit": -2.2, "weight": 0.0, "pair_noise": 0.0}
    found |= {"anti_correlated_group": None, "anti_correlation": 0.0}
    known = sample.has("click", "conversion")
    rate = stats.conversions_per_click(sample, np.ones(len(sample))) if known else np.nan
    if 0 < rate < 1:
        found["base_logit"] = round(float(logit(rate)), 4)
    if sample.has("conversion_delay"):
        delay = sample.candidates["conversion_delay"].astype(np.float64)
        delay = delay[np.isfinite(delay) & (delay > 0)]
        if len(delay) >= stats.FEWEST:
            means, weights = exponential_mixture(delay)
            window = float(max(2 * delay.max(), 2_592_000.0))
            found["delay"] = {"means": means, "weights": weights, "window": window}
    return found


def exponential_mixture(
    delay: np.ndarray, parts: int = 3, steps: int = 200
) -> tuple[list[float], list[float]]:
    """Means and weights of a mixture of exponentials, by expectation and maximisation."""
    means = np.quantile(delay, (np.arange(parts) + 0.5) / parts) + 1e-9
    means[-1] = max(means[-1], delay.mean())
    weights = np.full(parts, 1 / parts)
    for _ in range(steps):
        likely = weights * np.exp(-delay[:, None] / means) / means
        likely /= np.maximum(likely.sum(1, keepdims=True), 1e-300)
        weights = likely.mean(0)
        means = np.maximum((likely * delay[:, None]).sum(0) / np.maximum(likely.sum(0), 1e-12), 1e-3)
    order = np.argsort(means)
    shown = np.round(weights[order], 4)
    shown[-1] = round(1.0 - shown[:-1].sum(), 4)
    return [round(float(mean), 3) for mean in means[order]], [float(weight) for weight in shown]


def _set_effects(scenario: dict[str, Any], parts: Components, slope: float) -> None:
    """Weights from variances; `slope` turns steps of predictions into steps of clicks."""
    world = scenario["world"]
    variances = {
        "quality": max(0.0, parts.ad - parts.tier), "tier": parts.tier, "user": parts.user,
        "context": parts.request,
    }  # fmt: skip
    effects = {name: round(slope * float(np.sqrt(variance)), 4) for name, variance in variances.items()}
    world["effects"] = {**effects, "tier": parts.sign * effects["tier"]}
    world["groups"] = {
        key: {"dims": DIMS[key], "weight": round(slope * float(np.sqrt(share * parts.pair)), 4)}
        for key, share in GROUPS.items()
    }


def trial(scenario: Mapping[str, Any], seed: int, requests: int = SIMULATED) -> Sample:
    """A sample of a synthetic world, with the best predictions that features allow in its stages.

    `expected` among its columns is the true chance of a click: smooth where drawn clicks are noisy.
    """
    from cascade_sim.cascade.fusion import named_fusion
    from cascade_sim.cascade.serve import Stage
    from cascade_sim.environments.synthetic import Synthetic
    from cascade_sim.scenario.schema import Scenario, resolved_arms
    from cascade_sim.study.simulation import Simulation

    data = {**scenario, "world": {**scenario["world"]}}
    data["world"]["users"] = min(data["world"]["users"], MAX_SIMULATED_USERS)
    data["traffic"] = {**data["traffic"], "block": BLOCK}
    data["phases"] = {"cold_start": 0, "log": 0, "shadow": 0, "evaluate": requests}
    checked = Scenario.model_validate(data)
    sim = Simulation(checked, seed)
    spec = resolved_arms(checked)["production"]
    scorer = BestOfFeatures(Synthetic.of(sim.environment))
    stages = [
        Stage(scorer, section.bid, named_fusion(section.fusion, checked.fusions, spec.auction.squashing))
        for _, section in spec.sections
    ]
    arm = sim.arm_of("production", spec, stages)
    parts = []
    for index in range(-(-requests // BLOCK)):
        block = sim.arrivals.block("evaluate", index, requests)
        parts.append(_columns(sim, block, sim.serve(block, arm), arm, scorer))
    return _sample(sim, parts)


BLOCK = 512


class BestOfFeatures:
    """As a stage model: the CTR with what no feature shows at its mean."""

    name, link, by_pair = "best of features", "sigmoid", True

    def __init__(self, truth: Any) -> None:
        self._truth = truth

    def predict(self, block: Any, ids: np.ndarray) -> np.ndarray:
        return np.where(ids >= 0, self._truth.ctr_without_noise(block, ids), 0.0)


def _columns(sim: Any, block: Any, decision: Any, arm: Any, scorer: BestOfFeatures) -> dict[str, Any]:
    """Candidates of a block, flat, as a store has them."""
    from cascade_sim.cascade.serve import bids

    ids, happened = (
        decision.retrieved,
        sim.environment.outcome(block, decision),
    )
    rows, columns = np.nonzero(ids >= 0)
    slot, ranked = np.full(ids.shape, -1, np.int16), np.zeros(ids.shape, np.int8)
    price, click = np.full(ids.shape, -1, np.int64), np.full(ids.shape, -1, np.int8)
    bought, expected = np.full(ids.shape, -1, np.int8), np.zeros(ids.shape)
    for row in range(len(ids)):
        ranked[row, np.isin(ids[row], decision.competitive_set[row])] = 1
        shown = np.flatnonzero(decision.win_set[row] >= 0)
        at = np.searchsorted(ids[row], decision.win_set[row][shown])
        slot[row, at], price[row, at] = shown, decision.cpc_micros[row][shown]
        click[row, at], bought[row, at] = happened.clicks[row][shown], happened.conversions[row][shown]
        expected[row, at] = happened.expected_clicks[row][shown]
    flat = {
        "ad": ids, "bid": bids(block, ids, arm.last, arm, sim.platform),
        "pctr": scorer.predict(block, ids),
        "stage": np.where(slot >= 0, 2, ranked), "slot": slot, "price_micros": price, "click": click,
        "conversion": bought, "expected": expected,
    }  # fmt: skip
    counts = np.sum(ids >= 0, axis=1)
    requests = {
        "time": block.times, "user": block.users, "slots": np.full(len(block), arm.slots),
    }  # fmt: skip
    return {"candidates": {k: np.asarray(v)[rows, columns] for k, v in flat.items()}, "counts": counts,
            "requests": requests}  # fmt: skip


def _sample(sim: Any, parts: list[dict[str, Any]]) -> Sample:
    from cascade_sim.logs.fidelity.sample import visits_before

    def joined(table: str) -> dict[str, np.ndarray]:
        return {name: np.concatenate([part[table][name] for part in parts]) for name in parts[0][table]}

    requests, counts = joined("requests"), np.concatenate([part["counts"] for part in parts])
    time = requests["time"]
    return Sample(
        name=sim.scenario.name, charging="click", n_requests=len(time), n_ads=sim.world.n_ads,
        requests=requests,
        candidates=joined("candidates"), visits=visits_before(requests["user"]),
        hours=np.bincount((time // HOUR % 24).astype(np.int64), minlength=24),
        days=float(np.ptp(time) / DAY), request=np.repeat(np.arange(len(time)), counts),
        group=np.arange(len(time), dtype=np.uint64),
    )  # fmt: skip


def expected_ctr(sample: Sample) -> float:
    """Of a trial: the mean true chance of a click of what is shown."""
    return float(sample.candidates["expected"][sample.is_shown].mean())


def _through_the_cascade(fit: Fit, sample: Sample, seed: int) -> None:
    """Popularity in retrieval by the candidacies of popular ads, then the base logit by winners' CTR."""
    world, one = fit.scenario["world"], np.ones(len(sample))
    top = stats._top_share(0.1, False)
    share = top(sample, one)

    def candidacies(weight: float) -> float:
        world["popularity"] = weight
        fit.simulations += 1
        made = trial(fit.scenario, seed)
        return float(np.log(top(made, np.ones(len(made))) / share))

    if fit.scenario["cascade"]["retrieval"]["size"] < world["ads"]:
        world["popularity"] = round(_root(candidacies, 0.0, MAX_POPULARITY), 4)
    target = stats.ctr(sample, one)

    def clicks(base: float) -> float:
        world["base_logit"] = base
        fit.simulations += 1
        return float(np.log(expected_ctr(trial(fit.scenario, seed)) / target))

    world["base_logit"] = round(_root(clicks, MIN_LOGIT, MAX_LOGIT), 4)


MAX_POPULARITY = 12.0


def _root(gap: Callable[[float], float], low: float, high: float) -> float:
    """Where a rising gap is 0, within a hundredth of the range's unit; an end where it is nowhere."""
    from scipy.optimize import brentq

    if gap(low) >= 0:
        return low
    if gap(high) <= 0:
        return high
    return float(brentq(gap, low, high, xtol=0.01, rtol=1e-4, maxiter=30))


CALIBRATED = 0.05  # log of clicks over predicted clicks: beyond, the log's predictions are off


def _tell(fit: Fit, sample: Sample, seed: int) -> None:
    """How near each statistic came, on a longer trial, and what the world cannot have."""
    made = trial(fit.scenario, seed, TOLD)
    rows = stats.side_by_side(sample, made, None, 50, seed)
    for row in rows:
        if row["name"] in OF_LENGTH and len(sample) != len(made):
            continue
        gap = row["gap"]["value"]
        row["is_reached"] = abs(gap) <= NEAR or not row["differs"]
        fit.rows.append(row)
    crowded = any(row["name"] == "candidates_top_10" and not row["is_reached"] for row in fit.rows)
    if crowded and fit.scenario["world"]["popularity"] == 0:
        fit.notes.append(
            "Retrieval of a synthetic world brings some ads more often than the log does, even with no "
            "weight on "
            "popularity: candidacies and wins are spread less evenly over ads."
        )
    one = np.ones(len(sample))
    if sample.has("pctr"):
        off = stats.calibration(sample, one) / np.mean(
            fit.scenario["world"]["slot_effects"][: fit.scenario["cascade"]["slots"]]
        )
        if abs(np.log(max(off, 1e-9))) > CALIBRATED:
            fit.notes.append(
                "The log's predictions are not on the scale of its clicks. The world's CTRs are those of the "
                "clicks; its models predict what they learn, so the level of the pCTR is not the log's."
            )
    for name in ("segment", "placement"):
        if name in sample.requests and len(np.unique(sample.requests[name])) > 1:
            fit.notes.append(
                f"A synthetic world has no {name}s: what differs by {name} is spread over users and requests."
            )
    if stats.candidate_spread(sample, one) > 0.1 * stats._count(stats.candidates_of)(sample, one):
        fit.notes.append(
            "Every request of a synthetic world has as many candidates; the log's numbers differ."
        )
    if len(np.unique(sample.requests["slots"])) > 1:
        fit.notes.append("Every page of a synthetic world has as many slots; the log's pages differ.")


TOLD = 4096  # requests of the trial that is told of
OF_LENGTH = ("returning", "top_1", "conversion_delay")


def slope_of(sample: Sample) -> float:
    """How much of a step in the logit of the pCTR is one in that of the clicks; 1: predictions are as steep.

    Logistic regression of clicks on the logit of the pCTR and the slot, by Newton's steps.
    """
    from scipy.special import expit, logit

    pctr = sample.candidates["pctr"].astype(np.float64)
    at = np.flatnonzero(sample.is_shown & (sample.candidates["click"] >= 0) & (pctr > 0) & (pctr < 1))
    slot = sample.candidates["slot"][at].astype(np.int64)
    x = np.column_stack([logit(pctr[at]), slot[:, None] == np.arange(slot.max(initial=0) + 1)[None, :]])
    y, weights = sample.candidates["click"][at] == 1, np.zeros(x.shape[1])
    weights[0] = 1.0
    for _ in range(25):
        p = expit(x @ weights)
        hessian = (x * (p * (1 - p))[:, None]).T @ x + 1e-6 * np.eye(x.shape[1])
        step = np.linalg.solve(hessian, x.T @ (y - p))
        weights += np.clip(step, -2, 2)
        if np.abs(step).max() < 1e-8:
            break
    return float(np.clip(weights[0], 0.3, 1.5))


def fit_table(fit: Fit) -> Any:
    """Log and world by summary statistic."""
    from cascade_sim.analysis.report.tables import Cell, Row, Table
    from cascade_sim.analysis.statistics.estimates import number_text

    rows = []
    for row in fit.rows:
        factor = 100.0 if row["unit"] == "percent" else 1.0
        unit = ", %" if row["unit"] == "percent" else ""
        values = [Cell(number_text(factor * row[side]["value"], 3)) for side in ("log", "world")]
        gap = row["gap"]["value"]
        shown = (
            f"{number_text(100 * gap, 1, signed=True)} %"
            if row["is_relative"]
            else number_text(gap, 3, signed=True)
        )
        rows.append(
            Row(
                f"{row['label']}{unit}",
                [*values, Cell(shown), Cell("" if row["is_reached"] else "not reached")],
            )
        )
    return Table("Gaps by summary statistic", "Summary statistic", ["log", "world", "gap", ""], rows)


def fit_words(fit: Fit) -> list[str]:
    """What was reached, and what the world cannot have."""
    missed = [row["label"] for row in fit.rows if not row["is_reached"]]
    lines = [
        f"{len(fit.rows) - len(missed)} of {len(fit.rows)} summary statistics are within {NEAR:.0%} of "
        "the log's, or "
        f"not distinguished from them; {fit.simulations} simulations.",
        "The world was tried with the best predictions that its features allow in its stages; models that "
        "are trained in a run know a little less.",
    ]
    return [*lines, *fit.notes]


def fitted_yaml(fit: Fit, name: str) -> str:
    """The scenario as a file, with what it is above it."""
    missed = ", ".join(row["label"] for row in fit.rows if not row["is_reached"]) or "none"
    head = [
        f"# A synthetic world with summary statistics of the log {name!r}. No row of the log is in it.",
        f"# Moments that it does not reach: {missed}.",
        *(f"# {note}" for note in fit.notes),
    ]
    return "\n".join(head) + "\n" + yaml_text(fit.scenario)


def yaml_text(data: Mapping[str, Any]) -> str:
    """Sections with a line per key; what is below is in JSON, which is YAML too."""
    import json

    def plain(value: Any) -> str:
        return json.dumps(value, default=float)

    lines = []
    for key, value in data.items():
        if isinstance(value, Mapping) and value:
            lines += [f"{key}:", *(f"  {name}: {plain(inner)}" for name, inner in value.items())]
        else:
            lines.append(f"{key}: {plain(value)}")
    return "\n".join(lines) + "\n"
