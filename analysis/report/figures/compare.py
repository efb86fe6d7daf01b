"""Compared runs in one panel: the lift of every main measure with its interval, a marker per arm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cascade_sim.analysis.metrics.catalogue import is_reference
from cascade_sim.analysis.report.figures.style import (
    COLORS,
    MARKERS,
    QUIET,
    bare,
    blank,
    label,
    mark,
    of_arms,
    short,
    signed_tick,
)
from cascade_sim.analysis.report.readings import WHAT_IF_MEASURES
from cascade_sim.analysis.statistics.estimates import Estimate, estimate, scaled

MAX_MEASURES, MAX_ARMS = 10, 6
TITLE = "Lifts of the other run over the first by measure, with 95 % intervals"


def compared_lifts(comparison: Mapping[str, Any]) -> dict[str, dict[str, Estimate]]:
    """Measure → arm → its lift in percent, of the main measures that have one and the scenario's own arms.

    Where runs are paired, what is not is left out: its intervals are so much wider that they hide the others.
    """
    own = [arm for arm in comparison["arms"] if not is_reference(arm)] or list(comparison["arms"])
    ratios = [name for name, measure in WHAT_IF_MEASURES.items() if not measure.is_signed_or_near_zero]
    rows: dict[str, dict[str, Estimate]] = {}
    for name in ratios:
        entries = {arm: comparison["arms"][arm].get(name) for arm in own[:MAX_ARMS]}
        lifts = {
            arm: scaled(estimate(entry["lift"]), 100.0)
            for arm, entry in entries.items()
            if entry and (entry["is_paired"] or comparison["paired_by"] == "none")
        }
        known = {arm: lift for arm, lift in lifts.items() if lift.value is not None}
        if known and len(rows) < MAX_MEASURES:
            rows[name] = known
    return rows


def compare_figure(comparison: Mapping[str, Any]) -> Any | None:
    """A row per measure, its arms beneath each other; None where no measure has a lift."""
    rows = compared_lifts(comparison)
    if not rows:
        return None
    arms = list(dict.fromkeys(arm for lifts in rows.values() for arm in lifts))
    figure, axes = blank(0.9 + len(rows) * max(0.3, 0.12 * len(arms) + 0.1) + 0.2 * (len(arms) > 1))
    bare(axes, grid="x", left=False)
    axes.axvline(0, color=QUIET, linewidth=0.9, linestyle=(0, (4, 3)), zorder=2)
    step = 0.8 / len(arms)
    for i, lifts in enumerate(rows.values()):
        for j, arm in enumerate(arms):
            if arm in lifts:
                with of_arms(axes, arm):
                    _mark(axes, lifts[arm], i + step * (j - (len(arms) - 1) / 2), j)
    axes.set_yticks(range(len(rows)), [short(WHAT_IF_MEASURES[name].label, 30) for name in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.xaxis.set_major_formatter(signed_tick)
    axes.set_xlabel("lift over the first run, %")
    if len(arms) > 1:
        _legend(figure, arms)
    return figure


def _mark(axes: Any, lift: Estimate, at: float, j: int) -> None:
    color = COLORS[j % len(COLORS)]
    if lift.low is not None and lift.high is not None:
        axes.plot([lift.low, lift.high], [at, at], color=color, linewidth=1.4, zorder=3)
    axes.plot([lift.value], [at], color=color, marker=MARKERS[j % len(MARKERS)], markersize=4.4, zorder=4)


def _legend(figure: Any, arms: Sequence[str]) -> None:
    from matplotlib.lines import Line2D

    marks = [
        Line2D([], [], color=COLORS[j % len(COLORS)], marker=MARKERS[j % len(MARKERS)], markersize=4.4)
        for j in range(len(arms))
    ]
    names = [label(short(arm)) for arm in arms]
    legend = figure.legend(
        marks, names, loc="outside upper center", ncols=min(3, len(arms)), columnspacing=1.4
    )
    for arm, handle, text in zip(arms, legend.legend_handles, legend.get_texts(), strict=True):
        mark((handle, text), arm)  # a name may be cut, so it is not found by its text
