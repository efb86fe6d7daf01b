"""The market in words and tables: what each arm earned over the simulated days, and how budgets were spent.

Totals of a simulation. Their differences carry intervals only over several days or worlds (market_lifts).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cascade_sim.analysis.metrics.catalogue import Measure
from cascade_sim.analysis.report.figures.market import (
    market_consistency,
    market_hours,
    market_multipliers,
    market_spend,
    market_wins,
)
from cascade_sim.analysis.report.market_verdict import market_lift
from cascade_sim.analysis.report.readings import bidder_kinds, has_budget, market_arms, market_baseline
from cascade_sim.analysis.report.section import Columns, Figure, Part, Section, Text, titled
from cascade_sim.analysis.report.tables import Cell, Row, Table, arm_rows, column, toned
from cascade_sim.analysis.report.text_helpers import clock, listed, percent
from cascade_sim.analysis.statistics.days import HOURS, MIN_DAYS, RATIOS
from cascade_sim.analysis.statistics.estimates import (
    MISSING,
    NBSP,
    Estimate,
    decimals_for,
    finite,
    interval_text,
    number_text,
    scaled,
)

# Spend that is never further than this from the share of traffic is called in step with it; a kind whose
# money is gone with more than this share of the traffic still to come is called exhausted early.
IN_STEP = 0.15
IDLE = 0.5  # below this share of a budget spent, pace says nothing: the budget does not bind
TOTALS: dict[str, Measure] = {
    "requests": Measure("Requests", "number", "", 0),
    "impressions": Measure("Impressions", "number", "", 0),
    "clicks": Measure("Clicks", "number", "", 0),
    "ctr": Measure("CTR", "percent", "", 2),
    "rpm": Measure("RPM", "money", "", digits=4),
    "cpc": Measure("CPC", "money", "", digits=4),
    "revenue": Measure("Revenue", "money", "", digits=4),
    "revenue_per_request": Measure("Revenue per request", "money", "", digits=4),
    "conversions": Measure("Conversions", "number", "", 0),
    "surplus": Measure("Surplus", "money", "", digits=4),
    "overspend": Measure("Overspend", "money", "", is_signed_or_near_zero=True),
}
BIDDER_COLUMNS = (
    *("With a budget", "Budget", "Spent, % of budget"),
    *("Exhausted, %", "Median exhaustion hour", "Max pacing error, pp"),
)
NARROW_COLUMNS = ("with budget", "budget", "spent %", "exhausted %", "at", "pacing error, pp")


def totals_table(metrics: Mapping[str, Any]) -> Table:
    """What each arm earned, and under each number its difference to the baseline's."""
    arms = market_arms(metrics)
    by_arm = metrics["market"]["arms"]
    at = arms.index(market_baseline(metrics) or "")
    columns = []
    for name, measure in TOTALS.items():
        values = [finite(by_arm[arm].get(name)) for arm in arms]
        cells = column(measure, [Estimate(value) for value in values])
        changes = _changes(measure, values, at)
        columns.append(
            [
                Cell(cell.text, lift=change)
                if i == at
                else _compared(metrics, arms[i], name, cell.text, change)
                for i, (cell, change) in enumerate(zip(cells, changes, strict=True))
            ]
        )
    return Table(
        "Totals of the market",
        "Arm",
        [measure.heading for measure in TOTALS.values()],
        arm_rows(metrics, arms, columns, with_changes=True),
    )


def _compared(metrics: Mapping[str, Any], arm: str, name: str, text: str, change: str) -> Cell:
    """A number with its difference; toned and with an interval where days or worlds give one."""
    lift = market_lift(metrics, arm, name) if name in RATIOS else Estimate()
    if lift.low is None:
        return Cell(text, lift=change)
    tone = "up" if lift.is_above_zero else "down" if lift.is_below_zero else ""
    percent = scaled(lift, 100.0)
    difference = f"{number_text(percent.value, 1, signed=True)}{NBSP}%"
    made = Cell(text, difference, tone=tone, lift=interval_text(percent, 1, signed=True))  # a line each
    return toned(made, RATIOS[name])


def _changes(measure: Measure, values: Sequence[float | None], at: int) -> list[str]:
    """Each value against the one at `at`: relative, or absolute where the measure is perfect at zero."""
    base = values[at]
    absolute = measure.is_signed_or_near_zero
    decimals = decimals_for(values, measure.digits)
    texts = []
    for i, value in enumerate(values):
        if i == at or value is None or base is None or (base == 0 and not absolute):
            texts.append("")
        elif value == base:
            texts.append("same")
        elif absolute:
            texts.append(number_text(value - base, decimals, signed=True))
        else:
            texts.append(f"{number_text(100 * (value / base - 1), 1, signed=True)}{NBSP}%")
    return texts


def bidders_table(metrics: Mapping[str, Any], *, narrow: bool = False) -> Table:
    """How each kind of bidder of the baseline arm spent its budgets; `narrow` for a terminal."""
    kinds = bidder_kinds(metrics)
    percent, money = Measure("", "percent", "", 1), Measure("", "money", "")

    def numbers(key: str) -> list[Estimate]:
        return [Estimate(finite(kind.get(key)) if has_budget(kind) else None) for kind in kinds.values()]

    columns = [
        [Cell(_of(kind.get("with_budget"), kind.get("advertisers"))) for kind in kinds.values()],
        column(money, numbers("budget")),
        column(percent, numbers("budget_utilisation")),
        column(percent, numbers("budget_exhausted")),
        [Cell(clock(hour.value)) for hour in numbers("exhaustion_hour")],
        column(percent, numbers("max_pacing_error")),
    ]
    rows = [Row(name, [cells[i] for cells in columns]) for i, name in enumerate(kinds)]
    title = f"Budgets in the market, {market_baseline(metrics)}"
    return Table(
        title, "bidder" if narrow else "Bidder", list(NARROW_COLUMNS if narrow else BIDDER_COLUMNS), rows
    )


def _of(part: Any, whole: Any) -> str:
    """A count and what it is a part of: `74 of 92`."""
    return f"{number_text(finite(part), 0)} of {number_text(finite(whole), 0)}"


def market_words(metrics: Mapping[str, Any]) -> str:
    """One sentence: which kinds of bidders exhausted budgets and when, who stayed on pace, and overspend."""
    arm = market_baseline(metrics)
    kinds = {name: kind for name, kind in bidder_kinds(metrics).items() if has_budget(kind)}
    if arm is None:
        return ""
    early = [name for name, kind in kinds.items() if _is_dry_early(kind)]
    used = {name: finite(kind.get("budget_utilisation")) for name, kind in kinds.items()}
    idle = [name for name, share in used.items() if share is not None and share < IDLE]
    rest = [name for name in kinds if name not in (*early, *idle)]
    steady = [name for name in rest if (finite(kinds[name].get("max_pacing_error")) or 0.0) <= IN_STEP]
    strayed = [name for name in rest if name not in steady]
    parts = []
    if early:
        dry = [f"{name} ({_dry_text(kinds[name], i == 0)})" for i, name in enumerate(early)]
        parts.append(f"{listed(dry)} exhausted their budgets early")
    if idle:
        spent = [f"{name} ({percent(used[name])} spent)" for name in idle]
        parts.append(f"{listed(spent)} left most of their budgets unspent")
    for names, verb in ((steady, "stayed on pace"), (strayed, "went off pace")):
        if names:
            off = [f"{name} ({_gap_text(kinds[name], i == 0)})" for i, name in enumerate(names)]
            parts.append(f"{listed(off)} {verb}")
    if not parts:
        parts.append("no advertiser has a budget")
    over = finite(metrics["market"]["arms"][arm].get("overspend"))
    if kinds and over is not None:
        parts.append(
            f"one advertiser was charged {number_text(over, decimals_for([over]))} beyond its budget, the "
            f"most of all{_within_limit(metrics['market']['arms'][arm])}"
            if over > 0
            else "no advertiser was charged beyond its budget"
        )
    return f"With {arm}, {'; '.join(parts)}."


def _within_limit(arm: Mapping[str, Any]) -> str:
    """Whether overspend stayed within what the scenario declares; empty where it declares nothing."""
    limit, beyond = finite(arm.get("overspend_limit")), finite(arm.get("beyond_limit"))
    if not limit or beyond is None:
        return ""
    declared = f"the declared {number_text(100 * limit, 1).removesuffix('.0')}{NBSP}% of a budget"
    return f", beyond {declared}" if beyond > 0 else f", within {declared}"


def _is_dry_early(kind: Mapping[str, Any]) -> bool:
    """Whether most budgets were exhausted, half of those with much of the day's traffic still to come."""
    hour = finite(kind.get("exhaustion_hour"))
    if hour is None or (finite(kind.get("budget_exhausted")) or 0.0) < 0.5:
        return False
    curve = kind.get("curve") or {}
    passed = zip(curve.get("hour") or [], curve.get("traffic_share") or [], strict=False)
    share = max((traffic for at, traffic in passed if at <= min(hour, 24.0)), default=0.0)
    return share < 1 - IN_STEP


def _dry_text(kind: Mapping[str, Any], is_first: bool) -> str:
    share = number_text(100 * (finite(kind.get("budget_exhausted")) or 0.0), 0)
    whose = " of its advertisers, half of those by " if is_first else ", by "
    return f"{share}{NBSP}%{whose}{clock(finite(kind.get('exhaustion_hour')))}"


def _gap_text(kind: Mapping[str, Any], is_first: bool) -> str:
    gap = finite(kind.get("max_pacing_error"))
    points = number_text(None if gap is None else 100 * gap, 1)
    return f"max pacing error {points}{NBSP}pp" if is_first else f"{points}{NBSP}pp"


ABOUT_TOTALS = (
    "In the table, under each number: its difference to {arm}. Surplus is what the clicks were worth to "
    "advertisers, at the bids they began with, less what they paid. Overspend is the most that any "
    "advertiser was charged beyond its budget on a day."
)
ABOUT_KINDS = (
    "“Bid at the end” is the mean over the last tenth of the bidders' updates, relative to the value of a "
    "click. Shading bidders try a lower bid half of the time to learn what it does: by default 15 % lower, "
    "so 92.5 % is no shading. Surplus is the share of the clicks' value that bidders kept; who bids the "
    "value and pays the bid keeps nothing."
)
ABOUT_DELAYED = (
    "Clicks reach the ledger some time after their page, so an advertiser may be shown and clicked beyond "
    "its budget. The excess is charged up to the declared limit of a day; what lies beyond is unbilled. "
    "“Pending” are clicks that had not arrived when the simulation ended."
)
ABOUT_BUDGETS = (
    "“Exhausted” counts the advertisers whose budget was used up before a day was over, and “median "
    "exhaustion hour” is when half of those had nothing left. “Max pacing error” is the largest gap between "
    "the share of the budget spent and the share of the day's traffic passed, in percentage points."
)
HOURS_FIGURE = Figure(
    "market_hours",
    market_hours,
    "Revenue, CPC and requests by hour, by arm",
    "Revenue, price of a click and requests over time.",
)
CONSISTENCY_FIGURE = Figure(
    "market_consistency",
    market_consistency,
    "Ranking consistency of live requests over time, by arm",
    "RCS as it is lived: of what the deployed ranker would have shown from the whole pre-ranking set, the "
    "share that pre-ranking let through, on the requests that an online simulator sees too, with 95 % bands.",
)
BUDGET_FIGURES = (
    Figure(
        "market_spend",
        market_spend,
        "Share of the budget spent over the day, by kind of bidder",
        "Share of the day's budget spent and of the day's traffic passed (dashed): where they meet, money "
        "lasts as long as the traffic. Thin lines: single advertisers of median budget. Smoothest first.",
    ),
    Figure(
        "market_multipliers",
        market_multipliers,
        "Mean bid relative to the starting bid, by kind of bidder and arm",
        "Mean bid of each kind's ads relative to the bid they started with (dashed: unchanged), by arm. "
        "Bidders that throttle skip requests (dotted) and leave bids alone.",
    ),
)
BINDING = 0.9  # from this share of all budgets on, what is left to spend limits every arm
MAX_DAYS = 31  # rows of the table of days
PERCENT, MONEY, NUMBER = (
    Measure("", "percent", "", 1),
    Measure("", "money", "", digits=4),
    Measure("", "number", "", 0),
)


def _is_watched(metrics: Mapping[str, Any]) -> bool:
    """Whether an online simulator saw some of the requests of any arm."""
    return any(section.get("consistency") for section in metrics["market"]["arms"].values())


def market_section(metrics: Mapping[str, Any]) -> Section | None:
    """The report's section on the market; None for a study without one."""
    arm = market_baseline(metrics)
    if arm is None:
        return None
    days = finite(metrics["market"].get("days")) or 1.0
    return Section(
        "market",
        "The market day" if days <= 1 else "The market days",
        (market_words(metrics),),
        (
            *titled(
                "What each arm earned",
                totals_table(metrics),
                Text(ABOUT_TOTALS.format(arm=arm), "small"),
                Text(_about(metrics, days)),
            ),
            *titled("Day by day", days_table(metrics)),
            *titled("Who won, and what it was worth", kinds_table(metrics), Text(ABOUT_KINDS, "small")),
            Columns((HOURS_FIGURE, _wins_figure(arm))),
            CONSISTENCY_FIGURE if _is_watched(metrics) else None,
            *titled("Delayed clicks", delayed_table(metrics), Text(ABOUT_DELAYED, "small")),
            *_budgets(metrics, arm),
            Columns(BUDGET_FIGURES),
        ),
    )


def _budgets(metrics: Mapping[str, Any], arm: str) -> list[Part]:
    """How budgets were spent, where any advertiser has one."""
    if not any(has_budget(kind) for kind in bidder_kinds(metrics).values()):
        return []
    return titled(f"How budgets were spent, {arm}", bidders_table(metrics), Text(ABOUT_BUDGETS, "small"))


def _wins_figure(arm: str) -> Figure:
    return Figure(
        "market_wins",
        market_wins,
        "Impressions won per request taken part in, by hour and kind of bidder",
        f"Win rate by hour, {arm}: impressions won in auctions per request in which an advertiser had an ad "
        "in the auction and money left. An advertiser with two ads on a page wins two.",
    )


def kinds_table(metrics: Mapping[str, Any]) -> Table:
    """How each kind of bidder fared in each arm: wins, bids at the end, what is left of a click's value."""
    arms, kinds = market_arms(metrics), list(bidder_kinds(metrics))
    columns = []
    for of in (_win_rate, _last_bid, _surplus_share):
        for kind in kinds:
            bidders = [(metrics["market"]["arms"][arm].get("bidders") or {}).get(kind) or {} for arm in arms]
            columns.append(column(PERCENT, [Estimate(of(bidder)) for bidder in bidders]))
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
    if not 2 <= n <= MAX_DAYS:
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
            Estimate(None if ratio.value is None else ratio.value - 1.0)
            for ratio in ratios(sums(arm, "revenue"), revenue)
        ]
        columns.append(column(PERCENT, lifts, signed=True))
    headings = ["Requests", "CTR %", "CPC", "Revenue", "Revenue per request", *arms]
    groups = [(f"{base}", 5), *([("Revenue against it, %", len(arms))] if arms else [])]
    rows = [Row(f"Day {d + 1}", [cells[d] for cells in columns]) for d in range(n)]
    return Table("Days of the market", "Day", headings, rows, groups)


def delayed_table(metrics: Mapping[str, Any]) -> Table | None:
    """What late clicks did to budgets; None where every click is charged at once."""
    arms = market_arms(metrics)
    totals = [metrics["market"]["arms"][arm] for arm in arms]
    if not any(finite(total.get("click_delay")) for total in totals):
        return None

    def numbers(measure: Measure, key: str) -> list[Cell]:
        return column(measure, [Estimate(finite(total.get(key))) for total in totals])

    is_kept = [
        Cell(
            MISSING
            if finite(total.get("beyond_limit")) is None
            else "no"
            if total["beyond_limit"] > 0
            else "yes"
        )
        for total in totals
    ]
    small = Measure("", "percent", "", 2)
    columns = [
        numbers(NUMBER, "clicks"),
        numbers(NUMBER, "pending_clicks"),
        numbers(NUMBER, "unbilled_clicks"),
        numbers(MONEY, "unbilled_revenue"),
        numbers(MONEY, "overspend"),
        numbers(small, "overspend_share"),
        numbers(small, "overspend_limit"),
        is_kept,
    ]
    headings = [
        *("Clicks", "Pending clicks", "Unbilled clicks", "Unbilled revenue", "Overspend"),
        *("Largest overspend, % of a budget", "Declared limit %", "Limit kept"),
    ]
    return Table("Delayed clicks", "Arm", headings, arm_rows(metrics, arms, columns))


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
            f"Intervals of differences are 95 % t intervals over the {days:g} days, each arm compared with "
            "the baseline on the same day. They take days as alike and independent, although bidders learn "
            "from day to day and weekends differ, and they hold for this world only."
        )
    if metrics.get("seeds") or days >= MIN_DAYS:
        return "These are totals without intervals: small differences may be noise."
    return (
        "These are totals without intervals: small differences may be noise. Hours of a day share its "
        f"budgets, so they give none; {MIN_DAYS} simulated days or more, or several worlds (`--seeds`), do."
    )


def _budget_used(metrics: Mapping[str, Any]) -> float | None:
    """Share of all budgets of the baseline arm that was spent; None without budgets."""
    pairs = [
        (finite(kind.get("budget")) or 0.0, finite(kind.get("budget_utilisation")) or 0.0)
        for kind in bidder_kinds(metrics).values()
    ]
    total = sum(budget for budget, _ in pairs)
    return sum(budget * share for budget, share in pairs) / total if total else None
