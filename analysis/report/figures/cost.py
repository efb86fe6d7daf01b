"""Quality against FLOPs a request: a point per arm, and the arms that no other beats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cascade_sim.analysis.metrics.catalogue import is_reference
from cascade_sim.analysis.metrics.cost import SCORING, CostPoint, compared_cost, cost_frontier, cost_points
from cascade_sim.analysis.report.comparisons import lift_measure, ordered_arms
from cascade_sim.analysis.report.figures.parts import error_bar, joined
from cascade_sim.analysis.report.figures.style import (
    INK,
    arm_colors,
    arm_markers,
    bare,
    blank,
    of_arms,
    place_labels,
    short,
    signed_tick,
)
from cascade_sim.analysis.statistics.estimates import Estimate, arm_lift, arm_value, scaled

UNITS = ((1e9, "GFLOPs"), (1e6, "MFLOPs"), (1e3, "kFLOPs"), (1.0, "FLOPs"))
SPREAD = 20.0  # costs further apart than so many times stand on a logarithmic axis
ROOM = 0.12


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
        _draw(panel, metrics, [_scaled(point, unit) for point in points])
        panel.set(xlabel=f"{name} a request, {of} (less is better)", ylabel=title)
        if title == lift:
            panel.yaxis.set_major_formatter(signed_tick)
    return figure


def _scaled(point: CostPoint, unit: float) -> CostPoint:
    return CostPoint(point.arm, point.flops / unit, point.quality)


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
    axes.margins(ROOM)
    front = cost_frontier(points)
    spots = [(point.flops, point.values["quality"]) for point in front]
    line = {"linestyle": (0, (3, 2)), "linewidth": 1.0, "color": INK, "zorder": 2}
    joined(axes, [point.arm for point in front], spots, line)
    at = [(point.flops, point.values["quality"]) for point in points]
    names = [f"{p.arm} (baseline)" if p.arm == metrics["baseline"] else p.arm for p in points]
    place_labels(axes, at, names, [colors[p.arm] for p in points], bars, [p.arm for p in points])
