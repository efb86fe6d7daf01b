"""From influence values to an estimate with a 95 % interval, and when such an interval may not be given.

The gates on weights (`checks`) do not see rewards; these do:

    no reward but zero         refuses: an interval [0, 0] would claim certainty
    n < 10 · skewness(ψ)²      warns: about ten requests or fewer carry the noise (ten clicks, if reward is
                               clicks); the margins (`noise`) then follow accidents of the sample
    fewer than 20 clusters     warns; one cluster refuses
    ratios to a mean           warn where its standard error exceeds a tenth of it: over such noise a ratio
                               is no straight line, as the delta method takes it to be
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from numpy.typing import ArrayLike

from cascade_sim.analysis.off_policy.checks import Diagnostics, Severity
from cascade_sim.analysis.off_policy.noise import Floats, margins, skewness, standard_error, unit_totals

MIN_UNITS = 10.0  # times the squared skewness
FEW_CLUSTERS = 20
RATIO_NOISE = 0.1


@dataclass(frozen=True)
class OffPolicyEstimate:
    """A policy's mean reward per request (or a difference of such) with its 95 % interval.

    low, high and standard_error are None where the verdict is "refuse"; the value is then an arithmetic
    result without meaning of its own, None where even that is undefined (0 / 0). The interval is longer on
    the side on which rare large values may be missing.
    """

    estimator: str
    value: float | None
    low: float | None
    high: float | None
    standard_error: float | None
    diagnostics: Diagnostics


def estimate_from(
    name: str,
    value: float,
    influence: Floats,
    diagnostics: Diagnostics,
    reward: Floats | None = None,
    clusters: ArrayLike | None = None,
) -> OffPolicyEstimate:
    """The estimate of a value from centred influence values ψ [R]; reward: what must not be all zero."""
    diagnostics = diagnostics.with_findings(interval_findings(influence, reward, clusters))
    shown = float(value) if math.isfinite(value) else None
    if diagnostics.verdict == "refuse" or shown is None:
        return OffPolicyEstimate(name, shown, None, None, None, diagnostics)
    error, _ = standard_error(influence, clusters)
    below, above = margins(influence, clusters)
    return OffPolicyEstimate(name, shown, shown - below, shown + above, error, diagnostics)


def interval_findings(
    influence: Floats, reward: Floats | None, clusters: ArrayLike | None
) -> list[tuple[Severity, str]]:
    """What speaks against an interval from ψ [R] (see the head of this file)."""
    if reward is not None and not reward.any():
        return [("refuse", "no request of the log has a reward other than zero")]
    units = unit_totals(influence, clusters)
    if len(units) < 2:
        return [("refuse", "there is only one request" if clusters is None else "there is only one cluster")]
    findings: list[tuple[Severity, str]] = []
    if clusters is not None and len(units) < FEW_CLUSTERS:
        findings.append(("warn", f"only {len(units)} clusters, fewer than {FEW_CLUSTERS}"))
    needed = MIN_UNITS * skewness(units) ** 2
    if len(units) < needed:
        what = "requests" if clusters is None else "clusters"
        text = f"a few large values dominate: {len(units)} {what}, at least {math.ceil(needed)} needed"
        findings.append(("warn", text))
    return findings


def denominator_finding(x: Floats, clusters: ArrayLike | None) -> tuple[Severity, str]:
    """What speaks against a ratio to the mean of x [R]."""
    mean = float(x.mean())
    return ratio_finding(mean, x - mean, clusters, "mean logged reward")


def ratio_finding(
    value: float, influence: Floats, clusters: ArrayLike | None, what: str
) -> tuple[Severity, str]:
    """What speaks against a ratio to an estimate with these centred influence values [R]."""
    if value == 0:
        return "refuse", f"the {what} is zero"
    noise = standard_error(influence, clusters)[0] / abs(value)
    if noise <= RATIO_NOISE:
        return "ok", ""
    return "warn", f"the standard error of the {what} is {100 * noise:.3g} % of it"
