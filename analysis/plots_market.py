"""Figures of the market: spend over the day, what bidders do to their bids, revenue by hour."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from analysis.estimates import finite, number_text
from analysis.market_tables import bidder_kinds, clock, has_budget, market_arms
from analysis.plot_style import COLORS, INK, QUIET, arm_colors, bare, blank, label, short

DAY = 24.0
PER_LINE = 600  # points of a line; more would not be seen and make the page heavy
HOURLY_DAYS = 14  # a longer market is drawn day by day
REFERENCE: dict[str, Any] = {"color": QUIET, "linewidth": 1.0, "linestyle": (0, (4, 3)), "zorder": 2}
LINES = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (5, 1.5, 1.2, 1.5)))


def kind_colors(metrics: Mapping[str, Any]) -> dict[str, str]:
    """One colour per kind of bidder, by name, the same in every figure."""
    return {name: COLORS[i % len(COLORS)] for i, name in enumerate(sorted(bidder_kinds(metrics)))}


def market_spend(metrics: Mapping[str, Any]) -> Any | None:
    """A panel per kind with budgets: share of the budget spent, and dashed the share of traffic passed."""
    panels = {}
    for name, kind in bidder_kinds(metrics).items():
        points = _points(kind, "traffic_share", "spend_share") if has_budget(kind) else []
        if points:
            panels[name] = (kind, points)
    if not panels:
        return None
    colors = kind_colors(metrics)
    end = max(points[-1][0] for _, points in panels.values())
    figure, grid = _small_multiples(len(panels), end)
    for axes, (name, (kind, points)) in zip(grid, panels.items(), strict=False):
        hours, traffic, spend = _daily_lines(points)
        axes.plot(hours, [100 * x for x in traffic], **REFERENCE)
        axes.plot(hours, [100 * x for x in spend], color=colors[name], linewidth=1.8, zorder=3)
        axes.set_title(short(name, 24), loc="left", color=colors[name], fontweight="bold")
        if end <= DAY:  # over several days the curves leave no corner free
            _note(axes, kind)
    grid[0].set_ylim(0, 104)
    grid[0].set_yticks(range(0, 101, 25))
    figure.supylabel("spent, % of the day's budget", fontsize=8.5, color=INK)
    _legend(figure, {"share of traffic passed": REFERENCE})
    return figure


def _note(axes: Any, kind: Mapping[str, Any]) -> None:
    """The panel's numbers in its lower right corner, which both curves leave free late in the day."""
    lines = []
    gap, hour = finite(kind.get("largest_gap")), finite(kind.get("dry_hour"))
    if gap is not None:
        lines.append(f"gap {number_text(100 * gap, 1)}")
    if hour is not None:
        lines.append(f"dry {clock(hour)}")
    at = {"transform": axes.transAxes, "ha": "right", "va": "bottom"}
    axes.text(0.97, 0.05, "\n".join(lines), color=QUIET, fontsize=7.5, **at)


def market_multipliers(metrics: Mapping[str, Any]) -> Any | None:
    """A panel per kind that has advertisers: mean bid of its ads relative to the bid they started with."""
    panels = {}
    for name, kind in bidder_kinds(metrics).items():
        points = _points(kind, "multiplier") if finite(kind.get("advertisers")) else []
        if points:
            panels[name] = _thinned(points)
    if not panels:
        return None
    colors = kind_colors(metrics)
    figure, grid = _small_multiples(len(panels), max(points[-1][0] for points in panels.values()))
    for axes, (name, points) in zip(grid, panels.items(), strict=False):
        axes.axhline(1.0, **REFERENCE)
        axes.plot(*zip(*points, strict=True), color=colors[name], linewidth=1.8, zorder=3)
        axes.set_title(short(name, 24), loc="left", color=colors[name], fontweight="bold")
    grid[0].set_ylim(0, 1.08 * max(1.0, *(y for points in panels.values() for _, y in points)))
    figure.supylabel("mean bid relative to the start", fontsize=8.5, color=INK)
    return figure


def market_hours(metrics: Mapping[str, Any]) -> Any | None:
    """Revenue per hour of each arm; below, requests, as one line where all arms had the same."""
    series: dict[str, dict[str, list[float]]] = {"revenue": {}, "requests": {}}
    for arm in market_arms(metrics):
        hours = metrics["market"]["arms"][arm].get("hours") or {}
        for name, found in series.items():
            values = [finite(value) or 0.0 for value in hours.get(name) or []]
            if values:
                found[arm] = values
    if not series["revenue"] or not series["requests"]:
        return None
    n_hours = max(len(values) for found in series.values() for values in found.values())
    step = 1 if n_hours <= HOURLY_DAYS * DAY else int(DAY)
    colors = arm_colors(metrics)
    figure, panels = blank(3.9, nrows=2, sharex=True, gridspec_kw={"height_ratios": (3, 2)})
    handles: dict[str, Any] = {}
    per = "hour" if step == 1 else "day"
    for axes, (name, found) in zip(panels, series.items(), strict=True):
        bare(axes, grid="y")
        is_shared = name == "requests" and len(set(map(tuple, found.values()))) == 1
        for i, (arm, values) in enumerate(found.items()):
            if is_shared and i:
                break
            sums = [sum(values[start : start + step]) for start in range(0, len(values), step)]
            edges = [*(float(step * j) for j in range(len(sums))), float(len(values))]
            look: dict[str, Any] = {
                "color": colors[arm],
                "linestyle": LINES[i % len(LINES)],
                "linewidth": 1.7,
            }
            if is_shared:
                look = {"color": QUIET, "linestyle": "-", "linewidth": 1.4}
                axes.stairs(sums, edges, fill=True, color="#E3E7EC", zorder=1)
            else:
                handles[arm] = look
            axes.stairs(sums, edges, baseline=None, zorder=3, **look)
        shared = ", the same in every arm" if is_shared and len(found) > 1 else ""
        axes.set_title(f"{name.capitalize()} per {per}{shared}", loc="left", color=INK)
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    _time_axis(panels, float(n_hours))
    panels[-1].set_xlabel("hour")
    _legend(figure, handles)
    return figure


def _points(kind: Mapping[str, Any], *names: str) -> list[tuple[float, ...]]:
    """(hour, value of each name) at every update where all are numbers."""
    curve = kind.get("curve") or {}
    rows = zip(*(curve.get(name) or [] for name in ("hour", *names)), strict=False)
    found = (tuple(finite(value) for value in row) for row in rows)
    return [row for row in found if None not in row]  # type: ignore[misc]


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


def _small_multiples(n: int, end: float) -> tuple[Any, list[Any]]:
    """`n` panels in two columns with common axes; the figure, and the panels in reading order."""
    columns = min(n, 2)
    rows = math.ceil(n / columns)
    figure, grid = blank(
        0.75 + 1.3 * rows, nrows=rows, ncols=columns, sharex=True, sharey=True, squeeze=False
    )
    axes = list(grid.flat)
    for one in axes[n:]:
        one.remove()
    for i, one in enumerate(axes[:n]):
        bare(one)
        if i >= n - columns:  # the lowest of its column
            one.tick_params(labelbottom=True)
        if i // columns == rows - 1:  # a name in a higher row would push rows apart
            one.set_xlabel("hour")
    _time_axis(axes[:n], end)
    return figure, axes[:n]


def _time_axis(panels: Sequence[Any], end: float) -> None:
    """Hours that run on over the days, with a line at every midnight in between."""
    for axes in panels:
        axes.set_xlim(0, end)
        for i in range(1, math.ceil(end / DAY)):
            axes.axvline(DAY * i, color="#9AA5B1", linewidth=0.8, zorder=1.5)
    step = next((s for s in (1, 2, 3, 6, 12) if end / s <= 5), 0) or DAY * math.ceil(end / DAY / 5)
    panels[0].set_xticks([step * i for i in range(int(end / step + 1e-9) + 1)])


def _legend(figure: Any, looks: Mapping[str, Mapping[str, Any]]) -> None:
    """Names under the plot, in rows that fit the width."""
    from matplotlib.lines import Line2D

    shown = {name: {k: v for k, v in look.items() if k != "zorder"} for name, look in looks.items()}
    longest = max((len(name) for name in shown), default=1)
    figure.legend(
        [Line2D([], [], **look) for look in shown.values()],
        [label(name) for name in shown],
        loc="outside lower center",
        ncols=max(1, min(len(shown), 62 // (longest + 7))),
        handlelength=2.4,
        columnspacing=1.4,
    )
