"""Calibrators that are a small logistic regression on the score: Platt, temperature, beta.

All follow their score strictly, as far as floats can tell, wherever the learnt slope is not 0.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch.nn import functional

from cascade_sim.models.calibrators.base import Calibrator, Floats, fit_inputs

_STEPS = 200
_TEMPERATURES = 1e4  # temperatures are sought within this factor of the scores' root mean square


@dataclass(frozen=True)
class _Numbers(Calibrator):
    """A calibrator whose fields, a few numbers, are all it has learnt."""

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {"parameters": np.array(astuple(self))}

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]]) -> Self:
        return cls(*map(float, arrays["parameters"]))


@dataclass(frozen=True)
class Platt(_Numbers):
    """p = σ(slope · s + intercept), by maximum likelihood with smoothed targets.

    Targets are (N₊ + 1)/(N₊ + 2) for a positive and 1/(N₋ + 2) for a negative, so that the optimum is finite
    even where the classes are separated. The slope is what the data say: 0 if there is one class only or all
    scores are equal (p is then constant); negative, turning the order round, if higher scores are clicked
    less.

    >>> scores, clicks = np.array([-2.0, -1.0, 0.0, 1.0]), np.array([0.0, 1.0, 0.0, 1.0])
    >>> Platt.fit(scores, clicks)(np.array([-1.0, 1.0])).round(2).tolist()
    [0.45, 0.65]
    """

    slope: float
    intercept: float
    name = "platt"

    @classmethod
    def fit(
        cls, scores: ArrayLike, labels: ArrayLike, *, request: ArrayLike | None = None, **options: Any
    ) -> Platt:
        cls.no_options(options)
        s, y = fit_inputs(scores, labels)
        intercept, slope = _logistic(s[:, None], smoothed(y))
        return cls(float(slope), float(intercept))

    def probability(self, scores: torch.Tensor, request: torch.Tensor | None) -> torch.Tensor:
        return torch.sigmoid(self.slope * scores + self.intercept)


@dataclass(frozen=True)
class Temperature(_Numbers):
    """p = σ(s / temperature), by maximum likelihood; keeps the order, and cannot move the level at s = 0.

    The temperature is sought between 1e-4 and 1e4 times the scores' root mean square: the lower end if the
    scores' sign tells the labels without fail, the upper one (p near ½) if scores mislead. It is 1 if all
    scores are 0.

    >>> scores, clicks = np.array([-2.0, -1.0, 0.0, 1.0]), np.array([0.0, 1.0, 0.0, 1.0])
    >>> Temperature.fit(scores, clicks)(np.array([-1.0, 1.0])).round(2).tolist()
    [0.32, 0.68]
    """

    temperature: float
    name = "temperature"

    @classmethod
    def fit(
        cls, scores: ArrayLike, labels: ArrayLike, *, request: ArrayLike | None = None, **options: Any
    ) -> Temperature:
        from scipy.optimize import brentq  # type: ignore[import-untyped]
        from scipy.special import expit  # type: ignore[import-untyped]

        cls.no_options(options)
        s, y = fit_inputs(scores, labels)
        peak = float(np.abs(s).max())
        if peak == 0:
            return cls(1.0)
        size = peak * float(np.sqrt(((s / peak) ** 2).mean()))  # no overflow on the way
        unit = s / size

        def slope_of_loss(log_sharpness: float) -> float:
            return float(((expit(np.exp(log_sharpness) * unit) - y) * unit).mean())

        low, high = -np.log(_TEMPERATURES), np.log(_TEMPERATURES)
        if slope_of_loss(low) >= 0:
            best = low
        elif slope_of_loss(high) <= 0:
            best = high
        else:
            best = brentq(slope_of_loss, low, high, xtol=1e-14, rtol=1e-14)
        return cls(size / float(np.exp(best)))

    def probability(self, scores: torch.Tensor, request: torch.Tensor | None) -> torch.Tensor:
        return torch.sigmoid(scores / self.temperature)


@dataclass(frozen=True)
class Beta(_Numbers):
    """logit p = a · log q − b · log(1 − q) + intercept with q = σ(s) and a, b ≥ 0.

    By maximum likelihood with Platt's smoothed targets; a weight that would be negative is 0, so the order is
    never turned round. a = b = 1 leaves the score as it is; a = b = 0, a constant, is learnt from one class,
    equal scores, or scores that mislead.

    >>> scores, clicks = np.array([-2.0, -1.0, 0.0, 1.0]), np.array([0.0, 1.0, 0.0, 1.0])
    >>> Beta.fit(scores, clicks)(np.array([-1.0, 1.0])).round(2).tolist()
    [0.44, 0.66]
    """

    a: float
    b: float
    intercept: float
    name = "beta"

    @classmethod
    def fit(
        cls, scores: ArrayLike, labels: ArrayLike, *, request: ArrayLike | None = None, **options: Any
    ) -> Beta:
        cls.no_options(options)
        s, y = fit_inputs(scores, labels)
        targets = smoothed(y)
        columns = np.stack([-np.logaddexp(0.0, -s), np.logaddexp(0.0, s)], axis=1)  # log q, −log(1 − q)
        fits: list[tuple[float, int, Floats]] = []
        # the loss is convex: if both weights together are not allowed, the best allowed one has one of them 0
        for used in ([0, 1], [0], [1], []):
            weights = np.zeros(3)
            weights[[0, *(i + 1 for i in used)]] = _logistic(columns[:, used], targets)
            if (weights[1:] >= 0).all():
                fits.append((_loss(weights[0] + columns @ weights[1:], targets), len(fits), weights))
            if used == [0, 1] and fits:
                break
        intercept, a, b = min(fits)[2]
        return cls(float(a), float(b), float(intercept))

    def probability(self, scores: torch.Tensor, request: torch.Tensor | None) -> torch.Tensor:
        log_q, log_not_q = functional.logsigmoid(scores), functional.logsigmoid(-scores)
        return torch.sigmoid(self.a * log_q - self.b * log_not_q + self.intercept)


def smoothed(labels: Floats) -> Floats:
    """Platt's targets: a positive is (N₊ + 1)/(N₊ + 2), a negative 1/(N₋ + 2); soft labels lie between."""
    positives = labels.sum()
    high = (positives + 1.0) / (positives + 2.0)
    low = 1.0 / (labels.size - positives + 2.0)
    return labels * high + (1.0 - labels) * low


def _loss(logit: Floats, targets: Floats) -> float:
    return float((np.logaddexp(0.0, logit) - targets * logit).sum())


def _logistic(columns: Floats, targets: Floats) -> Floats:
    """Intercept and weights of the logistic regression of targets in (0, 1) on columns.  [N, d] -> [1 + d]

    Newton's method on standardised columns, each step halved until the loss falls. Columns that are constant
    get weight 0. Of columns that say the same, the least-norm solution.
    """
    from scipy.special import expit, logit

    peak = np.abs(columns).max(axis=0, initial=0.0)
    unit = columns / np.where(peak > 0, peak, 1.0)  # no overflow in squares
    middle, spread = unit.mean(axis=0), unit.std(axis=0)
    is_used = spread > 1e-12
    scaled = np.where(is_used, (unit - middle) / np.where(is_used, spread, 1.0), 0.0)
    design = np.concatenate([np.ones((len(targets), 1)), scaled], axis=1)
    weights = np.zeros(design.shape[1])
    weights[0] = logit(targets.mean())
    loss = _loss(design @ weights, targets)
    for _ in range(_STEPS):
        p = expit(design @ weights)
        gradient = design.T @ (p - targets)
        curvature = (design * (p * (1.0 - p))[:, None]).T @ design
        step = np.linalg.lstsq(curvature, gradient, rcond=1e-14)[0]
        share = 1.0
        while share > 1e-10 and not _loss(design @ (weights - share * step), targets) <= loss:
            share /= 2.0
        if share <= 1e-10:
            break  # no step makes it better: rounding is all that is left
        weights = weights - share * step
        loss = _loss(design @ weights, targets)
        if np.abs(step).max() < 1e-12:
            break
    slopes = np.where(is_used, weights[1:] / np.where(is_used, spread, 1.0), 0.0)
    return np.concatenate([[weights[0] - slopes @ middle], slopes / np.where(peak > 0, peak, 1.0)])
