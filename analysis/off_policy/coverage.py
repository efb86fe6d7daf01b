"""Do 95 % intervals cover in 95 of 100 logs? Estimates of many replications compared with the truth.

Columns [M] hold one estimator's answers to one question, a replication each; NaN where it gave none. Coverage
is among the answers given: an estimator without any has none.

False alarms: two independent logs of one policy are compared. The interval of the difference d = a - b is
made of the two intervals (MOVER; Zou and Donner 2008), which need not be symmetric:

    low = d - sqrt((a - low_a)^2 + (high_b - b)^2),    high = d + sqrt((high_a - a)^2 + (b - low_b)^2)

It is a false positive if that excludes 0. Replications 1 and 2, 3 and 4, ... are compared: no log is used
twice.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
CoverageVerdict = Literal["holds", "too seldom", "wider than needed"]

NOMINAL = 0.95
BAND = 0.998  # of right intervals, a count inside the band of `expected_band` comes so often
MIN_ANSWERS = 20  # fewer say nothing about coverage


@dataclass(frozen=True)
class Share:
    """Hits among n with Wilson's 95 % interval; None without any."""

    n: int
    value: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Coverage:
    """Coverage, bias and width of an estimator's answers to a question, over all replications."""

    replications: int
    no_estimate: float  # share
    truth: float
    bias: float | None  # mean error of the answers
    bias_low: float | None  # 95 % interval of that mean
    bias_high: float | None
    rmse: float | None
    coverage: Share
    width: float | None  # mean width of the intervals
    false_positive_rate: Share

    @property
    def verdict(self) -> CoverageVerdict | None:
        """Whether the coverage is one that right intervals have; None if too few answers were given."""
        if self.coverage.value is None or self.coverage.n < MIN_ANSWERS:
            return None
        low, high = expected_band(self.coverage.n)
        if self.coverage.value < low:
            return "too seldom"
        return "holds" if self.coverage.value <= high else "wider than needed"


def coverage_of(value: Floats, low: Floats, high: Floats, truth: float) -> Coverage:
    """Coverage, bias and width of an estimator's answers and interval ends [M], NaN for no estimate."""
    is_given = np.isfinite(low) & np.isfinite(high)
    n = int(is_given.sum())
    covers = (low[is_given] <= truth) & (truth <= high[is_given])
    error = value[is_given] - truth
    bias = half = rmse = width = None
    if n:
        bias, rmse = float(error.mean()), float(math.sqrt(np.mean(error**2)))
        width = float((high - low)[is_given].mean())
        half = 1.96 * float(error.std(ddof=1)) / math.sqrt(n) if n > 1 else None
    return Coverage(
        replications=len(value),
        no_estimate=1.0 - n / len(value),
        truth=truth,
        bias=bias,
        bias_low=None if bias is None or half is None else bias - half,
        bias_high=None if bias is None or half is None else bias + half,
        rmse=rmse,
        coverage=share(int(covers.sum()), n),
        width=width,
        false_positive_rate=false_positive_rate(value, low, high),
    )


def false_positive_rate(value: Floats, low: Floats, high: Floats) -> Share:
    """How often neighbouring replications, of one policy, seem to differ; without pairs that lack one."""
    pairs = len(value) // 2
    a, b = (slice(0, 2 * pairs, 2), slice(1, 2 * pairs, 2))
    is_given = np.isfinite(low[a]) & np.isfinite(low[b])
    apart = value[a] - value[b]
    below = np.sqrt((value[a] - low[a]) ** 2 + (high[b] - value[b]) ** 2)
    above = np.sqrt((high[a] - value[a]) ** 2 + (value[b] - low[b]) ** 2)
    is_alarm = is_given & ((apart - below > 0) | (apart + above < 0))
    return share(int(is_alarm.sum()), int(is_given.sum()))


def share(hits: int, n: int) -> Share:
    """Wilson's interval: it stays within 0 and 1 and is right for shares near them."""
    if n == 0:
        return Share(0, None, None, None)
    z2 = 1.959964**2
    p = hits / n
    centre = (p + z2 / (2 * n)) / (1 + z2 / n)
    half = math.sqrt(z2 * (p * (1 - p) / n + z2 / (4 * n * n))) / (1 + z2 / n)
    return Share(n, p, max(0.0, centre - half), min(1.0, centre + half))


def expected_band(n: int) -> tuple[float, float]:
    """Coverages that right 95 % intervals show in n replications, with 99.8 % probability."""
    from scipy.stats import binom  # type: ignore[import-untyped]

    outside = (1.0 - BAND) / 2
    low, high = binom.ppf([outside, 1.0 - outside], n, NOMINAL)
    return float(low) / n, float(high) / n
