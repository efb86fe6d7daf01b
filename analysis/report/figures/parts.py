"""What several figures are made of: error bars, panels with common axes, the bytes of an image file."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from cascade_sim.analysis.report.figures.style import bare, blank, of_arms, style, svg_text
from cascade_sim.analysis.statistics.estimates import Estimate

DPI = 200


def error_bar(what: Estimate) -> list[list[float]] | None:
    """Distances below and above the value, as matplotlib wants them; None without an interval."""
    if what.value is None or what.low is None or what.high is None:
        return None
    return [[max(what.value - what.low, 0.0)], [max(what.high - what.value, 0.0)]]


def band(axes: Any, curve: Sequence[tuple[float, Estimate]], factor: float = 1.0, **look: Any) -> None:
    """The intervals around a line of (x, estimate), where there are any."""
    bounds = [
        (x, factor * value.low, factor * value.high)
        for x, value in curve
        if value.low is not None and value.high is not None
    ]
    if bounds:
        xs, low, high = zip(*bounds, strict=True)
        axes.fill_between(xs, low, high, linewidth=0, **look)


def joined(
    axes: Any, arms: Sequence[str], spots: Sequence[tuple[float, float]], look: Mapping[str, Any]
) -> None:
    """Neighbours joined by lines, each of which belongs to both arms: with either switched off it goes."""
    ends = list(zip(arms, spots, strict=True))
    for (arm, (x0, y0)), (other, (x1, y1)) in pairwise(ends):
        with of_arms(axes, *dict.fromkeys((arm, other))):
            axes.plot([x0, x1], [y0, y1], **look)


def small_multiples(n: int, per_row: int, height: Callable[[int], float]) -> tuple[Any, list[Any]]:
    """`n` panels with common axes; the figure, as high as so many rows need, and the panels as one reads."""
    columns = min(n, per_row)
    rows = math.ceil(n / columns)
    figure, grid = blank(height(rows), nrows=rows, ncols=columns, sharex=True, sharey=True, squeeze=False)
    panels = list(grid.flat)
    for spare in panels[n:]:
        spare.remove()
    for i, axes in enumerate(panels[:n]):
        bare(axes)
        if i >= n - columns:  # the lowest of its column
            axes.tick_params(labelbottom=True)
    return figure, panels[:n]


def png_bytes(figure: Any, dpi: int = DPI) -> bytes:
    """The figure as a PNG file, the same wherever it is written."""
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=dpi, metadata={"Software": None})
    return out.getvalue()


def image_bytes(draw: Callable[[], Any], name: str, title: str, kind: str) -> bytes:
    """What `draw` draws as a file: kind "png" or "svg"."""
    with style(name):
        figure = draw()
        return svg_text(figure, name, title).encode() if kind == "svg" else png_bytes(figure)
