"""How much of a log its rule reproduces: what every question on a log rests on, and is refused without.

An answer from a log holds its auctions again. Where the rule does not give the logged pages and prices as it
is, what it gives when it is changed says nothing of the log, however narrow the interval: so each question
first says how much comes out, and below the thresholds it is refused.
"""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass, replace
from multiprocessing import parent_process
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from cascade_sim.auction import MICROS
from cascade_sim.foundation.errors import Notice, UserError
from cascade_sim.foundation.kernels import take_columns
from cascade_sim.logs.audit.reasons import is_randomised
from cascade_sim.logs.audit.replay import Auctions, blocks, chosen_rows, priced, replay
from cascade_sim.logs.audit.rule import Rounding, Rule, default_squashing
from cascade_sim.logs.audit.study import assumed
from cascade_sim.logs.store.answers import MIN_PAGES
from cascade_sim.logs.store.scenario import reserve_section
from cascade_sim.logs.store.store import LogStore, open_store
from cascade_sim.scenario.log_support import about_of, find_log, is_accepting

if TYPE_CHECKING:
    from cascade_sim.scenario.schema import Scenario
    from cascade_sim.scenario.sections import Auction, ReplayedLog

SAMPLE = 2_000  # requests, evenly spread: a share is known to 2 points or better
NEAR = 0.01  # of a price: what is off by less moves revenue by less than most questions are about
# Least shares. A wrong winner may cost any amount, and questions are about a few percent of revenue: one in
# twenty. Prices are those of right winners, and off by more than NEAR: one in ten. A page has several of
# both. Logs under their own rule reproduce 99 % and more; cents that were not declared, a fifth to a half of
# the prices; another exponent or reserve, a half of the pages.
LEAST = {"pages": MIN_PAGES, "winners": 0.95, "prices": 0.9}


Shares: TypeAlias = tuple[int, float | None, float | None, float | None]
MAX_KNOWN = 64
DECLARED, ASSUMED = "declared rule", "assumed rule, as none is declared,"
FOUND, OWN = "found rule", "scenario's rule"


@dataclass(frozen=True)
class Reproduction:
    """What comes out of a log as it was logged, under a rule; None where nothing could be compared."""

    market: str  # its folder
    rule: str  # in words
    whose: str  # "declared rule", or what else it is
    is_changed: bool  # the scenario has another auction than the rule that reproduces the log
    requests: int  # looked at
    of: int
    pages: float | None
    winners: float | None
    prices: float | None  # of right winners, to NEAR

    @property
    def lacking(self) -> tuple[str, ...]:
        """Which shares are below what is needed."""
        shares = ((name, getattr(self, name)) for name in LEAST)
        return tuple(name for name, share in shares if share is not None and share < LEAST[name])

    @property
    def is_enough(self) -> bool:
        return not self.lacking

    @property
    def words(self) -> str:
        """In a sentence without its end."""
        looked = f"{self.requests:,} requests"
        if self.requests < self.of:
            looked = f"{self.requests:,} of {self.of:,} requests, evenly spread"
        if self.pages is None:
            return "nothing of the log can be compared with a rule: pages were drawn, or no bids logged"
        told = [f"{_percent(self.pages)} of the logged pages"]
        told += [] if self.winners is None else [f"{_percent(self.winners)} of the winners"]
        told += (
            [] if self.prices is None else [f"{_percent(self.prices)} of the prices (to {100 * NEAR:g} %)"]
        )
        more = "; the scenario has another auction" if self.is_changed else ""
        return (
            f"the {self.whose} ({self.rule}) reproduces {', '.join(told[:-1])}"
            f"{' and ' if len(told) > 1 else ''}{told[-1]} ({looked}){more}"
        )

    def as_json(self) -> dict[str, Any]:
        return {**vars(self), "least": dict(LEAST), "is_enough": self.is_enough, "words": self.words}


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


_said: dict[tuple[str, str], _Said] = {}  # by the place of a log and its seal
_known: dict[tuple[str, str, str], Reproduction] = {}  # and by the rule, of scenarios with another one


@dataclass
class _Tally:
    pages: int = 0
    right_pages: int = 0
    shown: int = 0
    right: int = 0
    priced: int = 0
    near: int = 0

    def add(self, auctions: Auctions, rule: Rule) -> None:
        """A block, without pages that were drawn, which follow no rule, or whose bids were not logged."""
        can = ~is_randomised(auctions)
        if auctions.is_winners_only:
            can &= ((take_columns(auctions.bid, auctions.shown, 0.0) > 0) | (auctions.shown < 0)).all(axis=1)
        if not can.all():
            auctions = auctions.take(can)
        made = replay(auctions, rule)
        shown, known = auctions.shown >= 0, priced(auctions, rule)
        is_same = made.column == auctions.shown
        off = np.abs(made.micros - auctions.price)
        is_near = off <= np.maximum(NEAR * auctions.price, 1)
        self.pages += len(auctions)
        self.right_pages += int((is_same & (is_near | ~known)).all(axis=1).sum())
        self.shown += int(shown.sum())
        self.right += int((is_same & shown).sum())
        self.priced += int((known & is_same).sum())
        self.near += int((known & is_same & is_near).sum())


def _shares(store: LogStore, rule: Rule) -> Shares:
    tally = _Tally()
    for auctions in blocks(store, chosen_rows(np.arange(store.n_requests), SAMPLE)):
        tally.add(auctions, rule)
    if not tally.shown:
        return tally.pages, None, None, None
    return (
        tally.pages,
        tally.right_pages / tally.pages,
        tally.right / tally.shown,
        tally.near / tally.priced if tally.priced else None,
    )


def rule_of(auction: Auction, logged: ReplayedLog, charging: str) -> Rule:
    """The rule that a scenario replays a log under."""
    unit = round(auction.rounding * MICROS)
    return Rule(
        pricing=auction.pricing,
        squashing=auction.squashing if charging == "click" else default_squashing(charging),
        reserve_cpc=auction.reserve_cpc,
        ignores_logged_reserve=not auction.logged_reserves,
        score_floor=auction.score_floor,
        rounding=Rounding(unit, auction.rounding_how) if unit else Rounding(),
        soft_floor=auction.parameters.get("soft_floor", 0.0),
        slot_effects=tuple(logged.slot_effects or ()),
        increment=auction.increment,
    )


def reproduced(store: LogStore, rule: Rule, *, whose: str = DECLARED) -> Reproduction:
    """How much of a log a rule reproduces."""
    requests, *shares = _shares(store, rule)
    folder, of = os.path.relpath(store.path.parent), store.n_requests
    folder = str(store.path.parent.resolve()) if folder.startswith(os.pardir) else folder
    return Reproduction(folder, rule.text(), whose, False, requests, of, *shares)


@dataclass(frozen=True)
class _Said:
    """The rule that a log is said to follow, and how much comes out under it."""

    rule: Rule
    reserve: dict[str, Any]  # as the scenario has it that replays the log
    found: Reproduction

    @classmethod
    def of(cls, store: LogStore) -> _Said:
        about, rule = store.about, assumed(store)
        whose = ASSUMED if about.rule is None or about.rule.pricing is None else DECLARED
        reserve = reserve_section(about, store, rule.reserve_cpc)
        return cls(rule, reserve, reproduced(store, rule, whose=whose))

    def is_same(self, own: Rule) -> bool:
        """Whether a scenario has this rule, as far as it is in words."""
        its = self.reserve.get("reserve_cpc", 0.0), not self.reserve.get("logged_reserves", False)
        others = own.changed(pcvr=self.rule.pcvr, reserve_cpc=self.rule.reserve_cpc)
        return (own.reserve_cpc, own.ignores_logged_reserve) == its and others.text() == self.rule.text()


def reproduction(scenario: Scenario, home: Path) -> Reproduction | None:
    """How much of the log that a scenario opens comes out; None for a synthetic world.

    Under the rule that the log declares (the usual one if it declares none): a run may ask what another
    auction does to the log, if it is known which one wrote it. Where that is not enough, under the scenario's
    own auction. The log is opened once for all scenarios that replay it.
    """
    logged = scenario.world.replay
    if logged is None:
        return None
    place, (about, seal) = find_log(logged.log, home), about_of(scenario.world, home)
    own, key = rule_of(scenario.auction, logged, about.charging), (str(place), seal)
    if len(_said) + len(_known) >= MAX_KNOWN:
        _said.clear()
        _known.clear()
    if key not in _said:
        _said[key] = _Said.of(open_store(place or logged.log))
    said = _said[key]
    if own.pricing == "vcg" and not own.slot_effects:
        own = own.changed(slot_effects=said.rule.slot_effects)
    if said.is_same(own) or said.found.is_enough:
        return replace(said.found, is_changed=not said.is_same(own))
    own_key = (*key, own.text())
    if own_key not in _known:
        _known[own_key] = reproduced(open_store(place or logged.log), own, whose=OWN)
    return _known[own_key]


def require_reproduced(scenario: Scenario, home: Path) -> Reproduction | None:
    """Say how much of a log comes out under its rule; UserError below the thresholds, unless accepted."""
    found = reproduction(scenario, home)
    if found is None:
        return None
    logged = scenario.world.replay
    assert logged is not None
    return _required(found, logged.accept_mismatch)


def require_log_reproduced(store: LogStore) -> Reproduction:
    """The same of a log by itself, under the rule that it declares or, without one, the usual one."""
    return _required(_Said.of(store).found, is_accepting())


def _required(found: Reproduction, is_accepted: bool) -> Reproduction:
    if found.is_enough or is_accepted:
        taken = "" if found.is_enough else "; accepted, though no answer is evidence about the log"
        if parent_process() is None:  # who starts a worker looks at the log first, and has said so
            warnings.warn(f"{found.market}: {found.words}{taken}", Notice, stacklevel=2)
        return found
    raise UserError(f"{found.market}: {found.words}. {refusal(found)}")


def refusal(found: Reproduction) -> str:
    """What is needed, and what to do."""
    needed = ", ".join(f"{100 * LEAST[name]:g} % of the {name}" for name in found.lacking)
    return (
        f"Needed: {needed}; otherwise answers are about another auction than the logged one. Find the rule "
        f"that the log follows and adopt it: python -m cascade_sim audit-logs {found.market} --adopt "
        "(without --adopt it says where pages differ: rules, budgets, units). To continue all the same: "
        "--accept-mismatch (in a scenario world.replay.accept_mismatch: true)"
    )
