"""What a launch would earn: parameters fixed at new values, from a log in which they were jittered per
request.

Moving the centre of the noise (`gradient.parameter_weights`) answers another question: the same noise around
another value. Where the response bends within the noise the two differ, even in sign. Here each request i has
its draws z_i [P] (standard normal, one per jittered parameter), and the launch lies at z*; u_i = z_i − z*.
All jittered parameters are fixed: those that the launch leaves alone at the current values, which are z = 0.

    local_linear   mean(v*) + Σ l_i (r_i − v*_i)     the rewards alone, the forecast v* cutting noise only
    local_dr       mean(v*) + Σ l_i (r_i − q_i)      corrected by what the platform's model says of the bend

l are the weights of a local linear fit at the launch, with a product of Epanechnikov kernels, 1 − (u / h)²
within h standard deviations of the noise. v*: the model's forecast at the launch, q: of what was shown.

Bias. A straight line misses a response that bends within the kernel. The model tells by how much, if its own
response is bent as the true one is: B = Σ l_i (q_i − v*_i), the miss of the same fit on the forecasts.
`local_dr` is `local_linear` − B. The model's bend is trusted to within a quarter (MODEL_OFF): what may remain
is 0.25 |B| for local_dr and 1.25 |B| for local_linear (the largest |B| of this and of all narrower kernels,
lest an accidental zero count). This bound b is shown, and the interval longer: ± c se instead of ± 1.96 se,
where a normal variable of mean b / se and variance 1 lies within ± c in 95 % (Armstrong and Kolesár 2020; the
model's bend takes the place of their bound on curvature).

Bandwidth h, one per parameter: of a fixed ladder the one with the shortest interval of the lift that is to be
expected, were the bias three times its bound: so that the noise, which the log shows, outweighs what the
model must be trusted for. The choice looks at forecasts and draws; of rewards only their spread enters.

Lift: over the current values, fixed and estimated in the same way with the same h from the same requests,
whose noise both share: ψ = (ψ* − (V* / V⁰) ψ⁰) / V⁰. Serving the requests again at both settings finds the
same.

When a log cannot say (verdict "refuse"):

    support     fewer than 1 % of its requests, or 30, lie beyond the launch as seen from the current value
    ESS         1 / Σ l² < 100: so many requests served at the launch itself would say as much
    bias        the bound exceeds two standard errors; above one: warns
    bend        half the bandwidth gives another answer, by more than noise (99.9 %) and bounds allow: the
                log contradicts the model's bend; warns at 95 %

Rewards that are highest at z = 0 and fall to either side; the model is 20 % too high. The jittered log earns
less than the current value does; the launch, a little away from it, loses:

>>> z = np.linspace(-2.5, 2.5, 4001)[:, None]
>>> curve = np.exp(-z[:, 0] ** 2)
>>> at, current = np.full(4001, np.exp(-0.25)), np.ones(4001)
>>> parameter = JitteredParameter("the parameter", "its noise", sigma=0.3, at=0.5)
>>> found = launches(curve, z, [parameter], 1.2 * curve, 1.2 * at, 1.2 * current)["local_dr"]
>>> round(float(curve.mean()), 2), round(found.current.value, 2), round(found.lift.value, 2)
(0.35, 1.0, -0.22)

A launch that the noise never reached has no answer:

>>> far = JitteredParameter("the parameter", "its noise", sigma=0.3, at=3.0)
>>> launches(curve, z, [far], 1.2 * curve, 1.2 * at, 1.2 * current)["local_dr"].diagnostics.verdict
'refuse'
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cascade_sim.analysis.off_policy.checks import Diagnostics, Severity, column, without_weights
from cascade_sim.analysis.off_policy.intervals import OffPolicyEstimate, estimate_from, ratio_finding
from cascade_sim.analysis.off_policy.noise import Floats, margins, standard_error

LADDER = (0.15, 0.25, 0.4, 0.6, 1.0, 1.5, 2.5, 4.0)  # bandwidths, in standard deviations of the noise
MODEL_OFF = 0.25
WARN_BIAS, REFUSE_BIAS = 1.0, 2.0  # bounds, in standard errors
CAUTION = 3.0  # times the bound, where a bandwidth is chosen
MIN_ESS = 100.0
MIN_BEYOND, MIN_SHARE_BEYOND = 30, 0.01
MIN_INSIDE = 10  # requests per coefficient of the line: fewer are no fit
REACH = 2.0  # standard deviations from the current value within which a log can be asked comfortably
# estimator -> how much of the model's miss B may remain
LAUNCH_ESTIMATORS = {"local_linear": 1.0 + MODEL_OFF, "local_dr": MODEL_OFF}


@dataclass(frozen=True)
class JitteredParameter:
    """A jittered parameter: its name, the setting and size of its noise, and where the launch puts it.

    at: in standard deviations of the noise from the current value.
    """

    name: str
    key: str
    sigma: float
    at: float


@dataclass(frozen=True)
class LaunchEstimate(OffPolicyEstimate):
    """A launch's mean reward per request; its interval holds the bias bound as well as the noise.

    bias: the bound. current: the current values fixed, by the same fit. lift: value over the current − 1, its
    own bound in lift_bias. bandwidth: h by parameter, in standard deviations of the noise; inside: requests
    in the kernel.
    """

    bias: float | None
    current: OffPolicyEstimate
    lift: OffPolicyEstimate
    lift_bias: float | None
    bandwidth: tuple[float, ...] | None
    inside: int


@dataclass(frozen=True)
class _Fit:
    """A local line at a point: the requests inside its kernel, of them the line and the weights."""

    rows: NDArray[np.int64]  # [I]
    line: Floats  # [P + 1, I]: 1 and u
    kernel: Floats  # [I]
    inverse: Floats  # [P + 1, P + 1], of the weighted cross products
    weights: Floats  # l, [I]


@dataclass(frozen=True)
class _Rung:
    """A bandwidth tried: what it makes of the noise and of the model's forecasts."""

    bandwidth: tuple[float, ...]
    spread: float  # of what is planned (lift times the current value, or the value): sqrt(Σ weights²)
    planned_miss: float  # of the same
    miss: float  # largest |B| at the launch, of this and of narrower kernels
    miss_current: float


@dataclass(frozen=True)
class _Log:
    """The columns of a log [R], draws [P, R]; forecasts at the launch and at the current values."""

    reward: Floats
    z: Floats
    at: Floats  # [P]
    logged: Floats
    target: Floats
    current: Floats

    @property
    def ratio(self) -> float:
        """The launch over the current values, as the model has it."""
        below = float(self.current.mean())
        return float(self.target.mean()) / below if below else 1.0

    @property
    def is_current(self) -> bool:
        """Whether the launch changes nothing but that the noise ends."""
        return not self.at.any()


def launches(
    reward: ArrayLike,
    z: ArrayLike,
    parameters: Sequence[JitteredParameter],
    predicted_logged: ArrayLike,
    predicted_target: ArrayLike,
    predicted_current: ArrayLike,
    *,
    clusters: ArrayLike | None = None,
) -> dict[str, LaunchEstimate]:
    """The launch of `parameters` by each of LAUNCH_ESTIMATORS.  z: [R, P], as parameters; the other columns:
    [R]

    predicted_logged: the model's forecast of what was shown; predicted_target, predicted_current: of what
    would have been shown at the launch, and at the current values without noise.
    """
    r = column(reward, "reward")
    draws = np.asarray(z, np.float64)
    if draws.shape != (len(r), len(parameters)) or not parameters:
        raise ValueError(
            f"z has shape {draws.shape}; expected {(len(r), len(parameters))}: requests by parameters"
        )
    if not np.isfinite(draws).all():
        raise ValueError("z holds numbers that are not finite")
    log = _Log(
        r,
        np.ascontiguousarray(draws.T),
        np.array([parameter.at for parameter in parameters]),
        column(predicted_logged, "predicted_logged", len(r)),
        column(predicted_target, "predicted_target", len(r)),
        column(predicted_current, "predicted_current", len(r)),
    )
    support = _support_findings(log, parameters)
    rungs = [] if any(verdict == "refuse" for verdict, _ in support) else list(_rungs(log))
    return {name: _launch(name, log, rungs, support, clusters) for name in LAUNCH_ESTIMATORS}


def _launch(
    name: str, log: _Log, rungs: list[_Rung], support: list[tuple[Severity, str]], clusters: ArrayLike | None
) -> LaunchEstimate:
    n = len(log.reward)
    rung = _chosen(rungs, LAUNCH_ESTIMATORS[name], float((log.reward - log.logged).std()))
    if rung is None:
        if not any(verdict == "refuse" for verdict, _ in support):
            support = [*support, ("refuse", _too_few(n, 0.0))]
        nothing = OffPolicyEstimate(name, None, None, None, None, without_weights(n).with_findings(support))
        return LaunchEstimate(
            **vars(nothing),
            bias=None,
            current=nothing,
            lift=nothing,
            lift_bias=None,
            bandwidth=None,
            inside=0,
        )
    trust = LAUNCH_ESTIMATORS[name]
    value, psi, fit = _value(name, log, log.at, log.target, rung.bandwidth)
    start, start_psi, start_fit = _value(name, log, np.zeros_like(log.at), log.current, rung.bandwidth)
    bias, start_bias = trust * rung.miss, trust * rung.miss_current
    bend = _bend_finding(name, log, rung, rungs, value, psi, clusters)
    judged = _judged(fit, n).with_findings([*support, bend])
    own = _estimate(name, value, psi, bias, judged, log.reward, clusters)
    current = _estimate(name, start, start_psi, start_bias, _judged(start_fit, n), log.reward, clusters)
    ratio = value / start if start else math.nan
    lift_psi = np.zeros(n) if log.is_current or not start else (psi - ratio * start_psi) / start
    lift_bias = 0.0 if log.is_current or not start else (bias + abs(ratio) * start_bias) / abs(start)
    findings = [
        (current.diagnostics.verdict, f"the current values: {current.diagnostics.reason}"),
        ratio_finding(start, start_psi, clusters, "reward at the current values"),
    ]
    lift = _estimate(
        name, ratio - 1, lift_psi, lift_bias, judged.with_findings(findings), log.reward, clusters
    )
    return LaunchEstimate(
        **vars(own),
        bias=bias,
        current=current,
        lift=lift,
        lift_bias=lift_bias,
        bandwidth=rung.bandwidth,
        inside=len(fit.rows),
    )


def _estimate(
    name: str,
    value: float,
    psi: Floats,
    bias: float,
    diagnostics: Diagnostics,
    reward: Floats,
    clusters: ArrayLike | None,
) -> OffPolicyEstimate:
    """With an interval that is longer by what a bias up to its bound costs."""
    error, _ = standard_error(psi, clusters)
    plain = estimate_from(
        name, value, psi, diagnostics.with_findings([_bias_finding(bias, error)]), reward, clusters
    )
    if plain.value is None or plain.low is None or plain.high is None or not error:
        return plain
    longer = float(_critical(np.array([bias / error]))[0] / _critical(np.zeros(1))[0])
    low = plain.value - longer * (plain.value - plain.low)
    return replace(plain, low=low, high=plain.value + longer * (plain.high - plain.value))


def _critical(bias: Floats) -> Floats:
    """c such that |N(bias, 1)| <= c in 95 %; 1.96 without bias."""
    from scipy.special import chndtrix  # type: ignore[import-untyped]

    critical: Floats = np.sqrt(chndtrix(0.95, 1.0, np.square(bias)))
    return critical


def _rungs(log: _Log) -> Iterator[_Rung]:
    """Every bandwidth of the ladder whose kernels, at the launch and at the current values, hold enough."""
    zero = np.zeros_like(log.at)
    misses: dict[tuple[float, ...], tuple[float, float]] = {}
    for bandwidth in product(LADDER, repeat=len(log.at)):
        fit = _fit(log.z, log.at, bandwidth)
        start = fit if log.is_current else _fit(log.z, zero, bandwidth)
        if fit is None or start is None or max(_square(fit), _square(start)) * MIN_ESS > 1:
            continue
        misses[bandwidth] = (
            abs(float(fit.weights @ (log.logged - log.target)[fit.rows])),
            abs(float(start.weights @ (log.logged - log.current)[start.rows])),
        )
        narrower = [
            miss
            for other, miss in misses.items()
            if all(a <= b for a, b in zip(other, bandwidth, strict=True))
        ]
        planned = np.zeros(len(log.reward))
        planned[fit.rows] = fit.weights
        if not log.is_current:
            planned[start.rows] -= log.ratio * start.weights
        there, here = (max(miss[i] for miss in narrower) for i in (0, 1))
        yield _Rung(
            bandwidth,
            math.sqrt(float(planned @ planned)),
            there if log.is_current else there + abs(log.ratio) * here,
            there,
            here,
        )


def _chosen(rungs: list[_Rung], trust: float, spread: float) -> _Rung | None:
    """The rung with the shortest interval to be expected; None without any."""
    if not rungs:
        return None
    noise = np.array([max(spread, 1e-300) * rung.spread for rung in rungs])
    bias = trust * np.array([rung.planned_miss for rung in rungs])
    ratio = CAUTION * bias / noise
    # far out the bias is all; c is then ratio + 1.645
    length = noise * np.where(ratio < 30, _critical(np.minimum(ratio, 30.0)), ratio + 1.645)
    return rungs[int(length.argmin())]


def _fit(z: Floats, at: Floats, bandwidth: Sequence[float]) -> _Fit | None:
    """The local line at a point; None where too few requests are inside."""
    apart = [draws - there for draws, there in zip(z, at, strict=True)]
    is_inside = np.abs(apart[0]) < bandwidth[0]
    for away, h in zip(apart[1:], bandwidth[1:], strict=True):
        is_inside &= np.abs(away) < h
    rows = np.flatnonzero(is_inside)
    if len(rows) < MIN_INSIDE * (len(at) + 1):
        return None
    line = np.stack([np.ones(len(rows)), *(away[rows] for away in apart)])
    kernel = np.ones(len(rows))
    for away, h in zip(line[1:], bandwidth, strict=True):
        kernel *= 1.0 - (away / h) ** 2
    try:
        inverse = np.linalg.inv((line * kernel) @ line.T)
    except np.linalg.LinAlgError:
        return None
    return _Fit(rows, line, kernel, inverse, kernel * (inverse[0] @ line))


def _square(fit: _Fit) -> float:
    return float(fit.weights @ fit.weights)


def _value(
    name: str, log: _Log, at: Floats, forecast: Floats, bandwidth: Sequence[float]
) -> tuple[float, Floats, _Fit]:
    """The estimate at a point, its centred influence values [R], and its fit.

    Residuals of the line are divided by sqrt(1 − leverage), as those of a line through few points are too
    small.
    """
    fit = _fit(log.z, at, bandwidth)
    assert fit is not None
    n = len(log.reward)
    rest = (log.reward - (log.logged if name == "local_dr" else forecast))[fit.rows]
    mean = float(forecast.mean())
    coefficients = fit.inverse @ (fit.line @ (fit.kernel * rest))
    leverage = fit.kernel * (fit.line * (fit.inverse @ fit.line)).sum(axis=0)
    residual = (rest - coefficients @ fit.line) / np.sqrt(np.maximum(1.0 - leverage, 1.0 / n))
    influence = forecast - mean
    influence[fit.rows] += n * fit.weights * residual
    return mean + float(coefficients[0]), influence - influence.mean(), fit


def _judged(fit: _Fit, n: int) -> Diagnostics:
    """The figures of a fit's weights, and whether they leave enough."""
    ess = 1.0 / _square(fit)
    size = np.abs(fit.weights)
    return replace(
        without_weights(n), ess=ess, ess_share=ess / n, largest_share=float(size.max() / size.sum())
    ).with_findings([("refuse", _too_few(n, ess)) if ess < MIN_ESS else ("ok", "")])


def _too_few(n: int, ess: float) -> str:
    needed = f"log about {math.ceil(n * MIN_ESS / ess)} requests" if ess else "log more requests"
    return (
        f"exploration is missing: the kernel leaves an effective {ess:.0f} of {n} requests, fewer than "
        f"{MIN_ESS:.0f}; {needed}"
    )


def _support_findings(log: _Log, parameters: Sequence[JitteredParameter]) -> list[tuple[Severity, str]]:
    """A refusal for each parameter that was not moved, or that the launch puts where the noise hardly
    reached.
    """
    findings: list[tuple[Severity, str]] = []
    n = len(log.reward)
    for z, parameter in zip(log.z, parameters, strict=True):
        if parameter.sigma == 0 or np.ptp(z) == 0:
            text = f"exploration is missing: {parameter.name} was not moved; set {parameter.key}"
            findings.append(("refuse", text))
            continue
        beyond = int((z * math.copysign(1.0, parameter.at) > abs(parameter.at)).sum())
        if beyond >= max(MIN_BEYOND, MIN_SHARE_BEYOND * n):
            continue
        needed = abs(parameter.at) * parameter.sigma / REACH
        text = (
            f"exploration is missing: the launch puts {parameter.name} {abs(parameter.at):.2g} standard "
            "deviations of "
            f"its noise from the current value, and {beyond} of {n} requests lie beyond it, fewer than "
            f"{max(MIN_BEYOND, math.ceil(MIN_SHARE_BEYOND * n))}; "
        )
        text += (
            f"log it with {parameter.key} = {needed:.2g} or more"
            if needed > parameter.sigma
            else "log more requests"
        )
        findings.append(("refuse", text))
    return findings


def _bias_finding(bias: float, error: float) -> tuple[Severity, str]:
    if bias <= WARN_BIAS * error * (1 + 1e-9):
        return "ok", ""
    text = (
        f"the response bends within the kernel: a bias up to {bias:.3g}, the standard error being {error:.3g}"
    )
    if bias > REFUSE_BIAS * error:
        return "refuse", f"{text}; log more requests, or a noise of its own around the launch"
    return "warn", text


def _bend_finding(
    name: str,
    log: _Log,
    rung: _Rung,
    rungs: list[_Rung],
    value: float,
    psi: Floats,
    clusters: ArrayLike | None,
) -> tuple[Severity, str]:
    """Whether half a parameter's bandwidth gives an answer that differs by more than noise and bounds allow.

    A model that knows nothing of the bend has no miss of its own either, so that only the log can tell.
    """
    known = {other.bandwidth: other for other in rungs}
    warning: tuple[Severity, str] = ("ok", "")
    for parameter, width in enumerate(rung.bandwidth):
        half = max((h for h in LADDER if h <= width / 2), default=None)
        other = (
            known.get((*rung.bandwidth[:parameter], half, *rung.bandwidth[parameter + 1 :])) if half else None
        )
        if other is None:
            continue
        near, near_psi, _ = _value(name, log, log.at, log.target, other.bandwidth)
        allowed = LAUNCH_ESTIMATORS[name] * (rung.miss + other.miss)
        text = (
            f"half the bandwidth gives {near:.3g} instead of {value:.3g}, more apart than noise and a bias "
            f"up to {allowed:.3g} allow: the log contradicts the model's bend"
        )
        is_apart = [
            abs(near - value) - (above if near < value else below) > allowed
            for below, above in (
                margins(near_psi - psi, clusters, alpha / len(rung.bandwidth)) for alpha in (0.001, 0.05)
            )
        ]
        if is_apart[0]:
            return "refuse", f"{text}; log more requests, so that a narrower kernel holds enough"
        if is_apart[1]:
            warning = ("warn", f"{text}, or chance (one log in twenty)")
    return warning
