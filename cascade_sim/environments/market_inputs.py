"""What a market is given of its world: when requests are to be expected, and what advertisers may spend."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from cascade_sim.agents.advertisers import with_tail
from cascade_sim.agents.traffic_profiles import Profile, constant, daily, hourly
from cascade_sim.auction import MICROS
from cascade_sim.cascade.ledger import MAX_BUDGET, NO_BUDGET
from cascade_sim.cascade.serve import Block
from cascade_sim.environments.arrivals import ResampledArrivals
from cascade_sim.foundation import random as draws
from cascade_sim.foundation.errors import UserError
from cascade_sim.scenario.market import Budgets, Market, find_profile


class LoggedRequests(Protocol):
    """Requests of a market, in the order they come."""

    def until(self, end: float) -> Block:
        """The requests before `end` that have not been given out yet."""

    def state(self) -> dict[str, Any]: ...

    def restore(self, state: Mapping[str, Any]) -> None: ...


class LoggedVisits:
    """Requests of a world fitted to a log, which come when those of the log came."""

    def __init__(self, arrivals: ResampledArrivals):
        self._arrivals, self._n_given = arrivals, 0

    def until(self, end: float) -> Block:
        block = self._arrivals.until("market", self._n_given, end)
        self._n_given += len(block)
        return block

    def state(self) -> dict[str, Any]:
        return {"given": np.int64(self._n_given)}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._n_given = int(state["given"])


def draw_budgets(spec: Budgets, n: int, seed: int) -> np.ndarray:
    """Daily budgets of the share of advertisers that have one: log-normal, or with a Pareto tail.

    [n] int64 micro-units
    """
    ids = np.arange(n)
    spread = with_tail(draws.normal(seed, "budget", ids), spec.sigma, spec.tail)
    amount = spec.median * np.exp(spec.sigma * spread)
    has_one = draws.uniform(seed, "has a budget", ids) < spec.share
    micros = np.clip(np.rint(amount * MICROS), 1.0, MAX_BUDGET).astype(np.int64)
    return np.where(has_one, micros, NO_BUDGET)


def traffic_profile(spec: Market, home: Path = Path(".")) -> Profile:
    """The profile a market names: constant, daily, or a file of hours."""
    if spec.profile == "constant":
        return constant(spec.requests_per_second)
    if spec.profile == "daily":
        return daily(spec.requests_per_second)
    file = find_profile(spec.profile, home)
    if file is None:
        raise UserError(f"market.profile: {spec.profile} is not constant, daily or a file")
    try:
        return hourly(file, spec.requests_per_second)
    except ValueError as error:
        raise UserError(f"market.profile: {error}") from error
