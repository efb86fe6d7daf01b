"""A size rule that keeps to its budget while bids move.

When advertisers lower their bids or run dry, all scores fall, and a rule with fixed edges would hand fewer
and fewer ads to ranking. So edges follow the features of the last thousand requests: a bucket keeps its
share of requests, and the mean size stays at the budget.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from cascade_sim.size_rule import SizeRule


class TrackedRule:
    """`rule` is the one for the next window; `see` what the requests of a window looked like."""

    def __init__(self, rule: SizeRule):
        self.rule = rule
        self._recent = rule.sample.copy()  # until real requests have taken their places
        self._next = 0

    def see(self, feature: np.ndarray) -> None:
        """Features [R] of a window's requests, in order; the newest take the places of the oldest."""
        n = len(self._recent)
        newest = feature[-n:]
        skipped = len(feature) - len(newest)
        self._recent[(self._next + skipped + np.arange(len(newest))) % n] = newest
        self._next = (self._next + len(feature)) % n
        self.rule = self.rule.for_features(self._recent)

    def state(self) -> dict[str, np.ndarray]:
        return {"recent": self._recent.copy(), "next": np.array(self._next), "edges": self.rule.edges.copy()}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        self._recent, self._next = np.array(state["recent"]), int(state["next"])
        self.rule = replace(self.rule, edges=np.array(state["edges"]))
