"""What is kept of the servers: latency, who answered, load by hour, and what compute brought in."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from cascade_sim.cascade.late import BY_PRE_RANKING, BY_RANKING, BY_RETRIEVAL, NOT_ANSWERED
from cascade_sim.market.servers import Passage
from cascade_sim.scenario.compute import STAGES, Compute

HOUR = 3600.0
PER_DECADE = 40  # bins of latency: 6 % wide
EDGES = 10.0 ** (np.arange(-1 * PER_DECADE, 6 * PER_DECADE + 1) / PER_DECADE)  # 0.1 ms to 1000 s
ANSWERS = {
    "ranking": BY_RANKING,
    "pre_ranking": BY_PRE_RANKING,
    "retrieval": BY_RETRIEVAL,
    "none": NOT_ANSWERED,
}
_SUMS = (
    "latency",
    "answered",
    "reached",
    "wait",
    "service",
    "sizes",
    "hours",
    "late",
    "busy",
    "total_latency",
)


class ComputeTally:
    """Sums over the requests of one arm. Floats are added strictly in request order."""

    def __init__(self, spec: Compute, seconds: float):
        """`seconds` of simulated time in all; the last hour may be a part of one."""
        self._spec, self._seconds = spec, seconds
        n_hours, n_stages = int(np.ceil(seconds / HOUR)), len(STAGES)
        self._latency = np.zeros(len(EDGES) + 1, np.int64)  # below, between and above the edges
        self._total_latency = np.zeros(1)
        self._answered = np.zeros(len(ANSWERS), np.int64)  # from -1 on
        self._reached, self._wait = np.zeros(n_stages, np.int64), np.zeros(n_stages)
        self._service = np.zeros(n_stages)  # ms
        self._sizes = np.zeros(2, np.int64)  # requests that came to ranking, and the ads they brought
        self._hours, self._late = np.zeros(n_hours, np.int64), np.zeros(n_hours, np.int64)
        self._busy = np.zeros((n_hours, n_stages))  # ms, in the hour of the request's arrival

    def add(self, times: np.ndarray, candidates: np.ndarray, passage: Passage) -> None:
        """Requests in order: arrivals in seconds [R], candidates of each stage [R, 3], their passage."""
        hour = np.minimum((times // HOUR).astype(int), len(self._hours) - 1)
        answered = passage.answered_by.astype(int)
        np.add.at(self._latency, np.searchsorted(EDGES, passage.latency), 1)
        # np.add.at adds one after the other, so that a sum does not depend on how requests were cut up.
        np.add.at(self._total_latency, np.zeros(len(times), int), passage.latency)
        np.add.at(self._answered, answered - NOT_ANSWERED, 1)
        for stage in range(len(STAGES)):
            came = passage.reached > stage
            self._reached[stage] += came.sum()
            place = np.full(len(times), stage)
            np.add.at(self._wait, place, passage.wait[:, stage])
            np.add.at(self._service, place, passage.service[:, stage])
            np.add.at(self._busy, (hour, place), passage.service[:, stage])
        self._sizes += np.array([came.sum(), candidates[came, -1].sum()], np.int64)
        np.add.at(self._hours, hour, 1)
        np.add.at(self._late, hour, answered < BY_RANKING)

    def state(self) -> dict[str, np.ndarray]:
        return {name: getattr(self, f"_{name}").copy() for name in _SUMS}

    def restore(self, state: Mapping[str, Any]) -> None:
        for name in _SUMS:
            getattr(self, f"_{name}")[...] = state[name]

    def metrics(self, revenue: float) -> dict[str, Any]:
        """The `compute` section of an arm in metrics.json; `revenue` is the arm's in all.

        Times in milliseconds; utilisation is busy time / (servers * time); null where nothing came.
        """
        n, server_ms = int(self._hours.sum()), float(self._service.sum())
        hours = np.minimum(HOUR, self._seconds - HOUR * np.arange(len(self._hours)))
        return {
            "deadline": self._spec.deadline,
            "latency": {
                "mean": _ratio(float(self._total_latency[0]), n),
                **{f"p{q}": self._quantile(q / 100) for q in (50, 90, 99)},
                "edges": EDGES.tolist(),
                "counts": self._latency.tolist(),
            },
            "answered": {
                name: _ratio(int(self._answered[stage - NOT_ANSWERED]), n) for name, stage in ANSWERS.items()
            },
            "late": _ratio(int(self._late.sum()), n),
            "mean_size": _ratio(int(self._sizes[1]), int(self._sizes[0])),
            "server_ms_per_request": _ratio(server_ms, n),
            "revenue_per_server_second": _ratio(1e3 * revenue, server_ms),
            "stages": {name: self._stage(i, n) for i, name in enumerate(STAGES)},
            "hours": {
                "time": [float(h) for h in range(len(hours))],
                "requests": self._hours.tolist(),
                "late": [
                    _ratio(int(late), int(all_)) for late, all_ in zip(self._late, self._hours, strict=True)
                ],
                "utilisation": {
                    name: (self._busy[:, i] / 1e3 / (hours * self._servers(name))).tolist()
                    for i, name in enumerate(STAGES)
                },
            },
        }

    def _stage(self, i: int, n: int) -> dict[str, Any]:
        servers = self._servers(STAGES[i])
        return {
            "servers": servers,
            "utilisation": float(self._service[i]) / 1e3 / (self._seconds * servers),
            "wait": _ratio(float(self._wait[i]), int(self._reached[i])),
            "server_ms_per_request": _ratio(float(self._service[i]), n),
        }

    def _servers(self, stage: str) -> int:
        return getattr(self._spec.stages, stage).servers

    def _quantile(self, q: float) -> float | None:
        """From the bins, even within each on the log scale; late requests are answered at the deadline."""
        n_late, in_time = int(self._late.sum()), self._latency.copy()
        in_time[np.searchsorted(EDGES, self._spec.deadline)] -= n_late
        below = np.cumsum(in_time)
        wanted = q * (below[-1] + n_late)
        if wanted == 0:
            return None
        if wanted > below[-1]:
            return self._spec.deadline
        at = int(np.searchsorted(below, wanted))
        low, high = EDGES[max(at - 1, 0)], EDGES[min(at, len(EDGES) - 1)]
        part = (wanted - (below[at] - in_time[at])) / in_time[at]
        return float(min(low * (high / low) ** part, self._spec.deadline))


def _ratio(top: float, bottom: float) -> float | None:
    return top / bottom if bottom else None
