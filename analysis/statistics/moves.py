"""Whether one thing differs from another: runs by a ratio of sums, rankers by order and scale.

Moves: did a ratio r = T / B move between two runs, and how small a move would have been seen? T and B are
summed over G groups of consecutive requests. With group sums t_g, b_g

    log(r' / r) = log(T'/T) - log(B'/B),   influence of a group  u_g = (t'_g/T' - b'_g/B') - (t_g/T - b_g/B)

and, since the u_g add up to 0, its variance is about G / (G - 1) * sum of u_g^2 (the delta method). On the
same traffic a group keeps its number in both runs, and what both have in common cancels in u_g (paired); on
other traffic the two halves of u_g are independent and their variances add (unpaired, Welch's degrees of
freedom). Intervals are Student's, on the log scale, and are given as relative changes.

Rankers are compared with each other on the same lists: paired tests, strict wins, the Pareto frontier.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cascade_sim.analysis.statistics.estimates import t_quantile

Floats = NDArray[np.float64]
ROUNDING = 1e-9  # relative: sums are kept to ten digits, so below this a move is arithmetic and no change
POWER = 0.95
SETTING = ("objective", "alpha", "learning_rate", "dropout", "momentum", "y0")  # of a cell, but for its seed
MIN_DAYS = 5  # as for the market's lifts: below, a t interval over days says next to nothing


@dataclass(frozen=True)
class RelativeChange:
    """A metric before and after: log is log(after / before), se its standard error, df degrees of freedom.

    A metric that is gone (0 or undefined after) has log -inf and se 0.
    """

    log: float
    se: float
    df: float

    @property
    def relative(self) -> float:
        """The relative change, after / before - 1."""
        return math.expm1(self.log)

    @property
    def is_rounding(self) -> bool:
        """Whether the metric moved in its last digits alone."""
        return abs(self.log) <= ROUNDING

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """The interval of the relative change: low, high."""
        half = t_quantile(0.5 + confidence / 2, self.df) * self.se
        return math.expm1(self.log - half), math.expm1(self.log + half)

    def p_value(self) -> float:
        """Two-sided p of no change; 1 for a move within rounding, 0 for one that all groups share exactly."""
        from scipy.special import stdtr  # type: ignore[import-untyped]

        if self.is_rounding:
            return 1.0
        if self.se == 0.0 or math.isinf(self.log):
            return 0.0
        return float(2.0 * stdtr(self.df, -abs(self.log) / self.se))

    def minimum_detectable_effect(self, alpha: float, tolerance: float = 0.0, power: float = POWER) -> float:
        """The relative change that fails with this probability, given what moves by chance.

        A move fails when |log| > max(t(1 - alpha/2) se, log(1 + tolerance)); on top comes t(power) se.
        """
        bar = max(t_quantile(1.0 - alpha / 2, self.df) * self.se, math.log1p(tolerance))
        return math.expm1(bar + t_quantile(power, self.df) * self.se)


def paired_change(before: tuple[ArrayLike, ArrayLike], after: tuple[ArrayLike, ArrayLike]) -> RelativeChange:
    """The same requests in both runs. (top [G], bottom [G]) each; top and bottom of `before` sum to > 0."""
    old, new = _shares(*before), _shares(*after)
    if old is None:
        raise ValueError("before: top and bottom must add up to more than 0")
    if new is None:
        return RelativeChange(-math.inf, 0.0, len(old[1]) - 1.0)
    if len(old[1]) != len(new[1]):
        raise ValueError(f"{len(old[1])} groups before and {len(new[1])} after cannot be paired")
    return RelativeChange(new[0] - old[0], math.sqrt(_variance(new[1] - old[1])), len(old[1]) - 1.0)


def day_change(before: tuple[ArrayLike, ArrayLike], after: tuple[ArrayLike, ArrayLike]) -> RelativeChange:
    """Days of a market as groups: paired, or without a standard error (0) if they are fewer than MIN_DAYS.

    Then every move beyond rounding counts as one.
    """
    top, bottom = (np.asarray(part, np.float64) for part in after)
    if len(top) >= MIN_DAYS:
        return paired_change(before, after)
    total, below, old_total, old_below = (math.fsum(np.asarray(x)) for x in (top, bottom, *before))
    if not (total > 0 and below > 0):
        return RelativeChange(-math.inf, 0.0, 1.0)
    return RelativeChange(math.log(total / below) - math.log(old_total / old_below), 0.0, 1.0)


def unpaired_change(
    before: tuple[ArrayLike, ArrayLike], after: tuple[ArrayLike, ArrayLike]
) -> RelativeChange:
    """Other requests in the second run; shapes as in `paired_change`, group numbers may differ."""
    old, new = _shares(*before), _shares(*after)
    if old is None:
        raise ValueError("before: top and bottom must add up to more than 0")
    if new is None:
        return RelativeChange(-math.inf, 0.0, len(old[1]) - 1.0)
    parts = [(_variance(u), len(u) - 1.0) for u in (old[1], new[1])]
    total = sum(variance for variance, _ in parts)
    spread = sum(variance**2 / df for variance, df in parts)
    df = total**2 / spread if spread > 0 else sum(df for _, df in parts)
    return RelativeChange(new[0] - old[0], math.sqrt(total), df)


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

    The i-th smallest of m is multiplied by m - i (i from 0), and none may fall below the one before it. NaN,
    a comparison that is undefined, stays NaN and is not counted.
    """
    order = sorted((p, i) for i, p in enumerate(p_values) if not math.isnan(p))
    adjusted, worst = [math.nan] * len(p_values), 0.0
    for rank, (p, i) in enumerate(order):
        worst = max(worst, min(1.0, (len(order) - rank) * p))
        adjusted[i] = worst
    return adjusted


def holm_alpha(p_values: Sequence[float], alpha: float) -> list[float]:
    """The level at which Holm's procedure judged each hypothesis.

    Those it rejects were compared with alpha / (m - rank); all others against the level at which it stopped.
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
    from scipy.stats import binomtest  # type: ignore[import-untyped]

    interval = binomtest(hits, trials).proportion_ci(confidence, method="exact")
    return float(interval.low), float(interval.high)


def most_hits(probability: float, trials: int, level: float) -> int:
    """The greatest number of hits that does not surprise: more of them have a chance of at most `level`.

    >>> most_hits(0.05, trials=10, level=0.05)
    2
    """
    from scipy.stats import binom

    return int(binom.isf(level, trials, probability))


def paired_p(values: ArrayLike, base: ArrayLike) -> float:
    """Two-sided p of Student's paired t test over lists. NaN where fewer than two lists count for both.

    Lists with NaN on either side are left out. Without any spread p is 1 if the two agree, else 0.
    """
    from scipy.stats import ttest_rel

    pairs = np.stack([np.asarray(values, np.float64), np.asarray(base, np.float64)])
    own, other = pairs[:, ~np.isnan(pairs).any(axis=0)]
    gap = own - other
    if gap.size < 2:
        return math.nan
    if gap.std(ddof=1) <= 1e-12 * abs(gap.mean()):
        return 0.0 if gap.any() else 1.0
    return float(ttest_rel(own, other).pvalue)


def beats(
    point: Mapping[str, float], other: Mapping[str, float], order: str = "ndcg", scale: str = "loss"
) -> bool:
    """A strict win: at least as good in order and in scale, and not equal in both. NaN never wins.

    `order` names what is better if greater, `scale` what is better if less.
    """
    no_worse = point[order] >= other[order] and point[scale] <= other[scale]
    return no_worse and (point[order] > other[order] or point[scale] < other[scale])


def strict_wins(
    cells: Sequence[Mapping[str, Any]],
    order: str = "ndcg",
    scale: str = "loss",
    same: tuple[str, ...] = ("learning_rate", "seed"),
) -> dict[str, dict[str, dict[str, int]]]:
    """{objective: {rival: {"games", "won", "lost"}}} over all cells of the two at one learning rate and seed.

    A game is a pair of cells, one of each, that are alike in what `same` names, whatever their alphas; what
    it names may be absent.
    """
    names = list(dict.fromkeys(cell["objective"] for cell in cells))
    counts = {a: {b: {"games": 0, "won": 0, "lost": 0} for b in names if b != a} for a in names}
    for cell in cells:
        for other in cells:
            is_game = all(cell.get(key) == other.get(key) for key in same)
            if not is_game or cell["objective"] == other["objective"]:
                continue
            count = counts[cell["objective"]][other["objective"]]
            count["games"] += 1
            count["won"] += beats(cell, other, order, scale)
            count["lost"] += beats(other, cell, order, scale)
    return counts


def frontier(points: Sequence[Mapping[str, float]], order: str = "ndcg", scale: str = "loss") -> list[int]:
    """Indices of the points that no other beats, the best order first."""
    kept = [
        i for i, point in enumerate(points) if not any(beats(other, point, order, scale) for other in points)
    ]
    return sorted(kept, key=lambda i: (-points[i][order], points[i][scale], i))


def over_seeds(cells: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Cells that differ in their seed only, averaged."""
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for cell in cells:
        groups.setdefault(tuple(cell.get(name) for name in SETTING), []).append(cell)
    return [
        {
            **{name: group[0][name] for name in SETTING if name in group[0]},
            **{name: float(np.mean([cell[name] for cell in group])) for name in ("ndcg", "loss")},
        }
        for group in groups.values()
    ]
