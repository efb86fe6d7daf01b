"""Does a model's level settle while it trains, or drift?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

_SETTLED = 1e-9  # a change below this share of the level is rounding, not drift


@dataclass(frozen=True)
class Stability:
    """A line fitted to the end of a curve: what it rises by, and how far the points lie from it."""

    change: float  # between the two ends of the fitted line, signed; NaN if it cannot be fitted
    residual: float  # mean |point − line|
    is_stable: bool

    @property
    def mark(self) -> str:
        """For tables."""
        return "stable" if self.is_stable else "unstable"


def stability(curve: ArrayLike, last: int = 100) -> Stability:
    """Whether the last points of a curve (the mean score at each evaluation) are level up to their noise.

    Fits a least-squares line to the last `last` points: unstable if |change between the line's ends| is more
    than the mean |residual|. With independent noise around a level, 100 points are called unstable about once
    in fifty times. A change of less than a billionth of the level is stable whatever the residual. A curve
    that is not finite there has diverged: unstable. Fewer than three points cannot be judged: ValueError.
    """
    points = np.asarray(curve, np.float64)
    if points.ndim != 1 or last < 3 or points.size < 3:
        raise ValueError(f"a trend takes a flat curve and at least 3 points, not {points.shape}, last={last}")
    points = points[-last:]
    if not np.isfinite(points).all():
        return Stability(np.nan, np.nan, False)
    level = np.abs(points).max()
    x = np.arange(points.size) - (points.size - 1) / 2.0
    y = points - points[0]  # a constant becomes exactly 0
    slope = float((x * y).sum() / (x * x).sum())
    change = slope * (points.size - 1)
    residual = float(np.abs(y - y.mean() - slope * x).mean())
    return Stability(change, residual, bool(abs(change) <= max(residual, _SETTLED * level)))
