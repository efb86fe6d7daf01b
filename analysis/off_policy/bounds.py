"""What clipping hides: inner and outer confidence intervals (Bottou et al. 2013, sections 4.4 and 4.5).

Weights above the clip R are dropped: w̄ = w if w <= R, else 0. With rewards between m and M the target's mean
reward V = E[w r] splits into what the log shows and what it cannot:

    Ȳ = E[w̄ r],  W̄ = E[w̄],   Ȳ + m (1 − W̄)  <=  V  <=  Ȳ + M (1 − W̄)

1 − W̄ is the share of the target policy's traffic for which the log has no, or too rare, examples. It also
counts actions that were never logged, so the bounds hold without full support, where IPS is biased.

    inner    mean(w̄ r) ± ε: the sampling interval of Ȳ. Wide: more data helps.
    outer    [lower end of Ȳ + m (1 − W̄), upper end of Ȳ + M (1 − W̄)]: the interval of V. Much wider than
             the inner one: only more exploration helps.

Bottou et al. add up an interval for Ȳ and one for W̄. Here each end is the mean of one column, so that the
noise which Ȳ and W̄ share cancels:

    low  = mean(m + w̄ (r − m)) − ε_low        high = mean(M + w̄ (r − M)) + ε_high

with ε at 97.5 % each, hence 95 % for both ends. method "t": the margins of `noise`. "bernstein":

    ε = sqrt(2 s² ln(2/δ) / n) + 7 B ln(2/δ) / (3 (n − 1)),   δ = 2.5 %,   B = R (M − m)

which holds for every n >= 2 and any distribution over a range of width B (Maurer and Pontil 2009).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from cascade_sim.analysis.off_policy.checks import (
    REFUSE_MEAN_OFF,
    WARN_CLIPPED_MASS,
    Diagnostics,
    Severity,
    column,
    largest_finding,
    measure,
    weight_column,
)
from cascade_sim.analysis.off_policy.intervals import OffPolicyEstimate, estimate_from, interval_findings
from cascade_sim.analysis.off_policy.noise import Floats, margins, mean_interval


class Bounds(NamedTuple):
    """inner: the clipped estimate and its sampling interval; outer: the same value, the interval of V."""

    inner: OffPolicyEstimate
    outer: OffPolicyEstimate


def bounds(
    reward: ArrayLike,
    weights: ArrayLike,
    clip: float,
    reward_max: ArrayLike,
    *,
    reward_min: ArrayLike = 0.0,
    method: Literal["t", "bernstein"] = "t",
    clusters: ArrayLike | None = None,
) -> Bounds:
    """Inner and outer 95 % intervals of the target's mean reward.  reward, weights: [R]

    reward_max, reward_min: what a reward can be at most and at least under any action, one number or one per
    request [R] known before the decision (a bound that depends on the action would be biased). A reward
    outside them is a ValueError naming its row. outer.diagnostics.clipped_mass is 1 − W̄ as estimated;
    outer.standard_error is None, as the interval is not symmetric. A number as limit also limits the outer
    interval. method "bernstein" has no standard errors, and no clusters.
    """
    r = column(reward, "reward")
    w = weight_column(weights, len(r))
    most, least = _limits(r, reward_max, reward_min)
    _check_method(method, clip, len(r), clusters)
    kept = np.where(w <= clip, w, 0.0)
    shown, floor, ceiling = kept * r, least + kept * (r - least), most + kept * (r - most)
    hidden = max(0.0, 1.0 - float(kept.mean()))
    diagnostics = _judge(w, kept, clusters, method)
    inside, outside = _inner(diagnostics, hidden), replace(diagnostics, clipped_mass=hidden)
    value = float(shown.mean())
    if method == "t":
        inner = estimate_from("clipped_mean", value, shown - value, inside, r, clusters)
        # with nothing hidden, both ends are the mean reward: rewards of zero tell nothing about it
        findings = interval_findings(ceiling - ceiling.mean(), r if hidden == 0 else None, clusters)
        findings += interval_findings(floor - floor.mean(), None, clusters)
        outside = outside.with_findings(dict.fromkeys(findings))
        below, _ = margins(floor - floor.mean(), clusters)
        _, above = margins(ceiling - ceiling.mean(), clusters)
    else:
        half = _bernstein_half(shown, clip * float(np.maximum(most, 0).max() - np.minimum(least, 0).min()))
        inner = _between("clipped_mean", value, value - half, value + half, inside)
        reach = clip * (most - least)
        below = _bernstein_half(floor, float((least + reach).max() - least.min()))
        above = _bernstein_half(ceiling, float(most.max() - (most - reach).min()))
    low, high = float(floor.mean()) - below, float(ceiling.mean()) + above
    if np.ndim(reward_min) == 0:
        low = max(low, float(least[0]))
    if np.ndim(reward_max) == 0:
        high = min(high, float(most[0]))
    return Bounds(inner, _between("bounded_mean", value, low, high, outside))


def _between(name: str, value: float, low: float, high: float, diagnostics: Diagnostics) -> OffPolicyEstimate:
    if diagnostics.verdict == "refuse":
        return OffPolicyEstimate(name, value, None, None, None, diagnostics)
    return OffPolicyEstimate(name, value, low, high, None, diagnostics)


def _inner(diagnostics: Diagnostics, hidden: float) -> Diagnostics:
    """The inner interval says nothing about the share of the target's traffic that is hidden."""
    if hidden <= WARN_CLIPPED_MASS:
        return diagnostics
    text = f"{100 * hidden:.3g} % of the target's traffic is hidden: see the outer interval"
    return replace(diagnostics, bias_unknown=True).with_findings([("warn", text)])


def _judge(w: Floats, kept: Floats, clusters: ArrayLike | None, method: str) -> Diagnostics:
    """Only what would break the bounds: E[w̄] > 1, and without Bernstein's one weight that outweighs the rest.

    A mean below 1 and a small effective sample size are not compared with the log, as the bounds allow for
    them: they grow wide instead.
    """
    result = measure(w, kept, len(w), clusters, 1)
    findings: list[tuple[Severity, str]] = []
    mean, low, high = mean_interval(kept, clusters)
    if low > 1.0 + 1e-9:
        is_sure = mean_interval(kept, clusters, 0.001)[1] > 1.0 and mean > 1.0 + REFUSE_MEAN_OFF
        text = (
            f"the mean clipped weight is {mean:.3f} [{low:.3f}, {high:.3f}], above 1: propensities are wrong"
        )
        findings.append(("refuse" if is_sure else "warn", text))
    if method == "t" and kept.any():
        findings += largest_finding(result)
    return result.with_findings(findings)


def _limits(r: Floats, reward_max: ArrayLike, reward_min: ArrayLike) -> tuple[Floats, Floats]:
    most, least = (
        column(np.full(len(r), x) if np.ndim(x) == 0 else x, name, len(r))
        for x, name in ((reward_max, "reward_max"), (reward_min, "reward_min"))
    )
    # A reward at its limit, summed in another order, may be above it in the last digit.
    slack = 1e-12 * np.maximum(np.abs(most), np.abs(least))
    is_bad = (r > most + slack) | (r < least - slack)
    if is_bad.any():
        row = int(is_bad.argmax())
        raise ValueError(f"reward[{row}] is {r[row]}; the limits given are {least[row]} to {most[row]}")
    return most, least


def _check_method(method: str, clip: float, n: int, clusters: ArrayLike | None) -> None:
    if method not in ("t", "bernstein"):
        raise ValueError(f"method must be 't' or 'bernstein', not {method!r}")
    if not clip > 0 or (method == "bernstein" and not math.isfinite(clip)):
        raise ValueError(f"clip must be above 0{' and finite' if method == 'bernstein' else ''}, not {clip}")
    if method == "bernstein" and (clusters is not None or n < 2):
        raise ValueError("method 'bernstein' needs two independent requests or more, and no clusters")


def _bernstein_half(x: Floats, spread: float) -> float:
    n, log_term = len(x), math.log(2 / 0.025)
    return math.sqrt(2 * float(x.var(ddof=1)) * log_term / n) + 7 * spread * log_term / (3 * (n - 1))
