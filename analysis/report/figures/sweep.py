"""The Pareto plot of a sweep: two measures of every cell, and the cells that no other beats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from cascade_sim.analysis.report.figures.parts import error_bar
from cascade_sim.analysis.report.figures.style import (
    COLORS,
    INK,
    MARKERS,
    QUIET,
    bare,
    blank,
    label,
    place_labels,
    short,
    style,
    svg_text,
)
from cascade_sim.analysis.report.sections.sweep import (
    LESS_IS_BETTER,
    frontier,
    lifts_of,
    measure_of,
    values_of,
)
from cascade_sim.analysis.statistics.estimates import Estimate, scaled

MAX_LABELS = 12  # beyond, only the frontier is named
DASHES = (0, (4, 3))
PIECES = 16  # of a line between two cells
RING: dict[str, Any] = {
    "linestyle": "none", "marker": "o", "markersize": 11, "markerfacecolor": "none",
    "markeredgecolor": QUIET, "markeredgewidth": 1.0,
}  # fmt: skip


def sweep_svg(findings: Mapping[str, Any], x: str, y: str) -> str:
    """The figure as an <svg> element."""
    with style("sweep"):
        names = " against ".join(measure_of(name).label for name in (y, x))
        return svg_text(sweep_figure(findings, x, y), "sweep", f"{names}, a point per cell")


def sweep_figure(findings: Mapping[str, Any], x: str, y: str) -> Any:
    """A point per cell; colour by the first axis of the grid, marker by the second.

    Bars are paired intervals of the difference from the reference, which has a ring: the spread between
    worlds, common to all cells, would hide what tells them apart. The dashed line joins the frontier.
    """
    figure, axes = blank(4.2)
    bare(axes)
    across, up = _shown(findings, x), _shown(findings, y)
    there = [i for i in range(len(across)) if across[i].value is not None and up[i].value is not None]
    looks = _looks(findings)
    for i in there:
        a, b, look = across[i], up[i], looks[i]
        axes.errorbar(
            [a.value], [b.value], xerr=error_bar(a), yerr=error_bar(b), ecolor=look["color"], elinewidth=0.8,
            alpha=0.4, linestyle="none", zorder=2,
        )  # fmt: skip
        axes.plot([a.value], [b.value], linestyle="none", markersize=5.5, markeredgewidth=0, zorder=4, **look)
    on_it = [i for i in frontier(findings, x, y) if i in there]
    line = sorted((across[i].value, up[i].value) for i in on_it)
    axes.plot(
        [p[0] for p in line], [p[1] for p in line], color=INK, linewidth=1.0, linestyle=DASHES, zorder=3
    )
    if 0 in there:
        axes.plot([across[0].value], [up[0].value], zorder=3.5, **RING)
    axes.set_xlabel(_axis_label(x))
    axes.set_ylabel(_axis_label(y))
    axes.set_xlim(_limits([across[i] for i in there]))
    axes.set_ylim(_limits([up[i] for i in there]))
    axes.locator_params(nbins=6)
    _legend(figure, findings)
    in_the_way = _along(line)
    for i in there:
        a, b = across[i], up[i]
        at, height = a.value or 0.0, b.value or 0.0
        ends = (at if a.low is None else a.low, at if a.high is None else a.high)
        reach = (height if b.low is None else b.low, height if b.high is None else b.high)
        in_the_way += [(*ends, height, height), (at, at, *reach)]
    named = there if len(there) <= MAX_LABELS else on_it
    _name_cells(axes, findings, named, on_it, across, up, in_the_way)
    return figure


def _along(line: Sequence[tuple[Any, Any]]) -> list[tuple[float, float, float, float]]:
    """Small boxes along a line, for labels to keep off it."""
    boxes = []
    for (x0, y0), (x1, y1) in pairwise(line):
        for step in range(1, PIECES):
            x, y = x0 + (x1 - x0) * step / PIECES, y0 + (y1 - y0) * step / PIECES
            boxes.append((x, x, y, y))
    return boxes


def _name_cells(
    axes: Any,
    findings: Mapping[str, Any],
    named: list[int],
    on_it: list[int],
    across: list[Estimate],
    up: list[Estimate],
    in_the_way: list[tuple[float, float, float, float]],
) -> None:
    """The frontier in ink, the others quiet; cells at one point share a label."""
    at: dict[tuple[float, float], list[int]] = {}
    for i in named:
        at.setdefault((across[i].value or 0.0, up[i].value or 0.0), []).append(i)
    texts, colors = [], []
    for cells in at.values():
        words = [_cell_words(findings, i) for i in cells[:2]]
        more = f" (+{len(cells) - 2})" if len(cells) > 2 else ""
        texts.append(", ".join(words) + more)
        colors.append(INK if set(cells) & set(on_it) else QUIET)
    place_labels(axes, list(at), texts, colors, in_the_way)


def _cell_words(findings: Mapping[str, Any], i: int) -> str:
    """The values alone where the legend says which key is which."""
    cell = findings["cells"][i]
    if len(findings["axes"]) > 2 or _has_no_legend(findings):
        return short(cell["name"], 34)
    return " / ".join(short(value, 16) for value in cell["settings"].values())


def _shown(findings: Mapping[str, Any], name: str) -> list[Estimate]:
    """Values in the unit people read, with the paired interval of the difference from the reference."""
    values, lifts = values_of(findings, name), lifts_of(findings, name)
    first = values[0].value
    cells = []
    for value, lift in zip(values, lifts, strict=True):
        if (
            value.value is None
            or first is None
            or lift.value is None
            or lift.low is None
            or lift.high is None
        ):
            cells.append(Estimate(value.value))
            continue
        low, high = (value.value + first * (end - lift.value) for end in (lift.low, lift.high))
        cells.append(Estimate(value.value, low, high))
    return [scaled(cell, 100.0 if measure_of(name).unit == "percent" else 1.0) for cell in cells]


def _limits(values: list[Estimate]) -> tuple[float, float]:
    """All points, and of their bars as much as leaves the points half of the axis."""
    points = [value.value for value in values if value.value is not None]
    if not points:
        return 0.0, 1.0
    low, high = min(points), max(points)
    ends = [end for value in values for end in (value.low, value.high) if end is not None]
    room = (high - low) / 2 if high > low else float("inf")
    bottom, top = max(min([low, *ends]), low - room), min(max([high, *ends]), high + room)
    margin = 0.12 * (top - bottom) or 0.05 * abs(high) or 1.0
    return bottom - margin, top + margin


def _axis_label(name: str) -> str:
    measure = measure_of(name)
    better = "less is better" if name in LESS_IS_BETTER else "more is better"
    return f"{measure.heading} ({better})"


def _looks(findings: Mapping[str, Any]) -> list[dict[str, str]]:
    """Colour and marker of each cell."""
    grid = findings["axes"]
    looks = []
    for cell in findings["cells"]:
        places = [axis["values"].index(cell["settings"][axis["path"]]) for axis in grid]
        marker = MARKERS[places[1] % len(MARKERS)] if len(grid) > 1 else MARKERS[0]
        looks.append({"color": COLORS[places[0] % len(COLORS)], "marker": marker})
    return looks


def _has_no_legend(findings: Mapping[str, Any]) -> bool:
    """Colours and markers that repeat would say the wrong thing."""
    return any(len(axis["values"]) > len(COLORS) for axis in findings["axes"][:2])


def _legend(figure: Any, findings: Mapping[str, Any]) -> None:
    from matplotlib.lines import Line2D

    marks: list[Any] = []
    names: list[str] = []
    if not _has_no_legend(findings):
        for place, axis in enumerate(findings["axes"][:2]):
            key = axis["path"].rpartition(".")[2]
            for i, value in enumerate(axis["values"]):
                color = COLORS[i] if place == 0 else QUIET
                marker = MARKERS[i] if place == 1 else "o"
                if place == 0 and len(findings["axes"]) > 1:
                    marker = "s"  # a swatch: the marker means something else
                marks.append(Line2D([], [], linestyle="none", color=color, marker=marker, markersize=5))
                names.append(label(short(f"{key} {value}", 28)))
    marks += [Line2D([], [], color=INK, linewidth=1.0, linestyle=DASHES)]
    marks += [Line2D([], [], **{**RING, "markersize": 8})]
    names += ["frontier", "reference"]
    columns = 3 if max(map(len, names)) <= 20 else 2
    figure.legend(marks, names, loc="outside lower center", ncols=columns, labelcolor=INK)
