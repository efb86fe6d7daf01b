"""What a trial gains from the days before it (CUPED), and how it looks while it runs (a sequence)."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from cascade_sim import draws
from cascade_sim.analysis.statistics.estimates import Estimate
from cascade_sim.analysis.statistics.sequences import mixture_half_width, running_effect
from cascade_sim.analysis.statistics.trials import cuped
from cascade_sim.scenario.designs import DAY
from cascade_sim.scenario.market import Market
from cascade_sim.trials.assignment import Assignment
from cascade_sim.trials.effects import per_request

HOUR = 3600.0
FIRST_LOOK = 30  # clicks in each arm before a look at the trial says anything
FIXED = 1.959963984540054  # of an interval for one look


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
    found = {
        "revenue_per_user": cuped(revenue[0], each, revenue[1], each, treated),
        "revenue_per_request": cuped(revenue[0], requests[0], revenue[1], requests[1], treated),
    }
    return {
        name: {
            "theta": one.theta,
            "plain": _interval(one.plain),
            "adjusted": _interval(one.adjusted),
            "variance_ratio": {"value": one.variance_ratio},
            "users": one.units,
        }
        for name, one in found.items()
        if one is not None
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


def _interval(one: Estimate) -> dict[str, Any]:
    return {"value": one.value, "low": one.low, "high": one.high}
