"""Simulated time. SimPy processes carry requests from their arrival to the server, block by block.

Arrivals are a Poisson process; the requests that arrive while a block fills are served when its last
one is there. State lives in `Arrivals`, not in the generators. Blocks are fixed partitions of the
request ids, so neither the number of workers nor their speed can change a result: blocks may be
computed by several threads, or by other machines, and are always finished in order (`engines`).

Errors while a block of requests is served: which block it was, and whether to try it again.
"""

import gc
from collections.abc import Callable, Generator, Iterator, Mapping
from functools import partial
from typing import Any, TypeVar

import numpy as np
import simpy

from cascade_sim.agents.traffic import Visitors, arrival_times
from cascade_sim.cascade.request import RequestOverrides
from cascade_sim.cascade.serve import Block
from cascade_sim.engines import Chunk, Engine, Service, open_engine
from cascade_sim.foundation import random as draws
from cascade_sim.foundation.errors import UserError
from cascade_sim.foundation.workers import Job
from cascade_sim.logs.replay.fitted import ResampledReplay
from cascade_sim.logs.replay.replay import Replay
from cascade_sim.world.world import World

TRIES = 3
PASSING = (MemoryError, OSError)  # what the machine lacks now it may have in a moment

WORTH_SENDING = 4096  # requests: below it the way to another machine takes longer than serving them

Result = TypeVar("Result")


class BlockError(RuntimeError):
    """A defect that shows with one block; its cause has the traceback."""


def serve_block(phase: str, block: Block, serve: Callable[[Block], Result]) -> Result:
    """serve(block), which must be pure. An error names the phase and the requests of the block.

    Want of memory and errors of the system are given three tries; if they stay, or if anything else goes
    wrong, the block is named. A UserError says itself what is wrong and passes as it is.
    """
    for left in reversed(range(TRIES)):
        try:
            return serve(block)
        except UserError:
            raise
        except PASSING as error:
            if not left:
                raise UserError(f"{where(phase, block)} failed {TRIES} times: {_words(error)}") from error
            gc.collect()  # what an earlier attempt holds in cycles
        except Exception as error:
            raise BlockError(f"{where(phase, block)}: {_words(error)}") from error
    raise AssertionError("every try returns or raises")


def where(phase: str, block: Block) -> str:
    """The place of a block for messages: `phase log, requests 2000000256 to 2000000511`."""
    ids = block.requests
    return f"phase {phase}, requests {ids[0]} to {ids[-1]}" if len(ids) else f"phase {phase}, no requests"


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


# Each phase has its own range of request ids: a longer log does not change the traffic of an evaluation.
PHASE_NAMES = ("cold_start", "log", "shadow", "evaluate", "bench", "market", "panel", "off_policy", "slates")
FIRST_REQUEST = {name: (i + 1) * 10**9 for i, name in enumerate(PHASE_NAMES)}
AFTER_ALL = ("off_policy", "slates")  # come when the phases of the study are over

Serve = Callable[[Block], Any]
Finish = Callable[[Block, Any], None]


class Arrivals:
    """Traffic and the server, in one SimPy environment."""

    def __init__(
        self,
        world: World,
        traffic,
        workers: int = 1,
        engine: Engine | None = None,
        phases: Mapping[str, int] | None = None,
    ):
        """`phases`: how many requests come in each phase of the study, in order; a world in which it matters
        when a request comes needs them."""
        self.env = simpy.Environment()
        self._phases = dict(phases or {})
        self._starts: dict[tuple[str, int], list[float]] = {}
        self._world, self._traffic, self.workers = world, traffic, workers
        self._visitors = Visitors(world.activity)
        self.engine = engine or open_engine()

    def run_phase(
        self,
        phase: str,
        n_requests: int,
        serve: Serve,
        finish: Finish,
        elsewhere: Job | None = None,
        began: float | None = None,
    ) -> None:
        """Let n requests of this phase arrive. `serve` must be pure; `finish` sees blocks in order.

        `elsewhere` makes, on another machine, what does there with `(phase, index, n_requests, start)` what
        `serve` does here with that block. Without it the phase is served on this machine. `began`: when the
        phase did, if it has been served before; its requests are then the same once more, and no time passes.
        """
        queue: simpy.Store = simpy.Store(self.env)
        self.env.process(self._arrivals(phase, n_requests, queue, began))
        named = partial(serve_block, phase, serve=serve)
        service = Service(named, elsewhere, per_task=-(-WORTH_SENDING // self._traffic.block))
        engine = open_engine() if elsewhere is None else self.engine
        for chunk, result in engine.chunks(service, self._arrived(queue), self.workers):
            finish(chunk.content, result)

    def block(self, phase: str, index: int, n_requests: int, start: float | None = None) -> Block:
        """Block number `index` of a phase, arriving from time `start` on.

        None: where it matters when a request comes, at the time that it has in the study; else from 0 on.
        """
        if start is None:
            start = self._start(phase, index, n_requests) if self._world.is_timed else 0.0
        requests = self._requests(phase, index, n_requests)
        seed = self._world.seed
        return Block(
            requests=requests,
            users=self._visitors(draws.uniform(seed, "visitor", requests)),
            context=draws.normal(seed, "context", requests).astype(np.float32),
            times=self._times(requests, start),
        )

    def _requests(self, phase: str, index: int, n_requests: int) -> np.ndarray:
        """The ids of a block's requests."""
        first = index * self._traffic.block
        return FIRST_REQUEST[phase] + np.arange(
            first, min(first + self._traffic.block, n_requests), dtype=np.int64
        )

    def _times(self, requests: np.ndarray, start: float) -> np.ndarray:
        gaps = draws.exponential(self._world.seed, "arrival", requests)
        return arrival_times(gaps, self._traffic.requests_per_second, start)

    def _start(self, phase: str, index: int, n_requests: int) -> float:
        """When block number `index` of a phase begins: all requests of the study before it pass by once."""
        starts = self._starts.setdefault((phase, n_requests), [])
        if not starts:
            starts.append(self._phase_start(phase))
        while len(starts) <= index:
            times = self._times(self._requests(phase, len(starts) - 1, n_requests), starts[-1])
            starts.append(float(times[-1]))
        return starts[index]

    def _phase_start(self, phase: str) -> float:
        """When a phase begins: where the one before it ends. What is no part of the study begins at 0."""
        order = [*self._phases, *AFTER_ALL]
        before = order[: order.index(phase)] if phase in order else []
        last = next((name for name in reversed(before) if self._phases.get(name)), None)
        if last is None:
            return 0.0
        n_requests = self._phases[last]
        return self._start(last, -(-n_requests // self._traffic.block), n_requests)

    def again(self, requests: np.ndarray, users: np.ndarray, context: np.ndarray, times: np.ndarray) -> Block:
        """Requests that have come before, as a log of them has them."""
        return Block(requests, users, context, times)

    def chunk(self, *where: Any) -> Chunk:
        """The block of these words, and the words: (phase, index, n_requests, start)."""
        return Chunk(self.block(*where), where)

    def first_request(self, phase: str) -> int:
        """The id of the first request of a phase; ids of a phase are consecutive."""
        return FIRST_REQUEST[phase]

    def start_of(self, phase: str, n_requests: int) -> float:
        """When a phase that is next would begin."""
        return self._start(phase, 0, n_requests) if self._world.is_timed else float(self.env.now)

    def _arrivals(
        self, phase: str, n_requests: int, queue: simpy.Store, began: float | None = None
    ) -> Generator:
        """Each block reaches the queue when its last request has arrived; None ends the phase."""
        clock = self.start_of(phase, n_requests) if began is None else began
        for index in range(-(-n_requests // self._traffic.block)):
            chunk = self.chunk(phase, index, n_requests, clock)
            clock = float(chunk.content.times[-1])
            yield self.env.timeout(max(0.0, clock - self.env.now))
            yield queue.put(chunk)
        yield queue.put(None)

    def _arrived(self, queue: simpy.Store) -> Iterator[Chunk]:
        """The blocks as they come, for the server: time passes as the next one is asked for."""
        while True:
            chunk = self.env.run(until=queue.get())
            if chunk is None:
                return
            assert isinstance(chunk, Chunk)
            yield chunk


class ReplayedArrivals(Arrivals):
    """Traffic of a replayed log: request i of the evaluation is the log's, when and by whom it came."""

    def __init__(self, replay: Replay, world: World, traffic: Any, workers: int, reserve_cpc: float):
        """`reserve_cpc` is that of requests whose reserve was not logged."""
        super().__init__(world, traffic, workers)
        self._replay, self._reserve_cpc = replay, reserve_cpc

    def block(self, phase: str, index: int, n_requests: int, start: float | None = None) -> Block:
        """Block number `index` of the log; its times are the logged ones, whatever `start`."""
        if phase != "evaluate":
            raise ValueError(f"a replayed log has no phase {phase}")
        requests = self._requests(phase, index, n_requests)
        rows, columns = self._replay.rows(requests), self._replay.store.requests
        reserve = columns["reserve"][rows]
        parameters = RequestOverrides(
            slots=columns["slots"][rows].astype(np.int64),
            logged_reserve=np.where(np.isnan(reserve), self._reserve_cpc, reserve),
        )
        return Block(
            requests=requests,
            users=columns["user"][rows],
            context=np.zeros(len(rows), np.float32),
            times=columns["time"][rows],
            parameters=parameters,
        )


class ResampledArrivals(Arrivals):
    """Traffic of a world fitted to a log: requests of the log, drawn in blocks of time."""

    def __init__(self, replay: ResampledReplay, world: World, traffic: Any, workers: int, reserve_cpc: float):
        """`reserve_cpc` is that of requests whose reserve was not logged."""
        super().__init__(world, traffic, workers)
        self._replay, self._reserve_cpc = replay, reserve_cpc

    def block(self, phase: str, index: int, n_requests: int, start: float | None = None) -> Block:
        """Block number `index` of a phase; times are those of the world, whatever `start`."""
        return self.of_requests(self._requests(phase, index, n_requests))

    def again(self, requests: np.ndarray, users: np.ndarray, context: np.ndarray, times: np.ndarray) -> Block:
        """With the slots and reserves of the logged requests that they are drawn from."""
        return self.of_requests(requests)

    def until(self, phase: str, n_before: int, end: float) -> Block:
        """The requests of a phase before `end`, without the first `n_before` of them."""
        first, n = FIRST_REQUEST[phase] + n_before, 0
        while True:  # as many as have come so far and as many again, until one comes too late
            n = max(2 * n, self._traffic.block)
            requests = first + np.arange(n, dtype=np.int64)
            times = self._replay.times(requests)
            if times[-1] >= end:
                return self.of_requests(requests[: int(np.searchsorted(times, end))])

    def of_requests(self, requests: np.ndarray) -> Block:
        """These requests, of whatever users."""
        (rows, times), columns = self._replay.resampling.place(requests), self._replay.store.requests
        reserve, users = columns["reserve"][rows], columns["user"][rows]
        parameters = RequestOverrides(
            slots=columns["slots"][rows].astype(np.int64),
            logged_reserve=np.where(np.isnan(reserve), self._reserve_cpc, reserve),
        )
        return Block(
            requests=requests,
            users=np.where(users >= 0, users, self._world.n_users - 1).astype(np.int32),
            context=self._replay.response.whole("context")[rows].astype(np.float32),
            times=times,
            parameters=parameters,
        )
