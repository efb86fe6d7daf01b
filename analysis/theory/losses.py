"""Template losses: convex in the scores, and minimised in expectation only by scores ordered like U.

A loss compares scores s with utilities v. Its u-instance on a distribution Δ has the inner risk
L(Δ, s) = E[loss(u(y), s)], smallest at `best(U)`. For any GPPM with that utility the regret is bounded by

    R(Δ) − R(Δ, s) <= c · C_phi(2) · sqrt(L(Δ, s) − L(Δ)).

`eta` bounds the utilities from above. Pairwise losses sum over i < j with d = s_i − s_j.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, logit, xlogy  # type: ignore[import-untyped]

from cascade_sim.analysis.metrics.lists import Floats
from cascade_sim.analysis.theory.measures import Distribution

HINGE_MARGIN = 1.0  # t of the square hinge
HINGE_WIDTH = 0.4  # alpha of the differentiable hinge: the quadratic part; at most 1/2


@dataclass(frozen=True)
class TemplateLoss:
    """A loss, its minimiser and the constant of its bound."""

    name: str
    value: Callable[[Floats, Floats, float], Floats]  # v [..., n], s [..., n], eta -> [...]
    best: Callable[[Floats, float], Floats]  # U [..., n] in (0, eta), eta -> s [..., n]
    constant: Callable[[Floats, float], float]  # U, eta -> c

    def risk(self, distribution: Distribution, utility: Floats, scores: ArrayLike, eta: float) -> Floats:
        """L(Δ, s).  utility [m, n] of each supervision, scores [..., n] -> [...]"""
        s = np.asarray(scores, np.float64)
        v = utility.reshape(len(utility), *[1] * (s.ndim - 1), s.shape[-1])
        return distribution.mean(self.value(v, s[None], eta))


def _pointwise(term: Callable[[Floats, Floats, float], Floats]) -> Callable[[Floats, Floats, float], Floats]:
    return lambda v, s, eta: np.asarray(term(v, s, eta)).sum(-1)


def _pairwise(term: Callable[[Floats, Floats, Floats], Floats]) -> Callable[[Floats, Floats, float], Floats]:
    def total(v: Floats, s: Floats, eta: float) -> Floats:
        i, j = np.triu_indices(s.shape[-1], 1)
        return np.asarray(term(v[..., i], v[..., j], s[..., i] - s[..., j])).sum(-1)

    return total


def _softplus(x: Floats) -> Floats:
    return np.logaddexp(0.0, x)


def _hinge(x: Floats) -> Floats:
    """The hinge with a parabola in its corner: 0 up to 0, x²/2α up to α, x − α/2 above."""
    a = HINGE_WIDTH
    return np.where(x <= 0, 0.0, np.where(x <= a, x * x / (2.0 * a), x - a / 2.0))


def _hinge_best(u: Floats, eta: float) -> Floats:
    """One of the minimisers: at u = eta/2 every score in [α, 1 − α] is one, and the middle is taken."""
    a = HINGE_WIDTH
    low, high = a * u / (eta - u), 1.0 - a * (eta - u) / u
    return np.where(u < eta / 2, low, np.where(u > eta / 2, high, 0.5))


def _kullback(v: Floats, s: Floats, eta: float) -> Floats:
    """B_psi(v ‖ g) = v log(v/g) − v + g of psi(x) = x log x, g = eta · σ(s)."""
    g = eta * expit(s)
    return xlogy(v, v) - v * (np.log(eta) - _softplus(-s)) - v + g


LOSSES: dict[str, TemplateLoss] = {
    loss.name: loss
    for loss in (
        TemplateLoss(
            "pointwise squared",
            _pointwise(lambda v, s, eta: (v - s) ** 2),
            lambda u, eta: u,
            lambda u, eta: sqrt(2.0),
        ),
        TemplateLoss(
            "pointwise logistic",
            _pointwise(lambda v, s, eta: v * _softplus(-s) + (eta - v) * _softplus(s)),
            lambda u, eta: logit(u / eta),
            lambda u, eta: sqrt(eta),
        ),
        TemplateLoss(
            "pointwise exponential",
            _pointwise(lambda v, s, eta: v * np.exp(-s) + (eta - v) * np.exp(s)),
            lambda u, eta: logit(u / eta) / 2.0,
            lambda u, eta: sqrt(eta),
        ),
        TemplateLoss(
            "pointwise square hinge",
            _pointwise(
                lambda v, s, eta: (
                    v * np.maximum(0.0, HINGE_MARGIN - s) ** 2 + (eta - v) * np.maximum(0.0, s) ** 2
                )
            ),
            lambda u, eta: HINGE_MARGIN * u / eta,
            lambda u, eta: sqrt(2.0 * eta) / HINGE_MARGIN,
        ),
        TemplateLoss(
            "pointwise differentiable hinge",
            _pointwise(lambda v, s, eta: v * _hinge(1.0 - s) + (eta - v) * _hinge(s)),
            _hinge_best,
            lambda u, eta: 4.0 * sqrt(eta / HINGE_WIDTH),
        ),
        TemplateLoss(
            "pairwise squared",
            _pairwise(lambda a, b, d: (a - b - d) ** 2),
            lambda u, eta: u,
            lambda u, eta: 1.0,
        ),
        TemplateLoss(
            "pairwise logistic",
            _pairwise(lambda a, b, d: a * _softplus(-d) + b * _softplus(d)),
            lambda u, eta: np.log(u),
            lambda u, eta: 2.0 * sqrt(float(u.max())),
        ),
        TemplateLoss(
            "pairwise exponential",
            _pairwise(lambda a, b, d: a * np.exp(-d) + b * np.exp(d)),
            lambda u, eta: np.log(u) / 2.0,
            lambda u, eta: 2.0 * sqrt(float(u.max())),
        ),
        TemplateLoss(
            "Bregman, x log x",  # psi'' = 1/x >= 1/eta: strongly convex with mu = 1/eta
            _pointwise(_kullback),
            lambda u, eta: logit(u / eta),
            lambda u, eta: 2.0 * sqrt(eta),
        ),
    )
}
