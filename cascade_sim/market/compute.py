"""What the requests of a market have time for: sizes, servers, queues and deadlines of one arm.

Per window (`MarketCompute`): the size rule of this window gives each request its number of candidates, the
pools of servers place the requests in order of arrival, and each block learns which stage answers each of its
requests.

Servers (`ServerPools`). A pool for each stage of the arm (`arm.stage_names`: retrieval, ..., ranking), in a
row, each of m identical servers. First come, first served: a server that becomes free takes up to `batch`
waiting requests, one after the other, in

    (per_batch + per_candidate * candidates of the whole batch) * noise of the batch's first request

seconds, and hands each one on as soon as its own candidates are done. An idle server takes a request at
once; no request waits for a batch to fill.

A request is placed when it arrives, in all pools, behind everyone who arrived before it. So its
fate depends on earlier requests alone: cutting time into windows, blocks or checkpoints changes no bit,
and pages can be decided in the window in which their requests arrived. The price: where a request
overtakes an earlier one in a pool of several servers, it cannot use the moment for which a server of the
next pool is already promised to the other. To keep that small, a request takes, of the servers idle when
it is ready, the one that became idle last.

The deadline runs from arrival. A stage that would start on a request after it leaves it out, at no cost;
a request still under way then costs its time and goes no further. Either way the page is made by the
last stage that was done in time.

Sizes (`AdaptiveSizeRule`). When advertisers lower their bids or run dry, all scores fall, and a rule with
fixed edges would hand fewer and fewer ads to ranking. So edges follow the features of the last thousand
requests: a bucket keeps its share of requests. What a window spent beyond the budget, or left, is made up for
over the next thousand requests, so the mean over a run stays at the budget although edges lag behind by a
window.

`ComputeTally` keeps latency, who answered, load by hour, and what compute brought in.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import exp
from typing import Any

import numpy as np

from cascade_sim.cascade.serve import Arm, Block, Platform, passes
from cascade_sim.cascade.sizes import SizeRule
from cascade_sim.cascade.timeout import NOT_ANSWERED
from cascade_sim.foundation import random as draws
from cascade_sim.foundation.compilation import kernel
from cascade_sim.scenario.market import Compute

HOUR = 3600.0

PER_DECADE = 40  # bins of latency: 6 % wide

EDGES = 10.0 ** (np.arange(-1 * PER_DECADE, 6 * PER_DECADE + 1) / PER_DECADE)  # 0.1 ms to 1000 s

NONE = "none"  # in place of a stage: nothing was done in time

_STATE = ("free", "batch_start", "batch_size", "batch_noise")

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


class MarketCompute:
    """Servers and sizes. Without a `Compute` section stages take no time, and sizes alone are kept up."""

    def __init__(self, spec: Compute | None, arm: Arm, seconds: float, seed: int):
        self._pools = None if spec is None else ServerPools(spec, arm.stage_names, seed)
        self._tally = None if spec is None else ComputeTally(spec, arm.stage_names, seconds)
        self._rule = None if (rule := arm.stages[-2].size_rule) is None else AdaptiveSizeRule(rule)

    def arm_now(self, arm: Arm) -> Arm:
        """The arm with the size rule of the coming window."""
        return arm if self._rule is None else arm.with_stage(-2, size_rule=self._rule.rule)

    def served_by_stage(
        self, blocks: list[Block], arm: Arm, platform: Platform, pool: ThreadPoolExecutor | None
    ) -> list[np.ndarray | None]:
        """For each block of a window, the last stage each request has time for; None without servers."""
        sizes = [np.full(len(block), arm.most_auctioned) for block in blocks]
        if self._rule is not None and blocks:
            each = map if pool is None else pool.map
            seen = list(each(lambda block: _sizes(block, arm, platform), blocks))
            sizes = [size for size, _ in seen]
            features = np.concatenate([feature for _, feature in seen])
            self._rule.see(features, np.concatenate(sizes))  # for the next window
        if self._pools is None or self._tally is None:
            return [None] * len(blocks)
        stages: list[np.ndarray | None] = []
        before = candidates_before_last(arm)
        for block, size in zip(blocks, sizes, strict=True):
            candidates = stage_candidates(before, size)
            passage = self._pools.serve(block.requests, block.times, candidates)
            self._tally.add(block.times, candidates, passage)
            stages.append(passage.served_by_stage)
        return stages

    def metrics(self, revenue: float) -> dict[str, Any] | None:
        """The `compute` section of an arm; None without servers."""
        return None if self._tally is None else self._tally.metrics(revenue)

    def state(self) -> dict[str, Any]:
        parts = {"pools": self._pools, "tally": self._tally, "rule": self._rule}
        return {name: part.state() for name, part in parts.items() if part is not None}

    def restore(self, state: Mapping[str, Any]) -> None:
        for name, part in (("pools", self._pools), ("tally", self._tally), ("rule", self._rule)):
            if part is not None:
                part.restore(state[name])


def _sizes(block: Block, arm: Arm, platform: Platform) -> tuple[np.ndarray, np.ndarray]:
    """How many ads each request hands to ranking, and by what feature.  [R], [R]"""
    rule = arm.stages[-2].size_rule
    assert rule is not None
    before, handed = passes(block, arm, platform)[-2:]
    return handed.counts, rule.feature(before.order)


@dataclass(frozen=True)
class RequestTiming:
    """What became of requests [R] in the S stages [R, S]. Times in milliseconds."""

    served_by_stage: (
        np.ndarray
    )  # int8: place of the last stage done in time, -1 if not even retrieval (place 0)
    latency: np.ndarray  # float64: from arrival to the answer, the deadline where a stage was missed
    reached: np.ndarray  # int8: how many stages it came to, 1 to S, if only to wait
    wait: np.ndarray  # float64: from ready to the stage's start, or to the deadline; 0 if not reached
    service: np.ndarray  # float64: server time spent on it, its share of the batch's fixed cost included

    def take(self, rows) -> "RequestTiming":
        """The requests of these rows (a slice, a mask or indices)."""
        return RequestTiming(**{name: value[rows] for name, value in vars(self).items()})


def candidates_before_last(arm: Arm) -> tuple[int, ...]:
    """Candidates of each stage but the last: the ads that retrieval finds, and what each is handed."""
    sizes = [arm.retrieval.size, arm.retrieval.size]
    for stage in arm.stages[:-2]:
        assert stage.size is not None, f"{stage.name} is not the last stage, and has no size"
        sizes.append(stage.size)
    return tuple(sizes)


def stage_candidates(before: Sequence[int], last: np.ndarray) -> np.ndarray:
    """Candidates of each stage; only those of the last differ from request to request.  [R] -> [R, S]"""
    return np.stack([*(np.full(len(last), size) for size in before), last], axis=1)


class ServerPools:
    """The pools of one arm's stages. `serve` must see all requests once, in order of arrival."""

    def __init__(self, spec: Compute, stages: Sequence[str], seed: int):
        self._seed, self._stages = seed, tuple(stages)
        self._jitter, self._deadline = float(spec.jitter), spec.deadline  # ms
        pools = [spec.stages.pool(name) for name in stages]
        self._servers = np.array([pool.servers for pool in pools])
        self._batch = np.array([pool.batch for pool in pools])
        self._per_batch = np.array([pool.per_batch_ms for pool in pools]) / 1e3
        self._per_candidate = np.array([pool.per_candidate_us for pool in pools]) / 1e6
        shape = (len(pools), int(self._servers.max()))
        self._free = np.full(shape, -np.inf)  # when a server is done with all that was placed on it
        self._batch_start = np.full(shape, -np.inf)  # of its last batch
        self._batch_size = np.zeros(shape, np.int64)
        self._batch_noise = np.ones(shape)
        self._last = -np.inf  # the last arrival

    def serve(self, requests: np.ndarray, times: np.ndarray, candidates: np.ndarray) -> RequestTiming:
        """Place these requests: ids [R], arrivals in seconds [R], candidates of each stage [R, S].

        Arrivals must not fall, also from one call to the next.
        """
        times = np.ascontiguousarray(times, np.float64)
        if len(times) and (times[0] < self._last or np.any(np.diff(times) < 0)):
            raise ValueError("requests must come in order of arrival")
        n, n_stages = len(times), len(self._stages)
        normal = [draws.normal(self._seed, f"service {name}", requests) for name in self._stages]
        passage = RequestTiming(
            served_by_stage=np.full(n, NOT_ANSWERED, np.int8),
            latency=np.zeros(n),
            reached=np.zeros(n, np.int8),
            wait=np.zeros((n, n_stages)),
            service=np.zeros((n, n_stages)),
        )
        _place(
            times, np.ascontiguousarray(candidates, np.float64), np.stack(normal, axis=1), self._jitter,
            self._deadline / 1e3, self._servers, self._batch, self._per_batch, self._per_candidate,
            self._free, self._batch_start, self._batch_size, self._batch_noise,
            passage.served_by_stage, passage.latency, passage.reached, passage.wait, passage.service,
        )  # fmt: skip
        passage.latency[passage.served_by_stage < n_stages - 1] = self._deadline
        if n:
            self._last = float(times[-1])
        return passage

    def state(self) -> dict[str, np.ndarray]:
        """All that the future depends on, as copies."""
        arrays = {name: getattr(self, f"_{name}").copy() for name in _STATE}
        return {**arrays, "last": np.array(self._last)}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Go on from a `state()` of pools of the same sizes."""
        for name in _STATE:
            own = getattr(self, f"_{name}")
            if state[name].shape != own.shape:
                raise ValueError(f"{name} has shape {state[name].shape}; these pools need {own.shape}")
            own[...] = state[name]
        self._last = float(state["last"])


@kernel
def _place(
    times, candidates, normal, jitter, deadline, servers, batch, per_batch, per_candidate,
    free, batch_start, batch_size, batch_noise, served_by_stage, latency, reached, wait, service,
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
            served_by_stage[r] = s
        latency[r] = 1e3 * (ready - times[r])


@kernel
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


class AdaptiveSizeRule:
    """A size rule that keeps to its budget while bids move. `rule` is the one for the next window."""

    def __init__(self, rule: SizeRule):
        self.rule = rule
        self._budget = rule.mean_size
        self._recent = rule.sample.copy()  # until real requests have taken their places
        self._next, self._over = 0, 0.0

    def see(self, feature: np.ndarray, sizes: np.ndarray) -> None:
        """Learn from a window's requests in order: features [R], sizes [R]; the newest replace the oldest."""
        n = len(self._recent)
        newest = feature[-n:]
        skipped = len(feature) - len(newest)
        self._recent[(self._next + skipped + np.arange(len(newest))) % n] = newest
        self._next = (self._next + len(feature)) % n
        # What was left over in a lull is not saved up beyond a tenth of the budget of these requests.
        most = 0.1 * self._budget * n
        over = self._over + float(np.sum(sizes)) - self._budget * len(sizes)
        self._over = min(max(over, -most), most)
        self._renew()

    def _renew(self) -> None:
        choices = self.rule.choices
        mean = np.clip(self._budget - self._over / len(self._recent), choices[0], choices[-1])
        self.rule = self.rule.with_mean(float(mean)).for_features(self._recent)

    def state(self) -> dict[str, np.ndarray]:
        return {"recent": self._recent.copy(), "next": np.array(self._next), "over": np.array(self._over)}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        self._recent, self._next = np.array(state["recent"]), int(state["next"])
        self._over = float(state["over"])
        self._renew()


class ComputeTally:
    """Sums over the requests of one arm. Floats are added strictly in request order."""

    def __init__(self, spec: Compute, stages: Sequence[str], seconds: float):
        """`seconds` of simulated time in all; the last hour may be a part of one."""
        self._spec, self._stages, self._seconds = spec, tuple(stages), seconds
        n_hours, n_stages = int(np.ceil(seconds / HOUR)), len(stages)
        self._latency = np.zeros(len(EDGES) + 1, np.int64)  # below, between and above the edges
        self._total_latency = np.zeros(1)
        self._answered = np.zeros(1 + n_stages, np.int64)  # from -1 on
        self._reached, self._wait = np.zeros(n_stages, np.int64), np.zeros(n_stages)
        self._service = np.zeros(n_stages)  # ms
        self._sizes = np.zeros(2, np.int64)  # requests that came to ranking, and the ads they brought
        self._hours, self._late = np.zeros(n_hours, np.int64), np.zeros(n_hours, np.int64)
        self._busy = np.zeros((n_hours, n_stages))  # ms, in the hour of the request's arrival

    def add(self, times: np.ndarray, candidates: np.ndarray, passage: RequestTiming) -> None:
        """Requests in order: arrivals in seconds [R], candidates of each stage [R, S], their passage."""
        hour = np.minimum((times // HOUR).astype(int), len(self._hours) - 1)
        answered = passage.served_by_stage.astype(int)
        np.add.at(self._latency, np.searchsorted(EDGES, passage.latency), 1)
        # np.add.at adds one after the other, so that a sum does not depend on how requests were cut up.
        np.add.at(self._total_latency, np.zeros(len(times), int), passage.latency)
        np.add.at(self._answered, answered - NOT_ANSWERED, 1)
        for stage in range(len(self._stages)):
            came = passage.reached > stage
            self._reached[stage] += came.sum()
            place = np.full(len(times), stage)
            np.add.at(self._wait, place, passage.wait[:, stage])
            np.add.at(self._service, place, passage.service[:, stage])
            np.add.at(self._busy, (hour, place), passage.service[:, stage])
        self._sizes += np.array([came.sum(), candidates[came, -1].sum()], np.int64)
        np.add.at(self._hours, hour, 1)
        np.add.at(self._late, hour, answered < len(self._stages) - 1)

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
                name: _ratio(int(self._answered[place - NOT_ANSWERED]), n)
                for place, name in reversed(list(enumerate((NONE, *self._stages), NOT_ANSWERED)))
            },
            "late": _ratio(int(self._late.sum()), n),
            "mean_size": _ratio(int(self._sizes[1]), int(self._sizes[0])),
            "server_ms_per_request": _ratio(server_ms, n),
            "revenue_per_server_second": _ratio(1e3 * revenue, server_ms),
            "stages": {name: self._stage(i, n) for i, name in enumerate(self._stages)},
            "hours": {
                "time": [float(h) for h in range(len(hours))],
                "requests": self._hours.tolist(),
                "late": [
                    _ratio(int(late), int(all_)) for late, all_ in zip(self._late, self._hours, strict=True)
                ],
                "utilisation": {
                    name: (self._busy[:, i] / 1e3 / (hours * self._servers(name))).tolist()
                    for i, name in enumerate(self._stages)
                },
            },
        }

    def _stage(self, i: int, n: int) -> dict[str, Any]:
        servers = self._servers(self._stages[i])
        return {
            "servers": servers,
            "utilisation": float(self._service[i]) / 1e3 / (self._seconds * servers),
            "wait": _ratio(float(self._wait[i]), int(self._reached[i])),
            "server_ms_per_request": _ratio(float(self._service[i]), n),
        }

    def _servers(self, stage: str) -> int:
        return self._spec.stages.pool(stage).servers

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
