"""The last step of most metrics: one sum over another."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def divide(numerator: ArrayLike, denominator: ArrayLike) -> NDArray[np.float64]:
    """numerator / denominator in float64; NaN where the denominator is zero or NaN; never a warning."""
    top, bottom = np.broadcast_arrays(np.asarray(numerator, np.float64), np.asarray(denominator, np.float64))
    result = np.full(top.shape, np.nan)
    with np.errstate(over="ignore", invalid="ignore"):
        np.divide(top, bottom, out=result, where=(bottom != 0) & ~np.isnan(bottom))
    return result


def mean_parts(values: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """What to sum for a mean over requests: the values and 1, both 0 where one is NaN.  [R] -> [R], [R]"""
    values = np.asarray(values, np.float64)
    is_defined = ~np.isnan(values)
    return np.where(is_defined, values, 0.0), is_defined.astype(np.float64)
