"""What came of each request of a market on trial: a row per request, from which every design is read."""

from collections.abc import Mapping

import numpy as np

DTYPES = {
    "request": np.int64, "user": np.int32, "time": np.float64, "is_treated": np.bool_,
    "impressions": np.int64, "clicks": np.int64, "charged_clicks": np.int64, "revenue_micros": np.int64,
}  # fmt: skip


class Outcomes:
    """Rows in the order of the requests, and clicks that were charged later. Sums are of integers."""

    def __init__(self) -> None:
        self._parts: list[dict[str, np.ndarray]] = []
        self._charged: list[tuple[np.ndarray, np.ndarray]] = []

    def add(self, settled, is_treated: np.ndarray, is_late: bool) -> None:
        """Pages of a settled piece of a block; with `is_late`, their clicks are charged by `charge`."""
        clicks = settled.clicks.sum(axis=1)
        found = {
            "request": settled.block.requests,
            "user": settled.block.users,
            "time": settled.block.times,
            "is_treated": is_treated,
            "impressions": (settled.ads >= 0).sum(axis=1),
            "clicks": clicks,
            "charged_clicks": np.zeros_like(clicks) if is_late else clicks,
            "revenue_micros": settled.charges_micros.sum(axis=1),
        }
        self._parts.append({name: found[name].astype(dtype) for name, dtype in DTYPES.items()})

    def charge(self, requests: np.ndarray, charges: np.ndarray) -> None:
        """Clicks charged after their page, each to the request it came from.  [n], [n] int64"""
        self._charged.append((np.array(requests, np.int64), np.array(charges, np.int64)))

    def columns(self) -> dict[str, np.ndarray]:
        """All rows, every charge on the row of its request.  {name: [R]}"""
        parts = self._parts or [{name: np.zeros(0, dtype) for name, dtype in DTYPES.items()}]
        found = {name: np.concatenate([part[name] for part in parts]) for name in DTYPES}
        if self._charged:
            requests, charges = (np.concatenate(parts) for parts in zip(*self._charged, strict=True))
            order = np.argsort(found["request"], kind="stable")
            rows = order[np.searchsorted(found["request"], requests, sorter=order)]
            np.add.at(found["charged_clicks"], rows, 1)
            np.add.at(found["revenue_micros"], rows, charges)
        return found

    def state(self) -> dict[str, np.ndarray]:
        return self.columns()

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        self._parts = [{name: np.array(state[name], dtype) for name, dtype in DTYPES.items()}]
        self._charged = []
