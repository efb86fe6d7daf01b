"""Does the level of a model's scores settle while it trains, or drift?

`stability` is the mark of the paper on scale calibration, for any curve, such as the mean score by step of
training. It takes neighbouring points for independent: noise that lasts is called drift. `drift_section`
judges the curve of a market's deployments for metrics.json, by that mark and by tests that are right under
correlated noise (analysis.statistics.levels), once the first deployments are left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cascade_sim.analysis.statistics.levels import LEAST, stationarity_test

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
    """The paper's mark: whether the last points of a curve are level up to their noise.

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


# Deployments that the paper's mark looks at, and needs. A level with independent noise around it is then
# called unstable in 2 % of cases; with 50 it would be 11 %, with 30 21 %. Noise that lasts is taken for drift
# more often: with a correlation of 0.5 between neighbours in 21 % of cases, with 0.8 in 47 %.
LAST = 100
ENDS = 10  # deployments averaged at either end of the stream
TRANSIENT = 3  # the first of so many parts of the deployments is left out, unless told otherwise


def deployments_of(version: Sequence[int], after: int | None = None) -> tuple[list[int], list[int]]:
    """Where each deployment is first measured, in order; and the part of it that is past the transient.

    version: the number of the deployment of each measurement. Version 0, from before the first training, is
    none, and a deployment measured twice counts once. `after` are left out at the start; None: a third.
    """
    seen: dict[int, int] = {}
    for i, number in enumerate(version):
        if number > 0:
            seen.setdefault(number, i)
    rows = [seen[number] for number in sorted(seen)]
    return rows, rows[len(rows) // TRANSIENT if after is None else after :]


def drift_section(
    version: Sequence[int],
    score: Sequence[float | None],
    pcoc: Mapping[str, Sequence[float | None]],
    last: int = LAST,
    after: int | None = None,
) -> dict[str, Any]:
    """How an arm's ranker moved over its deployments, for metrics.json.

    version, score and each of `pcoc` have an entry per measurement: the number of the deployment, its mean
    raw score and, by the name it is to have here, its mean prediction over the mean truth on some set;
    `after` as in `deployments_of`. Returns

        deployments     how many there are
        judged          how many are past the transient: what all but `moved` and the paper's mark rest on
        drifting        1 or 0: whether a level that returns is rejected (`stationarity_test`), so that
                        the mean over worlds is the share of those that drift; None with fewer than 50 judged
        stationary      1 or 0: whether that is not rejected, and a random walk is; neither: inconclusive
        slope           of the mean score, per deployment, with a 95 % interval for correlated noise
        persistence     the part of a departure from the level that is left one deployment later
        unit_root       the statistic of Dickey and Fuller: the lower, the surer the score comes back
        slope_p, persistence_p, unit_root_p, drift_p    as in `StationarityTest`
        moved           mean of the last ten deployments less that of the first ten, over the whole stream. It
                        has no threshold; None with fewer than twenty
        moved_by        its size, whichever the direction: what may be averaged over worlds
        names of pcoc   the factor by which predictions are typically off: exp(mean |log PCOC|), at least 1
        paper_stable    1 or 0: the paper's mark over the last `last` deployments; None with fewer
        paper_change    between the ends of its line
        paper_residual  mean distance of the points from that line

    Slope, persistence, unit_root, moved, the names of pcoc and the paper's two lengths as {"value", "low",
    "high"}, where None is what is undefined.
    """
    rows, judged = deployments_of(version, after)
    curve = [math.nan if score[i] is None else float(score[i]) for i in rows]  # type: ignore[arg-type]
    has_scores = any(math.isfinite(point) for point in curve)  # a stage without a trained model has none
    moved = _moved(curve)
    line = stability(curve, last) if len(curve) > 2 and has_scores else None
    return {
        "deployments": len(rows),
        "judged": len(judged),
        **_level(curve[len(rows) - len(judged) :] if has_scores else []),
        "moved": _entry(moved),
        "moved_by": _entry(abs(moved)),
        **{name: _entry(_typical_factor([ratios[i] for i in judged])) for name, ratios in pcoc.items()},
        "paper_stable": float(line.is_stable) if line is not None and len(rows) >= last else None,
        "paper_change": _entry(line.change if line is not None else math.nan),
        "paper_residual": _entry(line.residual if line is not None else math.nan),
    }


def _level(curve: Sequence[float]) -> dict[str, Any]:
    """What `stationarity_test` says of a curve; all None of one that is too short."""
    found = stationarity_test(curve) if len(curve) >= LEAST else None

    def of(name: str) -> float:
        return math.nan if found is None else float(getattr(found, name))

    return {
        "drifting": None if found is None else float(found.is_drifting),
        "stationary": None if found is None else float(found.is_stationary),
        "slope": _entry(of("slope"), of("low"), of("high")),
        "persistence": _entry(of("persistence")),
        "unit_root": _entry(of("unit_root")),
        **{name: _number(of(name)) for name in ("slope_p", "persistence_p", "unit_root_p", "drift_p")},
    }


def _moved(curve: Sequence[float]) -> float:
    """From the first ten points to the last ten; NaN with fewer than twenty, or where one is undefined."""
    if len(curve) < 2 * ENDS:
        return math.nan
    return (math.fsum(curve[-ENDS:]) - math.fsum(curve[:ENDS])) / ENDS


def _typical_factor(ratios: Sequence[float | None]) -> float:
    """exp(mean |log r|) of the positive ones; NaN if there are none."""
    logs = [abs(math.log(r)) for r in ratios if r is not None and r > 0]
    return math.exp(math.fsum(logs) / len(logs)) if logs else math.nan


def _entry(value: float, low: float = math.nan, high: float = math.nan) -> dict[str, float | None]:
    return {"value": _number(value), "low": _number(low), "high": _number(high)}


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None
