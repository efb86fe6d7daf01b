"""Does the market agree with the headline, which rests on fixed bids and unlimited budgets?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cascade_sim.analysis.metrics.catalogue import reference_arms
from cascade_sim.analysis.report.comparisons import revenue_lift
from cascade_sim.analysis.report.guardrails import Change, changes
from cascade_sim.analysis.statistics.estimates import (
    NBSP,
    Estimate,
    estimate,
    finite,
    number_text,
    percent_text,
)

TOLD = 0.005  # without an interval, a lift of less than this is not spoken of as a gain
TOTALS = ("revenue", "clicks", "impressions", "conversions", "surplus")  # compared by request
FADED = 0.5  # less than this share of the evaluation's lift in the market: how much is left is said
PER_REQUEST = {"impressions": "impressions", "clicks_per_request": "clicks", "surplus": "surplus"}


def market_lift(metrics: Mapping[str, Any], arm: str, measure: str = "revenue_per_request") -> Estimate:
    """An arm's lift in the market; without an interval where neither days nor worlds give one."""
    market = metrics.get("market") or {}
    entry = ((market.get("lifts") or {}).get(arm) or {}).get(measure)
    if entry:
        return estimate(entry)
    name = {"revenue_per_request": "revenue", "clicks_per_request": "clicks"}.get(measure, measure)
    arms = market.get("arms") or {}
    sides = [arms.get(side) or {} for side in (arm, metrics["baseline"])]
    own, base = (finite(side.get(name)) for side in sides)
    if own is None or not base:
        return Estimate()
    met, met_by_base = (finite(side.get("requests")) for side in sides)
    if name in TOTALS and met and met_by_base and met != met_by_base:  # as lifts with an interval are
        own *= met_by_base / met
    return Estimate(own / base - 1.0)


def market_contrast(metrics: Mapping[str, Any], arm: str, rival: str) -> Estimate:
    """An arm's revenue per request in the market relative to the rival's, paired over days or worlds."""
    if rival == metrics["baseline"]:
        return market_lift(metrics, arm)
    rivals = ((metrics.get("market") or {}).get("contrasts") or {}).get(arm) or {}
    return estimate((rivals.get(rival) or {}).get("revenue_per_request"))


def under_budgets(metrics: Mapping[str, Any], best: str | None) -> list[str]:
    """What becomes of the headline in the simulated market, where budgets run out and bidders adapt."""
    arms = [arm for arm in (metrics.get("market") or {}).get("arms") or {} if arm in metrics["arms"]]
    references = reference_arms(metrics)
    lifts = {
        arm: market_lift(metrics, arm) for arm in arms if arm != metrics["baseline"] and arm not in references
    }
    known = {arm: lift for arm, lift in lifts.items() if lift.value is not None}
    if not known:
        return []
    gains = [arm for arm in known if is_gain(known[arm])]
    top = max(gains or known, key=lambda arm: (known[arm].value or 0.0, arm))
    if best is None:
        return _better_in_the_market(metrics, top, known[top])
    if best not in known:
        return []
    lines = [_verdict(metrics, best, known[best])]
    # Days are few: an arm that only seems to earn more is no news. A run without contrasts cannot tell.
    gap = market_contrast(metrics, top, best)
    seems_more = (known[top].value or 0.0) > (known[best].value or 0.0)
    is_news = gap.is_above_zero or (gap.low is None and seems_more)
    if top != best and is_gain(known[top]) and is_news:
        lines.append(f"In the market not {best} but {top} earns most: {lift_text(metrics, known[top])}.")
    return lines


def is_denied(metrics: Mapping[str, Any], arm: str) -> bool:
    """Whether the arm lived through a market and has no gain there, whatever the evaluation says of it."""
    lift = market_lift(metrics, arm)
    return lift.value is not None and not is_gain(lift)


def denied_by_the_market(metrics: Mapping[str, Any], arms: Sequence[str]) -> list[str]:
    """For several arms that might be shipped: which of them have no gain in the market."""
    return [_verdict(metrics, arm, market_lift(metrics, arm)) for arm in arms if is_denied(metrics, arm)]


def _better_in_the_market(metrics: Mapping[str, Any], top: str, lift: Estimate) -> list[str]:
    """The headline says that no arm is clearly better; the market may see it otherwise."""
    if not is_gain(lift):
        return []
    own = revenue_lift(metrics, top)
    return [
        "The market simulation disagrees: with budgets and adaptive bidders the lift of "
        f"{top} is {lift_text(metrics, lift)}. In the evaluation (fixed bids, unlimited budgets) it is "
        f"{percent_text(own)}."
    ]


def _verdict(metrics: Mapping[str, Any], best: str, lift: Estimate) -> str:
    if not is_gain(lift):
        is_loss = lift.is_below_zero or (lift.low is None and (lift.value or 0.0) < -TOLD)
        change = "earns less" if is_loss else "has no gain" if lift.low is None else "has no significant gain"
        return (
            f"The market simulation disagrees: with budgets and adaptive bidders {best} {change}, "
            f"{lift_text(metrics, lift)}. The evaluation has fixed bids and unlimited budgets."
        )
    own = revenue_lift(metrics, best).value
    reason = "what advertisers cannot pay for is no revenue"
    if own is not None and own > 0 and lift.value is not None:
        promised = f"{number_text(100 * own, 1, signed=True)}{NBSP}% with fixed bids and unlimited budgets"
        if lift.value > own:
            reason = f"more than the {promised}"
        elif lift.value < FADED * own:
            left = f"{number_text(100 * lift.value / own, 0)}{NBSP}%"
            reason = f"{left} of the {promised}, on which the headline rests"
    return f"In the market with budgets {best} earns {lift_text(metrics, lift)}: {reason}."


def is_gain(lift: Estimate) -> bool:
    """Above zero with its interval; without one, by more than a trifle."""
    return lift.is_above_zero if lift.low is not None else (lift.value or 0.0) > TOLD


def market_changes(metrics: Mapping[str, Any], arm: str) -> list[Change]:
    """The guardrails of an arm in the market, beside the baseline's level by request."""
    return changes(lambda name: market_lift(metrics, arm, name), lambda name: market_level(metrics, name))


def market_level(metrics: Mapping[str, Any], measure: str) -> Estimate:
    """A measure of the baseline in the market; totals are divided by its requests."""
    totals = (metrics["market"].get("arms") or {}).get(metrics["baseline"]) or {}
    value, requests = finite(totals.get(PER_REQUEST.get(measure, measure))), finite(totals.get("requests"))
    if measure in PER_REQUEST and value is not None:
        value = value / requests if requests else None
    return Estimate(value)


def lift_text(metrics: Mapping[str, Any], lift: Estimate) -> str:
    if lift.low is not None:
        return f"{percent_text(lift)} against {metrics['baseline']}"
    percent = None if lift.value is None else 100 * lift.value
    return f"{number_text(percent, 1, signed=True)}{NBSP}% against {metrics['baseline']} (no interval)"
