"""Labels beside points that keep out of each other's way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

# Where a label may stand, by preference: (x offset, y offset in points, alignment).
SPOTS = [
    (reach * x, reach * y, horizontal, vertical)
    for reach in (1.0, 1.9, 3.0)
    for x, y, horizontal, vertical in (
        (7, 5, "left", "bottom"),
        (-7, 5, "right", "bottom"),
        (7, -5, "left", "top"),
        (-7, -5, "right", "top"),
        (0, 8, "center", "bottom"),
        (0, -8, "center", "top"),
        (9, 0, "left", "center"),
        (-9, 0, "right", "center"),
    )
]


def _overlap(a: Any, b: Any) -> float:
    """Area that two boxes share, in square pixels."""
    wide = min(a.x1, b.x1) - max(a.x0, b.x0)
    high = min(a.y1, b.y1) - max(a.y0, b.y0)
    return max(wide, 0.0) * max(high, 0.0)


def _outside(box: Any, frame: Any) -> float:
    """Area of the box outside the frame."""
    return box.width * box.height - _overlap(box, frame)


def place_labels(
    axes: Any,
    points: Sequence[tuple[float, float]],
    names: Sequence[str],
    colors: Sequence[str],
    bars: Sequence[tuple[float, float, float, float]],
) -> None:
    """Write each name near its point, greedily choosing the spot that covers least of what is already there.

    `bars` are data boxes (x0, x1, y0, y1), one per interval bar, that labels avoid.
    """
    from matplotlib.transforms import Bbox

    axes.figure.canvas.draw()  # settles the layout, so that positions in pixels are final
    renderer = axes.figure.canvas.get_renderer()
    to_pixels = axes.transData.transform
    taken = []
    for x0, x1, y0, y1 in bars:
        (left, low), (right, high) = to_pixels((x0, y0)), to_pixels((x1, y1))
        taken.append(Bbox.from_extents(left - 4, low - 3, right + 4, high + 3))
    for point in points:
        x, y = to_pixels(point)
        taken.append(Bbox.from_extents(x - 5, y - 5, x + 5, y + 5))
    frame = axes.get_window_extent(renderer)
    for (x, y), name, color in zip(points, names, colors, strict=True):
        best = None
        for dx, dy, horizontal, vertical in SPOTS:
            text = axes.annotate(
                name,
                (x, y),
                (dx, dy),
                textcoords="offset points",
                ha=horizontal,
                va=vertical,
                color=color,
                fontsize=8.0,
                annotation_clip=False,
            )
            box = text.get_window_extent(renderer)
            cost = (
                sum(_overlap(box, other) for other in taken)
                + 4 * _outside(box, frame)
                + 0.5 * (abs(dx) + abs(dy))
            )
            text.remove()
            if best is None or cost < best[0] - 1e-6:
                best = (cost, dx, dy, horizontal, vertical, box)
        assert best is not None  # SPOTS is not empty
        _, dx, dy, horizontal, vertical, box = best
        far = abs(dx) + abs(dy) > 14
        arrow = (
            {"arrowstyle": "-", "color": color, "linewidth": 0.6, "shrinkA": 0, "shrinkB": 3} if far else None
        )
        axes.annotate(
            name,
            (x, y),
            (dx, dy),
            textcoords="offset points",
            ha=horizontal,
            va=vertical,
            color=color,
            fontsize=8.0,
            arrowprops=arrow,
            annotation_clip=False,
        )
        taken.append(box)
