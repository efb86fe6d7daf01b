"""Figures of a learning-to-rank study: the Pareto plot, and the mean score while training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from cascade_sim.analysis.report.figures.parts import joined
from cascade_sim.analysis.report.figures.style import (
    COLORS,
    INK,
    LEAST,
    MARKERS,
    bare,
    blank,
    mark,
    mark_legend,
    of_arms,
    short,
)
from cascade_sim.analysis.statistics.moves import frontier, over_seeds


def look_of(names: list[str]) -> dict[str, dict[str, Any]]:
    """A colour and a marker per objective; no two objectives share both."""
    return {
        name: {
            "color": COLORS[i % len(COLORS)],
            "marker": MARKERS[(i + i // len(COLORS)) % len(MARKERS)],
        }
        for i, name in enumerate(names)
    }


def pareto_figure(findings: Mapping[str, Any]) -> Any:
    """NDCG@10 against the loss, a point per cell (seeds averaged); lines join each objective's own frontier.

    The dashed line is the frontier of all. Left and up is better; the loss is on a logarithmic axis, for what
    has no scale lies far off.
    """
    cells = over_seeds(findings["cells"])
    names = list(dict.fromkeys(cell["objective"] for cell in cells))
    rows = -(-(len(names) + 1) // 2)
    figure, axes = blank(3.3 + 0.17 * rows)
    bare(axes)
    look = look_of(names)
    for name in names:
        own = [cell for cell in cells if cell["objective"] == name]
        with of_arms(axes, name):
            loss, ndcg = _columns(own)
            axes.plot(loss, ndcg, linestyle="", markersize=5, markeredgewidth=0, alpha=0.85, **look[name])
            loss, ndcg = _columns([own[i] for i in frontier(own)])
            axes.plot(loss, ndcg, linewidth=1.0, label=name, markersize=5, markeredgewidth=0, **look[name])
    front = [cells[i] for i in frontier(cells)]
    line: dict[str, Any] = {"linestyle": "--", "linewidth": 1.0, "color": INK, "zorder": 1}
    spots = list(zip(*_columns(front), strict=True))
    joined(axes, [cell["objective"] for cell in front], spots, line)
    axes.plot([], [], label="frontier", **line)
    axes.set_xscale("log")
    plain_ticks(axes.xaxis, [cell["loss"] for cell in cells])
    axes.set_xlabel(f"{findings['loss']} (less is better)")
    axes.set_ylabel("NDCG@10 (more is better)")
    legend = figure.legend(loc="outside lower center", ncols=2, handlelength=1.8, columnspacing=1.4)
    mark_legend(legend, [*names, ""], names)
    return figure


def _columns(cells: list[Any]) -> tuple[list[float], list[float]]:
    return [cell["loss"] for cell in cells], [cell["ndcg"] for cell in cells]


def plain_ticks(axis: Any, values: list[float]) -> None:
    """A few plain labels, evenly spread on the logarithmic axis, whatever its range."""
    from matplotlib.ticker import FixedLocator, NullLocator

    positive = [value for value in values if value > 0]
    if not positive:
        return
    marks = np.geomspace(min(positive), max(positive), 5) if len(set(positive)) > 1 else positive[:1]
    axis.set_major_locator(FixedLocator([float(f"{mark:.2g}") for mark in marks]))
    axis.set_major_formatter(lambda value, _position: f"{value:g}")
    axis.set_minor_locator(NullLocator())


def drift_figure(findings: Mapping[str, Any]) -> Any:
    """The mean score of the training batches along the training, a panel per objective, a line per seed."""
    curves = findings["curves"]
    rows = -(-len(curves) // 2)
    figure, grid = blank(0.5 + 1.35 * rows, nrows=rows, ncols=2, sharex=True, squeeze=False)
    panels = list(grid.flat)
    for axes, (name, by_seed) in zip(panels, curves.items(), strict=False):
        bare(axes)
        mark([axes], name)
        for i, curve in enumerate(by_seed.values()):
            points = np.array(curve["points"], float)
            axes.plot(np.linspace(0, 1, len(points)), points, linewidth=0.9, color=COLORS[i % len(COLORS)])
        marks = [curve["stable"] for curve in by_seed.values() if curve["stable"] is not None]
        note = f"stable {sum(marks)} of {len(marks)}" if marks else "too short to judge"
        axes.set_title(f"{short(name, 24)}\n{note}", loc="left", color=INK, fontsize=LEAST)
    for axes in panels[len(curves) :]:
        axes.set_axis_off()
    figure.supxlabel("share of the training", fontsize=8.5)
    figure.supylabel("mean score", fontsize=8.5)
    return figure
