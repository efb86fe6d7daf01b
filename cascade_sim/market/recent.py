"""What a trainer learns from: the pages of the market's log that are young enough."""

from collections.abc import Mapping

import numpy as np

from cascade_sim.market.server import Settled

REPLAYED = {
    "request": np.int64, "time": np.float64, "user": np.int32, "context": np.float32, "ad": np.int32,
    "examination": np.float32, "prediction": np.float64, "click": np.bool_, "click_time": np.float64,
    "model_version": np.int32, "is_explored": np.bool_, "answered_by": np.int8,
}  # fmt: skip


class RecentImpressions:
    """The rows of the market's log that are young enough to learn from, in the order of the log."""

    def __init__(self) -> None:
        self._parts: list[dict[str, np.ndarray]] = []

    def add(self, settled: Settled, slot_effects: np.ndarray) -> None:
        block = settled.block
        row, slot = np.nonzero(settled.ads >= 0)
        found = {
            "request": block.requests[row],
            "time": block.times[row],
            "user": block.users[row],
            "context": block.context[row],
            "ad": settled.ads[row, slot],
            "examination": slot_effects[slot],
            "prediction": settled.prediction[row, slot],
            "click": settled.clicks[row, slot],
            "click_time": settled.click_time[row, slot],
            "model_version": settled.model_version[row],
            "is_explored": settled.lists.is_explored[row],
            "answered_by": settled.lists.answered_by[row],
        }
        self._parts.append({name: found[name].astype(dtype) for name, dtype in REPLAYED.items()})

    def since(self, start: float) -> dict[str, np.ndarray]:
        """The rows of pages after `start`; older ones are forgotten."""
        whole = self.state()
        is_recent = whole["time"] > start
        self._parts = [{name: column[is_recent] for name, column in whole.items()}]
        return dict(self._parts[0])

    def state(self) -> dict[str, np.ndarray]:
        parts = self._parts or [{name: np.zeros(0, dtype) for name, dtype in REPLAYED.items()}]
        return {name: np.concatenate([part[name] for part in parts]) for name in REPLAYED}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        self._parts = [{name: np.array(state[name], dtype) for name, dtype in REPLAYED.items()}]
