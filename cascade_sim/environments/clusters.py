"""What intervals of a replayed log resample: requests, users with all their requests, or hours.

Requests of one user share tastes, and those of one hour share what happened then: resampled one by one they
would pass for independent. Which of it matters is looked up in the log.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cascade_sim.foundation import random as draws
from cascade_sim.logs.replay.imputation import has_returning_users
from cascade_sim.logs.store.store import LogStore

MAX_UNITS = 8_192  # beyond, units are put together
MIN_HOURS = 40  # with fewer, intervals from resampled hours are too narrow
HOUR = 3_600.0
SURE = 0.001  # hours differ significantly


@dataclass(frozen=True)
class Clusters:
    """What is drawn together: the unit of each request [R], how many there are, and why it is these."""

    kind: str  # request | user | hour
    of_request: NDArray[np.int64]
    n: int
    n_apart: int  # before many were put together
    why: str

    def as_json(self) -> dict[str, Any]:
        return {"by": self.kind, "units": self.n_apart, "why": self.why}


def resampling_units(store: LogStore, n_requests: int, resample: str, seed: int) -> Clusters:
    """The units of the first n requests: as asked for or, with `auto`, by what the log has."""
    makers = {"request": _by_request, "user": _by_user, "hour": _by_hour}
    if resample != "auto":
        units = makers[resample](store, n_requests, seed)
        few = "; so few that intervals may be too narrow" if units.n_apart < MIN_HOURS else ""
        return _because(units, f"as the scenario says{few}")
    clicks = _clicks_by_request(store)[:n_requests]
    again, hours = has_returning_users(store), _by_hour(store, n_requests, seed)
    by_time = _hours_differ(clicks, hours)
    if not again and not by_time:
        why = "no user comes again, and hours differ by no more than chance"
        return _because(_by_request(store, n_requests, seed), why)
    if by_time and hours.n_apart < MIN_HOURS:
        kind = "user" if again else "request"
        units = makers[kind](store, n_requests, seed)
        return _because(
            units,
            f"{'users come again; ' if again else ''}hours differ significantly, but there are only "
            f"{hours.n_apart} of them to resample",
        )
    if not by_time:
        return _because(_by_user(store, n_requests, seed), "users come again")
    if not again:
        return _because(hours, "hours differ significantly")
    users = _by_user(store, n_requests, seed)
    wider = max((users, hours), key=lambda units: _spread(clicks, units))
    return _because(wider, f"users come again and hours differ; {wider.kind}s spread the clicks more")


def _because(units: Clusters, why: str) -> Clusters:
    return Clusters(units.kind, units.of_request, units.n, units.n_apart, why)


def _by_request(store: LogStore, n_requests: int, seed: int) -> Clusters:
    n = min(n_requests, MAX_UNITS)
    return Clusters("request", np.arange(n_requests, dtype=np.int64) * n // n_requests, n, n_requests, "")


def _by_user(store: LogStore, n_requests: int, seed: int) -> Clusters:
    """Users; a request of an unknown user is a unit of its own."""
    user = store.requests["user"][:n_requests].astype(np.int64)
    request = np.arange(n_requests, dtype=np.int64)
    key = np.where(user >= 0, user, int(user.max(initial=0)) + 1 + request)
    found, place = np.unique(key, return_inverse=True)
    n = len(found)
    if n > MAX_UNITS:
        order = np.argsort(draws.uniform(seed, "users resampled together", found), kind="stable")
        together = np.empty(n, np.int64)
        together[order] = np.arange(n) % MAX_UNITS
        place = together[place]
    return Clusters("user", place.astype(np.int64), min(n, MAX_UNITS), n, "")


def _by_hour(store: LogStore, n_requests: int, seed: int) -> Clusters:
    hour = np.floor(store.requests["time"][:n_requests] / HOUR).astype(np.int64)
    found, place = np.unique(hour, return_inverse=True)
    return Clusters("hour", place.astype(np.int64), len(found), len(found), "")


def _clicks_by_request(store: LogStore) -> NDArray[np.float64]:
    clicks = np.zeros(store.n_requests)
    for start, stop, columns in store.blocks(("click",)):
        total = np.concatenate([[0], np.cumsum(columns["click"] == 1)])
        ends = store.first[start : stop + 1] - store.first[start]
        clicks[start:stop] = total[ends[1:]] - total[ends[:-1]]
    return clicks


def _hours_differ(clicks: NDArray[np.float64], hours: Clusters) -> bool:
    """Whether clicks per request differ between hours significantly."""
    from scipy.special import chdtrc  # the whole of scipy.stats takes seconds to load

    spread = clicks.var()
    if hours.n < 2 or spread == 0:
        return False
    n = np.bincount(hours.of_request)
    gap = np.bincount(hours.of_request, clicks) - n * clicks.mean()
    return bool(chdtrc(hours.n - 1, np.sum(gap**2 / n) / spread) < SURE)


def _spread(clicks: NDArray[np.float64], units: Clusters) -> float:
    n = np.bincount(units.of_request)
    return float(np.sum((np.bincount(units.of_request, clicks) - n * clicks.mean()) ** 2))
