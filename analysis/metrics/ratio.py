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
