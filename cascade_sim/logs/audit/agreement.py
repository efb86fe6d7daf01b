"""Where the most intervals meet: a parameter that explains the most prices exactly, and how far it may move.

A price that was logged to the cent leaves an interval of exponents, reserves or factors that would have given
it. The point that lies in the most of these intervals explains the most prices; chance does not bring
thousands of narrow intervals to one point, so what contradicts it (another cause, an error of the log) does
no harm.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import floor, log

import numpy as np

ENOUGH = 1.92  # half of the 95 % quantile of chi square with one degree of freedom: a likelihood interval
DIGITS = 12


@dataclass(frozen=True)
class Agreement:
    """How many of `of` intervals meet in [low, high]; `value` is the number of fewest digits in it."""

    count: int
    of: int
    low: float
    high: float
    value: float

    @property
    def share(self) -> float:
        return self.count / self.of if self.of else 0.0


NONE = Agreement(0, 0, -np.inf, np.inf, np.nan)


def agreement(
    low: np.ndarray, high: np.ndarray, within: tuple[float, float] = (-np.inf, np.inf), chance: float = 0.01
) -> Agreement:
    """The points that lie in the most of the intervals [low, high], as far as they lie `within`.

    The interval of them is one of 95 % likelihood: every interval lost costs log((1 - e) / (e c)), with e the
    share of those that do not meet and c the chance that one holds any given point.

    >>> agreement(np.array([0.9, 0.4, 0.99]), np.array([1.2, 1.05, 1.01])).value
    1.0
    """
    is_of_use = (low <= high) & (high >= within[0]) & (low <= within[1])
    low, high = np.maximum(low[is_of_use], within[0]), np.minimum(high[is_of_use], within[1])
    n = len(low)
    if n == 0:
        return NONE
    lows, highs = np.sort(low), np.sort(high)
    points = np.unique(np.concatenate([lows, highs]))
    counts = np.searchsorted(lows, points, "right") - np.searchsorted(highs, points, "left")
    most = int(counts.max())
    wrong = (n - most) / n
    slack = 0
    if wrong > 0:
        price = log((1 - wrong) / (wrong * chance)) if wrong < 1 else 0.0
        slack = floor(ENOUGH / price) if price > 0 else n
    good = points[counts >= max(1, most - slack)]
    left, right = float(good[0]), float(good[-1])
    # Where as many meet in several places, the widest is taken: it ends where the first interval does.
    begins = points[counts == most]
    ends = highs[np.searchsorted(highs, begins, "left")]
    with np.errstate(invalid="ignore"):  # infinity alone is no place
        at = int(np.argmax(np.nan_to_num(ends - begins, nan=-1.0, posinf=np.inf)))
    return Agreement(most, n, left, right, roundest(float(begins[at]), float(ends[at])))


def roundest(low: float, high: float) -> float:
    """The number of fewest decimals between two, the one nearest to their middle.

    >>> roundest(0.4996, 0.50003), roundest(0.12, 0.12)
    (0.5, 0.12)
    """
    if not np.isfinite(low) or not np.isfinite(high):
        ends = [end for end in (low, high) if np.isfinite(end)]
        return ends[0] if ends else np.nan
    middle = (low + high) / 2
    for digits in range(DIGITS + 1):
        near = round(middle, digits)
        if low <= near <= high:
            return near
        step = 10.0**-digits
        first = np.ceil(low / step) * step  # the middle may round away from a number that lies inside
        if first <= high:
            return round(float(first), digits)
    return middle


def commonest(values: np.ndarray) -> tuple[int, int]:
    """The value that occurs most often, and how often; of equals the least."""
    if len(values) == 0:
        return 0, 0
    found, counts = np.unique(values, return_counts=True)
    at = int(np.argmax(counts))
    return int(found[at]), int(counts[at])
