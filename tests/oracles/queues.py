"""Queues in plain Python, batch by batch with a heap of servers, for comparison."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass
class Met:
    """What a stage did with a request."""

    start: float
    end: float  # the start where the stage left it out
    is_left_out: bool


def one_stage(ready: Any, last: Any, work: Any, setup: float, noise: Any, servers: int, batch: int) -> list:
    """First come, first served in order of `ready`: [Met] for each request, in the order given.

    The server that is free first takes, at that moment, up to `batch` of the requests that wait.
    """
    order = sorted(range(len(ready)), key=lambda i: (ready[i], i))
    heap = [float("-inf")] * servers
    met: list[Any] = [None] * len(ready)
    head = 0
    while head < len(order):
        start = max(heapq.heappop(heap), ready[order[head]])
        clock, taken, factor = start, 0, 1.0
        while head < len(order) and taken < batch and ready[order[head]] <= start:
            i = order[head]
            head += 1
            if clock > last[i]:
                met[i] = Met(clock, clock, True)
                continue
            begin, cost = clock, work[i]
            if not taken:
                factor = noise[i]
                cost += setup
            taken += 1
            clock = begin + cost * factor
            met[i] = Met(begin, clock, False)
        heapq.heappush(heap, clock)
    return met


def in_a_row(times: Any, deadline: float, stages: Sequence[tuple[Any, float, Any, int, int]]) -> list[list]:
    """Stages (work, setup, noise, servers, batch) one after the other, each first come, first served.

    [[Met or None] for each stage]; None where a request never came to the stage.
    """
    last = [t + deadline for t in times]
    ready = {i: t for i, t in enumerate(times)}
    found = []
    for work, setup, noise, servers, batch in stages:
        ids = sorted(ready)
        met = one_stage(
            [ready[i] for i in ids], [last[i] for i in ids], [work[i] for i in ids], setup,
            [noise[i] for i in ids], servers, batch,
        )  # fmt: skip
        row: list[Any] = [None] * len(times)
        for i, one in zip(ids, met, strict=True):
            row[i] = one
        found.append(row)
        ready = {
            i: one.end for i, one in zip(ids, met, strict=True) if not one.is_left_out and one.end <= last[i]
        }
    return found
