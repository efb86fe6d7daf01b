"""Budgets of a replayed log: who has spent the day's takes part in none of its later auctions.

Each arm has a ledger of its own. A block is served with those who have something left, and what is due is
taken request after request, up to the first one that leaves an advertiser with nothing; the requests behind
it that had ads of that advertiser are then served again without them. So pages do not depend on how requests
were cut into blocks, and no advertiser pays more than a budget. Days begin at midnight in the log's zone.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Protocol, cast

import numpy as np

from cascade_sim.cascade.ledger import NO_BUDGET, Ledger, affordable, take
from cascade_sim.cascade.logged import GivenSets, LoggedRetrieval
from cascade_sim.cascade.outcome import Outcome
from cascade_sim.cascade.serve import Arm, Block, Decision, Platform, serve
from cascade_sim.logs.replay.budgets import LoggedBudgets
from cascade_sim.logs.replay.replay import Replay
from cascade_sim.world.world import World


@dataclass(frozen=True)
class SettledBlock:
    """A block as an arm served it with its budgets."""

    decision: Decision
    outcome: Outcome
    arm: Arm  # which retrieves, for each request, the ads whose advertisers had something left


@dataclass
class ArmLedger:
    """What an arm's advertisers have spent so far, and who ran out when."""

    ledger: Ledger
    day: int = -1
    ran_out: set[tuple[int, int]] = field(default_factory=set)  # (advertiser, day)
    left_out: int = 0  # candidates that took no part
    left_out_shown: int = 0  # of them, those that the log shows

    @property
    def is_out(self) -> np.ndarray:
        """Who has nothing left.  [advertisers]"""
        return self.ledger.available <= 0


class Replaying(Protocol):
    """Where a log is replayed."""

    @property
    def world(self) -> World: ...

    @property
    def platform(self) -> Platform: ...

    def outcome(self, block: Block, decision: Decision, charging: str = "click") -> Outcome: ...


class BudgetReplay:
    """The ledgers of all arms of an evaluation, which must come with the blocks in their order."""

    def __init__(self, sim: Replaying, replay: Replay, budgets: LoggedBudgets):
        self._sim, self._replay, self.budgets = sim, replay, budgets
        self._ledgers: dict[Arm, ArmLedger] = {}

    def of(self, arm: Arm) -> ArmLedger:
        """The ledger of an arm, whatever its name: arms that serve alike spend alike."""
        unnamed = replace(arm, name="")
        if unnamed not in self._ledgers:
            nothing = np.zeros(self._sim.world.n_advertisers, np.int64)
            self._ledgers[unnamed] = ArmLedger(Ledger(nothing))
        return self._ledgers[unnamed]

    def facts(self, arm: Arm) -> dict[str, int]:
        """How many advertisers ran out of their budgets, and on how many days of theirs."""
        own = self.of(arm)
        return {"advertisers": len({who for who, _ in own.ran_out}), "days": len(own.ran_out)}

    def settle(self, block: Block, arm: Arm) -> SettledBlock:
        """Serve the next block of an arm, and charge what comes of it."""
        own, days, n = self.of(arm), self.budgets.days(block.times), len(block)
        if own.day < 0 and n:
            self._begin(own, int(days[0]))
        work = _Work(self._sim, block, arm)
        work.serve(np.arange(n), own.is_out)
        taken = np.zeros((n, arm.slots), np.int64)
        most, start = taken.copy(), 0
        entrants, entered = np.zeros((n, 0), np.int64), np.zeros(0, np.int64)  # who entered is not asked for
        while start < n:
            was_out = own.is_out
            if int(days[start]) != own.day:
                self._begin(own, int(days[start]))
                work.serve_changed(start, was_out, own.is_out)
                was_out = own.is_out
            end = int(np.searchsorted(days, days[start], side="right"))
            before, payer, price = own.ledger.available.copy(), work.payer, work.decision.cpc_micros
            paid, stop = take(work.due, payer, own.ledger.available, entrants, entered, start, end)
            rows = slice(start, stop)
            taken[rows] = paid[rows]
            most[rows] = affordable(price[rows], payer[rows], before, paid[rows])
            new = own.is_out & ~was_out
            own.ran_out |= {(int(who), own.day) for who in np.flatnonzero(new)}
            start = stop
            work.serve_changed(start, was_out, own.is_out)
        self._count(own, block, work)
        return SettledBlock(
            work.decision,
            replace(work.outcome(), charges_micros=taken, affordable_micros=most),
            work.arm,
        )

    def _begin(self, own: ArmLedger, day: int) -> None:
        own.day = day
        own.ledger.new_day(self.budgets.of_day(day, int(NO_BUDGET)))

    def _count(self, own: ArmLedger, block: Block, work: _Work) -> None:
        """What the budgets kept out, and how much of it the log shows all the same."""
        if work.is_whole:
            return
        replay = self._replay
        everyone, left = replay.candidates(block.requests), work.decision.retrieved
        own.left_out += int((everyone >= 0).sum() - (left >= 0).sum())
        shown = [(replay.values(block.requests, ids, "slot", -1) >= 0).sum() for ids in (everyone, left)]
        own.left_out_shown += int(shown[0] - shown[1])


class _Work:
    """A block on its way: pages and what is due for them, served again where a budget ran out."""

    def __init__(self, sim: Replaying, block: Block, arm: Arm):
        self._sim, self._block, self._arm = sim, block, arm
        self._owner = sim.world.advertiser
        self.is_whole = True  # no ad was left out of any request
        self.decision: Decision
        self.due: np.ndarray  # [R, k] int64
        self._outcome: Outcome | None = None  # of the whole block, as long as it is served in one

    def serve(self, rows: np.ndarray, is_out: np.ndarray) -> None:
        """These requests, without the ads of those who are out [advertisers]."""
        sim, is_all = self._sim, len(rows) == len(self._block)
        block = self._block if is_all else self._block.take(rows)
        arm = self._arm
        if is_out.any():
            arm = arm.among(cast(LoggedRetrieval, arm.retrieval.retriever).without(is_out[self._owner]))
            self.is_whole = False
        decision = serve(block, arm, sim.platform)
        result = self._result(block, decision)
        if is_all:
            self.decision, self.due, self._outcome = decision, result.charges_micros, result
        else:
            self.decision = self.decision.with_rows(rows, decision)
            self.due = self.due.copy()
            self.due[rows] = result.charges_micros
            self._outcome = None

    def serve_changed(self, start: int, was_out: np.ndarray, is_out: np.ndarray) -> None:
        """The requests from `start` on that had, or may now have, ads of those for whom it has changed."""
        if start >= len(self._block) or np.array_equal(was_out, is_out):
            return
        rows = np.arange(start, len(self._block))
        if not (was_out & ~is_out).any():  # no ad comes back: only who had them is concerned
            ids = self.decision.retrieved[start:]
            is_new = (is_out & ~was_out)[self._owner]
            rows = rows[((ids >= 0) & is_new[ids]).any(axis=1)]
        if len(rows):
            self.serve(rows, is_out)

    @property
    def payer(self) -> np.ndarray:
        """The advertiser of each slot; of an empty one, any.  [R, k]"""
        return self._owner[np.maximum(self.decision.win_set, 0)]

    @property
    def arm(self) -> Arm:
        """The arm among the ads that took part."""
        if self.is_whole:
            return self._arm
        return self._arm.among(GivenSets(self._block.requests, self.decision.retrieved))

    def outcome(self) -> Outcome:
        return self._outcome or self._result(self._block, self.decision)

    def _result(self, block: Block, decision: Decision) -> Outcome:
        return self._sim.outcome(block, decision, self._arm.charging)


def budget_facts(spending: BudgetReplay | None, arms: dict[str, Arm], current: str) -> dict[str, Any] | None:
    """What an answer says of budgets, as JSON holds it; None where they were not replayed."""
    if spending is None:
        return None
    own = spending.of(arms[current])
    return {
        "zone": spending.budgets.zone,
        "advertisers": spending.budgets.n_advertisers,
        "exhausted": {name: spending.facts(arm) for name, arm in arms.items()},
        "left_out": own.left_out,
        "left_out_shown": own.left_out_shown,
    }
