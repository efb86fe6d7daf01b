"""Figures of the market by hour: revenue, prices and requests of each arm, and win rates of bidders."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from cascade_sim.analysis.report.figures.market import LINES, arm_lines, kind_colors, legend, time_axis
from cascade_sim.analysis.report.figures.style import INK, QUIET, arm_colors, bare, blank
from cascade_sim.analysis.report.sections.market_tables import bidder_kinds, market_arms
from cascade_sim.analysis.statistics.estimates import finite

DAY = 24
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
        _steps(panels[0], _summed(_hours(metrics, arm, "revenue"), step), step, n_hours, looks[arm])
        if has_prices:
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
    legend(figure, looks)
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
    found = {arm: _hours(metrics, arm, "requests") for arm in arms}
    end = max(len(values) for values in found.values())
    is_shared = len(set(map(tuple, found.values()))) == 1
    if is_shared:
        sums = _summed(found[arms[0]], step)
        edges = [*(float(step * j) for j in range(len(sums))), float(end)]
        axes.stairs(sums, edges, fill=True, color="#E3E7EC", zorder=1)
        _steps(axes, sums, step, end, {"color": QUIET, "linestyle": "-", "linewidth": 1.4})
    else:
        for arm, values in found.items():
            _steps(axes, _summed(values, step), step, end, looks[arm])
    shared = ", the same in every arm" if is_shared and len(arms) > 1 else ""
    axes.set_title(f"Requests per {per}{shared}", loc="left", color=INK)
