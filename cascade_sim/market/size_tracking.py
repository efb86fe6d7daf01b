"""A size rule that keeps to its budget while bids move.

When advertisers lower their bids or run dry, all scores fall, and a rule with fixed edges would hand fewer
and fewer ads to ranking. So edges follow the features of the last thousand requests: a bucket keeps its
share of requests. What a window spent beyond the budget, or left, is made up for over the next thousand
requests, so the mean over a run stays at the budget although edges lag behind by a window.
"""

from collections.abc import Mapping

import numpy as np

from cascade_sim.cascade.sizes import SizeRule


class TrackedRule:
    """`rule` is the one for the next window; `see` what the requests of a window looked like."""

    def __init__(self, rule: SizeRule):
        self.rule = rule
        self._budget = rule.mean_size
        self._recent = rule.sample.copy()  # until real requests have taken their places
        self._next, self._over = 0, 0.0

    def see(self, feature: np.ndarray, sizes: np.ndarray) -> None:
        """Features [R] and sizes [R] of a window's requests, in order; the newest replace the oldest."""
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
