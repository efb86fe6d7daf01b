"""How sure the market's lifts are, within one world: paired over its simulated days.

The unit is a day. Hours of a day share its budgets (what is spent in the morning is missing at night) and its
tides, so they say nothing about how another day would go; days begin anew with their budgets. They are still
days of one world, with bidders that learn from day to day: intervals between worlds are the wider truth.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from cascade_sim.analysis.metrics.catalogue import MARKET_MEASURES, Metric, columns_of

HOURS = 24
MIN_DAYS = 5  # below, a t interval over days says next to nothing
RATIOS: dict[str, Metric] = {
    name: MARKET_MEASURES[name]
    for name in (
        *("revenue_per_request", "impressions", "clicks_per_request", "ctr", "cpc", "rpm"),
        *("conversions", "surplus"),
    )
}


def market_lifts(
    arms: Mapping[str, Mapping[str, Any]], baseline: str, measures: Sequence[str] = tuple(RATIOS)
) -> dict[str, dict[str, dict[str, float | None]]]:
    """{arm: {measure: {"value", "low", "high"}}}: each arm's `hours` relative to the baseline's, minus 1.

    The baseline and arms without hours are left out. With MIN_DAYS whole days and more: a 95 % t interval
    from the jackknife over days, both arms losing the same day; otherwise low and high are None.
    """
    base = (arms.get(baseline) or {}).get("hours")
    if not base:
        return {}
    return {
        name: {measure: _lift(arm["hours"], base, RATIOS[measure]) for measure in measures}
        for name, arm in arms.items()
        if name != baseline and arm.get("hours")
    }


def market_contrasts(
    arms: Mapping[str, Mapping[str, Any]], measures: Sequence[str] = ("revenue_per_request",)
) -> dict[str, dict[str, dict[str, dict[str, float | None]]]]:
    """{arm: {rival: {measure: {"value", "low", "high"}}}}: market_lifts over each other arm."""
    against = {rival: market_lifts(arms, rival, measures) for rival in arms}
    return {arm: {rival: lifts[arm] for rival, lifts in against.items() if arm in lifts} for arm in arms}


def _lift(
    own: Mapping[str, Sequence[float]],
    base: Mapping[str, Sequence[float]],
    metric: Metric,
) -> dict[str, float | None]:
    days = [_days(hours, metric) for hours in (own, base)]
    value = _relative(*days)
    if value is None or len(days[0]) != len(days[1]):
        return {"value": value, "low": None, "high": None}
    half = _half_width(days[0], days[1], n_whole=len(own["requests"]) // HOURS)
    return {
        "value": value,
        "low": None if half is None else value - half,
        "high": None if half is None else value + half,
    }


def _days(hours: Mapping[str, Sequence[float]], metric: Metric) -> list[tuple[float, float]]:
    """(numerator, denominator) of each day; the last may be a part of one.

    Without the metric's factor, which no relative difference has.
    """
    days = [slice(start, start + HOURS) for start in range(0, len(hours["requests"]), HOURS)]
    names = columns_of([metric])
    return [metric.split({name: math.fsum(hours[name][day]) for name in names}) for day in days]


def _relative(own: Sequence[tuple[float, float]], base: Sequence[tuple[float, float]]) -> float | None:
    (a, b), (c, d) = ([math.fsum(column) for column in zip(*rows, strict=True)] for rows in (own, base))
    return (a / b) / (c / d) - 1.0 if b and c and d else None


def _half_width(
    own: Sequence[tuple[float, float]], base: Sequence[tuple[float, float]], n_whole: int
) -> float | None:
    """Half the 95 % interval: t(n - 1) * sqrt((n - 1) / n * sum of (l_i - mean l)^2), l_i without day i."""
    from scipy.special import stdtrit  # type: ignore[import-untyped]

    n = len(own)
    if n < MIN_DAYS or n_whole < n:  # a part of a day is no day
        return None
    without = [_relative([*own[:i], *own[i + 1 :]], [*base[:i], *base[i + 1 :]]) for i in range(n)]
    known = [lift for lift in without if lift is not None]
    if len(known) < n:
        return None
    mean = math.fsum(known) / n
    spread = math.sqrt((n - 1) / n * math.fsum((lift - mean) ** 2 for lift in known))
    return float(stdtrit(n - 1, 0.975)) * spread
