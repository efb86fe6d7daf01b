"""A market on trial: two arms on one ledger, or one part of a market whose budgets are split.

`DesignRun` is the market; its `Outcomes` hold a row per request, from which every design is read.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from cascade_sim.cascade.ledger import NO_BUDGET
from cascade_sim.cascade.serve import Arm, Block
from cascade_sim.experiments.assignment import Assignment
from cascade_sim.experiments.server import SplitServer
from cascade_sim.market.ad_server import SettledBlock
from cascade_sim.market.run import MarketRun
from cascade_sim.scenario.market import Market
from cascade_sim.study.simulation import Simulation

# Rows are kept to the end of the days, so they are narrow: counts are of one page.
DTYPES = {
    "request": np.int64, "user": np.int32, "time": np.float64, "is_treated": np.bool_,
    "impressions": np.int16, "clicks": np.int16, "charged_clicks": np.int16, "revenue_micros": np.int64,
}  # fmt: skip


class DesignRun(MarketRun):
    """The simulated days with `assignment` deciding who serves.

    With `part`, this is one of two markets: it keeps the requests on that side of the draw by request id
    (True: the treatment's), and the same share of every budget, for which it has bidders of its own.
    """

    def __init__(
        self,
        sim: Simulation,
        arms: Mapping[str, tuple[Arm, Market]],
        assignment: Assignment,
        *,
        part: bool | None = None,
        workers: int = 1,
    ):
        self._arms, self.assignment, self.part = arms, assignment, part
        self.outcomes = Outcomes()
        super().__init__(sim, *arms["control"], workers=workers)

    def _draw_budgets(self) -> np.ndarray:
        whole = super()._draw_budgets()
        return whole if self.part is None else part_of_budgets(whole, self.assignment.share, self.part)

    def _make_server(self) -> SplitServer:
        return SplitServer(self.sim, self._arms, self.assignment, self.audience, self.ledger)

    def _deploy(self) -> None:
        """Arms on trial keep their models."""

    def _requests_until(self, end: float) -> Block:
        window = super()._requests_until(end)
        if self.part is None:
            return window
        by_request = Assignment("request", self.assignment.seed, self.assignment.share)
        return window.take(by_request.is_assigned(window) == self.part)

    def _book(self, settled: SettledBlock) -> None:
        super()._book(settled)
        is_late = self.spec.charging.click_delay > 0
        self.outcomes.add(settled, self.assignment.is_treated(settled.block), is_late)

    def _charged(self, clicks: dict[str, np.ndarray]) -> None:
        super()._charged(clicks)
        self.outcomes.charge(clicks["request"], clicks["charge"])

    def state(self) -> dict[str, Any]:
        return {**super().state(), "outcomes": self.outcomes.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        super().restore(state)
        self.outcomes.restore(state["outcomes"])


def part_of_budgets(whole: np.ndarray, share: float, is_treatment: bool) -> np.ndarray:
    """The treatment's or the control's part of every budget; together they are the whole.  [advertisers]

    Who has no budget has none in either part. A budget of one micro-unit goes to the control.
    """
    treatment = np.floor(whole * share).astype(np.int64)
    return np.where(whole == NO_BUDGET, NO_BUDGET, treatment if is_treatment else whole - treatment)


class Outcomes:
    """Rows in the order of the requests, and clicks that were charged later. Sums are of integers."""

    def __init__(self) -> None:
        self._parts: list[dict[str, np.ndarray]] = []
        self._charged: list[tuple[np.ndarray, np.ndarray]] = []

    def add(self, settled, is_treated: np.ndarray, is_late: bool) -> None:
        """Pages of a settled piece of a block; with `is_late`, their clicks are charged by `charge`."""
        clicks = settled.clicks.sum(axis=1)
        rows = {
            "request": settled.block.requests,
            "user": settled.block.users,
            "time": settled.block.times,
            "is_treated": is_treated,
            "impressions": (settled.ads >= 0).sum(axis=1),
            "clicks": clicks,
            "charged_clicks": np.zeros_like(clicks) if is_late else clicks,
            "revenue_micros": settled.charges_micros.sum(axis=1),
        }
        self._parts.append({name: rows[name].astype(dtype) for name, dtype in DTYPES.items()})

    def charge(self, requests: np.ndarray, charges: np.ndarray) -> None:
        """Clicks charged after their page, each to the request it came from.  [n], [n] int64"""
        self._charged.append((np.array(requests, np.int64), np.array(charges, np.int64)))

    def columns(self) -> dict[str, np.ndarray]:
        """All rows, every charge on the row of its request.  {name: [R]}"""
        parts = self._parts or [{name: np.zeros(0, dtype) for name, dtype in DTYPES.items()}]
        rows = {name: np.concatenate([part[name] for part in parts]) for name in DTYPES}
        if self._charged:
            requests, charges = (np.concatenate(parts) for parts in zip(*self._charged, strict=True))
            order = np.argsort(rows["request"], kind="stable")
            at = order[np.searchsorted(rows["request"], requests, sorter=order)]
            np.add.at(rows["charged_clicks"], at, 1)
            np.add.at(rows["revenue_micros"], at, charges)
        return rows

    def state(self) -> dict[str, np.ndarray]:
        return self.columns()

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        self._parts = [{name: np.array(state[name], dtype) for name, dtype in DTYPES.items()}]
        self._charged = []
