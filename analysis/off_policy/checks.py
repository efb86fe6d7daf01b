"""Whether a log can answer a question about another policy: effective sample size and its companions.

A weight is w = p*(action) / p(action): how much more often the target policy would do what was done than the
logging policy did it. Under right propensities, and if the log explores everything the target does,
E[w] = 1. A log is judged before any interval is given:

    ESS = (Σw)² / Σw²     ESS / n < 0.5 warns, < 0.1 refuses
    largest share         one weight above 5 % of the total refuses (so fewer than 20 requests do, too)
    mean weight           its 95 % interval excludes 1: warns; its 99.9 % interval excludes 1 and
                          it is more than 1 % off: refuses. Above 1, propensities are wrong; below 1, they
                          are wrong or the target does what the log never tried. Once in twenty logs the
                          first happens by chance, hence only a warning.
    clipped mass          the share of Σw that clipping takes away: above 1 % warns, above 10 % refuses
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cascade_sim.analysis.off_policy.noise import Floats, mean_interval

Severity = Literal["ok", "warn", "refuse"]

WARN_ESS_SHARE = 0.5
REFUSE_ESS_SHARE = 0.1
REFUSE_LARGEST_SHARE = 0.05
REFUSE_MEAN_OFF = 0.01
WARN_CLIPPED_MASS = 0.01
REFUSE_CLIPPED_MASS = 0.1
_ROUNDING = 1e-9  # a mean weight this close to 1 is 1
_ORDER: tuple[Severity, ...] = ("ok", "warn", "refuse")


@dataclass(frozen=True)
class Diagnostics:
    """What the weights say about an estimate; None where an estimator has no weights (direct method).

    mean_weight_low, _high: 95 % interval of the mean of the weights as logged, before clipping. ess,
    ess_share and largest_share are of the weights as used. reason: empty if the verdict is "ok".
    bias_unknown: the interval holds sampling noise only; its bias is not identified by the
    log.
    """

    n: int
    ess: float | None
    ess_share: float | None
    mean_weight: float | None
    mean_weight_low: float | None
    mean_weight_high: float | None
    largest_share: float | None
    clipped_mass: float | None
    verdict: Severity
    reason: str
    bias_unknown: bool = False

    def with_findings(self, findings: Iterable[tuple[Severity, str]]) -> Diagnostics:
        """The same with further findings (verdict, reason): the worst verdict holds, worst reasons first."""
        verdict, reason = self.verdict, self.reason
        for further, text in findings:
            if further == "ok":
                continue
            is_worse = _ORDER.index(further) > _ORDER.index(verdict)
            verdict = further if is_worse else verdict
            reason = "; ".join(part for part in ((text, reason) if is_worse else (reason, text)) if part)
        return replace(self, verdict=verdict, reason=reason)


def diagnose(
    weights: ArrayLike,
    clip: float | None = None,
    *,
    clusters: ArrayLike | None = None,
    self_normalised: bool = False,
    comparisons: int = 1,
) -> Diagnostics:
    """Judge weights [R], used as min(w, clip) if a clip is given (thresholds: see the head of this file).

    clusters [R] (user ids) make the interval of the mean weight cluster-robust. self_normalised: the mean
    weight can at most warn, since a common factor in the propensities cancels. comparisons: how many columns
    of weights are judged together (slots of a slate); the mean weight's levels are divided by it. A weight
    that is NaN, infinite or negative is a ValueError naming its row; so are an empty log and clip <= 0.
    """
    w = weight_column(weights)
    if clip is not None and not clip > 0:
        raise ValueError(f"clip must be above 0, not {clip}")
    result = measure(w, w if clip is None else np.minimum(w, clip), len(w), clusters, comparisons)
    if result.ess == 0:
        return result.with_findings(
            [("refuse", "exploration is missing: the target policy does nothing of what was logged")]
        )
    mean_finding = _mean_finding(result, w, clusters, self_normalised, comparisons)
    return result.with_findings([*share_findings(result), mean_finding, _clipping_finding(result)])


def diagnose_kept(
    weights: ArrayLike, is_kept: NDArray[np.bool_], *, clusters: ArrayLike | None = None
) -> Diagnostics:
    """Judge weights [R] of which only those kept are used, a model standing in for the others.

    ESS and its share are of the requests kept; clipped_mass is the weight of the others. It does not refuse:
    above 1 % it warns and sets bias_unknown, as the model's bias there is. Nothing kept: all from the model.
    """
    w = weight_column(weights)
    result = measure(w, np.where(is_kept, w, 0.0), max(int(is_kept.sum()), 1), clusters, 1)
    findings = [_mean_finding(result, w, clusters, False, 1)]
    if result.ess:
        findings += share_findings(result)
    assert result.clipped_mass is not None
    if result.ess and result.clipped_mass <= WARN_CLIPPED_MASS:
        return result.with_findings(findings)
    share = _percent(result.clipped_mass)
    findings.append(("warn", f"the model alone answers for {share} of the weight, and its bias is unknown"))
    return replace(result, bias_unknown=True).with_findings(findings)


def measure(w: Floats, used: Floats, count: int, clusters: ArrayLike | None, comparisons: int) -> Diagnostics:
    """The figures, not yet judged, of logged weights w [R] used as `used` [R] on `count` of the requests."""
    total, kept = float(w.sum()), float(used.sum())
    ess = kept**2 / float(used @ used) if kept > 0 else 0.0
    mean, low, high = mean_interval(w, clusters, 0.05 / comparisons)
    return Diagnostics(
        n=len(w),
        ess=ess,
        ess_share=ess / count,
        mean_weight=mean,
        mean_weight_low=low,
        mean_weight_high=high,
        largest_share=float(used.max()) / kept if kept > 0 else 1.0,
        clipped_mass=1.0 - kept / total if total > 0 else 0.0,
        verdict="ok",
        reason="",
    )


def share_findings(result: Diagnostics) -> list[tuple[Severity, str]]:
    """Findings on the effective sample size and on the largest weight."""
    findings: list[tuple[Severity, str]] = []
    if result.ess_share is not None and result.ess_share < WARN_ESS_SHARE:
        refused = result.ess_share < REFUSE_ESS_SHARE
        share = f"the effective sample size is {_percent(result.ess_share)} of {result.n} requests"
        findings.append(
            ("refuse", f"exploration is missing: {share}, below {_percent(REFUSE_ESS_SHARE)}")
            if refused
            else ("warn", f"little exploration: {share}, below {_percent(WARN_ESS_SHARE)}")
        )
    return findings + largest_finding(result)


def largest_finding(result: Diagnostics) -> list[tuple[Severity, str]]:
    """A refusal if a single request carries too much of the weight; else nothing."""
    share = result.largest_share
    if share is None or share <= REFUSE_LARGEST_SHARE * (1 + _ROUNDING):
        return []
    text = f"one request carries {_percent(share)} of the weight, above {_percent(REFUSE_LARGEST_SHARE)}"
    return [("refuse", f"exploration is missing: {text}")]


def _mean_finding(
    result: Diagnostics, w: Floats, clusters: ArrayLike | None, self_normalised: bool, comparisons: int
) -> tuple[Severity, str]:
    mean, low, high = result.mean_weight, result.mean_weight_low, result.mean_weight_high
    assert mean is not None and low is not None and high is not None
    if low - _ROUNDING <= 1.0 <= high + _ROUNDING:
        return "ok", ""
    _, wide_low, wide_high = mean_interval(w, clusters, 0.001 / comparisons)
    is_sure = not wide_low <= 1.0 <= wide_high and abs(mean - 1.0) > REFUSE_MEAN_OFF
    cause = "propensities are wrong"
    if mean < 1:
        cause = f"exploration is missing where the target policy acts, or {cause}"
    if not is_sure:
        cause = f"chance (one log in twenty), or {cause}"
    text = f"the mean weight is {mean:.3f} [{low:.3f}, {high:.3f}] instead of 1: {cause}"
    return ("refuse" if is_sure and not self_normalised else "warn"), text


def _clipping_finding(result: Diagnostics) -> tuple[Severity, str]:
    mass = result.clipped_mass
    if mass is None or mass <= WARN_CLIPPED_MASS:
        return "ok", ""
    text = f"clipping takes away {_percent(mass)} of the weight"
    if mass > REFUSE_CLIPPED_MASS:
        return "refuse", f"exploration is missing: {text}, above {_percent(REFUSE_CLIPPED_MASS)}"
    return "warn", f"{text}: the interval covers the clipped mean only"


def without_weights(n: int) -> Diagnostics:
    """Diagnostics of an estimator that uses no weights, not yet judged."""
    return Diagnostics(n, None, None, None, None, None, None, None, verdict="ok", reason="")


def worst_of(diagnostics: Iterable[Diagnostics], name: str) -> Diagnostics:
    """The worst of several columns (verdict, then lowest ESS), its reason led by e.g. "slot 3: "."""
    numbered = list(enumerate(diagnostics, start=1))
    at, worst = max(numbered, key=lambda pair: (_ORDER.index(pair[1].verdict), -(pair[1].ess or 0.0)))
    return replace(worst, reason=f"{name} {at}: {worst.reason}") if worst.reason else worst


def column(values: ArrayLike, name: str, n: int | None = None) -> Floats:
    """values [R] as float64; a ValueError naming column and row where one is not finite."""
    x = np.asarray(values, np.float64)
    if x.ndim != 1 or (n is not None and len(x) != n):
        raise ValueError(
            f"{name} has shape {x.shape}; expected ({'R' if n is None else n},), one per request"
        )
    if not len(x):
        raise ValueError(f"{name} is empty: there is no request in the log")
    is_bad = ~np.isfinite(x)
    if is_bad.any():
        row = int(is_bad.argmax())
        raise ValueError(f"{name}[{row}] is {x[row]}; expected a finite number")
    return x


def weight_column(weights: ArrayLike, n: int | None = None, name: str = "weights") -> Floats:
    """Weights [R] as float64, checked like a `column`; a ValueError for a negative one too."""
    w = column(weights, name, n)
    if (w < 0).any():
        row = int((w < 0).argmax())
        raise ValueError(f"{name}[{row}] is {w[row]}; a ratio of probabilities is not negative")
    return w


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"
