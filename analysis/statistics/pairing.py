"""What common random numbers are worth: how much surer a difference is when both arms meet the same requests.

Traffic is cut into G stretches of consecutive requests; a_g and b_g are the means of two arms on stretch g.

paired        d_g = b_g - a_g: the same requests and the same luck
independent   u_g = b_h - a_g with h another stretch: other requests and other luck

The worth is Var(u) / Var(d). Var(u) is the mean of the sample variance of u over all ways to shift the second
arm by 1 to G - 1 stretches. Over all shifts the covariance of b with a sums to 0, so that mean is

    Var(a) + Var(b) + 2 Cov(a, b) / (G - 1)

World and models are the same on both sides; with other worlds the independent variance would be larger still.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cascade_sim.analysis.statistics.bootstrap import resample_counts, sum_groups

Floats = NDArray[np.float64]
STRETCHES = 128
FEWEST = 8  # with fewer stretches a variance says nothing


def worth_of_pairing(
    today: ArrayLike, then: ArrayLike, resamples: int, seed: int, stretches: int = STRETCHES
) -> dict[str, Any]:
    """{"value", "low", "high"}: how many times pairing shrinks the variance of a difference of means.

    today, then [R]: what two arms got from the same requests. Intervals (95 %) by resampling stretches.
    All None if the arms never differ (pairing leaves no variance at all) or there are too few requests.
    """
    ones = np.ones(len(np.asarray(today)))
    sums = np.stack([np.asarray(today, np.float64), np.asarray(then, np.float64), ones], axis=1)
    groups = sum_groups(sums, stretches)
    nothing = {"value": None, "low": None, "high": None}
    if len(groups) < FEWEST:
        return nothing
    a, b = groups[:, 0] / groups[:, 2], groups[:, 1] / groups[:, 2]
    if np.array_equal(a, b):
        return nothing
    n = len(a)
    drawn = [variance_ratio(a, b, np.ones((1, n)))]
    drawn += [variance_ratio(a, b, counts) for counts in resample_counts(n, resamples, seed)]
    ratios = np.concatenate(drawn)
    again = ratios[1:][np.isfinite(ratios[1:])]
    low, high = np.percentile(again, [2.5, 97.5]) if len(again) >= 0.95 * (len(ratios) - 1) else (None, None)
    return {"value": _number(ratios[0]), "low": _number(low), "high": _number(high)}


def variance_ratio(a: Floats, b: Floats, counts: Floats) -> Floats:
    """Var(u) / Var(d) of stretches taken so many times each.  [G], [G], [B, G] -> [B]; inf if Var(d) = 0"""
    n = counts.sum(axis=1)
    mean_a, mean_b = counts @ a / n, counts @ b / n
    off_a, off_b = a - mean_a[:, None], b - mean_b[:, None]
    var_a = (counts * off_a**2).sum(axis=1) / (n - 1)
    var_b = (counts * off_b**2).sum(axis=1) / (n - 1)
    covariance = (counts * off_a * off_b).sum(axis=1) / (n - 1)
    paired = (counts * (off_b - off_a) ** 2).sum(axis=1) / (n - 1)
    independent = var_a + var_b + 2.0 * covariance / (n - 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(paired > 0, independent / paired, np.inf)


def _number(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)
