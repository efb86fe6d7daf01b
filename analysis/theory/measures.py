"""Which losses lead to which orders: ranking measures that add up over places, and their regret.

A generalised positional performance measure (GPPM) is r(y, σ) = b(y) + Σ_k phi(k) u_σ(k)(y), with weights phi
of the places that do not rise and a utility u ≥ 0 of each item under the supervision y. Its expectation is
largest when items are sorted by expected utility U. Ties are broken at random: a vector of scores is worth
the mean over the orders it allows. Expected reciprocal rank and average precision are not of this form.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from cascade_sim.analysis.metrics.lists import Floats, rank_lists
from cascade_sim.analysis.metrics.ratio import divide


@dataclass(frozen=True)
class Gppm:
    """A measure as its pair (u, phi), and the offset b that no order changes.

    supervision: what y is: "grades" 0, 1, 2, …; "binary", 0 or 1; or "order", each item's ideal place 1..n.
    """

    name: str
    supervision: str
    phi: Callable[[int], Floats]  # n -> [n]
    utility: Callable[[Floats], Floats]  # y [..., n] -> u [..., n]
    offset: Callable[[Floats], Floats]  # y [..., n] -> b [...]

    def value(self, y: ArrayLike, scores: ArrayLike) -> Floats:
        """r(y, scores), tied scores averaged.  y [..., n], scores [..., n] -> [...]"""
        labels = np.asarray(y, np.float64)
        weights = place_weights(scores, self.phi(labels.shape[-1]))
        return np.asarray(self.offset(labels) + (weights * self.utility(labels)).sum(-1))


@dataclass(frozen=True)
class Distribution:
    """Finitely many supervisions and their probabilities: what may turn out to be right for one request."""

    support: Floats  # [m, n]
    probability: Floats  # [m]

    def mean(self, values: Floats) -> Floats:
        """Expectation of what is known for each supervision.  [m, ...] -> [...]"""
        return np.asarray(np.tensordot(self.probability, values, axes=1))


def place_weights(scores: ArrayLike, phi: Floats) -> Floats:
    """The weight of the place each item gets, averaged over its tied places.  [..., n], [n] -> [..., n]"""
    s = np.asarray(scores, np.float64)
    n = phi.size
    ranking = rank_lists(s.reshape(-1), np.arange(0, s.size + 1, n))
    weights = np.empty(s.size)
    weights[ranking.order] = ranking.tie_mean(phi[ranking.rank])
    return weights.reshape(s.shape)


def regret(measure: Gppm, distribution: Distribution, scores: ArrayLike) -> Floats:
    """How much the scores fall short of the best expected value, R(Δ) − R(Δ, s) >= 0.  [..., n] -> [...]"""
    u = distribution.mean(measure.utility(distribution.support))
    phi = measure.phi(u.size)
    best = (np.sort(u)[::-1] * phi).sum()
    return np.asarray(best - (place_weights(scores, phi) * u).sum(-1))


def c_phi(phi: ArrayLike, p: float = 2.0) -> float:
    """C_phi(p) = (Σ_{i ≤ n/2} (phi(i) − phi(n − i + 1))^p)^(1/p): what swapping ends with ends can cost."""
    weights = np.asarray(phi, np.float64)
    half = weights.size // 2
    gaps = weights[:half] - weights[::-1][:half]
    return float((gaps**p).sum() ** (1.0 / p))


def gppms(k: int = 3) -> dict[str, Gppm]:
    """The measures of this form, by name; those with a cut are cut after place k."""

    def discount(n: int) -> Floats:
        return np.asarray(first(n) / np.log2(np.arange(n) + 2.0), np.float64)

    def first(n: int) -> Floats:
        return (np.arange(n) < k).astype(np.float64)

    def falling(n: int) -> Floats:
        return np.arange(n)[::-1].astype(np.float64)

    def spearman_weight(n: int) -> Floats:
        return 12.0 * falling(n) / (n * (n * n - 1.0))

    def gain(y: Floats) -> Floats:
        return np.exp2(y) - 1.0

    def normalised_gain(y: Floats) -> Floats:
        ideal = (-np.sort(-gain(y), axis=-1) * discount(y.shape[-1])).sum(-1, keepdims=True)
        return np.nan_to_num(divide(gain(y), ideal))

    def pair_share(y: Floats) -> Floats:
        positives = y.sum(-1, keepdims=True)
        return np.nan_to_num(divide(y, positives * (y.shape[-1] - positives)))

    def auc_offset(y: Floats) -> Floats:
        positives = y.sum(-1)
        return -np.nan_to_num(divide(positives - 1.0, 2.0 * (y.shape[-1] - positives)))

    def none(y: Floats) -> Floats:
        return np.zeros(y.shape[:-1])

    measures = (
        Gppm(f"DCG@{k}", "grades", discount, gain, none),
        Gppm(f"NDCG@{k}", "grades", discount, normalised_gain, none),
        Gppm(f"precision@{k}", "binary", lambda n: first(n) / k, lambda y: y, none),
        Gppm(
            f"recall@{k}",
            "binary",
            first,
            lambda y: np.nan_to_num(divide(y, y.sum(-1, keepdims=True))),
            none,
        ),
        Gppm("AUC", "binary", falling, pair_share, auc_offset),
        Gppm(
            "Spearman",
            "order",
            spearman_weight,
            lambda y: y.shape[-1] - y,
            lambda y: np.full(y.shape[:-1], -3.0 * (y.shape[-1] - 1.0) / (y.shape[-1] + 1.0)),
        ),
    )
    return {measure.name: measure for measure in measures}
