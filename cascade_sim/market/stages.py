"""What the requests of a market have time for: sizes, queues and deadlines of one arm.

Per window: the size rule of this window gives each request its number of candidates, the pools of servers
place the requests in order of arrival, and each block learns which stage answers each of its requests.
"""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np

from cascade_sim.cascade.serve import Arm, Block, Platform, pre_rank
from cascade_sim.market.load import ComputeTally
from cascade_sim.market.servers import ServerPools, stage_candidates
from cascade_sim.market.size_tracking import TrackedRule
from cascade_sim.scenario.compute import Compute


class MarketCompute:
    """Servers and sizes. Without a `Compute` section stages take no time, and sizes alone are kept up."""

    def __init__(self, spec: Compute | None, arm: Arm, seconds: float, seed: int):
        self._pools = None if spec is None else ServerPools(spec, seed)
        self._tally = None if spec is None else ComputeTally(spec, seconds)
        self._rule = None if arm.size_rule is None else TrackedRule(arm.size_rule)

    def arm_now(self, arm: Arm) -> Arm:
        """The arm with the size rule of the coming window."""
        return arm if self._rule is None else replace(arm, size_rule=self._rule.rule)

    def answered_by(
        self, blocks: list[Block], arm: Arm, platform: Platform, pool: ThreadPoolExecutor | None
    ) -> list[np.ndarray | None]:
        """For each block of a window, the last stage each request has time for; None without servers."""
        sizes = [np.full(len(block), arm.pre_ranking_size) for block in blocks]
        if self._rule is not None and blocks:
            each = map if pool is None else pool.map
            seen = list(each(lambda block: _sizes(block, arm, platform), blocks))
            sizes = [size for size, _ in seen]
            features = np.concatenate([feature for _, feature in seen])
            self._rule.see(features, np.concatenate(sizes))  # for the next window
        if self._pools is None or self._tally is None:
            return [None] * len(blocks)
        found: list[np.ndarray | None] = []
        for block, size in zip(blocks, sizes, strict=True):
            candidates = stage_candidates(arm.retrieval_size, size)
            passage = self._pools.serve(block.requests, block.times, candidates)
            self._tally.add(block.times, candidates, passage)
            found.append(passage.answered_by)
        return found

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
    assert arm.size_rule is not None
    passed = pre_rank(block, arm, platform)
    return passed.sizes, arm.size_rule.feature(passed.pre_score)
