"""Figures of a learning-to-rank study: the Pareto plot, and the mean score while training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from cascade_sim.analysis.report.figures.style import COLORS, INK, MARKERS, bare
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
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 4.4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    bare(axes)
    cells = over_seeds(findings["cells"])
    names = list(dict.fromkeys(cell["objective"] for cell in cells))
    look = look_of(names)
    for name in names:
        own = [cell for cell in cells if cell["objective"] == name]
        loss, ndcg = _columns(own)
        axes.plot(loss, ndcg, linestyle="", markersize=5, markeredgewidth=0, alpha=0.85, **look[name])
        loss, ndcg = _columns([own[i] for i in frontier(own)])
        axes.plot(loss, ndcg, linewidth=1.0, label=name, markersize=5, markeredgewidth=0, **look[name])
    loss, ndcg = _columns([cells[i] for i in frontier(cells)])
    axes.plot(loss, ndcg, linestyle="--", linewidth=1.0, color=INK, label="frontier", zorder=1)
    axes.set_xscale("log")
    plain_ticks(axes.xaxis, [cell["loss"] for cell in cells])
    axes.set_xlabel(f"{findings['loss']} (less is better)")
    axes.set_ylabel("NDCG@10 (more is better)")
    figure.legend(loc="outside right upper")
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
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    curves = findings["curves"]
    rows = -(-len(curves) // 3)
    figure = Figure(figsize=(7.2, 0.5 + 1.5 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(rows, 3, sharex=True, squeeze=False).ravel()
    for axes, (name, by_seed) in zip(grid, curves.items(), strict=False):
        bare(axes)
        for i, curve in enumerate(by_seed.values()):
            points = np.array(curve["points"], float)
            axes.plot(np.linspace(0, 1, len(points)), points, linewidth=0.9, color=COLORS[i % len(COLORS)])
        marks = [curve["stable"] for curve in by_seed.values() if curve["stable"] is not None]
        note = f"stable {sum(marks)} of {len(marks)}" if marks else "too short to judge"
        axes.set_title(f"{name}: {note}", loc="left", color=INK, fontsize=7.5)
    for axes in grid[len(curves) :]:
        axes.set_axis_off()
    figure.supxlabel("share of the training", fontsize=8.5)
    figure.supylabel("mean score", fontsize=8.5)
    return figure
