"""Intervals that hold at every look: a trial may be watched as it runs, and stopped when it pleases.

A 95 % interval for a fixed end misses the truth at some look far more often than once in twenty. The normal
mixture boundary (Robbins 1970; Howard, Ramdas, McAuliffe and Sekhon 2021) does not: for a sum S of variance
v,
    P(some v: |S| >= sqrt((v + eta) log((v + eta) / (eta alpha^2)))) <= alpha,  for any eta > 0 fixed ahead,
because sqrt(eta / (v + eta)) exp(S^2 / (2 (v + eta))) is a martingale of mean 1. Here v is the information
1 / error^2 of an estimate and S = estimate * v, so the half-width is
    sqrt((v + eta) log((v + eta) / (eta alpha^2))) / v.
Errors are estimated and sums only nearly normal: it holds asymptotically (Waudby-Smith, Arbour, Sinha,
Kennedy and Ramdas 2024), so the first look should come when there is something to see.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Running:
    """The difference T - C of two ratios after each step, and its standard error; NaN before both exist."""

    difference: Floats
    error: Floats


def running_effect(
    top: ArrayLike, bottom: ArrayLike, is_treated: ArrayLike, steps: ArrayLike, n_steps: int
) -> Running:
    """Everything up to and including each step.  All [N]; steps in 0 .. n_steps - 1  ->  [n_steps]

    Error by the delta method, rows as independent units:
    Var = sum over arms of  sum((top - ratio_a * bottom)^2) / (sum of bottom)^2 * n_a / (n_a - 1).
    """
    top, bottom = np.asarray(top, np.float64), np.asarray(bottom, np.float64)
    treated, steps = np.asarray(is_treated, bool), np.asarray(steps)
    difference, variance = np.zeros(n_steps), np.zeros(n_steps)
    for sign, rows in ((1.0, treated), (-1.0, ~treated)):
        t, b, at = top[rows], bottom[rows], steps[rows]
        weights = (np.ones(len(t)), t, b, t * t, t * b, b * b)
        n, st, sb, stt, stb, sbb = (np.cumsum(np.bincount(at, w, n_steps)) for w in weights)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = st / sb
            squares = np.maximum(stt - 2 * ratio * stb + ratio**2 * sbb, 0.0)
            variance += np.where(n > 1, squares / sb**2 * n / (n - 1.0), np.nan)
            difference += sign * ratio
    error = np.sqrt(variance)
    return Running(np.where(np.isfinite(error), difference, np.nan), error)


def mixture_half_width(error: ArrayLike, target: float, alpha: float = 0.05) -> Floats:
    """Half of the interval that holds at all looks, from the standard errors at each.  [...] -> [...]

    `target` is the information 1 / error^2 at which it shall be tightest, to be chosen before the looks.
    Infinite where the error is infinite, NaN or 0.
    """
    error = np.asarray(error, np.float64)
    if not (target > 0 and np.isfinite(target)):
        raise ValueError(f"target {target} is not a positive information")
    eta = target / tightest(alpha)
    with np.errstate(divide="ignore", invalid="ignore"):
        v = 1.0 / error**2
        half = np.sqrt((v + eta) * np.log((v + eta) / (eta * alpha**2))) / v
    return np.where(np.isfinite(half) & (error > 0), half, np.inf)


def tightest(alpha: float) -> float:
    """y = v / eta at which the boundary is lowest for this v: y = log(1 + y) + 2 log(1 / alpha)."""
    from scipy.special import lambertw  # type: ignore[import-untyped]

    return float(-lambertw(-(alpha**2) / np.e, -1).real - 1.0)
