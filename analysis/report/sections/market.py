"""The report's section on the market: its tables, and what can be said of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cascade_sim.analysis.metrics.catalogue import Measure
from cascade_sim.analysis.report.cells import Cell, Row, Table, arm_rows, column
from cascade_sim.analysis.report.market_verdict import market_lift
from cascade_sim.analysis.report.sections.market_tables import (
    bidder_kinds,
    bidders_table,
    market_arms,
    market_baseline,
    market_words,
    totals_table,
)
from cascade_sim.analysis.statistics.days import FEWEST_DAYS, HOURS
from cascade_sim.analysis.statistics.estimates import MISSING, NBSP, Estimate, finite, number_text

BINDING = 0.9  # from this share of all budgets on, what is left to spend limits every arm
MOST_DAYS = 31  # rows of the table of days
PERCENT, MONEY, NUMBER = (
    Measure("", "percent", "", 1),
    Measure("", "money", "", digits=4),
    Measure("", "number", "", 0),
)


@dataclass(frozen=True)
class MarketSection:
    """What the report shows of the market."""

    title: str
    arm: str  # whose bidders are shown
    words: str
    about: str
    totals: Table
    bidders: Table
    kinds: Table
    days: Table | None
    delayed: Table | None


def market_section(metrics: Mapping[str, Any]) -> MarketSection | None:
    """The report's section on the market; None for a study without one."""
    arm = market_baseline(metrics)
    if arm is None:
        return None
    days = finite(metrics["market"].get("days")) or 1.0
    return MarketSection(
        "The market day" if days <= 1 else "The market days",
        arm,
        market_words(metrics),
        _about(metrics, days),
        totals_table(metrics),
        bidders_table(metrics),
        kinds_table(metrics),
        days_table(metrics),
        delayed_table(metrics),
    )


def kinds_table(metrics: Mapping[str, Any]) -> Table:
    """How each kind of bidder fared in each arm: wins, bids at the end, what is left of a click's value."""
    arms, kinds = market_arms(metrics), list(bidder_kinds(metrics))
    columns = []
    for of in (_win_rate, _last_bid, _surplus_share):
        for kind in kinds:
            found = [(metrics["market"]["arms"][arm].get("bidders") or {}).get(kind) or {} for arm in arms]
            columns.append(column(PERCENT, [Estimate(of(one)) for one in found]))
    groups = ["Win rate %", "Bid at the end, % of the value", "Surplus, % of the value of clicks"]
    return Table(
        "Bidders by arm",
        "Arm",
        kinds * len(groups),
        arm_rows(metrics, arms, columns),
        [(heading, len(kinds)) for heading in groups],
    )


def _win_rate(kind: Mapping[str, Any]) -> float | None:
    return finite(kind.get("win_rate"))


def _last_bid(kind: Mapping[str, Any]) -> float | None:
    return finite(kind.get("last_multiplier")) if finite(kind.get("advertisers")) else None


def _surplus_share(kind: Mapping[str, Any]) -> float | None:
    surplus, value = finite(kind.get("surplus")), finite(kind.get("click_value"))
    return surplus / value if surplus is not None and value else None


def days_table(metrics: Mapping[str, Any]) -> Table | None:
    """The baseline's whole days, and what each other arm earned against it; None for fewer than two."""
    base = market_baseline(metrics)
    arms = [arm for arm in market_arms(metrics) if arm != base]
    hours = metrics["market"]["arms"][base].get("hours") or {} if base is not None else {}
    n = len(hours.get("requests") or []) // HOURS
    if not 2 <= n <= MOST_DAYS:
        return None

    def sums(arm: str | None, name: str) -> list[float]:
        values = (metrics["market"]["arms"][arm].get("hours") or {}).get(name) or []
        return [sum(finite(x) or 0.0 for x in values[HOURS * d : HOURS * (d + 1)]) for d in range(n)]

    def ratios(above: list[float], below: list[float]) -> list[Estimate]:
        return [Estimate(a / b if b else None) for a, b in zip(above, below, strict=True)]

    requests, revenue = sums(base, "requests"), sums(base, "revenue")
    columns = [
        column(NUMBER, [Estimate(x) for x in requests]),
        column(Measure("", "percent", "", 2), ratios(sums(base, "clicks"), sums(base, "impressions"))),
        column(MONEY, ratios(revenue, sums(base, "charged_clicks"))),
        column(MONEY, [Estimate(x) for x in revenue]),
        column(MONEY, ratios(revenue, requests)),
    ]
    for arm in arms:
        lifts = [
            Estimate(None if one.value is None else one.value - 1.0)
            for one in ratios(sums(arm, "revenue"), revenue)
        ]
        columns.append(column(PERCENT, lifts, signed=True))
    headings = ["Requests", "CTR %", "CPC", "Revenue", "Revenue per request", *arms]
    groups = [(f"{base}", 5), *([("Revenue against it, %", len(arms))] if arms else [])]
    rows = [Row(f"Day {d + 1}", [cells[d] for cells in columns]) for d in range(n)]
    return Table("Days of the market", "Day", headings, rows, groups)


def delayed_table(metrics: Mapping[str, Any]) -> Table | None:
    """What late clicks did to budgets; None where every click is charged at once."""
    arms = market_arms(metrics)
    found = [metrics["market"]["arms"][arm] for arm in arms]
    if not any(finite(one.get("click_delay")) for one in found):
        return None

    def numbers(measure: Measure, key: str) -> list[Cell]:
        return column(measure, [Estimate(finite(one.get(key))) for one in found])

    is_kept = [
        Cell(
            MISSING if finite(one.get("beyond_limit")) is None else "no" if one["beyond_limit"] > 0 else "yes"
        )
        for one in found
    ]
    small = Measure("", "percent", "", 2)
    columns = [
        numbers(NUMBER, "clicks"),
        numbers(NUMBER, "clicks_under_way"),
        numbers(NUMBER, "free_clicks"),
        numbers(MONEY, "given_away"),
        numbers(MONEY, "overspend"),
        numbers(small, "overspend_share"),
        numbers(small, "overspend_limit"),
        is_kept,
    ]
    headings = [
        *("Clicks", "Still under way", "Not paid in full", "Given away", "Overspend"),
        *("Largest overspend, % of a budget", "Declared limit %", "Limit kept"),
    ]
    return Table("Late clicks", "Arm", headings, arm_rows(metrics, arms, columns))


def _about(metrics: Mapping[str, Any], days: float) -> str:
    """How far the totals can be trusted, and whether budgets leave room for any arm to earn more."""
    span = "simulated day" if days == 1 else f"{days:g} simulated days"
    seeds = metrics.get("seeds")
    worlds = f", as means over {seeds.get('n')} worlds" if seeds else " of one world"
    parts = [
        f"Every arm lives through the same {span}{worlds}, with the same budgets and adapting bidders.",
        _about_intervals(metrics, days),
    ]
    used = _budget_used(metrics)
    if used is not None and used >= BINDING:
        parts.append(
            f"With {market_baseline(metrics)}, {number_text(100 * used, 1)}{NBSP}% of all budgets were "
            "spent: no arm can take much more from advertisers with a budget, however well it ranks."
        )
    return " ".join(parts)


def _about_intervals(metrics: Mapping[str, Any], days: float) -> str:
    has_any = any(market_lift(metrics, arm).low is not None for arm in market_arms(metrics))
    if has_any and metrics.get("seeds"):
        return "Intervals of differences are 95 % t intervals between worlds."
    if has_any:
        return (
            f"Intervals of differences are 95 % t intervals over the {days:g} days, each arm held against "
            "the baseline on the same day. They take days as alike and independent, although bidders learn "
            "from day to day and weekends differ, and they hold for this world only."
        )
    if metrics.get("seeds") or days >= FEWEST_DAYS:
        return "These are totals without intervals: small differences may be luck."
    return (
        "These are totals without intervals: small differences may be luck. Hours of a day share its "
        f"budgets, so they give none; {FEWEST_DAYS} simulated days or more, or several worlds (--seeds), do."
    )


def _budget_used(metrics: Mapping[str, Any]) -> float | None:
    """Share of all budgets of the baseline arm that was spent; None without budgets."""
    pairs = [
        (finite(kind.get("budget")) or 0.0, finite(kind.get("spend_of_budget")) or 0.0)
        for kind in bidder_kinds(metrics).values()
    ]
    total = sum(budget for budget, _ in pairs)
    return sum(budget * share for budget, share in pairs) / total if total else None
