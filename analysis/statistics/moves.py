"""Whether a ratio of sums moved between two runs, and how small a move would have been seen.

A metric is r = T / B with T and B summed over G groups of consecutive requests. With group sums t_g, b_g

    log(r' / r) = log(T'/T) - log(B'/B),   influence of a group  u_g = (t'_g/T' - b'_g/B') - (t_g/T - b_g/B)

and, since the u_g add up to 0, its variance is about G / (G - 1) * sum of u_g^2 (the delta method). On the
same traffic a group keeps its number in both runs, and what both have in common cancels in u_g (paired); on
other traffic the two halves of u_g are independent and their variances add (unpaired, Welch's degrees of
freedom). Intervals are Student's, on the log scale, and are given as relative changes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
ROUNDING = 1e-9  # relative: sums are kept to ten digits, so below this a move is arithmetic and no change
POWER = 0.95
FEWEST_DAYS = 5  # as for the market's lifts: below, a t interval over days says next to nothing


@dataclass(frozen=True)
class Move:
    """A metric before and after: log is log(after / before), se its standard error, df degrees of freedom.

    A metric that is gone (0 or undefined after) has log -inf and se 0.
    """

    log: float
    se: float
    df: float

    @property
    def relative(self) -> float:
        """after / before - 1."""
        return math.expm1(self.log)

    @property
    def is_rounding(self) -> bool:
        """Whether there is nothing but the last digits to it."""
        return abs(self.log) <= ROUNDING

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Relative change, low and high."""
        half = student(self.df, 0.5 + confidence / 2) * self.se
        return math.expm1(self.log - half), math.expm1(self.log + half)

    def p_value(self) -> float:
        """Two-sided, of no change; 1 for a move within rounding, 0 for one that all groups share exactly."""
        from scipy.special import stdtr  # type: ignore[import-untyped]

        if self.is_rounding:
            return 1.0
        if self.se == 0.0 or math.isinf(self.log):
            return 0.0
        return float(2.0 * stdtr(self.df, -abs(self.log) / self.se))

    def smallest_seen(self, alpha: float, tolerance: float = 0.0, power: float = POWER) -> float:
        """The relative change that fails with this probability, given what moves by chance.

        A move fails when |log| > max(t(1 - alpha/2) se, log(1 + tolerance)); on top comes t(power) se.
        """
        bar = max(student(self.df, 1.0 - alpha / 2) * self.se, math.log1p(tolerance))
        return math.expm1(bar + student(self.df, power) * self.se)


def student(df: float, probability: float) -> float:
    """Quantile of Student's t."""
    from scipy.special import stdtrit

    return float(stdtrit(df, probability))


def paired_move(before: tuple[ArrayLike, ArrayLike], after: tuple[ArrayLike, ArrayLike]) -> Move:
    """The same requests in both runs. (top [G], bottom [G]) each; top and bottom of `before` sum to > 0."""
    old, new = _shares(*before), _shares(*after)
    if old is None:
        raise ValueError("before: top and bottom must add up to more than 0")
    if new is None:
        return Move(-math.inf, 0.0, len(old[1]) - 1.0)
    if len(old[1]) != len(new[1]):
        raise ValueError(f"{len(old[1])} groups before and {len(new[1])} after cannot be paired")
    return Move(new[0] - old[0], math.sqrt(_variance(new[1] - old[1])), len(old[1]) - 1.0)


def day_move(before: tuple[ArrayLike, ArrayLike], after: tuple[ArrayLike, ArrayLike]) -> Move:
    """Days of a market as groups: paired, or without a standard error (0) if they are fewer than FEWEST_DAYS.

    Then every move beyond rounding counts as one.
    """
    top, bottom = (np.asarray(part, np.float64) for part in after)
    if len(top) >= FEWEST_DAYS:
        return paired_move(before, after)
    total, below, old_total, old_below = (math.fsum(np.asarray(x)) for x in (top, bottom, *before))
    if not (total > 0 and below > 0):
        return Move(-math.inf, 0.0, 1.0)
    return Move(math.log(total / below) - math.log(old_total / old_below), 0.0, 1.0)


def unpaired_move(before: tuple[ArrayLike, ArrayLike], after: tuple[ArrayLike, ArrayLike]) -> Move:
    """Other requests in the second run; shapes as in `paired_move`, group numbers may differ."""
    old, new = _shares(*before), _shares(*after)
    if old is None:
        raise ValueError("before: top and bottom must add up to more than 0")
    if new is None:
        return Move(-math.inf, 0.0, len(old[1]) - 1.0)
    parts = [(_variance(u), len(u) - 1.0) for u in (old[1], new[1])]
    total = sum(variance for variance, _ in parts)
    spread = sum(variance**2 / df for variance, df in parts)
    df = total**2 / spread if spread > 0 else sum(df for _, df in parts)
    return Move(new[0] - old[0], math.sqrt(total), df)


def _shares(top: ArrayLike, bottom: ArrayLike) -> tuple[float, Floats] | None:
    """log(T / B) and t_g/T - b_g/B  [G]; None if T or B is not above 0."""
    t, b = np.asarray(top, np.float64), np.asarray(bottom, np.float64)
    if t.ndim != 1 or t.shape != b.shape or len(t) < 2:
        raise ValueError(f"sums must be two columns of one length, 2 or more, not {t.shape} and {b.shape}")
    total, below = math.fsum(t), math.fsum(b)
    if not (total > 0 and below > 0):
        return None
    return math.log(total) - math.log(below), t / total - b / below


def _variance(u: Floats) -> float:
    return float(len(u) / (len(u) - 1) * math.fsum(u * u))


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values adjusted so that rejecting those <= alpha errs anywhere with probability <= alpha (Holm 1979).

    The i-th smallest of m is multiplied by m - i (i from 0), and none may fall below the one before it.
    """
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted, worst = [1.0] * len(p_values), 0.0
    for rank, i in enumerate(order):
        worst = max(worst, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = worst
    return adjusted


def holm_alpha(p_values: Sequence[float], alpha: float) -> list[float]:
    """The level at which Holm's procedure judged each hypothesis.

    Those it rejects were held against alpha / (m - rank); all others against the level at which it stopped.
    """
    m, levels = len(p_values), [alpha] * len(p_values)
    order, stopped = sorted(range(m), key=lambda i: p_values[i]), None
    for rank, i in enumerate(order):
        if stopped is None and p_values[i] > alpha / (m - rank):
            stopped = alpha / (m - rank)
        levels[i] = stopped if stopped is not None else alpha / (m - rank)
    return levels


def binomial_band(hits: int, trials: int, confidence: float = 0.95) -> tuple[float, float]:
    """Clopper and Pearson's interval of a probability: exact, so at least as wide as it says."""
    from scipy.special import betaincinv

    tail = (1.0 - confidence) / 2
    low = float(betaincinv(hits, trials - hits + 1, tail)) if hits else 0.0
    high = float(betaincinv(hits + 1, trials - hits, 1.0 - tail)) if hits < trials else 1.0
    return low, high
