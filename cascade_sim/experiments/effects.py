"""Effects of a trial on what a platform watches, read as its design demands, and their distance to the truth.

Intervals: by request for `request`, by user for `user`, by time slot within hours of the day for
`switchback`, and paired by day for split budgets and for the truth. Split budgets are parted by request,
not by user: then each day is a new draw, and days may stand for one another. Users parted once and for all
would leave one half with more traffic for its half of the money on every day, which no day could show.

`cuped_section` is what a trial gains from the days before it, `sequence_section` how it looks while it runs.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cascade_sim.analysis.metrics.catalogue import MARKET_MEASURES, Metric, columns_of
from cascade_sim.analysis.statistics.days import MIN_DAYS
from cascade_sim.analysis.statistics.estimates import Estimate
from cascade_sim.analysis.statistics.trials import (
    Effect,
    cuped,
    mixture_half_width,
    outside_washout,
    ratio_effect,
    running_effect,
    switchback_effect,
)
from cascade_sim.auction import MICROS
from cascade_sim.experiments.assignment import Assignment
from cascade_sim.foundation import random as draws
from cascade_sim.scenario.market import DAY, Designs, Market

HOURS = 24

HOUR = 3600.0

FIRST_LOOK = 30  # clicks in each arm before a look at the trial says anything

FIXED = 1.959963984540054  # half the width of a 95 % interval for a single look, in standard errors

MEASURES = {
    name: MARKET_MEASURES[name] for name in ("revenue_per_request", "clicks_per_request", "ctr", "cpc")
}

SUMS = columns_of(MEASURES.values())


def design_effects(kind: str, columns: Mapping[str, np.ndarray], spec: Designs) -> dict[str, Any]:
    """Every measure of a design whose arms share a market, from its requests."""
    trial = in_trial(columns, spec.pre_days)
    treated = trial["is_treated"]
    if kind == "switchback":
        slots = (trial["time"] // spec.switchback).astype(np.int64)
        rows = outside_washout(trial["time"], slots, treated, spec.switchback, spec.washout)
        values = per_request({name: column[rows] for name, column in trial.items()})
        treated, slots, slots_per_day = treated[rows], slots[rows], round(DAY / spec.switchback)
        return {
            name: _entry(switchback_effect(*_parts(metric, values), treated, slots, slots_per_day))
            for name, metric in MEASURES.items()
        }
    values = per_request(trial)
    clusters = trial["user"] if kind == "user" else None
    return {
        name: _entry(ratio_effect(*_parts(metric, values), treated, clusters))
        for name, metric in MEASURES.items()
    }


def daily_sums(
    columns: Mapping[str, np.ndarray], pre_days: int, days: float
) -> dict[str, dict[str, list[float]]]:
    """What each arm brought on each day on trial: {"treatment", "control": {name of SUMS: [days]}}."""
    trial = in_trial(columns, pre_days)
    n = int(np.ceil(days)) - pre_days
    day = np.minimum((trial["time"] // DAY).astype(np.int64) - pre_days, n - 1)
    by_role = {}
    for role, rows in (("treatment", trial["is_treated"]), ("control", ~trial["is_treated"])):
        sums = {}
        for name in SUMS:
            source = "revenue_micros" if name == "revenue" else name
            whole = np.zeros(n, np.int64)
            np.add.at(whole, day[rows], 1 if name == "requests" else trial[source][rows])
            sums[name] = (whole / (MICROS if name == "revenue" else 1)).tolist()
        by_role[role] = sums
    return by_role


def paired_by_day(days: Mapping[str, Mapping[str, Sequence[float]]], length: float) -> dict[str, Any]:
    """Every measure from the sums of the days of two markets; intervals from MIN_DAYS whole days on."""
    measures = {}
    for name, metric in MEASURES.items():
        parts = [_parts(metric, days[role]) for role in days]
        treated = np.repeat([role == "treatment" for role in days], len(parts[0][0]))
        day = np.tile(np.arange(len(parts[0][0])), len(days))
        tops, bottoms = (np.concatenate(column) for column in zip(*parts, strict=True))
        effect = ratio_effect(tops, bottoms, treated, day)
        if len(parts[0][0]) < MIN_DAYS or length % 1:
            bare = (Estimate(effect.difference.value), Estimate(effect.lift.value))
            effect = Effect(effect.treatment, effect.control, *bare, effect.units)
        measures[name] = _entry(effect)
    return measures


def truth_effects(
    launch: Mapping[str, Sequence[float]], control: Mapping[str, Sequence[float]], pre_days: int, days: float
) -> dict[str, Any]:
    """Every measure with all treated against none, from the hours of the two markets."""
    n = int(np.ceil(days))

    def sums(hours: Mapping[str, Sequence[float]]) -> dict[str, list[float]]:
        each = range(pre_days, n)
        return {
            name: [float(np.sum(hours[name][HOURS * day : HOURS * (day + 1)])) for day in each]
            for name in SUMS
        }

    return paired_by_day({"treatment": sums(launch), "control": sums(control)}, days)


def bias_of(effect: Mapping[str, Any], truth: Mapping[str, Any]) -> dict[str, Any]:
    """The estimate less the truth, which has no error of its own: {"bias", "lift_bias"}."""

    def shifted(key: str) -> dict[str, Any]:
        by = truth[key]["value"]
        return {name: None if by is None or end is None else end - by for name, end in effect[key].items()}

    return {"bias": shifted("difference"), "lift_bias": shifted("lift")}


def per_request(columns: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The numbers of SUMS of each request.  {name: [R] float64}"""
    values = {name: columns[name].astype(np.float64) for name in ("impressions", "clicks", "charged_clicks")}
    values["requests"] = np.ones(len(columns["request"]))
    values["revenue"] = columns["revenue_micros"] / MICROS
    return values


def in_trial(columns: Mapping[str, np.ndarray], pre_days: int) -> dict[str, np.ndarray]:
    """The rows of the days on trial, without the days before it."""
    rows = columns["time"] >= pre_days * DAY
    return {name: values[rows] for name, values in columns.items()}


def _parts(metric: Metric, sums: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Numerator, with its factor, and denominator, by request or by day."""
    top, bottom = metric.split({name: np.asarray(column) for name, column in sums.items()})
    return metric.factor * top, bottom


def _entry(effect: Effect) -> dict[str, Any]:
    """An effect as metrics.json holds it."""
    return {
        "treatment": {"value": effect.treatment},
        "control": {"value": effect.control},
        "difference": _interval(effect.difference),
        "lift": _interval(effect.lift),
        "units": effect.units,
    }


def cuped_section(
    columns: Mapping[str, np.ndarray], assignment: Assignment, n_users: int
) -> dict[str, Any] | None:
    """Revenue per user and per request, with each user's own before the trial; None without such days."""
    if assignment.start <= 0:
        return None
    values, before = per_request(columns), columns["time"] < assignment.start
    treated = draws.uniform(assignment.seed, "assignment", np.arange(n_users)) < assignment.share

    def sums(name: str, rows: np.ndarray) -> np.ndarray:
        return np.bincount(columns["user"][rows], values[name][rows], n_users)

    revenue, requests = ([sums(name, rows) for rows in (~before, before)] for name in ("revenue", "requests"))
    each = np.ones(n_users)
    results = {
        "revenue_per_user": cuped(revenue[0], each, revenue[1], each, treated),
        "revenue_per_request": cuped(revenue[0], requests[0], revenue[1], requests[1], treated),
    }
    return {
        name: {
            "theta": result.theta,
            "plain": _interval(result.plain),
            "adjusted": _interval(result.adjusted),
            "variance_ratio": {"value": result.variance_ratio},
            "users": result.units,
        }
        for name, result in results.items()
        if result is not None
    }


def sequence_section(columns: Mapping[str, np.ndarray], start: float, market: Market) -> dict[str, Any]:
    """The difference in revenue per request after every hour of the trial, all that came before included.

    Two intervals: `low`, `high` hold at all looks together; `fixed_low`, `fixed_high` at a single one. Looks
    begin when both arms have FIRST_LOOK clicks (None before). The boundary is tightest at half the
    information that the first look lets one expect of the whole trial.
    """
    rows = columns["time"] >= start
    values = {name: column[rows] for name, column in per_request(columns).items()}
    treated = columns["is_treated"][rows]
    n_hours = int(np.ceil((market.days * DAY - start) / HOUR))
    hour = np.minimum(((columns["time"][rows] - start) // HOUR).astype(np.int64), n_hours - 1)
    running = running_effect(values["revenue"], values["requests"], treated, hour, n_hours)
    clicks = [
        np.cumsum(np.bincount(hour[arm], values["clicks"][arm], n_hours)) for arm in (treated, ~treated)
    ]
    is_look = (np.minimum(*clicks) >= FIRST_LOOK) & (running.error > 0)
    if not is_look.any():
        return {"time": []}
    first = int(np.argmax(is_look))
    seen = np.count_nonzero(hour <= first)
    planned = market.requests_per_second * (market.days * DAY - start)
    target = float(running.error[first] ** -2 * planned / seen / 2)
    at_all, at_one = mixture_half_width(running.error, target), FIXED * running.error
    lines = {
        "estimate": running.difference,
        "low": running.difference - at_all,
        "high": running.difference + at_all,
        "fixed_low": running.difference - at_one,
        "fixed_high": running.difference + at_one,
    }
    return {
        "time": [float(n) for n in range(1, n_hours + 1)],
        **{
            name: [float(x) if there else None for x, there in zip(line, is_look, strict=True)]
            for name, line in lines.items()
        },
    }


def _interval(estimate: Estimate) -> dict[str, Any]:
    return {"value": estimate.value, "low": estimate.low, "high": estimate.high}
