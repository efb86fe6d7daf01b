"""Figures of rankers that are trained on and on: mean score, scale and AUC over time, a figure per group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cascade_sim.analysis.report.figures.market import LINES, REFERENCE, legend
from cascade_sim.analysis.report.figures.parts import band
from cascade_sim.analysis.report.figures.style import INK, QUIET, arm_colors, bare, blank, of_arms
from cascade_sim.analysis.report.readings import arms_of, deployments, drift_arms
from cascade_sim.analysis.statistics.estimates import Estimate

DAY = 86_400.0
PANELS = {
    "mean_score": "Mean score",
    "pcoc": "Mean pCTR over mean true CTR (log scale)",
    "gauc": "AUC per request, on candidates",
}
TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)


def drift_order(metrics: Mapping[str, Any]) -> Any | None:
    """The drift figure of the rankers that are trained for order alone."""
    return _figure(metrics, "order")


def drift_calibrator(metrics: Mapping[str, Any]) -> Any | None:
    """The drift figure of the rankers that a calibrator follows."""
    return _figure(metrics, "calibrator")


def drift_scale(metrics: Mapping[str, Any]) -> Any | None:
    """The drift figure of the rankers whose objective has a scale."""
    return _figure(metrics, "scale")


def _figure(metrics: Mapping[str, Any], group: str) -> Any | None:
    """Three panels over time, a line per arm of the group; the baseline in grey where it is of another group.

    All groups have the same axes, so that their figures can be compared with each other.
    """
    arms = arms_of(metrics, group)
    if not arms:
        return None
    looks = _looks(metrics, arms)
    rows = -(-len(looks) // max(1, 62 // (max(map(len, looks)) + 7)))
    figure, panels = blank(4.9 + 0.17 * rows, nrows=len(PANELS), sharex=True)
    for axes, (measure, title) in zip(panels, PANELS.items(), strict=True):
        bare(axes, grid="y")
        axes.set_title(title, loc="left", color=INK)
        if measure == "pcoc":
            axes.set_yscale("log")
            axes.axhline(1.0, **REFERENCE)
        for arm, look in looks.items():
            curve = points(metrics, arm, measure)
            with of_arms(axes, arm):
                axes.plot([day for day, _ in curve], [value.value for _, value in curve], **look)
                band(axes, curve, color=look["color"], alpha=0.12, zorder=1.5)
        _limits(axes, metrics, measure)
    end = max(day for arm in looks for day, _ in points(metrics, arm, "mean_score"))
    panels[-1].set(xlim=(0, end), xlabel="day")
    legend(figure, looks, list(looks))
    return figure


def points(metrics: Mapping[str, Any], arm: str, measure: str) -> list[tuple[float, Estimate]]:
    """(day, estimate) of every deployment that has a value; on a log scale, a positive one."""
    return [
        (time / DAY, value)
        for time, value in deployments(metrics, arm, measure)
        if measure != "pcoc" or (value.value or 0.0) > 0
    ]


def _looks(metrics: Mapping[str, Any], arms: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Colours are those of all figures; where they repeat within a group, the lines differ."""
    colors, base = arm_colors(metrics), metrics["baseline"]
    looks = {
        arm: {"color": colors[arm], "linestyle": LINES[i % len(LINES)], "linewidth": 1.3, "zorder": 3}
        for i, arm in enumerate(arms)
    }
    if base not in looks and base in drift_arms(metrics):
        looks[base] = {"color": QUIET, "linestyle": "-", "linewidth": 0.9, "zorder": 2}
    return looks


def _limits(axes: Any, metrics: Mapping[str, Any], measure: str) -> None:
    """The span of all arms, with some air."""
    values = [value.value or 0.0 for arm in drift_arms(metrics) for _, value in points(metrics, arm, measure)]
    if not values:
        return
    low, high = min(values), max(values)
    if measure == "pcoc":
        low, high = min(low, 0.8) / 1.2, max(high, 1.25) * 1.2
        ticks = [tick for tick in TICKS if low <= tick <= high]
        axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()
    else:
        air = 0.06 * (high - low or 1.0)
        low, high = low - air, high + air
    axes.set_ylim(low, high)
