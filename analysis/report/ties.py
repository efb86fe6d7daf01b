"""Arms that do not differ significantly, and what would decide: their cost, the market, or more data.

Two arms differ by their paired contrast (the same requests, or the same worlds), never by whether
their intervals against the baseline overlap. The leader is chosen alone only if it is ahead of every other
arm that could be shipped: all of these comparisons must hold at once, so none need be adjusted for the
others. How much more data it would take assumes that the difference is what it seems.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from cascade_sim.analysis.report.comparisons import contrast, revenue_lift
from cascade_sim.analysis.report.market_verdict import market_contrast, market_lift
from cascade_sim.analysis.report.readings import compute_arms, market_value
from cascade_sim.analysis.report.text_helpers import listed
from cascade_sim.analysis.statistics.estimates import (
    NBSP,
    Estimate,
    decimals_for,
    finite,
    number_text,
    percent_text,
    t_quantile,
)

POWER = 0.8  # of the studies with so much data tell a difference as large as the one seen
MAX_SEEDS = 200  # beyond, a study is not practical
MAX_TIMES = 100  # as many requests
LARGE_SAMPLE = 1_000_000  # degrees of freedom of a t distribution that is a normal one


def tied_with(metrics: Mapping[str, Any], leader: str, arms: Sequence[str]) -> list[str]:
    """The leader, and those of the arms that it is not clearly ahead of."""
    return [arm for arm in arms if arm == leader or not is_ahead(metrics, leader, arm)]


def is_ahead(metrics: Mapping[str, Any], arm: str, rival: str) -> bool:
    """Whether the paired contrast lies above zero.

    In a run without contrasts only intervals that do not meet tell two arms apart: paired on the same
    requests they would differ significantly all the more.
    """
    paired = contrast(metrics, arm, rival)
    if paired.value is not None:
        return paired.is_above_zero
    low, high = revenue_lift(metrics, arm).low, revenue_lift(metrics, rival).high
    return low is not None and high is not None and low > high


def tie_breakers(metrics: Mapping[str, Any], tied: Sequence[str]) -> list[str]:
    """Sentences for arms that could all be shipped, the leader first."""
    gaps = [contrast(metrics, tied[0], arm) for arm in tied[1:]]
    return [*_cost(metrics, tied), *_market(metrics, tied), *more_data(metrics, gaps)]


def _cost(metrics: Mapping[str, Any], tied: Sequence[str]) -> list[str]:
    """What the arms cost, where that differs: milliseconds of servers, else ads that ranking must score."""
    if set(tied) <= set(compute_arms(metrics) if metrics.get("market") else []):
        unit = "ms of servers per request"
        costs = {arm: market_value(metrics, arm, ("compute", "server_ms_per_request")) for arm in tied}
    else:
        unit = "ads per request for ranking to score"
        funnel = metrics.get("funnel") or {}
        costs = {arm: finite((funnel.get(arm) or {}).get("competitive_set")) for arm in tied}
    known = {arm: cost for arm, cost in costs.items() if cost is not None}
    decimals = decimals_for(known.values())
    told = {arm: number_text(cost, decimals) for arm, cost in known.items()}
    if len(known) < len(tied) or len(set(told.values())) < 2:
        return ["Their cost may decide: take the one that is cheaper to train and to serve."]
    cheapest = min(known, key=lambda arm: known[arm])
    others = [f"{told[arm]} with {arm}" for arm in tied if arm != cheapest]
    return [f"Their cost may decide: {told[cheapest]} {unit} with {cheapest}, {listed(others)}."]


def _market(metrics: Mapping[str, Any], tied: Sequence[str]) -> list[str]:
    """Whether the market with budgets tells the leader there from the others."""
    lifts = {arm: market_lift(metrics, arm) for arm in tied}
    if any(lift.value is None for lift in lifts.values()):
        return []
    first = max(tied, key=lambda arm: lifts[arm].value or 0.0)
    gaps = {arm: market_contrast(metrics, first, arm) for arm in tied if arm != first}
    told = [f"{arm} ({percent_text(gap)})" for arm, gap in gaps.items()]
    if all(gap.is_above_zero for gap in gaps.values()):
        return [f"The market with budgets does decide: there {first} is ahead of {listed(told)}."]
    if any(gap.low is None for gap in gaps.values()):
        return []
    return [f"The market with budgets does not decide: {first}, first there, contradicts {listed(told)}."]


def more_data(metrics: Mapping[str, Any], gaps: Sequence[Estimate]) -> list[str]:
    """How many seeds, or requests of this world, would tell differences as large as these from zero."""
    if not gaps or any(gap.value is None or gap.low is None for gap in gaps):
        return []
    which = "a difference as small as this" if len(gaps) == 1 else "differences as small as these"
    seeds = metrics.get("seeds")
    if seeds:
        needed = [seeds_needed(gap) for gap in gaps]
        known = [n for n in needed if n is not None]
        if len(known) < len(needed):
            return [f"More data will hardly decide: {which} would take more than {MAX_SEEDS} seeds."]
        most = number_text(max(*known, seeds["n"] + 1), 0)
        return [
            f"About {most} seeds, against {seeds['n']} here, would tell {which} in "
            f"{number_text(100 * POWER, 0)}{NBSP}% of such studies (--seeds)."
        ]
    times, requests = max(times_needed(gap) for gap in gaps), finite(metrics.get("requests"))
    if times > MAX_TIMES or requests is None:
        where = "market" if metrics.get("replay") else "world"
        return [
            f"More data of this {where} will hardly decide: {which} would take more than {MAX_TIMES} times "
            "as many requests."
        ]
    n, share = number_text(_rounded_up(times * requests), 0), f"{number_text(100 * POWER, 0)}{NBSP}%"
    if metrics.get("replay"):
        return [
            f"A log of about {n} requests, against {number_text(requests, 0)} here, would tell {which} in "
            f"{share} of such logs."
        ]
    return [
        f"About {n} requests (phases.evaluate), against {number_text(requests, 0)} here, would tell {which} "
        f"in this world in {share} of such studies; how many seeds, only a run over several says."
    ]


def seeds_needed(gap: Estimate) -> int | None:
    """The fewest worlds n with (t(97.5 %) + t(POWER)) sd / √n <= |difference|; None beyond MAX_SEEDS."""
    if gap.sd is None or gap.value is None:
        return None
    for n in range(2, MAX_SEEDS + 1):
        quantiles = t_quantile(0.975, n - 1) + t_quantile(POWER, n - 1)
        if quantiles * gap.sd <= abs(gap.value) * math.sqrt(n):
            return n
    return None


def times_needed(gap: Estimate) -> float:
    """How many times as many requests; variances fall as their number rises."""
    if not gap.value or gap.low is None or gap.high is None:
        return math.inf
    limit = t_quantile(0.975, LARGE_SAMPLE)
    standard_error = (gap.high - gap.low) / (2 * limit)
    return max(1.0, ((limit + t_quantile(POWER, LARGE_SAMPLE)) * standard_error / gap.value) ** 2)


def _rounded_up(number: float) -> float:
    """To two digits: more would claim too much."""
    unit = 10.0 ** (math.floor(math.log10(number)) - 1)
    return math.ceil(number / unit) * unit
