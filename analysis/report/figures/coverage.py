"""The figure of coverage: how often each estimator's interval holds the truth, by target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cascade_sim.analysis.off_policy.coverage import MIN_ANSWERS, NOMINAL, Coverage, expected_band
from cascade_sim.analysis.report.figures.parts import image_bytes
from cascade_sim.analysis.report.figures.style import COLORS, INK, LEAST, QUIET, bare, blank, short
from cascade_sim.analysis.report.readings import ESTIMATOR_NAMES

TITLE = "Coverage of 95 % intervals by estimator and target"
LOWEST = 85.0  # percent: below it, a mark at the edge says how far
MARKS = {"holds": COLORS[0], "too seldom": COLORS[1], "wider than needed": COLORS[4]}


def coverage_figure(rows: Mapping[str, Mapping[str, Coverage]]) -> Any:
    """A panel per estimator, a row per target: coverage with its 95 % interval, the band of right ones."""
    parameter_targets = {t: cells for t, cells in rows.items() if "ips" in cells}
    page_targets = {t: cells for t, cells in rows.items() if "slate_ips" in cells}
    parts = [part for part in (parameter_targets, page_targets) if part]
    most = max(len(next(iter(part.values()))) for part in parts)
    heights = [0.34 * len(part) + 0.2 for part in parts]
    figure, grid = blank(
        0.9 + sum(heights) + 0.35 * len(parts),
        nrows=len(parts),
        ncols=most,
        squeeze=False,
        sharey="row",
        sharex=True,
        gridspec_kw={"height_ratios": heights},
    )
    figure.set_size_inches(1.5 + 1.25 * most, figure.get_size_inches()[1])
    for line, part in zip(grid, parts, strict=True):
        names = list(next(iter(part.values())))
        for axes in line[len(names) :]:
            axes.remove()
        for axes, name in zip(line, names, strict=False):
            _panel(axes, [cells.get(name) for cells in part.values()])
            axes.set_title(ESTIMATOR_NAMES.get(name, name), loc="left", fontsize=8.0, color=INK)
            axes.tick_params(labelbottom=True)
        line[0].set_yticks(range(len(part)), [short(target, 16) for target in part])
    grid[0][0].set_xlim(LOWEST - 1, 101)
    grid[0][0].set_xticks([85, 90, 95, 100], ["≤85", "90", "95", "100"])
    figure.supxlabel("answers whose interval holds the truth, %", fontsize=8.5, color=INK)
    _legend(figure)
    return figure


def _panel(axes: Any, cells: Sequence[Coverage | None]) -> None:
    bare(axes, grid="x", left=False)
    axes.axvline(100 * NOMINAL, color=QUIET, linewidth=0.9, zorder=1)
    axes.set_ylim(len(cells) - 0.5, -0.5)
    for at, cell in enumerate(cells):
        if cell is None:
            continue
        if cell.coverage.n < MIN_ANSWERS or cell.coverage.value is None:
            axes.axhspan(
                at - 0.4, at + 0.4, facecolor="#EEF0F3", edgecolor="#C3CAD3", hatch="////", linewidth=0
            )
            axes.text(93, at, "no estimate", ha="center", va="center", fontsize=LEAST, color=QUIET)
            continue
        low, high = expected_band(cell.coverage.n)
        axes.fill_betweenx(
            [at - 0.4, at + 0.4], 100 * low, 100 * high, color="#DCE8F2", linewidth=0, zorder=0.5
        )
        color = MARKS[cell.verdict or "holds"]
        ends = [max(100 * end, LOWEST) for end in (cell.coverage.low or 0, cell.coverage.high or 0)]
        value = 100 * cell.coverage.value
        axes.plot(ends, [at, at], color=color, linewidth=1.3, zorder=2)
        axes.plot([max(value, LOWEST)], [at], marker="o" if value >= LOWEST else "<", markersize=4.0,
                  color=color, zorder=3)  # fmt: skip
        if value < LOWEST:
            axes.text(LOWEST + 1.2, at, f"{value:.0f}", va="center", fontsize=LEAST, color=color)
        if cell.no_estimate > 0.005:
            text = f"{100 * cell.no_estimate:.0f} % no estimate"
            axes.text(100.8, at + 0.36, text, ha="right", va="bottom",
                      fontsize=LEAST, color=QUIET)  # fmt: skip


def _legend(figure: Any) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    entries = {
        "covers as it should": Line2D([], [], color=MARKS["holds"], marker="o", markersize=4.0),
        "too seldom": Line2D([], [], color=MARKS["too seldom"], marker="o", markersize=4.0),
        "wider than needed": Line2D([], [], color=MARKS["wider than needed"], marker="o", markersize=4.0),
        "99.8 % band": Patch(color="#DCE8F2"),
        "no estimate": Patch(facecolor="#EEF0F3", edgecolor="#C3CAD3", hatch="////", linewidth=0),
    }
    figure.legend(list(entries.values()), list(entries), loc="outside upper center", ncols=5)


def coverage_image(rows: Mapping[str, Mapping[str, Coverage]], kind: str) -> bytes:
    """The figure as the bytes of a file: kind "png" or "svg"."""
    return image_bytes(lambda: coverage_figure(rows), "coverage", TITLE, kind)
