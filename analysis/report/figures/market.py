"""Figures of the market's bidders: spend over the day, and what they do to their bids.

Figures of the market by hour: revenue, prices and requests of each arm, and win rates of bidders.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cascade_sim.analysis.report.figures.parts import small_multiples
from cascade_sim.analysis.report.figures.style import (
    COLORS,
    INK,
    LEAST,
    QUIET,
    arm_colors,
    bare,
    blank,
    label,
    mark_legend,
    of_arms,
    short,
)
from cascade_sim.analysis.report.readings import bidder_kinds, has_budget, market_arms
from cascade_sim.analysis.report.text_helpers import clock
from cascade_sim.analysis.statistics.estimates import estimate, finite, number_text

DAY = 24
PER_LINE = 600  # points of a line; more would not be seen and make the page heavy
REFERENCE: dict[str, Any] = {"color": QUIET, "linewidth": 1.0, "linestyle": (0, (4, 3)), "zorder": 2}
TAKING_PART: dict[str, Any] = {"color": QUIET, "linewidth": 1.4, "linestyle": (0, (1.2, 1.2))}
SINGLE_WIDTH = 0.7
LINES = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (5, 1.5, 1.2, 1.5)))


def kind_colors(metrics: Mapping[str, Any]) -> dict[str, str]:
    """One colour per kind of bidder, by name, the same in every figure."""
    return {name: COLORS[i % len(COLORS)] for i, name in enumerate(sorted(bidder_kinds(metrics)))}


def arm_lines(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """A line style per arm of the market, the same in every figure."""
    return {arm: LINES[i % len(LINES)] for i, arm in enumerate(market_arms(metrics))}


def market_spend(metrics: Mapping[str, Any]) -> Any | None:
    """A panel per kind with budgets: share of the budget spent, and dashed the share of traffic passed.

    Thick: all budgets of the kind together. Shaded: from the 10th to the 90th percentile of its advertisers.
    Thin: single advertisers of median budget (not in a mean over worlds, where there is no such advertiser).
    """
    panels = {}
    for name, kind in bidder_kinds(metrics).items():
        points = _points(kind.get("curve"), "traffic_share", "spend_share") if has_budget(kind) else []
        if points:
            panels[name] = (kind, points)
    if not panels:
        return None
    colors = kind_colors(metrics)
    end = max(points[-1][0] for _, points in panels.values())
    figure, grid = _by_the_hour(len(panels), end, legend_rows=3)
    has_spread = False
    for axes, (name, (kind, points)) in zip(grid, panels.items(), strict=False):
        hours, traffic, spend = _daily_lines(points)
        has_advertisers = _advertisers(axes, kind, colors[name], not metrics.get("seeds"))
        has_spread |= has_advertisers
        axes.plot(hours, [100 * x for x in traffic], **REFERENCE)
        axes.plot(hours, [100 * x for x in spend], color=colors[name], linewidth=1.8, zorder=3)
        axes.set_title(short(name, 24), loc="left", color=colors[name], fontweight="bold")
        if end <= DAY and not has_advertisers:  # otherwise no corner is free
            _note(axes, kind)
    grid[0].set_ylim(0, 104)
    grid[0].set_yticks(range(0, 101, 25))
    figure.supylabel("spent, % of the day's budget", fontsize=8.5, color=INK)
    looks: dict[str, Mapping[str, Any]] = {"share of traffic passed": REFERENCE}
    if has_spread:
        looks["all budgets"] = {"color": INK, "linewidth": 1.8}
        looks["10 to 90 % of advertisers"] = {"color": "#C9CFD6", "linewidth": 7}
        if not metrics.get("seeds"):
            looks["one advertiser"] = {"color": INK, "linewidth": SINGLE_WIDTH}
    legend(figure, looks)
    return figure


def _advertisers(axes: Any, kind: Mapping[str, Any], color: str, with_single: bool) -> bool:
    """The spread over a kind's advertisers and a few of them; False where the study holds neither."""
    curve = (kind.get("curve") or {}).get("advertisers") or {}
    points = _points(curve, "low", "high")
    if not points:
        return False
    hours, low, high = _daily_lines(points)
    band = {"color": color, "alpha": 0.16, "linewidth": 0, "zorder": 1.6}
    axes.fill_between(hours, [100 * x for x in low], [100 * x for x in high], **band)
    for advertiser in curve.get("single") or [] if with_single else []:
        shares = _points({"hour": curve["hour"], "share": advertiser.get("share")}, "share")
        if shares:
            hours, _, share = _daily_lines([(hour, 0.0, value) for hour, value in shares])
            look = {"color": color, "linewidth": SINGLE_WIDTH, "alpha": 0.8, "zorder": 2.5}
            axes.plot(hours, [100 * x for x in share], **look)
    return True


def _note(axes: Any, kind: Mapping[str, Any]) -> None:
    """The panel's numbers in its lower right corner, which both curves leave free late in the day."""
    lines = []
    gap, hour = finite(kind.get("max_pacing_error")), finite(kind.get("exhaustion_hour"))
    if gap is not None:
        lines.append(f"gap {number_text(100 * gap, 1)}")
    if hour is not None:
        lines.append(f"dry {clock(hour)}")
    at = {"transform": axes.transAxes, "ha": "right", "va": "bottom"}
    axes.text(0.97, 0.05, "\n".join(lines), color=QUIET, fontsize=LEAST, **at)


def market_multipliers(metrics: Mapping[str, Any]) -> Any | None:
    """A panel per kind that has advertisers: mean bid of its ads relative to the bid they started with.

    A line per arm, the baseline's thick and first. Grey and dotted, where it is below 1: the share of
    requests that the baseline's advertisers take part in.
    """
    styles = arm_lines(metrics)
    arms = sorted(styles, key=lambda arm: arm != metrics["baseline"])
    kinds = [name for name, kind in bidder_kinds(metrics).items() if finite(kind.get("advertisers"))]
    panels: dict[str, dict[str, list[tuple[float, ...]]]] = {}
    for name in kinds:
        curves = {arm: _points(_curve(metrics, arm, name), "multiplier") for arm in arms}
        limit = max(100, PER_LINE // max(1, len(arms)))
        panels[name] = {arm: _thinned(points, limit) for arm, points in curves.items() if points}
    panels = {name: curves for name, curves in panels.items() if curves}
    if not panels:
        return None
    colors = arm_colors(metrics)
    end = max(points[-1][0] for curves in panels.values() for points in curves.values())
    figure, grid = _by_the_hour(len(panels), end, legend_rows=math.ceil(len(arms) / 3))
    looks: dict[str, Mapping[str, Any]] = {}
    top, low = 1.0, 1.0
    for axes, (name, curves) in zip(grid, panels.items(), strict=False):
        axes.axhline(1.0, **REFERENCE)
        for i, (arm, points) in enumerate(curves.items()):
            look = {"color": colors[arm], "linestyle": styles[arm], "linewidth": 1.1 if i else 1.8}
            with of_arms(axes, arm):
                axes.plot(*zip(*points, strict=True), zorder=2.9 if i else 3, **look)
            looks.setdefault(arm, look)
            top, low = max(top, *(y for _, y in points)), min(low, *(y for _, y in points))
        share = _thinned(_points(_curve(metrics, arms[0], name), "participation"))
        if share and min(y for _, y in share) < 1:
            axes.plot(*zip(*share, strict=True), zorder=2.8, **TAKING_PART)
            looks["share of requests taken part in"] = TAKING_PART
            low = min(low, *(y for _, y in share))
        axes.set_title(short(name, 24), loc="left", color=INK, fontweight="bold")
    bottom = 0.5 if low > 0.5 else 0.0  # where bids move little, let it be seen
    grid[0].set_ylim(bottom, top + 0.08 * (top - bottom))
    figure.supylabel("mean bid relative to the start", fontsize=8.5, color=INK)
    if len(looks) > 1:
        legend(figure, looks, arms)
    return figure


def _curve(metrics: Mapping[str, Any], arm: str, kind: str) -> Mapping[str, Any]:
    bidder = (metrics["market"]["arms"][arm].get("bidders") or {}).get(kind) or {}
    return bidder.get("curve") or {}


def _points(curve: Mapping[str, Any] | None, *names: str) -> list[tuple[float, ...]]:
    """(hour, value of each name) at every update where all are numbers."""
    rows = zip(*((curve or {}).get(name) or [] for name in ("hour", *names)), strict=False)
    numbers = (tuple(finite(value) for value in row) for row in rows)
    return [row for row in numbers if None not in row]  # type: ignore[misc]


def _thinned(points: Sequence[tuple[float, ...]], limit: int = PER_LINE) -> list[tuple[float, ...]]:
    """Every so-manieth point, and always the last."""
    step = max(1, math.ceil(len(points) / limit))
    return [*points[: len(points) - 1 : step], points[-1]]


def _days(points: Sequence[tuple[float, ...]]) -> Iterator[tuple[float, list[tuple[float, ...]]]]:
    """(midnight it began at, points) of each day; a point at midnight belongs to the day that ends."""
    start = 0
    while start < len(points):
        day = math.ceil(points[start][0] / DAY) - 1
        stop = start
        while stop < len(points) and points[stop][0] <= DAY * (day + 1):
            stop += 1
        yield DAY * day, list(points[start:stop])
        start = stop


def _daily_lines(points: Sequence[tuple[float, ...]]) -> tuple[list[float], list[float], list[float]]:
    """Hours, traffic and spend, each day from zero at midnight, with a gap in the line between days."""
    days = list(_days(points))
    rows: list[tuple[float, ...]] = []
    for midnight, day in days:
        if rows:
            rows.append((midnight, math.nan, math.nan))
        rows += [(midnight, 0.0, 0.0), *_thinned(day, max(2, PER_LINE // len(days)))]
    hours, traffic, spend = (list(values) for values in zip(*rows, strict=True))
    return hours, traffic, spend


def _by_the_hour(n: int, end: float, legend_rows: int = 1) -> tuple[Any, list[Any]]:
    """`n` panels in two columns over the hours; the figure, and the panels in reading order."""
    figure, panels = small_multiples(n, 2, lambda rows: 0.6 + 1.3 * rows + 0.17 * legend_rows)
    for axes in panels[(n - 1) // 2 * 2 :]:  # the lowest row; a name in a higher row would push rows apart
        axes.set_xlabel("hour")
    time_axis(panels, end)
    return figure, panels


def time_axis(panels: Sequence[Any], end: float) -> None:
    """Hours that run on over the days, with a line at every midnight in between."""
    for axes in panels:
        axes.set_xlim(0, end)
        for i in range(1, math.ceil(end / DAY)):
            axes.axvline(DAY * i, color="#9AA5B1", linewidth=0.8, zorder=1.5)
    step = next((s for s in (1, 2, 3, 6, 12) if end / s <= 5), 0) or DAY * math.ceil(end / DAY / 5)
    panels[0].set_xticks([step * i for i in range(int(end / step + 1e-9) + 1)])


def legend_columns(names: Sequence[str]) -> int:
    """So many names as fit the width."""
    longest = max(map(len, names), default=1)
    return max(1, min(len(names), 62 // (longest + 7)))


def legend_room(names: Sequence[str]) -> float:
    """Inches for the rows of names beyond two: of many arms they would leave no room for the plot."""
    return 0.17 * max(0, math.ceil(len(names) / legend_columns(names)) - 2)


def legend(figure: Any, looks: Mapping[str, Mapping[str, Any]], arms: Sequence[str] = ()) -> None:
    """Names under the plot, in rows that fit the width; `arms`: those that are names of arms."""
    from matplotlib.lines import Line2D

    shown = {name: {k: v for k, v in look.items() if k != "zorder"} for name, look in looks.items()}
    made = figure.legend(
        [Line2D([], [], **look) for look in shown.values()],
        [label(name) for name in shown],
        loc="outside lower center",
        ncols=legend_columns(list(shown)),
        handlelength=2.4,
        columnspacing=1.4,
    )
    mark_legend(made, list(shown), arms)


HOURLY_DAYS = 14  # a longer market is drawn day by day
FEW = 20  # requests or clicks of an hour below which a ratio is left out: it would be noise


def market_hours(metrics: Mapping[str, Any]) -> Any | None:
    """Revenue per hour of each arm; below, its CPC, and requests, as one line where all arms had the same."""
    arms = [arm for arm in market_arms(metrics) if _hours(metrics, arm, "requests")]
    arms = [arm for arm in arms if _hours(metrics, arm, "revenue")]
    if not arms:
        return None
    n_hours = max(len(_hours(metrics, arm, "requests")) for arm in arms)
    step = 1 if n_hours <= HOURLY_DAYS * DAY else DAY
    per = "hour" if step == 1 else "day"
    looks = _looks(metrics, arms)
    has_prices = any(_prices(metrics, arm, step) for arm in arms)
    ratios = (3, 2, 2) if has_prices else (3, 2)
    figure, panels = blank(
        5.2 if has_prices else 3.9, nrows=len(ratios), sharex=True, gridspec_kw={"height_ratios": ratios}
    )
    for axes in panels:
        bare(axes, grid="y")
    for arm in arms:
        with of_arms(panels[0], arm):
            _steps(panels[0], _summed(_hours(metrics, arm, "revenue"), step), step, n_hours, looks[arm])
        if has_prices:
            with of_arms(panels[1], arm):
                _steps(panels[1], _prices(metrics, arm, step), step, n_hours, looks[arm])
    panels[0].set_title(f"Revenue per {per}", loc="left", color=INK)
    if has_prices:
        panels[1].set_title(f"CPC: revenue per click, by {per}", loc="left", color=INK)
    _requests(panels[-1], metrics, arms, step, per, looks)
    for axes in panels:
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    time_axis(panels, float(n_hours))
    panels[-1].set_xlabel("hour")
    legend(figure, looks, arms)
    return figure


def market_consistency(metrics: Mapping[str, Any]) -> Any | None:
    """RCS of the watched requests by hour, or by day of a long market, a line per arm and its 95 % band."""
    lived = {arm: metrics["market"]["arms"][arm].get("consistency") or {} for arm in market_arms(metrics)}
    lived = {arm: watched for arm, watched in lived.items() if watched.get("hours")}
    if not lived:
        return None
    n_hours = max(len(watched["hours"]) for watched in lived.values())
    part, step = ("hours", 1) if n_hours <= HOURLY_DAYS * DAY else ("days", DAY)
    figure, axes = blank(2.9 + legend_room(list(lived)))
    bare(axes, grid="y")
    looks = _looks(metrics, list(lived))
    for arm, watched in lived.items():
        points = [((i + 0.5) * step, estimate(entry)) for i, entry in enumerate(watched[part])]
        known = [(x, p.value, p.low, p.high) for x, p in points if p.value is not None]
        hours, values, low, high = zip(*known, strict=True) if known else ((), (), (), ())
        with of_arms(axes, arm):
            axes.plot(hours, [100 * (value or 0.0) for value in values], zorder=3, **looks[arm])
            axes.fill_between(
                hours,
                [100 * (v if x is None else x) for v, x in zip(values, low, strict=True)],
                [100 * (v if x is None else x) for v, x in zip(values, high, strict=True)],
                color=looks[arm]["color"],
                alpha=0.15,
                linewidth=0,
                zorder=2,
            )
    axes.set(xlabel="hour", ylabel="RCS, %")
    time_axis([axes], float(n_hours))
    legend(figure, looks, list(lived))
    return figure


def market_wins(metrics: Mapping[str, Any]) -> Any | None:
    """Of each kind of the baseline arm, impressions won per request taken part in, by hour."""
    rates = {}
    for name, kind in bidder_kinds(metrics).items():
        hours = kind.get("hours") or {}
        requests, won = (
            [finite(x) or 0.0 for x in hours.get(key) or []] for key in ("requests", "impressions")
        )
        step = 1 if len(requests) <= HOURLY_DAYS * DAY else DAY
        pairs = zip(_summed(won, step), _summed(requests, step), strict=False)
        points = [((i + 0.5) * step, 100 * w / r) for i, (w, r) in enumerate(pairs) if r >= FEW]
        if points:
            rates[name] = (points, len(requests))
    if not rates:
        return None
    colors = kind_colors(metrics)
    figure, axes = blank(2.9)
    bare(axes, grid="y")
    looks = {}
    for i, (name, (points, _)) in enumerate(rates.items()):
        looks[name] = {"color": colors[name], "linestyle": LINES[i % len(LINES)], "linewidth": 1.7}
        axes.plot(*zip(*points, strict=True), zorder=3, **looks[name])
    axes.set_ylim(bottom=0)
    axes.set_ylabel("won, % of requests taken part in")
    axes.set_xlabel("hour")
    time_axis([axes], float(max(n for _, n in rates.values())))
    legend(figure, looks)
    return figure


def _hours(metrics: Mapping[str, Any], arm: str, name: str) -> list[float]:
    hours = metrics["market"]["arms"][arm].get("hours") or {}
    return [finite(value) or 0.0 for value in hours.get(name) or []]


def _summed(values: Sequence[float], step: int) -> list[float]:
    return [sum(values[start : start + step]) for start in range(0, len(values), step)]


def _prices(metrics: Mapping[str, Any], arm: str, step: int) -> list[float]:
    """Revenue per click, NaN where there are too few; empty where the study does not hold it."""
    clicks = _summed(_hours(metrics, arm, "charged_clicks"), step)
    revenue = _summed(_hours(metrics, arm, "revenue"), step)
    return [r / c if c >= FEW else math.nan for r, c in zip(revenue, clicks, strict=False)]


def _looks(metrics: Mapping[str, Any], arms: Sequence[str]) -> dict[str, dict[str, Any]]:
    colors, styles = arm_colors(metrics), arm_lines(metrics)
    return {arm: {"color": colors[arm], "linestyle": styles[arm], "linewidth": 1.7} for arm in arms}


def _steps(axes: Any, values: Sequence[float], step: int, end: int, look: Mapping[str, Any]) -> None:
    if len(values):
        edges = [*(float(step * j) for j in range(len(values))), float(min(end, step * len(values)))]
        axes.stairs(values, edges, baseline=None, zorder=3, **look)


def _requests(
    axes: Any, metrics: Mapping[str, Any], arms: Sequence[str], step: int, per: str, looks: Mapping[str, Any]
) -> None:
    requests = {arm: _hours(metrics, arm, "requests") for arm in arms}
    end = max(len(values) for values in requests.values())
    is_shared = len(set(map(tuple, requests.values()))) == 1
    if is_shared:
        sums = _summed(requests[arms[0]], step)
        edges = [*(float(step * j) for j in range(len(sums))), float(end)]
        axes.stairs(sums, edges, fill=True, color="#E3E7EC", zorder=1)
        _steps(axes, sums, step, end, {"color": QUIET, "linestyle": "-", "linewidth": 1.4})
    else:
        for arm, values in requests.items():
            with of_arms(axes, arm):
                _steps(axes, _summed(values, step), step, end, looks[arm])
    shared = ", the same in every arm" if is_shared and len(arms) > 1 else ""
    axes.set_title(f"Requests per {per}{shared}", loc="left", color=INK)
