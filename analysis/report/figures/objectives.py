"""Figures of objectives: reliability of each ranker, and how miscalibration reaches prices and revenue."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cascade_sim.analysis.metrics.pareto import best_of, families, sweep_points
from cascade_sim.analysis.report.figures.ltr import look_of, plain_ticks
from cascade_sim.analysis.report.figures.style import (
    INK,
    LEAST,
    QUIET,
    arm_colors,
    arm_markers,
    bare,
    blank,
    mark,
    of_arms,
    place_labels,
    short,
)
from cascade_sim.analysis.report.readings import model_value, objective_arms
from cascade_sim.analysis.statistics.estimates import arm_value, finite

COLUMNS = 3
MIN_SHARE = 0.02  # of the impressions behind a point: with fewer it is noise
NAMED = 20  # rankers at most that are all named; in a larger sweep each family's best is


def objective_reliability(metrics: Mapping[str, Any]) -> Any | None:
    """A small panel per ranker: the true CTR where it predicts a given one; the diagonal is perfect."""
    curves = {
        arm: points
        for arm, model in objective_arms(metrics).items()
        if (points := reliability_points(metrics, model["model"]))
    }
    if not curves:
        return None
    n_rows = -(-len(curves) // COLUMNS)
    figure, grid = blank(
        0.35 + 1.12 * n_rows, nrows=n_rows, ncols=COLUMNS, sharex=True, sharey=True, squeeze=False
    )
    for axes in grid.flat[len(curves) :]:
        axes.set_axis_off()
    for axes, (arm, points) in zip(grid.flat, curves.items(), strict=False):
        bare(axes)
        mark([axes], arm)
        axes.plot([0, 100], [0, 100], color=QUIET, linewidth=0.8, linestyle=(0, (4, 3)), zorder=1)
        x, y = ([100 * point[i] for point in points] for i in (0, 1))
        axes.plot(x, y, color=arm_colors(metrics)[arm], linewidth=1.4, marker=".", markersize=3, zorder=2)
        axes.set(xlim=(0, 100), ylim=(0, 100), xticks=(0, 50, 100), yticks=(0, 50, 100))
        axes.set_title(short(arm, 16), loc="left", fontsize=LEAST, color=INK)
    figure.supxlabel("predicted CTR, %", fontsize=8.0)
    figure.supylabel("true CTR, %", fontsize=8.0)
    return figure


def reliability_points(metrics: Mapping[str, Any], model: str) -> list[tuple[float, float]]:
    """(mean prediction, mean truth) by rising prediction; bins are pooled until they hold enough impressions.

    What is left over at the upper end is too little to be drawn.
    """
    curve = ((metrics.get("objectives") or {}).get("reliability") or {}).get(model) or {}
    counts = [finite(count) or 0.0 for count in curve.get("count") or []]
    least = MIN_SHARE * sum(counts)
    points, pooled = [], [0.0, 0.0, 0.0]
    for bin_sums in zip(counts, curve.get("predicted") or [], curve.get("truth") or [], strict=False):
        pooled = [have + more for have, more in zip(pooled, bin_sums, strict=True)]
        if pooled[0] >= least and pooled[0] > 0:
            points.append((pooled[1] / pooled[0], pooled[2] / pooled[0]))
            pooled = [0.0, 0.0, 0.0]
    return points


def miscalibration(metrics: Mapping[str, Any]) -> Any | None:
    """ECE against CPC error, and CPC error against RPM: a point per ranker."""
    rows = []
    for arm in objective_arms(metrics):
        measured = (
            model_value(metrics, arm, "ece").value,
            arm_value(metrics, arm, "cpc_error").value,
            arm_value(metrics, arm, "expected_rpm").value,
        )
        if all(value is not None for value in measured) and (measured[0] or 0.0) > 0:
            rows.append((arm, measured))
    if not rows:
        return None
    colors, markers = arm_colors(metrics), arm_markers(metrics)
    chosen = {arm for arm, _ in rows}
    by_family = families(sweep_points(metrics))
    if len(chosen) > NAMED and by_family:
        chosen = {metrics["baseline"], *(best_of(metrics, own).arm for own in by_family.values())}
        look = look_of(list(by_family))
        for family, own in by_family.items():
            colors |= {point.arm: look[family]["color"] for point in own}
            markers |= {point.arm: look[family]["marker"] for point in own}
    figure, panels = blank(8.4, nrows=2)
    for axes, (i, j) in zip(panels, ((0, 1), (1, 2)), strict=True):
        bare(axes)
        points: list[tuple[float, float]] = []
        for arm, measured in rows:
            scale = [1.0, 100.0, 1.0]
            point = (float(measured[i] or 0.0) * scale[i], float(measured[j] or 0.0) * scale[j])
            points.append(point)
            with of_arms(axes, arm):
                axes.plot(*([value] for value in point), marker=markers[arm], color=colors[arm], markersize=5)
        axes.set_xscale("log")  # most rankers are close to each other, and some far away
        plain_ticks(axes.xaxis, [x for x, _ in points])
        axes.margins(0.14)
        named = [k for k, (arm, _) in enumerate(rows) if arm in chosen]
        names = [short(rows[k][0], 24) for k in named]
        shades = [colors[rows[k][0]] for k in named]
        boxes = [(x, x, y, y) for x, y in points]
        place_labels(axes, [points[k] for k in named], names, shades, boxes, [rows[k][0] for k in named])
    panels[0].set(xlabel="ECE on the win set (log scale)", ylabel="CPC error, %")
    panels[1].set(xlabel="CPC error, % (log scale)", ylabel="RPM, expected")
    return figure
