"""How the reward responds to a parameter, from one log in which the parameter was jittered per request.

Each request draws z ~ N(0, 1) and uses θ exp(σ z) (scale "log", e.g. a reserve) or θ + σ z (scale "linear",
e.g. a squashing exponent). The score of that draw is z / σ in log θ or in θ, hence

    J(θ) = E[r],    dJ / d log θ  (or dJ / dθ)  =  E[r z / σ],    d²J = E[r (z² − 1) / σ²]

J is the reward of the jittered system: the response of the exact parameter, smoothed over ± σ. As E[z] = 0,
any baseline b that does not depend on the request's own z may be taken from r without bias. It is the
forecast `predicted` if there is one, plus the mean of r − predicted over the other requests:

    ĝ = 1/n Σ (e_i − ē_{-i}) z_i / σ = Σ (e_i − ē) z_i / ((n − 1) σ),     e = r − predicted

Several parameters with independent draws are read from the same log, each as if the others were noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from cascade_sim.analysis.off_policy.checks import Diagnostics, Severity, column, without_weights, worst_of
from cascade_sim.analysis.off_policy.intervals import OffPolicyEstimate, denominator_finding, estimate_from
from cascade_sim.analysis.off_policy.noise import Floats, mean_interval

Scale = Literal["log", "linear"]

MIN_REQUESTS = 20


@dataclass(frozen=True)
class Sensitivity(OffPolicyEstimate):
    """The slope dJ / d log θ (scale "log": reward per request and unit of log θ; one percent of θ gives about
    a hundredth of it) or dJ / dθ (scale "linear"), with its interval.

    per_unit: dJ / dθ. relative: slope / mean reward, for scale "log" the elasticity. curvature: the second
    derivative, in log θ or θ like the slope.
    """

    scale: Scale
    at: float
    sigma: float
    per_unit: OffPolicyEstimate
    relative: OffPolicyEstimate
    curvature: OffPolicyEstimate


@dataclass(frozen=True)
class JointSensitivity:
    """Slopes per parameter, and the mixed second derivatives by pair of parameters (first < second)."""

    slopes: tuple[Sensitivity, ...]
    mixed: dict[tuple[int, int], OffPolicyEstimate]


def sensitivity(
    reward: ArrayLike,
    z: ArrayLike,
    sigma: float,
    scale: Scale = "log",
    at: float = 1.0,
    predicted: ArrayLike | None = None,
    *,
    clusters: ArrayLike | None = None,
) -> Sensitivity:
    """Slope of the mean reward in one parameter.  reward, z, predicted: [R]; at: θ

    predicted: a forecast of the reward that does not use z nor anything that followed from it. sigma = 0, or
    z without spread, refuses: nothing was explored. Draws whose mean is not 0 or whose mean square is not 1
    (99.9 %) refuse as well: they are not the z of this log; so does a forecast that goes along with z.
    """
    r = column(reward, "reward")
    draws = column(z, "z", len(r))
    _check_parameter(sigma, scale, at)
    baseline = np.zeros(len(r)) if predicted is None else column(predicted, "predicted", len(r))
    residual = r - baseline
    diagnostics = _judge(draws, sigma, baseline, clusters)
    parameter: dict[str, Any] = {"scale": scale, "at": at, "sigma": sigma}
    if sigma == 0:
        nothing = OffPolicyEstimate("score_function", None, None, None, None, diagnostics)
        return Sensitivity(
            **vars(nothing), **parameter, per_unit=nothing, relative=nothing, curvature=nothing
        )
    slope, influence = _score_mean(residual, draws / sigma)
    mean = float(r.mean())
    share = slope / mean if mean else math.nan
    share_influence = (influence - share * (r - mean)) / mean if mean else influence
    bend, bend_influence = _score_mean(residual, (draws**2 - 1) / sigma**2)
    unit = at if scale == "log" else 1.0

    def estimate(value: float, psi: Floats, judged: Diagnostics = diagnostics) -> OffPolicyEstimate:
        return estimate_from("score_function", value, psi, judged, r, clusters)

    return Sensitivity(
        **vars(estimate(slope, influence)),
        **parameter,
        per_unit=estimate(slope / unit, influence / unit),
        relative=estimate(
            share, share_influence, diagnostics.with_findings([denominator_finding(r, clusters)])
        ),
        curvature=estimate(bend, bend_influence),
    )


def joint_sensitivity(
    reward: ArrayLike,
    z: ArrayLike,
    sigma: Sequence[float],
    scale: Sequence[Scale],
    at: Sequence[float],
    predicted: ArrayLike | None = None,
    *,
    clusters: ArrayLike | None = None,
) -> JointSensitivity:
    """Slopes in several parameters at once, jittered independently.  z: [R, P]; sigma, scale, at: P each"""
    draws = np.asarray(z, np.float64)
    n_parameters = len(sigma)
    if (
        draws.ndim != 2
        or draws.shape[1] != n_parameters
        or len(scale) != n_parameters
        or len(at) != n_parameters
    ):
        raise ValueError(
            f"z has shape {draws.shape} with {n_parameters} sigmas, {len(scale)} scales and {len(at)} values "
            "of "
            "at; expected (R, P) and P of each"
        )
    slopes = tuple(
        sensitivity(reward, draws[:, p], sigma[p], scale[p], at[p], predicted, clusters=clusters)
        for p in range(n_parameters)
    )
    r = column(reward, "reward")
    residual = r if predicted is None else r - column(predicted, "predicted", len(r))
    mixed = {}
    for p, q in combinations(range(n_parameters), 2):
        product = draws[:, p] * draws[:, q]
        diagnostics = worst_of((slopes[p].diagnostics, slopes[q].diagnostics), "parameter")
        diagnostics = diagnostics.with_findings(
            [_mean_finding(product, 0.0, "product of the draws", clusters)]
        )
        value, influence = (
            _score_mean(residual, product / (sigma[p] * sigma[q]))
            if sigma[p] and sigma[q]
            else (math.nan, np.zeros(len(r)))
        )
        mixed[p, q] = estimate_from("score_function", value, influence, diagnostics, r, clusters)
    return JointSensitivity(slopes, mixed)


def parameter_weights(z: ArrayLike, sigma: float, shift: float, sigma_target: float | None = None) -> Floats:
    """Weights p*(parameter) / p(parameter) [R] of moving the parameter's centre by `shift`, for off_policy.

    shift: log θ* − log θ (scale "log") or θ* − θ ("linear"). With σ* = sigma_target (sigma if None),

        w = (σ / σ*) exp(z² / 2 − (σ z − shift)² / (2 σ*²))

    Finite variance needs σ* < √2 σ; ESS / n = exp(−(shift / σ)²) for σ* = σ, so that a shift of 0.83 σ
    already halves the log and 1.5 σ exhausts it.
    """
    draws = column(z, "z")
    wide = sigma if sigma_target is None else sigma_target
    if not (math.isfinite(sigma) and sigma > 0 and math.isfinite(wide) and wide > 0):
        raise ValueError(f"sigma must be finite and above 0, not {sigma} and {wide}")
    return sigma / wide * np.exp(draws**2 / 2 - ((sigma * draws - shift) / wide) ** 2 / 2)


def _score_mean(residual: Floats, score: Floats) -> tuple[float, Floats]:
    """mean((e_i − ē_{-i}) s_i) and its centred influence values; unbiased for E[e s] as E[s] = 0."""
    n = len(residual)
    # e_i − ē_{-i} = (e_i − ē) n / (n − 1)
    terms = (residual - residual.mean()) * score * (n / max(n - 1, 1))
    value = float(terms.mean())
    return value, terms - value


def _judge(z: Floats, sigma: float, baseline: Floats, clusters: ArrayLike | None) -> Diagnostics:
    result = without_weights(len(z))
    if sigma == 0 or np.ptp(z) == 0:
        return result.with_findings([("refuse", "exploration is missing: the parameter was not moved")])
    few: tuple[Severity, str] = ("refuse", f"{len(z)} requests, fewer than {MIN_REQUESTS}")
    return result.with_findings(
        [
            few if len(z) < MIN_REQUESTS else ("ok", ""),
            _mean_finding(z, 0.0, "draws z", clusters),
            _mean_finding(z**2, 1.0, "squared draws z²", clusters),
            _mean_finding((baseline - baseline.mean()) * z, 0.0, "product of forecast and draws", clusters),
        ]
    )


def _mean_finding(x: Floats, expected: float, name: str, clusters: ArrayLike | None) -> tuple[Severity, str]:
    """Refuses if the 99.9 % interval of a mean that must be `expected` excludes it."""
    mean, low, high = mean_interval(x, clusters, 0.001)
    if low <= expected <= high:
        return "ok", ""
    return "refuse", f"the {name} average {mean:.3g} instead of {expected:.0f}: not the draws of this log"


def _check_parameter(sigma: float, scale: str, at: float) -> None:
    if not (math.isfinite(sigma) and sigma >= 0):
        raise ValueError(f"sigma must be finite and at least 0, not {sigma}")
    if scale not in ("log", "linear"):
        raise ValueError(f"scale must be 'log' or 'linear', not {scale!r}")
    if not math.isfinite(at) or (scale == "log" and at <= 0):
        raise ValueError(f"at must be finite{' and above 0' if scale == 'log' else ''}, not {at}")
