"""What another policy would have earned, from a log of randomised decisions.

Per request i: reward r_i, weight w_i = p*(a_i) / p(a_i) (target over logging probability of what was done),
and for those that use a model q̂_i = its forecast of the reward of what was done (predicted_logged) and
v̂_i = its forecast under the target policy, E_{a~p*}[q̂(x_i, a)] (predicted_target).

    ips             mean(w r)                                    unbiased if the log explores
    clipped_ips     mean(min(w, clip) r)                         less variance, hides what is clipped
    snips           Σ w r / Σ w                                  consistent; immune to a factor in w
    direct_method   mean(v̂)                                      as good as the model; bias unknown
    doubly_robust   mean(v̂ + w (r − q̂))                          unbiased if propensities or model are right
    switch_dr       mean(v̂ + w 1[w <= threshold] (r − q̂))        the model alone where weights are large

Intervals are 95 %, from influence values (`noise`, `intervals`); optional clusters [R], e.g. user ids, make
them cluster-robust. They are absent where the log cannot answer (`checks`). The model must be fitted to other
requests (another day, or cross-fit), or its errors are underrated.

Four actions, logged evenly, that earn 2, 0, 1 and 0; the target does the first two three times as often as
the others:

>>> reward, weights = np.tile([2.0, 0.0, 1.0, 0.0], 100), np.tile([1.5, 1.5, 0.5, 0.5], 100)
>>> answer = ips(reward, weights)
>>> answer.value, round(answer.low, 2), round(answer.high, 2), answer.diagnostics.verdict
(0.875, 0.75, 1.0, 'ok')
>>> gain = lift("snips", reward, weights)
>>> round(gain.value, 3), round(gain.low, 3), round(gain.high, 3)
(0.167, 0.121, 0.213)

A log that hardly ever did what the target does has no answer:

>>> answer = ips(reward, np.where(np.arange(400) < 4, 100.0, 0.0))
>>> answer.low, answer.high, answer.diagnostics.verdict
(None, None, 'refuse')
>>> answer.diagnostics.reason.split(',')[0]
'exploration is missing: the effective sample size is 1 % of 400 requests'
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cascade_sim.analysis.off_policy.checks import (
    Diagnostics,
    column,
    diagnose,
    diagnose_kept,
    weight_column,
    without_weights,
)
from cascade_sim.analysis.off_policy.intervals import OffPolicyEstimate, denominator_finding, estimate_from
from cascade_sim.analysis.off_policy.noise import Floats, standard_error

__all__ = [
    "ESTIMATORS",
    "NEEDS",
    "Diagnostics",
    "OffPolicyEstimate",
    "clipped_ips",
    "diagnose",
    "difference",
    "direct_method",
    "doubly_robust",
    "evaluate",
    "ips",
    "lift",
    "snips",
    "switch_dr",
]

_BIAS_SHOWN = 0.25  # of a standard error: a 95 % interval shifted by this much still covers 94.3 %


@dataclass(frozen=True)
class _Parts:
    """An estimator before its interval: value, centred influence values [R], verdict on the weights."""

    value: float
    influence: Floats
    diagnostics: Diagnostics
    reward: Floats | None


def ips(reward: ArrayLike, weights: ArrayLike, *, clusters: ArrayLike | None = None) -> OffPolicyEstimate:
    """Inverse propensity scoring: mean(w r).  reward, weights: [R]"""
    return evaluate("ips", reward=reward, weights=weights, clusters=clusters)


def clipped_ips(
    reward: ArrayLike, weights: ArrayLike, clip: float, *, clusters: ArrayLike | None = None
) -> OffPolicyEstimate:
    """IPS with weights cut to min(w, clip): mean(min(w, clip) r).

    Biased by −E[(w − clip)⁺ r]. The verdict warns where the log's own estimate of that bias exceeds a quarter
    of the standard error, or clipping takes away more than 1 % of the weight; above 10 % it refuses. What
    clipping may hide at most: `bounds`.
    """
    return evaluate("clipped_ips", reward=reward, weights=weights, clip=clip, clusters=clusters)


def snips(reward: ArrayLike, weights: ArrayLike, *, clusters: ArrayLike | None = None) -> OffPolicyEstimate:
    """Self-normalised IPS: V = Σ w r / Σ w; None where all weights are zero.

    Linearised (delta method): ψ_i = w_i (r_i − V) / w̄. As V is a weighted mean, the largest weights pull it
    towards their own rewards; each ψ_i is divided by sqrt(1 − w_i / Σw), which for equal weights gives the
    usual s² / n.
    """
    return evaluate("snips", reward=reward, weights=weights, clusters=clusters)


def direct_method(predicted_target: ArrayLike, *, clusters: ArrayLike | None = None) -> OffPolicyEstimate:
    """The model's forecast under the target policy: mean(v̂).

    Its interval holds the sampling of requests only, not the model's errors: the verdict is never better than
    "warn" and diagnostics.bias_unknown is set. There are no weights, so their figures are None.
    """
    return evaluate("direct_method", predicted_target=predicted_target, clusters=clusters)


def doubly_robust(
    reward: ArrayLike,
    weights: ArrayLike,
    predicted_logged: ArrayLike,
    predicted_target: ArrayLike,
    *,
    clusters: ArrayLike | None = None,
) -> OffPolicyEstimate:
    """The model's forecast, corrected by its weighted errors on what was done: mean(v̂ + w (r − q̂))."""
    return evaluate(
        "doubly_robust",
        reward=reward,
        weights=weights,
        predicted_logged=predicted_logged,
        predicted_target=predicted_target,
        clusters=clusters,
    )


def switch_dr(
    reward: ArrayLike,
    weights: ArrayLike,
    predicted_logged: ArrayLike,
    predicted_target: ArrayLike,
    threshold: float,
    *,
    clusters: ArrayLike | None = None,
) -> OffPolicyEstimate:
    """Doubly robust up to a weight, the model alone beyond (Wang, Agarwal and Dudík 2017).

    mean(v̂ + w 1[w <= threshold] (r − q̂)): threshold = inf is doubly_robust, threshold = 0 direct_method. The
    gates on ESS and largest weight look at the requests within the threshold; clipped_mass is the share of
    the weight beyond it. There the model's bias is unknown: above 1 % of the weight, bias_unknown is set.
    """
    return evaluate(
        "switch_dr",
        reward=reward,
        weights=weights,
        predicted_logged=predicted_logged,
        predicted_target=predicted_target,
        threshold=threshold,
        clusters=clusters,
    )


def evaluate(name: str, *, clusters: ArrayLike | None = None, **arguments: Any) -> OffPolicyEstimate:
    """The estimator of that name on keyword arguments; arguments it does not need (NEEDS) are ignored."""
    parts = _parts(name, arguments, clusters)
    return estimate_from(name, parts.value, parts.influence, parts.diagnostics, parts.reward, clusters)


def difference(
    name: str,
    reward: ArrayLike,
    weights: ArrayLike | None = None,
    *,
    clusters: ArrayLike | None = None,
    **arguments: Any,
) -> OffPolicyEstimate:
    """Estimator minus the mean logged reward, paired: V̂ − r̄ with influence values ψ_i − (r_i − r̄).

    For ips that is the mean and variance of w r − r: what both policies share cancels. arguments: clip,
    threshold, predicted_logged, predicted_target, as the estimator needs.
    """
    r = column(reward, "reward")
    parts = _parts(name, {"reward": reward, "weights": weights, **arguments}, clusters)
    logged = float(r.mean())
    influence = parts.influence - (r - logged)
    return estimate_from(name, parts.value - logged, influence, parts.diagnostics, r, clusters)


def lift(
    name: str,
    reward: ArrayLike,
    weights: ArrayLike | None = None,
    *,
    clusters: ArrayLike | None = None,
    **arguments: Any,
) -> OffPolicyEstimate:
    """Estimator relative to the mean logged reward, paired: V̂ / r̄ − 1; 0.05 is five percent more.

    Delta method: ψ_i = (ψ_i(V̂) − (V̂ / r̄) (r_i − r̄)) / r̄. Refuses where r̄ = 0.
    """
    r = column(reward, "reward")
    parts = _parts(name, {"reward": reward, "weights": weights, **arguments}, clusters)
    logged = float(r.mean())
    diagnostics = parts.diagnostics.with_findings([denominator_finding(r, clusters)])
    if logged == 0:
        return estimate_from(name, math.nan, parts.influence, diagnostics, r, clusters)
    ratio = parts.value / logged
    influence = (parts.influence - ratio * (r - logged)) / logged
    return estimate_from(name, ratio - 1.0, influence, diagnostics, r, clusters)


def _parts(name: str, arguments: dict[str, Any], clusters: ArrayLike | None) -> _Parts:
    if name not in _PARTS:
        raise ValueError(f"there is no estimator {name!r}; there are {', '.join(_PARTS)}")
    needed = {key: arguments.get(key) for key in NEEDS[name]}
    missing = [key for key, value in needed.items() if value is None]
    if missing:
        raise ValueError(f"{name} needs {', '.join(missing)}")
    return _PARTS[name](clusters=clusters, **needed)


def _ips(reward: ArrayLike, weights: ArrayLike, clusters: ArrayLike | None) -> _Parts:
    r, w = _reward_and_weights(reward, weights)
    return _mean_of(w * r, diagnose(w, clusters=clusters), r)


def _clipped_ips(reward: ArrayLike, weights: ArrayLike, clip: float, clusters: ArrayLike | None) -> _Parts:
    r, w = _reward_and_weights(reward, weights)
    parts = _mean_of(np.minimum(w, clip) * r, diagnose(w, clip, clusters=clusters), r)
    return _with_hidden(parts, np.maximum(w - clip, 0.0) * r, "clipping", clusters)


def _snips(reward: ArrayLike, weights: ArrayLike, clusters: ArrayLike | None) -> _Parts:
    r, w = _reward_and_weights(reward, weights)
    diagnostics = diagnose(w, clusters=clusters, self_normalised=True)
    total, n = float(w.sum()), len(w)
    if total == 0:
        return _Parts(math.nan, np.zeros(n), diagnostics, r)
    value = float(w @ r) / total
    influence = w * (r - value) * (n / total)
    if clusters is None and n > 1:
        # n / (n − 1) comes back with the variance of a mean
        influence = influence * np.sqrt((n - 1) / n / np.maximum(1.0 - w / total, 1.0 / n))
    return _Parts(value, influence, diagnostics, r)


def _direct_method(predicted_target: ArrayLike, clusters: ArrayLike | None) -> _Parts:
    v = column(predicted_target, "predicted_target")
    reason = "the bias of the model is unknown: the interval holds the sampling of requests only"
    diagnostics = replace(without_weights(len(v)), bias_unknown=True).with_findings([("warn", reason)])
    return _mean_of(v, diagnostics, None)


def _doubly_robust(
    reward: ArrayLike,
    weights: ArrayLike,
    predicted_logged: ArrayLike,
    predicted_target: ArrayLike,
    clusters: ArrayLike | None,
) -> _Parts:
    r, w = _reward_and_weights(reward, weights)
    q, v = (
        column(predicted_logged, "predicted_logged", len(r)),
        column(predicted_target, "predicted_target", len(r)),
    )
    return _mean_of(v + w * (r - q), diagnose(w, clusters=clusters), r)


def _switch_dr(
    reward: ArrayLike,
    weights: ArrayLike,
    predicted_logged: ArrayLike,
    predicted_target: ArrayLike,
    threshold: float,
    clusters: ArrayLike | None,
) -> _Parts:
    r, w = _reward_and_weights(reward, weights)
    q = column(predicted_logged, "predicted_logged", len(r))
    v = column(predicted_target, "predicted_target", len(r))
    if not threshold >= 0:
        raise ValueError(f"threshold must be at least 0, not {threshold}")
    is_kept = w <= threshold
    parts = _mean_of(v + np.where(is_kept, w, 0.0) * (r - q), diagnose_kept(w, is_kept, clusters=clusters), r)
    return _with_hidden(parts, np.where(is_kept, 0.0, w) * (r - q), "the threshold", clusters)


def _with_hidden(parts: _Parts, hidden: Floats, what: str, clusters: ArrayLike | None) -> _Parts:
    """Warns where the reward that is left out, as far as the log shows it, is not small beside the noise."""
    bias = abs(float(hidden.mean()))
    error, _ = standard_error(parts.influence, clusters)
    if bias <= _BIAS_SHOWN * error:
        return parts
    text = f"{what} hides about {bias:.3g} of reward per request, the standard error being {error:.3g}"
    return replace(parts, diagnostics=parts.diagnostics.with_findings([("warn", text)]))


def _mean_of(terms: Floats, diagnostics: Diagnostics, reward: Floats | None) -> _Parts:
    value = float(terms.mean())
    return _Parts(value, terms - value, diagnostics, reward)


def _reward_and_weights(reward: ArrayLike, weights: ArrayLike) -> tuple[Floats, Floats]:
    r = column(reward, "reward")
    return r, weight_column(weights, len(r))


_PARTS: dict[str, Callable[..., _Parts]] = {
    "ips": _ips,
    "clipped_ips": _clipped_ips,
    "snips": _snips,
    "direct_method": _direct_method,
    "doubly_robust": _doubly_robust,
    "switch_dr": _switch_dr,
}

# the arguments of each estimator, by name
NEEDS: dict[str, tuple[str, ...]] = {
    "ips": ("reward", "weights"),
    "clipped_ips": ("reward", "weights", "clip"),
    "snips": ("reward", "weights"),
    "direct_method": ("predicted_target",),
    "doubly_robust": ("reward", "weights", "predicted_logged", "predicted_target"),
    "switch_dr": ("reward", "weights", "predicted_logged", "predicted_target", "threshold"),
}

ESTIMATORS: dict[str, Callable[..., OffPolicyEstimate]] = {
    "ips": ips,
    "clipped_ips": clipped_ips,
    "snips": snips,
    "direct_method": direct_method,
    "doubly_robust": doubly_robust,
    "switch_dr": switch_dr,
}
