"""The figure of critical bids: how much of their bid ads need, in the auction and through the cascade."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from cascade_sim.analysis.report.figures.parts import small_multiples
from cascade_sim.analysis.report.figures.style import INK, LEAST, QUIET, arm_colors, label, mark, short
from cascade_sim.analysis.report.readings import critical_arms, critical_value
from cascade_sim.analysis.statistics.estimates import finite, number_text

LOCAL: dict[str, Any] = {"color": QUIET, "linewidth": 1.3, "linestyle": (0, (4, 2))}
CASCADE: dict[str, Any] = {"color": INK, "linewidth": 1.8, "linestyle": "-"}
GAP: dict[str, Any] = {"alpha": 0.28, "linewidth": 0}
PER_ROW = 3


def critical_bids(metrics: Mapping[str, Any]) -> Any | None:
    """A panel per arm: share of impressions that need at most so much of their bid; the area is the gap."""
    panels = {arm: points for arm in critical_arms(metrics) if (points := _points(metrics, arm))}
    if not panels:
        return None
    colors = arm_colors(metrics)
    figure, grid = small_multiples(len(panels), PER_ROW, lambda rows: 1.0 + 1.15 * rows)
    start = min(_first_needed(points) for points in panels.values())
    for axes, (arm, points) in zip(grid, panels.items(), strict=True):
        mark([axes], arm)
        at, local, cascade = (list(values) for values in zip(*points, strict=True))
        axes.fill_between(at, cascade, local, color=colors[arm], zorder=2, **GAP)
        axes.plot(at, local, zorder=3, **LOCAL)
        axes.plot(at, cascade, zorder=4, **{**CASCADE, "color": colors[arm]})
        axes.set_title(short(arm, 15), loc="left", color=colors[arm], fontweight="bold")
        share = critical_value(metrics, arm, "gap_share").value
        if share is not None:
            axes.text(
                0.05, 0.94, f"gap {number_text(100 * share, 1)} %" if share else "no gap",
                transform=axes.transAxes, ha="left", va="top", color=QUIET, fontsize=LEAST,
            )  # fmt: skip
    grid[0].set_xlim(start, 100)
    grid[0].set_ylim(0, 103)
    grid[0].set_yticks(range(0, 101, 50))
    figure.supxlabel("critical bid, % of the ad's bid", fontsize=8.5, color=INK)
    figure.supylabel("impressions, %", fontsize=8.5, color=INK)
    _legend(figure)
    return figure


def _points(metrics: Mapping[str, Any], arm: str) -> list[tuple[float, float, float]]:
    """(share of the bid, local, cascade), all in percent; empty where nothing was shown."""
    row = metrics["critical_bids"]["arms"][arm]
    distribution = row.get("distribution") or {}
    rows = zip(*(distribution.get(name) or [] for name in ("share_of_bid", "local", "cascade")), strict=False)
    points = [tuple(finite(value) for value in point) for point in rows]
    if not finite(row.get("impressions")) or any(None in point for point in points):
        return []
    return [(100 * x, 100 * y, 100 * z) for x, y, z in points]  # type: ignore[operator]


def _first_needed(points: Sequence[tuple[float, float, float]]) -> float:
    """Where the axis begins: a multiple of 20 below which there is next to no ad."""
    below = [at for at, local, cascade in points if max(local, cascade) <= 1.0]
    return 20.0 * math.floor(min(max(below, default=0.0), 80.0) / 20.0)


def _legend(figure: Any) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    names = {
        "in the auction": Line2D([], [], **LOCAL),
        "through the cascade": Line2D([], [], **CASCADE),
        "gap": Patch(color=QUIET, **GAP),
    }
    figure.legend(
        list(names.values()),
        [label(name) for name in names],
        loc="outside upper center",
        ncols=3,
        handlelength=2.4,
        columnspacing=1.4,
    )
