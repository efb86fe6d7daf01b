"""Small cases that settle a question exactly: orders no score can have, and losses that want two things."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import permutations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, logit  # type: ignore[import-untyped]

from cascade_sim.analysis.metrics.lists import Floats
from cascade_sim.analysis.theory.measures import Distribution

Order = tuple[int, ...]


def expected_reciprocal_rank(y: Sequence[int], order: Order, max_grade: int = 1) -> Fraction:
    """Σ_i R_i/i Π_{j<i} (1 − R_j), R = (2^y − 1)/2^max_grade, exactly."""
    value, reach = Fraction(0), Fraction(1)
    for place, item in enumerate(order, start=1):
        stop = Fraction(2 ** y[item] - 1, 2**max_grade)
        value += reach * stop / place
        reach *= 1 - stop
    return value


def average_precision(y: Sequence[int], order: Order) -> Fraction:
    """Mean over the positives of the precision at their place, exactly."""
    positives, value = 0, Fraction(0)
    for place, item in enumerate(order, start=1):
        if y[item]:
            positives += 1
            value += Fraction(positives, place)
    return value / positives


def two_halves() -> dict[str, dict[Order, Fraction]]:
    """Expected ERR and AP of every order if the first two of four items are right, or the last two, evenly.

    By symmetry all four items have the same expected utility, so for a GPPM every order is as good as any
    other. For these two measures it is not: {"ERR": {order: value}, "AP": {...}}.
    """
    cases = ((1, 1, 0, 0), (0, 0, 1, 1))
    orders = list(permutations(range(4)))
    return {
        "ERR": {o: sum((expected_reciprocal_rank(y, o) for y in cases), Fraction(0)) / 2 for o in orders},
        "AP": {o: sum((average_precision(y, o) for y in cases), Fraction(0)) / 2 for o in orders},
    }


def ranknet_optimum(distribution: Distribution) -> Floats:
    """Scores that minimise the expected RankNet loss E Σ_{y_i > y_j} log(1 + e^(s_j − s_i)).  [n], mean 0

    Only how often i is above j counts, not by how much. Items that always win, or are never compared, are
    held in place by a weight of 1e-6 on the squared scores.
    """
    from scipy.optimize import minimize

    y = distribution.support
    above = distribution.mean((y[:, :, None] > y[:, None, :]).astype(np.float64))
    n = y.shape[1]

    def risk(s: Floats) -> tuple[float, Floats]:
        d = s[:, None] - s[None, :]
        pull = above * expit(-d)
        gradient = pull.sum(0) - pull.sum(1) + 2e-6 * s
        return float((above * np.logaddexp(0.0, -d)).sum() + 1e-6 * (s * s).sum()), gradient

    s = minimize(risk, np.zeros(n), jac=True, method="BFGS", options={"gtol": 1e-8}).x
    return np.asarray(s - s.mean())


def often_a_little_or_seldom_a_lot() -> Distribution:
    """Two items: the first is better by one grade in 3 cases of 5, the second by two grades in the others.

    Expected gains 2^y − 1 are 3/5 and 6/5, so the second belongs first; RankNet counts wins and puts the
    first there, at a difference of log(3/2).
    """
    return Distribution(np.array([[1.0, 0.0], [0.0, 2.0]]), np.array([0.6, 0.4]))


# Three items and four rankers of them: predictions after the sigmoid.
COMPATIBLE_LABELS = (0.4, 0.4, 0.5)
COMPATIBLE_PREDICTIONS = ((0.4, 0.4, 0.4), (0.2, 0.2, 0.3), (0.1, 0.1, 0.2), (0.4, 0.4, 0.6))


def regression_and_ranking_losses(
    predictions: ArrayLike = COMPATIBLE_PREDICTIONS, labels: ArrayLike = COMPATIBLE_LABELS
) -> dict[str, Floats]:
    """SigmoidCE (summed over items), SoftmaxCE and ListCE(σ) of each ranker.  [rankers, n] -> [rankers] each

    ListCE(T) = −(1/Σ y) Σ_i y_i log(T(s_i) / Σ_j T(s_j)); T = exp is SoftmaxCE, T = σ compares predictions
    as they are.
    """
    p, y = np.asarray(predictions, np.float64), np.asarray(labels, np.float64)
    weight = y / y.sum()
    odds = np.exp(logit(p))
    return {
        "SigmoidCE": -(y * np.log(p) + (1.0 - y) * np.log1p(-p)).sum(-1),
        "SoftmaxCE": -(weight * np.log(odds / odds.sum(-1, keepdims=True))).sum(-1),
        "ListCE(sigmoid)": -(weight * np.log(p / p.sum(-1, keepdims=True))).sum(-1),
    }


def preferred(regression: ArrayLike, ranking: ArrayLike) -> int | None:
    """The ranker with the least (1 − α) · regression + α · ranking for every α in (0, 1), if there is one.

    That is the one which no other beats on either loss, and which every other is beaten by on one at least.
    """
    a, b = np.asarray(regression, np.float64), np.asarray(ranking, np.float64)
    for i in range(a.size):
        others = np.arange(a.size) != i
        no_worse = (a[i] <= a + 1e-12) & (b[i] <= b + 1e-12)
        better = (a[i] < a - 1e-12) | (b[i] < b - 1e-12)
        if (no_worse & better)[others].all():
            return i
    return None
