"""Quality against FLOPs a request: a point per arm, and the arms that no other beats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cascade_sim.analysis.metrics.catalogue import is_reference
from cascade_sim.analysis.metrics.cost import SCORING, CostPoint, compared_cost, cost_frontier, cost_points
from cascade_sim.analysis.report.comparisons import lift_measure, ordered_arms
from cascade_sim.analysis.report.figures.ltr import plain_ticks
from cascade_sim.analysis.report.figures.parts import error_bar, joined
from cascade_sim.analysis.report.figures.style import (
    INK,
    LEAST,
    QUIET,
    arm_colors,
    arm_markers,
    bare,
    blank,
    of_arms,
    place_labels,
    short,
    signed_tick,
)
from cascade_sim.analysis.statistics.estimates import Estimate, arm_lift, arm_value, number_text, scaled

UNITS = ((1e9, "GFLOPs"), (1e6, "MFLOPs"), (1e3, "kFLOPs"), (1.0, "FLOPs"))
SPREAD = 8.0  # costs further apart than so many times have a logarithmic axis
ROOM = 0.12
FAR = 0.3  # of the range of the arms under study, and one percent: what lies further below is named alone


def rpm_lifts(metrics: Mapping[str, Any], arms: Sequence[str]) -> dict[str, Estimate]:
    """Lifts of RPM over the baseline in percent; the baseline's own is 0."""
    measure = lift_measure(metrics, "rpm")
    lifts = {arm: scaled(arm_lift(metrics, arm, measure), 100.0) for arm in arms}
    return {arm: Estimate(0.0) if arm == metrics["baseline"] else lift for arm, lift in lifts.items()}


def cost(metrics: Mapping[str, Any]) -> Any | None:
    """The lift of RPM, and RCS, against FLOPs; None where fewer than two costs are known.

    The dashed line joins the arms that no other beats in the panel's two measures.
    """
    arms = ordered_arms(metrics)
    rcs = {arm: scaled(arm_value(metrics, arm, "rcs"), 100.0) for arm in arms}
    lift = f"Expected RPM, lift over {short(metrics['baseline'])}, %"
    panels = {
        lift: cost_points(metrics, arms, rpm_lifts(metrics, arms)),
        "RCS, %": cost_points(metrics, arms, rcs),
    }
    panels = {title: points for title, points in panels.items() if len({p.flops for p in points}) > 1}
    if not panels:
        return None
    largest = max(point.flops for points in panels.values() for point in points)
    unit, name = next((size, name) for size, name in UNITS if largest >= size or size == 1.0)
    of = "stages after retrieval" if compared_cost(metrics, arms) == SCORING else "all stages"
    figure, axes = blank(0.6 + 3.1 * len(panels), nrows=len(panels), squeeze=False)
    for panel, (title, points) in zip(axes[:, 0], panels.items(), strict=True):
        bare(panel)
        inside, outside = _focus(metrics, [_scaled(point, unit) for point in points])
        _draw(panel, metrics, inside)
        _list_the_rest(panel, outside, name, signed=title == lift)
        panel.set(xlabel=f"{name} a request, {of} (less is better)", ylabel=title)
        if title == lift:
            panel.yaxis.set_major_formatter(signed_tick)
    return figure


def _scaled(point: CostPoint, unit: float) -> CostPoint:
    return CostPoint(point.arm, point.flops / unit, point.quality)


def _focus(
    metrics: Mapping[str, Any], points: Sequence[CostPoint]
) -> tuple[list[CostPoint], list[CostPoint]]:
    """Points that are drawn, and those far below, of reference arms: they would press the others together."""
    own = [p for p in points if not is_reference(p.arm) or p.arm in ("ranker", metrics["baseline"])]
    ends = [end for p in own for end in (p.quality.value, p.quality.low, p.quality.high) if end is not None]
    least = min(ends, default=0.0) - FAR * (max(ends, default=0.0) - min(ends, default=0.0) + 1.0)
    inside = [point for point in points if point.values["quality"] >= least]
    return inside, [point for point in points if point not in inside]


def _list_the_rest(axes: Any, outside: Sequence[CostPoint], unit: str, *, signed: bool) -> None:
    """Arms off the chart under it, a line each."""
    look: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points", "va": "top"}
    look |= {"color": QUIET, "fontsize": LEAST}
    for i, point in enumerate(outside):
        at = f"{number_text(point.quality.value, 0, signed=signed)}, {point.flops:.3g} {unit}"
        with of_arms(axes, point.arm):
            axes.annotate(f"Off the chart: {short(point.arm)} ({at})", (0, 0), (0, -34 - 11 * i), **look)


def _draw(axes: Any, metrics: Mapping[str, Any], points: Sequence[CostPoint]) -> None:
    colors, markers = arm_colors(metrics), arm_markers(metrics)
    bars = []
    for point in points:
        x, y, bar = point.flops, point.values["quality"], error_bar(point.quality)
        look = {"color": colors[point.arm], "marker": markers[point.arm]}
        with of_arms(axes, point.arm):
            face = "white" if is_reference(point.arm) else colors[point.arm]
            axes.plot([x], [y], linestyle="none", markersize=6, markerfacecolor=face, zorder=4, **look)
            axes.errorbar([x], [y], yerr=bar, fmt="none", ecolor=look["color"], elinewidth=1.0, zorder=3)
        low, high = (y, y) if bar is None else (y - bar[0][0], y + bar[1][0])
        bars.append((x, x, low, high))
    costs = [point.flops for point in points if point.flops > 0]
    if len(costs) == len(points) and max(costs) > SPREAD * min(costs):
        axes.set_xscale("log")
        plain_ticks(axes.xaxis, costs)
    axes.margins(ROOM)
    front = cost_frontier(points)
    spots = [(point.flops, point.values["quality"]) for point in front]
    line = {"linestyle": (0, (3, 2)), "linewidth": 1.0, "color": INK, "zorder": 2}
    joined(axes, [point.arm for point in front], spots, line)
    at = [(point.flops, point.values["quality"]) for point in points]
    names = [f"{p.arm} (baseline)" if p.arm == metrics["baseline"] else p.arm for p in points]
    place_labels(axes, at, names, [colors[p.arm] for p in points], bars, [p.arm for p in points])
