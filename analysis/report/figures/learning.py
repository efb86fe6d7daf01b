"""Figures of models that learn from their own exposure: true-value recall over time, and revenue by day."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cascade_sim.analysis.report.figures.market import LINES, REFERENCE, legend, legend_room, time_axis
from cascade_sim.analysis.report.figures.parts import band
from cascade_sim.analysis.report.figures.style import INK, arm_colors, bare, blank, of_arms, short
from cascade_sim.analysis.report.readings import deployments, learning_arms, learning_of
from cascade_sim.analysis.statistics.estimates import Estimate, estimate

HOUR = 3600.0
PANELS = {
    "recall": "Reach ranking, % of the best ads",
    "recall_difference": "Reach ranking, points more than {base}",
    "win_recall": "Are shown, % of the best ads",
    "rcs": "RCS: reach ranking, % of what the ranker would show",
}


def learning_recall(metrics: Mapping[str, Any]) -> Any | None:
    """True-value recall and RCS of every deployment, a line per arm and its 95 % band."""
    lines = {name: {arm: _curve(metrics, arm, name) for arm in learning_arms(metrics)} for name in PANELS}
    lines = {name: {arm: curve for arm, curve in curves.items() if curve} for name, curves in lines.items()}
    if not lines["recall"]:
        return None
    looks = _looks(metrics, list(lines["recall"]))
    lines = {name: curves for name, curves in lines.items() if curves}
    height = 0.8 + 1.75 * len(lines) + legend_room(list(looks))
    figure, panels = blank(height, nrows=len(lines), sharex=True, squeeze=False)
    panels = list(panels.flat)
    for axes, (name, curves) in zip(panels, lines.items(), strict=True):
        bare(axes, grid="y")
        axes.set_title(PANELS[name].format(base=short(metrics["baseline"])), loc="left", color=INK)
        for arm, curve in curves.items():
            hours, values = [hour for hour, _ in curve], [100 * (point.value or 0.0) for _, point in curve]
            with of_arms(axes, arm):
                axes.plot(hours, values, zorder=3, **looks[arm])
                band(axes, curve, 100.0, color=looks[arm]["color"], alpha=0.15, zorder=2)
        if name == "recall_difference":
            axes.axhline(0.0, **REFERENCE)
        else:
            axes.set_ylim(bottom=0)
    time_axis(panels, max(curve[-1][0] for curves in lines.values() for curve in curves.values()))
    panels[-1].set_xlabel("hour")
    legend(figure, looks, list(looks))
    return figure


def learning_revenue(metrics: Mapping[str, Any]) -> Any | None:
    """Revenue per request of each day, a point per arm with its 95 % interval."""
    days = {
        arm: [estimate(revenue) for revenue in learning_of(metrics, arm).get("revenue_by_day") or []]
        for arm in learning_arms(metrics)
    }
    days = {
        arm: revenues
        for arm, revenues in days.items()
        if any(revenue.value is not None for revenue in revenues)
    }
    if not days:
        return None
    figure, axes = blank(2.8 + legend_room(list(days)))
    bare(axes, grid="y")
    looks = _looks(metrics, list(days))
    shift = 0.5 / max(len(days), 1)
    for i, (arm, revenues) in enumerate(days.items()):
        offset = shift * (i - (len(days) - 1) / 2)
        known = [
            (day + 1 + offset, revenue) for day, revenue in enumerate(revenues) if revenue.value is not None
        ]
        with of_arms(axes, arm):
            axes.plot(
                [x for x, _ in known],
                [revenue.value for _, revenue in known],
                marker="o",
                markersize=4,
                **looks[arm],
            )
            for x, revenue in known:
                if revenue.low is not None and revenue.high is not None:
                    axes.plot([x, x], [revenue.low, revenue.high], color=looks[arm]["color"], linewidth=1.2)
    n_days = max(len(revenues) for revenues in days.values())
    axes.set_xticks(range(1, n_days + 1, max(1, n_days // 10)))
    axes.set(xlim=(0.5, n_days + 0.5), xlabel="day", ylabel="revenue per request")
    axes.set_ylim(bottom=0)
    legend(figure, looks, list(looks))
    return figure


def _looks(metrics: Mapping[str, Any], arms: Sequence[str]) -> dict[str, dict[str, Any]]:
    colors = arm_colors(metrics)
    return {
        arm: {"color": colors[arm], "linestyle": LINES[i % len(LINES)], "linewidth": 1.7}
        for i, arm in enumerate(arms)
    }


def _curve(metrics: Mapping[str, Any], arm: str, measure: str) -> list[tuple[float, Estimate]]:
    """(hour, estimate) of every deployment that has a value."""
    return [(time / HOUR, value) for time, value in deployments(metrics, arm, measure)]
