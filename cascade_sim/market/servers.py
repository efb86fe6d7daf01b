"""Servers, queues and deadlines: when each stage starts on a request, and which stage's order answers it.

Three pools in a row (retrieval, pre-ranking, ranking), each of m identical servers. First come, first
served: a server that becomes free takes up to `batch` waiting requests, one after the other, in

    (per_batch + per_candidate * candidates of the whole batch) * noise of the batch's first request

seconds, and hands each one on as soon as its own candidates are done. An idle server takes a request at
once; nobody waits for a batch to fill.

A request is placed when it arrives, in all three pools, behind everyone who arrived before it. So its
fate depends on earlier requests alone: cutting time into windows, blocks or checkpoints changes no bit,
and pages can be decided in the window in which their requests arrived. The price: where a request
overtakes an earlier one in a pool of several servers, it cannot use the moment for which a server of the
next pool is already promised to the other. To keep that small, a request takes, of the servers idle when
it is ready, the one that became idle last.

The deadline runs from arrival. A stage that would start on a request after it leaves it out, at no cost;
a request still under way then costs its time and goes no further. Either way the page is made by the
last stage that was done in time.
"""

from dataclasses import dataclass
from math import exp

import numpy as np
from numba import njit

from cascade_sim import draws
from cascade_sim.cascade.late import BY_RANKING, NOT_ANSWERED
from cascade_sim.scenario.compute import STAGES, Compute

_STATE = ("free", "batch_start", "batch_size", "batch_noise")


@dataclass(frozen=True)
class Passage:
    """What became of requests [R] in the three stages [R, 3]. Times in milliseconds."""

    answered_by: np.ndarray  # int8: the last stage done in time (0, 1, 2), -1 if not even retrieval
    latency: np.ndarray  # float64: from arrival to the answer, the deadline where a stage was missed
    reached: np.ndarray  # int8: how many stages it came to, 1 to 3, be it only to wait
    wait: np.ndarray  # float64: from ready to the stage's start, or to the deadline; 0 if not reached
    service: np.ndarray  # float64: server time spent on it, its share of the batch's fixed cost included

    def take(self, rows) -> "Passage":
        """The requests of these rows (a slice, a mask or indices)."""
        return Passage(**{name: value[rows] for name, value in vars(self).items()})


def stage_candidates(retrieved: int, sizes: np.ndarray) -> np.ndarray:
    """Candidates of each stage: ads retrieved, the same ads pre-ranked, ads ranked.  [R] -> [R, 3]"""
    many = np.full(len(sizes), retrieved)
    return np.stack([many, many, sizes], axis=1)


class ServerPools:
    """The three pools of one arm. `serve` must see all requests once, in order of arrival."""

    def __init__(self, spec: Compute, seed: int):
        self._seed = seed
        self._jitter, self._deadline = float(spec.jitter), spec.deadline  # ms
        pools = [getattr(spec.stages, name) for name in STAGES]
        self._servers = np.array([pool.servers for pool in pools])
        self._batch = np.array([pool.batch for pool in pools])
        self._per_batch = np.array([pool.per_batch_ms for pool in pools]) / 1e3
        self._per_candidate = np.array([pool.per_candidate_us for pool in pools]) / 1e6
        shape = (len(STAGES), int(self._servers.max()))
        self._free = np.full(shape, -np.inf)  # when a server is done with all that was placed on it
        self._batch_start = np.full(shape, -np.inf)  # of its last batch
        self._batch_size = np.zeros(shape, np.int64)
        self._batch_noise = np.ones(shape)
        self._last = -np.inf  # the last arrival

    def serve(self, requests: np.ndarray, times: np.ndarray, candidates: np.ndarray) -> Passage:
        """Place these requests: ids [R], arrivals in seconds [R], candidates of each stage [R, 3].

        Arrivals must not fall, also from one call to the next.
        """
        times = np.ascontiguousarray(times, np.float64)
        if len(times) and (times[0] < self._last or np.any(np.diff(times) < 0)):
            raise ValueError("requests must come in order of arrival")
        n = len(times)
        normal = [draws.normal(self._seed, f"service {name}", requests) for name in STAGES]
        passage = Passage(
            answered_by=np.full(n, NOT_ANSWERED, np.int8),
            latency=np.zeros(n),
            reached=np.zeros(n, np.int8),
            wait=np.zeros((n, len(STAGES))),
            service=np.zeros((n, len(STAGES))),
        )
        _place(
            times, np.ascontiguousarray(candidates, np.float64), np.stack(normal, axis=1), self._jitter,
            self._deadline / 1e3, self._servers, self._batch, self._per_batch, self._per_candidate,
            self._free, self._batch_start, self._batch_size, self._batch_noise,
            passage.answered_by, passage.latency, passage.reached, passage.wait, passage.service,
        )  # fmt: skip
        passage.latency[passage.answered_by < BY_RANKING] = self._deadline
        if n:
            self._last = float(times[-1])
        return passage

    def state(self) -> dict[str, np.ndarray]:
        """All that the future depends on, as copies."""
        found = {name: getattr(self, f"_{name}").copy() for name in _STATE}
        return {**found, "last": np.array(self._last)}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Go on from a `state()` of pools of the same sizes."""
        for name in _STATE:
            own = getattr(self, f"_{name}")
            if state[name].shape != own.shape:
                raise ValueError(f"{name} has shape {state[name].shape}; these pools need {own.shape}")
            own[...] = state[name]
        self._last = float(state["last"])


@njit(cache=True, nogil=True)
def _place(
    times, candidates, normal, jitter, deadline, servers, batch, per_batch, per_candidate,
    free, batch_start, batch_size, batch_noise, answered_by, latency, reached, wait, service,
):  # fmt: skip
    """Fill the last five, request by request; the four before them are the state, changed in place."""
    for r in range(len(times)):
        ready, last = times[r], times[r] + deadline
        for s in range(len(servers)):
            reached[r] = s + 1
            at, joins = _server(free[s], batch_start[s], batch_size[s], servers[s], batch[s], ready)
            start = free[s, at] if joins else max(ready, free[s, at])
            wait[r, s] = 1e3 * (min(start, last) - ready)
            if start > last:
                break
            work = per_candidate[s] * candidates[r, s]
            if joins:
                batch_size[s, at] += 1
            else:
                batch_start[s, at], batch_size[s, at] = start, 1
                batch_noise[s, at] = exp(jitter * normal[r, s] - 0.5 * jitter * jitter)  # mean 1
                work += per_batch[s]
            work *= batch_noise[s, at]
            free[s, at] = start + work
            service[r, s] = 1e3 * work
            if start + work > last:
                break
            ready = start + work
            answered_by[r] = s
        latency[r] = 1e3 * (ready - times[r])


@njit(cache=True, nogil=True)
def _server(free, batch_start, batch_size, n_servers, batch, ready):
    """The server that takes a request ready at this time, and whether it does so within its last batch.

    The first server to take anyone in takes it: the one with room in a batch that starts when the request
    is already there, or the one that is free first; of those idle by then, the one that became idle last.
    """
    at, joined = 0, -1
    for i in range(n_servers):
        has_room = batch_start[i] >= ready and batch_size[i] < batch
        if has_room and (joined < 0 or batch_start[i] < batch_start[joined]):
            joined = i
        is_idle = free[i] <= ready
        if (is_idle and (free[at] > ready or free[i] > free[at])) or (not is_idle and free[i] < free[at]):
            at = i
    if joined >= 0 and batch_start[joined] < max(ready, free[at]):
        return joined, True
    return at, False
