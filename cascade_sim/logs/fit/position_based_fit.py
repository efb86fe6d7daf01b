"""Clicks behind slots: P(click) = effect of the slot * sigmoid(x b), coefficients and effects by likelihood.

Effects never rise from slot to slot, and the first one is 1: a slot's logarithm is minus the sum of steps
that are not below 0. Both are found together, so that an ad that was always first is not taken for one that
people like.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, logit

Floats = NDArray[np.float64]

RIDGE = 1.0  # a click's worth of prior on every coefficient but the level: finite where nothing is learned
LEAST = 1e-9
ITERATIONS = 500
FLAT, STILL = 1e-10, 1e-7  # relative gain, and slope by row, that are small enough


@dataclass(frozen=True)
class PositionBasedFit:
    """Coefficients [p] of a table whose first column is 1, and slot effects [k]."""

    coefficients: Floats
    effects: Floats

    def logit(self, table: Floats) -> Floats:
        """Of the CTR in the first slot.  [n, p] -> [n]"""
        return table @ self.coefficients


def fit_examined(
    table: Floats,
    click: NDArray[np.bool_],
    slot: NDArray[np.int64],
    n_slots: int,
    weight: Floats | None = None,
    *,
    start: PositionBasedFit | None = None,
    is_positive: bool = False,
) -> PositionBasedFit:
    """The most likely coefficients and effects; `is_positive`: no coefficient but the level is below 0.

    `weight` [n] counts rows; `start` is a solution nearby.
    """
    w = np.ones(len(click)) if weight is None else weight
    total = max(float(w.sum()), 1.0)
    p, k = table.shape[1], n_slots - 1
    ridge = np.full(p, RIDGE)
    ridge[0] = 0.0

    def loss(theta: Floats) -> tuple[float, Floats]:
        steps, b = theta[:k], theta[k:]
        ctr = expit(table @ b)
        chance = np.clip(np.exp(-_sums(steps))[slot] * ctr, LEAST, 1 - LEAST)
        value = -np.sum(w * np.where(click, np.log(chance), np.log1p(-chance))) + 0.5 * np.sum(ridge * b**2)
        by_log = w * np.where(click, 1.0, -chance / (1.0 - chance))  # the likelihood's slope by log chance
        of_slot = np.bincount(slot, by_log, n_slots)
        by_step = np.cumsum(of_slot[::-1])[::-1][1:]  # a step lowers its slot and all below
        by_b = -table.T @ (by_log * (1.0 - ctr)) + ridge * b
        return value / total, np.concatenate([by_step, by_b]) / total

    if start is None:
        rate = float(np.clip(np.sum(w * click) / total, LEAST, 1 - LEAST))
        has_rows = np.bincount(slot, minlength=n_slots)[1:] > 0  # else a slot is as the one above it
        first = np.concatenate([0.3 * has_rows, [logit(rate)], np.zeros(p - 1)])
    else:
        first = np.concatenate([-np.diff(np.log(start.effects)), start.coefficients])
    free = (None, None)
    bounds = [(0.0, None)] * k + [free] + [(0.0, None) if is_positive else free] * (p - 1)
    found = minimize(
        loss, first, jac=True, method="L-BFGS-B", bounds=bounds,
        options={"maxiter": ITERATIONS, "ftol": FLAT, "gtol": STILL},
    )  # fmt: skip
    return PositionBasedFit(found.x[k:], np.exp(-_sums(found.x[:k])))


def _sums(steps: Floats) -> Floats:
    return np.concatenate([[0.0], np.cumsum(steps)])
