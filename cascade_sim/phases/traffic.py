"""Simulated time. SimPy processes carry requests from their arrival to the server, block by block.

Arrivals are a Poisson process; the requests that arrive while a block fills are served when its last
one is there. State lives in `Arrivals`, not in the generators. Blocks are fixed partitions of the
request ids, so neither the number of workers nor their speed can change a result: blocks may be
computed by several threads (the kernels release the GIL) and are always finished in order.

Errors while a block of requests is served: which block it was, and whether to try it again.
"""

import gc
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import numpy as np
import simpy

from cascade_sim import draws
from cascade_sim.agents.traffic import arrival_times, visitors
from cascade_sim.cascade.serve import Block
from cascade_sim.errors import UserError
from cascade_sim.world.world import World

TRIES = 3
PASSING = (MemoryError, OSError)  # what the machine lacks now it may have in a moment

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
PHASE_NAMES = ("bootstrap", "log", "shadow", "evaluate", "bench", "market", "panel", "off_policy", "slates")
PHASES = {name: (i + 1) * 10**9 for i, name in enumerate(PHASE_NAMES)}

Serve = Callable[[Block], Any]
Finish = Callable[[Block, Any], None]


class Arrivals:
    """Traffic and the server, in one SimPy environment."""

    def __init__(self, world: World, traffic, workers: int = 1):
        self.env = simpy.Environment()
        self._world, self._traffic, self._workers = world, traffic, workers

    def run_phase(self, phase: str, n_requests: int, serve: Serve, finish: Finish) -> None:
        """Let n requests of this phase arrive. `serve` must be pure; `finish` sees blocks in order."""
        queue: simpy.Store = simpy.Store(self.env)
        self.env.process(self._arrivals(phase, n_requests, queue))
        named = partial(serve_block, phase, serve=serve)
        with ThreadPoolExecutor(self._workers) as pool:
            done = self.env.process(self._server(queue, named, finish, pool if self._workers > 1 else None))
            self.env.run(until=done)

    def block(self, phase: str, index: int, n_requests: int, start: float = 0.0) -> Block:
        """Block number `index` of a phase, arriving from time `start` on."""
        size = self._traffic.block
        first = index * size
        local = np.arange(first, min(first + size, n_requests), dtype=np.int64)
        requests = PHASES[phase] + local
        seed = self._world.seed
        gaps = draws.exponential(seed, "arrival", requests)
        return Block(
            requests=requests,
            users=visitors(draws.uniform(seed, "visitor", requests), self._world.activity),
            context=draws.normal(seed, "context", requests).astype(np.float32),
            times=arrival_times(gaps, self._traffic.requests_per_second, start),
        )

    @staticmethod
    def first_request(phase: str) -> int:
        """The id of the first request of a phase; ids of a phase are consecutive."""
        return PHASES[phase]

    def _arrivals(self, phase: str, n_requests: int, queue: simpy.Store) -> Generator:
        """Each block reaches the queue when its last request has arrived; None ends the phase."""
        clock = self.env.now
        for index in range(-(-n_requests // self._traffic.block)):
            block = self.block(phase, index, n_requests, clock)
            clock = float(block.times[-1])
            yield self.env.timeout(max(0.0, clock - self.env.now))
            yield queue.put(block)
        yield queue.put(None)

    def _server(self, queue: simpy.Store, serve: Serve, finish: Finish, pool) -> Generator:
        """Take blocks as they come; keep at most two per worker under way; finish in order."""
        pending: deque[tuple[Block, Future]] = deque()
        while True:
            block = yield queue.get()
            if block is None:
                break
            if pool is None:
                finish(block, serve(block))
                continue
            pending.append((block, pool.submit(serve, block)))
            if len(pending) >= 2 * self._workers:
                _finish_oldest(pending, finish)
        while pending:
            _finish_oldest(pending, finish)


def _finish_oldest(pending: deque, finish: Finish) -> None:
    block, future = pending.popleft()
    finish(block, future.result())
