"""What is on its way: clicks that are charged when they arrive, holds on budgets, news of conversions.

A click may reach the platform some time after its page. Until then, or until `click_window` has passed, a
hold may keep part of the advertiser's budget back. All is booked at the end of the window in which it is due,
in order of time, request and slot.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np


class DelayQueue:
    """Rows that are due at a time, taken out when it has come."""

    def __init__(self, **columns: type):
        self._columns: dict[str, np.ndarray] = {name: np.zeros(0, dtype) for name, dtype in columns.items()}

    def __len__(self) -> int:
        return len(self._columns["time"])

    def add(self, **columns: np.ndarray) -> None:
        """Rows to wait; the same columns as at the start."""
        self._columns = {
            name: np.concatenate([old, columns[name].astype(old.dtype, copy=False)])
            for name, old in self._columns.items()
        }

    def due(self, now: float) -> dict[str, np.ndarray]:
        """Take out the rows with time <= now, by time and then in the order of the other columns."""
        is_due = self._columns["time"] <= now
        rows = {name: column[is_due] for name, column in self._columns.items()}
        self._columns = {name: column[~is_due] for name, column in self._columns.items()}
        order = np.lexsort(tuple(rows[name] for name in reversed(rows)))
        return {name: column[order] for name, column in rows.items()}

    def state(self) -> dict[str, np.ndarray]:
        return dict(self._columns)

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        self._columns = {name: np.array(state[name], old.dtype) for name, old in self._columns.items()}


class PendingEvents:
    """Everything that a market still waits for."""

    def __init__(self) -> None:
        self.clicks = DelayQueue(
            time=np.float64, request=np.int64, slot=np.int8, ad=np.int32, advertiser=np.int64, cpc=np.int64
        )
        self.holds = DelayQueue(time=np.float64, advertiser=np.int64, micros=np.int64)
        self.conversions = DelayQueue(time=np.float64, advertiser=np.int64)

    def state(self) -> dict[str, Any]:
        return {name: waiting.state() for name, waiting in vars(self).items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        for name, waiting in vars(self).items():
            waiting.restore(state[name])
