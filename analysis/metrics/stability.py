"""Does the level of a model's scores settle while it trains, or drift?

`stability` judges any curve, such as the mean score by step of training; `drift_section` that of a market's
deployments, for metrics.json.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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
        """The word that tables show: stable or unstable."""
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


# Deployments that the mark looks at, and needs. A level with independent noise around it is then called
# unstable in 2 % of cases; with 50 it would be 11 %, with 30 21 %. Noise that lasts is taken for drift more
# often: with a correlation of 0.5 between neighbours in 21 % of cases, with 0.8 in 47 %.
LAST = 100
ENDS = 10  # deployments averaged at either end of the stream


def drift_section(
    version: Sequence[int],
    score: Sequence[float | None],
    pcoc: Mapping[str, Sequence[float | None]],
    last: int = LAST,
) -> dict[str, Any]:
    """How an arm's ranker moved over its last deployments, for metrics.json.

    version, score and each of `pcoc` have an entry per measurement: the number of the deployment, its mean
    raw score and, by the name it is to have here, its mean prediction over the mean truth on some set. What
    was there before the first training (version 0) and a deployment measured twice do not count. Returns

        deployments  how many the figures rest on: the last `last`, or fewer
        stable       1 or 0: whether the mean score is level up to its noise (`stability`), so
                     that the mean over worlds is the share of stable ones; None with fewer than `last`
        change       between the ends of the fitted line, in units of the score
        residual     mean distance of the points from that line
        moved        mean of the last ten deployments less that of the first ten, over the whole stream. It
                     has no threshold; None with fewer than twenty
        moved_by     its size, whichever the direction: what may be averaged over worlds
        names of pcoc  the factor by which predictions are typically off: exp(mean |log PCOC|), at least 1

    Each of the last as {"value", "low", "high"} without an interval, None where undefined.
    """
    seen: dict[int, int] = {}
    for i, number in enumerate(version):
        if number > 0:
            seen.setdefault(number, i)
    rows = [seen[number] for number in sorted(seen)][-last:]
    curve = [math.nan if score[i] is None else float(score[i]) for i in rows]  # type: ignore[arg-type]
    has_scores = any(math.isfinite(point) for point in curve)  # a seat without a trained model has none
    moved = _moved([score[seen[number]] for number in sorted(seen)])
    line = stability(curve, last) if len(curve) > 2 and has_scores else None
    return {
        "deployments": len(rows),
        "stable": float(line.is_stable) if line is not None and len(rows) == last else None,
        "change": _entry(line.change if line is not None else math.nan),
        "residual": _entry(line.residual if line is not None else math.nan),
        "moved": _entry(moved),
        "moved_by": _entry(abs(moved)),
        **{name: _entry(_typical_factor([ratios[i] for i in rows])) for name, ratios in pcoc.items()},
    }


def _moved(curve: Sequence[float | None]) -> float:
    """From the first ten points to the last ten; NaN with fewer than twenty, or where one is undefined."""
    ends = [*curve[:ENDS], *curve[-ENDS:]]
    values = [math.nan if point is None else point for point in ends]
    if len(curve) < 2 * ENDS:
        return math.nan
    return (math.fsum(values[ENDS:]) - math.fsum(values[:ENDS])) / ENDS


def _typical_factor(ratios: Sequence[float | None]) -> float:
    """exp(mean |log r|) of the positive ones; NaN if there are none."""
    logs = [abs(math.log(r)) for r in ratios if r is not None and r > 0]
    return math.exp(math.fsum(logs) / len(logs)) if logs else math.nan


def _entry(value: float) -> dict[str, float | None]:
    return {"value": value if math.isfinite(value) else None, "low": None, "high": None}
