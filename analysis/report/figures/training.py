"""The figure of how models were trained: a panel per model, what its loss and its GAUC had still to gain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cascade_sim.analysis.metrics.convergence import is_unconverged
from cascade_sim.analysis.report.figures.style import COLORS, INK, QUIET, bare, blank, of_arms, short
from cascade_sim.analysis.report.readings import training_lines
from cascade_sim.analysis.statistics.estimates import finite

COLUMNS = 3
SETTLED, GAINING = COLORS[0], COLORS[1]


def training_curves(metrics: Mapping[str, Any]) -> Any | None:
    """Small panels, one per model, with the same axes; None for a study that tells nothing of training."""
    lines = training_lines(metrics)
    if not lines:
        return None
    rows = -(-len(lines) // COLUMNS)
    figure, panels = blank(
        0.9 + 0.95 * rows, nrows=rows, ncols=COLUMNS, sharex=True, sharey=True, squeeze=False
    )
    for axes, (model, line) in zip(panels.flat, lines.items(), strict=False):
        bare(axes, grid="y")
        axes.set_title(short(model, 17), loc="left", color=INK, fontsize=8.0)
        color = GAINING if is_unconverged(line) else SETTLED
        steps = line["steps"]
        shares = [step / max(steps[-1], 1) for step in steps]
        with of_arms(axes, model):
            axes.plot(shares, _left(line["part_loss"]), color=color, linewidth=1.3, zorder=3, label="loss")
            if line.get("gauc"):
                axes.plot(
                    shares, _left(line["gauc"]), color=QUIET, linewidth=0.9, linestyle=(0, (3, 1.5)),
                    label="GAUC",
                )  # fmt: skip
    for axes in panels.flat[len(lines) :]:
        axes.set_axis_off()
    panels.flat[0].set(xlim=(0, 1), ylim=(-15, 100), xticks=[0, 0.5, 1], xticklabels=["0", "½", "1"])
    figure.supxlabel("share of the steps", fontsize=8.0, color=QUIET)
    figure.supylabel("still to gain, % (line: loss, dashed: GAUC)", fontsize=8.0, color=QUIET)
    return figure


def _left(values: Sequence[Any]) -> list[float]:
    """What is left of the way from the first to the last value, in percent; NaN where one is missing."""
    known = [finite(value) for value in values]
    start, end = known[0], known[-1]
    if start is None or end is None or start == end:
        return [float("nan")] * len(known)
    return [float("nan") if value is None else 100 * (value - end) / (start - end) for value in known]
