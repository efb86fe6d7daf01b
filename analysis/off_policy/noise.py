"""Standard errors of means over requests, and margins that stay honest where few requests carry the reward.

Every estimator here is, to first order, a mean over requests: V̂ − V ≈ mean(ψ) with E[ψ] = 0. Rewards are
mostly zero and sometimes large, so ψ is skewed, and Student's V̂ ± t se misses the truth too often on the far
side. Hall (1992, J. R. Stat. Soc. B 54) transforms the t statistic T so that its skewness γ goes away,

    g(T) = T + κ T² / 3 + κ² T³ / 27 + κ / 6,    κ = γ / √n,    g⁻¹(x) = 3 / κ ((1 + κ (x − κ / 6))^⅓ − 1)

which gives [V̂ − se g⁻¹(t), V̂ − se g⁻¹(−t)]. But a difference of policies has tails on both sides, so the
sample's skewness is an accident, and Hall's interval too short. So each end is the farther one of the two:
with 1,000 requests of which 5 % click some 9 % wider than Student's interval, and the same in the limit.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cascade_sim.analysis.statistics.estimates import t_quantile

Floats = NDArray[np.float64]


def standard_error(influence: Floats, clusters: ArrayLike | None = None) -> tuple[float, int]:
    """Standard error of a mean from centred influence values ψ [R], and its degrees of freedom.

        without clusters: sqrt(Σψ² / (n (n − 1))), n − 1
        with G clusters:  sqrt(G / (G − 1) · Σ_g (Σ_{i in g} ψ_i)²) / n, G − 1

    Infinite where there is one unit only.
    """
    units = unit_totals(influence, clusters)
    n, count = len(influence), len(units)
    if count < 2:
        return math.inf, 0
    return math.sqrt(count / (count - 1) * float(units @ units)) / n, count - 1


def margins(influence: Floats, clusters: ArrayLike | None = None, alpha: float = 0.05) -> tuple[float, float]:
    """How far the ends of the interval of level 1 − alpha lie below and above the value; inf for one unit."""
    error, df = standard_error(influence, clusters)
    if not math.isfinite(error):
        return math.inf, math.inf
    t = t_quantile(1 - alpha / 2, df)
    kappa = skewness(unit_totals(influence, clusters)) / math.sqrt(df + 1)
    return error * max(t, _unskewed(t, kappa)), error * max(t, -_unskewed(-t, kappa))


def mean_interval(
    x: Floats, clusters: ArrayLike | None = None, alpha: float = 0.05
) -> tuple[float, float, float]:
    """Mean of x [R] and the ends of its interval of level 1 − alpha."""
    mean = float(x.mean())
    below, above = margins(x - mean, clusters, alpha)
    return mean, mean - below, mean + above


def unit_totals(influence: Floats, clusters: ArrayLike | None) -> Floats:
    """Sums over each cluster [G], or the values themselves where there are no clusters."""
    if clusters is None:
        return influence
    ids = np.asarray(clusters)
    if ids.shape != influence.shape:
        raise ValueError(f"clusters has shape {ids.shape}; expected {influence.shape}, one per request")
    _, member = np.unique(ids, return_inverse=True)
    return np.bincount(member, weights=influence).astype(np.float64)


def skewness(x: Floats) -> float:
    """Sample skewness m₃ / m₂^1.5 of x [R]; 0 where x does not vary."""
    centred = x - x.mean()
    second = float(np.mean(centred**2))
    # rounding of equal numbers is not variation
    if second <= (1e-12 * float(np.abs(x).max(initial=0.0))) ** 2:
        return 0.0
    return float(np.mean((centred / math.sqrt(second)) ** 3))


def _unskewed(x: float, kappa: float) -> float:
    """g⁻¹(x) of the head of this file; its series where κ is too small to divide by."""
    if abs(kappa) < 1e-6:
        return x - kappa / 6 - kappa * x * x / 3
    return 3 / kappa * (float(np.cbrt(1 + kappa * (x - kappa / 6))) - 1)
