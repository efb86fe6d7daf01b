"""What an experimenter reads from a trial: effects on ratios of sums, with intervals that fit the design.

An effect is T - C, or as a lift T / C - 1, where T = sum(top) / sum(bottom) over what was treated and C over
what was not. Intervals are 95 % and say how far the assignment's noise may have moved the effect. They know
nothing of interference: where the arms share budgets, an interval may be narrow and far off.

    ratio_effect        independent units, or clusters of them
    cuped               the same, less what the time before the trial foretells
    switchback_effect   whole time slots, by turns; outside_washout drops the rows just after a change
    running_effect      after each step; mixture_half_width gives intervals that hold at every look

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

from cascade_sim.analysis.statistics.estimates import Estimate, t_quantile

Floats = NDArray[np.float64]
LEVEL = 0.95


@dataclass(frozen=True)
class Effect:
    """A ratio in both arms, and how they differ; None where it is undefined."""

    treatment: float | None = None
    control: float | None = None
    difference: Estimate = Estimate()
    lift: Estimate = Estimate()
    units: int = 0  # independent units that the interval rests on


@dataclass(frozen=True)
class Cuped:
    """A difference before and after what is known from the time before the trial is taken out."""

    theta: float
    plain: Estimate
    adjusted: Estimate
    variance_ratio: float  # variance after / before; 1 - correlation^2 within arms
    units: int


@dataclass(frozen=True)
class Running:
    """The difference T - C of two ratios after each step, and its standard error; NaN before both exist."""

    difference: Floats
    error: Floats


def ratio_effect(
    top: ArrayLike, bottom: ArrayLike, is_treated: ArrayLike, clusters: ArrayLike | None = None
) -> Effect:
    """Delta method, robust to dependence within clusters.  All [N]

    With B_a the sum of `bottom` in arm a, e_i = (top_i - ratio_a * bottom_i) / B_a is what row i moves its
    arm's ratio by; D_g = sum over a cluster of e_i (treated) and -e_i (control). Then
    Var(T - C) = G / (G - 1) * sum_g D_g^2, and for the lift the same with e_i / C and -(T / C^2) e_i.
    Rows of one cluster may lie in both arms (a user under assignment by request, a day with both arms in it):
    what they have in common cancels. Without clusters every row is one. t interval with G - 1 degrees of
    freedom; fewer than two clusters: none. An arm without any `bottom` leaves all undefined.
    """
    top, bottom = np.asarray(top, np.float64), np.asarray(bottom, np.float64)
    treated = np.asarray(is_treated, bool)
    whole = [bottom[treated].sum(), bottom[~treated].sum()]
    if min(whole) <= 0:
        return Effect()
    treatment, control = float(top[treated].sum() / whole[0]), float(top[~treated].sum() / whole[1])
    moved = np.where(treated, (top - treatment * bottom) / whole[0], -(top - control * bottom) / whole[1])
    groups = np.arange(len(top)) if clusters is None else np.unique(clusters, return_inverse=True)[1]
    n = int(groups.max()) + 1
    difference = _around(treatment - control, _cluster_error(moved, groups), n - 1)
    if control == 0:
        return Effect(treatment, control, difference, Estimate(), n)
    relative = np.where(treated, moved / control, moved * treatment / control**2)
    lift = _around(treatment / control - 1.0, _cluster_error(relative, groups), n - 1)
    return Effect(treatment, control, difference, lift, n)


def switchback_effect(
    top: ArrayLike, bottom: ArrayLike, is_treated: ArrayLike, slots: ArrayLike, slots_per_day: int = 1
) -> Effect:
    """From time slots that belong wholly to one arm, compared within their hour of the day.  All [N]

    `slots` number the slots from a midnight on; rows of a slot are summed first. With h the slot's place in
    the day and ratios T_h, C_h of the slots there,
        T = sum_h W_h T_h / sum_h W_h,  C likewise,  W_h = B_T B_C / (B_T + B_C)
    (B: sums of `bottom`), so that an hour counts only where both arms had it: the regression on treatment
    and hour. Jackknife over slots; t with (slots - hours - 1) degrees of freedom, of those that count.
    """
    number, row = np.unique(np.asarray(slots), return_inverse=True)
    values = [np.asarray(x, np.float64) for x in (top, bottom)]
    sums: Floats = np.stack([np.bincount(row, x, len(number)) for x in values]).astype(np.float64)
    treated = np.bincount(row, np.asarray(is_treated, np.float64), len(number)) > 0
    hour = np.unique(number % slots_per_day, return_inverse=True)[1]
    levels = _adjusted_levels(sums, treated, hour)
    if levels is None:
        return Effect()
    counts = np.zeros((hour.max() + 1, 2))
    np.add.at(counts, (hour, treated.astype(int)), sums[1] > 0)
    both = counts.min(axis=1) > 0
    used = np.nonzero(both[hour] & (sums[1] > 0))[0]
    freedom = len(used) - int(both.sum()) - 1
    others = [np.arange(len(number)) != i for i in used]
    without = [_adjusted_levels(sums[:, rest], treated[rest], hour[rest]) for rest in others]
    known = np.array([pair for pair in without if pair is not None])
    treatment, control = levels
    if freedom < 1 or len(known) < len(used) or not known[:, 1].all() or not control:
        lift = Estimate(treatment / control - 1.0) if control else Estimate()
        return Effect(treatment, control, Estimate(treatment - control), lift, len(used))
    return Effect(
        treatment,
        control,
        _around(treatment - control, _jackknife_error(known[:, 0] - known[:, 1]), freedom),
        _around(treatment / control - 1.0, _jackknife_error(known[:, 0] / known[:, 1]), freedom),
        len(used),
    )


def outside_washout(
    times: ArrayLike, slots: ArrayLike, is_treated: ArrayLike, length: float, washout: float
) -> NDArray[np.bool_]:
    """Rows that do not lie in the first `washout` seconds of a slot whose arm differs from the last one's.

    Before the first slot all are on control. A slot without any row keeps the arm before it.  [N]
    """
    times, treated = np.asarray(times, np.float64), np.asarray(is_treated, bool)
    number, first, row = np.unique(np.asarray(slots), return_index=True, return_inverse=True)
    arm = treated[first]
    changed = arm != np.concatenate([[False], arm[:-1]])
    return ~(changed[row] & (times - number[row] * length < washout))


def cuped(
    top: ArrayLike, bottom: ArrayLike, before_top: ArrayLike, before_bottom: ArrayLike, is_treated: ArrayLike
) -> Cuped | None:
    """The difference of ratios with the same ratio of the time before the trial as covariate.  All [units]

    With e_u = (top_u - ratio_a * bottom_u) / mean bottom of arm a, and f_u likewise before the trial:
        theta = sum(e f) / sum(f^2)  over both arms,  adjusted = (T - C) - theta * (T - C before the trial),
        Var = sum over arms of  sum((e - theta f)^2) / (n_a (n_a - 1)).
    With bottom = 1 it is the CUPED of means (Deng, Xu, Kohavi and Walker 2013). Before the trial both arms
    are treated alike, so what is taken out is noise. None if an arm has no unit with any `bottom` then or
    now, or fewer than two units.
    """
    treated = np.asarray(is_treated, bool)
    e, effect = _linearised(top, bottom, treated)
    f, before = _linearised(before_top, before_bottom, treated)
    sizes = np.where(treated, treated.sum(), (~treated).sum())
    if effect is None or before is None or sizes.min(initial=2) < 2:
        return None
    squares = float(f @ f)
    theta = float(e @ f) / squares if squares else 0.0
    plain, adjusted = (float(((x**2) / (sizes * (sizes - 1.0))).sum()) for x in (e, e - theta * f))
    n = len(treated)
    return Cuped(
        theta=theta,
        plain=_around(effect, plain**0.5, n - 2),
        adjusted=_around(effect - theta * before, adjusted**0.5, n - 3),
        variance_ratio=adjusted / plain if plain else 1.0,
        units=n,
    )


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


def _linearised(top: ArrayLike, bottom: ArrayLike, treated: NDArray[np.bool_]) -> tuple[Floats, float | None]:
    """What each unit moves its arm's ratio by, times the arm's units; and the difference of the ratios."""
    top, bottom = np.asarray(top, np.float64), np.asarray(bottom, np.float64)
    whole = [bottom[treated].sum(), bottom[~treated].sum()]
    if min(whole) <= 0:
        return np.zeros(len(top)), None
    ratios = [top[treated].sum() / whole[0], top[~treated].sum() / whole[1]]
    means = np.where(treated, whole[0] / treated.sum(), whole[1] / (~treated).sum())
    return (top - np.where(treated, *ratios) * bottom) / means, float(ratios[0] - ratios[1])


def _adjusted_levels(
    sums: Floats, treated: NDArray[np.bool_], hour: NDArray[np.intp]
) -> tuple[float, float] | None:
    """(T, C) of switchback_effect from slots; sums [2, slots] are top and bottom."""
    by_hour = np.zeros((2, 2, int(hour.max(initial=-1)) + 1))  # top or bottom, control or treatment, hour
    for part, values in zip(by_hour, sums, strict=True):
        np.add.at(part, (treated.astype(int), hour), values)
    top, bottom = by_hour[:, :, (by_hour[1] > 0).all(axis=0)]
    if not bottom.size:
        return None
    weight = bottom[0] * bottom[1] / bottom.sum(axis=0)
    control, treatment = (weight * top / bottom).sum(axis=1) / weight.sum()
    return float(treatment), float(control)


def _cluster_error(moved: Floats, groups: NDArray[np.intp]) -> float:
    sums = np.bincount(groups, moved)
    n = len(sums)
    return float(np.sqrt(n / (n - 1.0) * (sums @ sums))) if n > 1 else float("nan")


def _jackknife_error(without: Floats) -> float:
    n = len(without)
    return float(np.sqrt((n - 1) / n * ((without - without.mean()) ** 2).sum()))


def _around(value: float, error: float, freedom: int) -> Estimate:
    """The t interval of an estimate with this standard error."""
    if freedom < 1 or not np.isfinite(error):
        return Estimate(value)
    half = t_quantile((1 + LEVEL) / 2, freedom) * error
    return Estimate(value, value - half, value + half)
