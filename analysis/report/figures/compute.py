"""Figures of latency and compute: how long pages take, load over the day, and revenue against server time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cascade_sim.analysis.report.figures.market import LINES, REFERENCE, legend, time_axis
from cascade_sim.analysis.report.figures.style import (
    INK,
    QUIET,
    arm_colors,
    arm_markers,
    bare,
    blank,
    of_arms,
    place_labels,
    short,
)
from cascade_sim.analysis.report.readings import compute_arms, market_baseline, market_value, stage_headings
from cascade_sim.analysis.statistics.estimates import finite, number_text


def compute_latency(metrics: Mapping[str, Any]) -> Any | None:
    """Share of requests that ranking answered within a time, a line per arm, and dashed the deadline."""
    lines = {}
    for arm in compute_arms(metrics):
        points = _answered_within(metrics["market"]["arms"][arm]["compute"])
        if points:
            lines[arm] = points
    if not lines:
        return None
    colors, looks = arm_colors(metrics), {}
    figure, axes = blank(3.0)
    bare(axes)
    for i, (arm, points) in enumerate(lines.items()):
        looks[arm] = {"color": colors[arm], "linestyle": LINES[i % len(LINES)], "linewidth": 1.7}
        with of_arms(axes, arm):
            axes.plot(*zip(*points, strict=True), zorder=3, **looks[arm])
    deadlines = {market_value(metrics, arm, ("compute", "deadline")) for arm in lines} - {None}
    for deadline in sorted(deadlines):  # type: ignore[type-var]
        axes.axvline(deadline, **REFERENCE)
    axes.set(ylim=(0, 104), xlabel="milliseconds since arrival", ylabel="answered by ranking, % of requests")
    axes.set_xlim(0, 1.04 * max(points[-1][0] for points in lines.values()))
    if deadlines:
        looks["deadline"] = REFERENCE
    legend(figure, looks, list(lines))
    return figure


def _answered_within(compute: Mapping[str, Any]) -> list[tuple[float, float]]:
    """(ms, % of requests answered by then) up to all, or to the deadline: what is missing there was late."""
    latency = compute.get("latency") or {}
    edges, counts = latency.get("edges") or [], latency.get("counts") or []
    total = sum(counts)
    if not total or len(counts) != len(edges) + 1:
        return []
    deadline, late = finite(compute.get("deadline")) or float("inf"), finite(compute.get("late")) or 0.0
    points, below = [(0.0, 0.0)], 0
    for edge, count in zip(edges, counts, strict=False):
        if edge >= deadline or below == total:
            break
        below += count
        points.append((edge, 100 * below / total))
    if below < total:
        points.append((deadline, 100 * (1 - late)))
    return points


def compute_hours(metrics: Mapping[str, Any]) -> Any | None:
    """Load of the busiest pool by hour; below, the share of late requests. A line per arm."""
    by_arm: dict[str, tuple[list[float], list[float]]] = {}
    stage = busiest_stage(metrics)
    for arm in compute_arms(metrics):
        hours = metrics["market"]["arms"][arm]["compute"].get("hours") or {}
        load, late = (hours.get("utilisation") or {}).get(stage) or [], hours.get("late") or []
        if load and late:
            by_arm[arm] = tuple([100 * (finite(x) or 0.0) for x in values] for values in (load, late))  # type: ignore[assignment]
    if not by_arm:
        return None
    colors, looks = arm_colors(metrics), {}
    figure, panels = blank(3.9, nrows=2, sharex=True)
    for i, (arm, series) in enumerate(by_arm.items()):
        looks[arm] = {"color": colors[arm], "linestyle": LINES[i % len(LINES)], "linewidth": 1.7}
        for axes, values in zip(panels, series, strict=True):
            edges = [float(h) for h in range(len(values) + 1)]
            with of_arms(axes, arm):
                axes.stairs(values, edges, baseline=None, zorder=3, **looks[arm])
    panels[0].axhline(100, **REFERENCE)
    heading = stage_headings(metrics)[stage].lower()
    titles = (f"Load of the {heading} servers, %", "Timeout rate, % of requests")
    for axes, title in zip(panels, titles, strict=True):
        bare(axes, grid="y")
        axes.set_title(title, loc="left", color=INK)
        axes.set_ylim(bottom=0)
    time_axis(panels, float(max(len(load) for load, _ in by_arm.values())))
    panels[-1].set_xlabel("hour")
    legend(figure, looks, list(looks))
    return figure


def busiest_stage(metrics: Mapping[str, Any]) -> str:
    """The pool with the highest load in the baseline arm, or in the first arm that has one."""
    arms = compute_arms(metrics)
    base = market_baseline(metrics)
    arm = base if base in arms else arms[0] if arms else None
    loads = {
        stage: market_value(metrics, arm, ("compute", "stages", stage, "utilisation"))
        if arm is not None
        else None
        for stage in stage_headings(metrics)
    }
    return max(loads, key=lambda stage: loads[stage] or 0.0)


def compute_value(metrics: Mapping[str, Any]) -> Any | None:
    """Revenue per 1000 requests against server time per request, a point per arm, with its late requests."""
    points = {}
    for arm in compute_arms(metrics):
        cost = market_value(metrics, arm, ("compute", "server_ms_per_request"))
        earned = market_value(metrics, arm, ("revenue_per_request",))
        if cost is not None and earned is not None:
            points[arm] = (cost, 1000 * earned)
    if not points:
        return None
    colors, markers = arm_colors(metrics), arm_markers(metrics)
    figure, axes = blank(3.0)
    bare(axes)
    for arm, (x, y) in points.items():
        look = {"marker": markers[arm], "color": colors[arm], "markersize": 6, "linestyle": "none"}
        with of_arms(axes, arm):
            axes.plot([x], [y], zorder=3, **look)
    axes.margins(0.2)
    axes.set(xlabel="server milliseconds per request", ylabel="revenue per 1000 requests")
    names = []
    for arm in points:
        late = market_value(metrics, arm, ("compute", "late"))
        share = "" if late is None else f" ({number_text(100 * late, 1)} % late)"
        names.append(short(arm) + share)
    place_labels(axes, list(points.values()), names, [colors[arm] for arm in points], [], list(points))
    axes.tick_params(colors=QUIET, labelcolor=INK)
    return figure
