"""Gaps between a world and its log by summary statistic, and between two periods of the log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cascade_sim.analysis.report.figures.style import COLORS, QUIET, bare, blank, drawn, short, signed_tick
from cascade_sim.analysis.statistics.estimates import Estimate, estimate, scaled

TITLE = "Relative gaps between world and log by summary statistic, with 95 % intervals"
MOST = 26
WIDEST = 100.0  # percent: what lies beyond is drawn at the edge


def gap_rows(found: Mapping[str, Any]) -> list[tuple[str, Estimate, Estimate, bool]]:
    """(label, gap of the world, gap between the periods, whether it differs), in percent, of ratios."""
    return [
        (
            row["label"],
            scaled(estimate(row["gap"]), 100.0),
            scaled(estimate(row["between_periods"]), 100.0),
            row["differs"],
        )
        for row in found["statistics"]
        if row["is_relative"]
    ][:MOST]


def realism_figure(found: Mapping[str, Any]) -> Any | None:
    """A row per summary statistic; None without any."""
    rows = gap_rows(found)
    if not rows:
        return None
    figure, axes = blank(0.9 + 0.2 * len(rows))
    bare(axes, grid="x", left=False)
    axes.axvline(0, color=QUIET, linewidth=0.9, linestyle=(0, (4, 3)), zorder=2)
    ends = [abs(x) for _, gap, between, _ in rows for x in (gap.value, between.value) if x is not None]
    reach = min(WIDEST, 1.25 * max(max(ends, default=1.0), 2.0))
    for i, (_, gap, between, differs) in enumerate(rows):
        color = COLORS[1] if differs else COLORS[0]
        _mark(axes, between, i + 0.16, QUIET, "D", reach)
        _mark(axes, gap, i - 0.12, color, "o", reach)
    axes.set_xlim(-reach, reach)
    axes.set_yticks(range(len(rows)), [short(label, 34) for label, *_ in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.xaxis.set_major_formatter(signed_tick)
    axes.set_xlabel("world against log, %")
    return figure


def _mark(axes: Any, gap: Estimate, at: float, color: str, marker: str, reach: float) -> None:
    def cut(x: float) -> float:
        return min(reach, max(-reach, x))

    if gap.value is None:
        return
    if gap.low is not None and gap.high is not None:
        axes.plot([cut(gap.low), cut(gap.high)], [at, at], color=color, linewidth=1.2, zorder=3)
    axes.plot([cut(gap.value)], [at], color=color, marker=marker, markersize=3.6, zorder=4)


def realism_svg(found: Mapping[str, Any]) -> str:
    """The figure as SVG text; empty without any."""
    return drawn(realism_figure, found, "realism", TITLE) or ""
