"""Logged auctions, re-run: the candidates that reached ranking, through our own auction, in blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from cascade_sim.auction import auction, reprice
from cascade_sim.cascade.fusion import Fusion, fused_quality
from cascade_sim.foundation.kernels import take_columns
from cascade_sim.logs.audit.rule import Rule
from cascade_sim.logs.replay.budgets import LoggedSpending

if TYPE_CHECKING:
    from cascade_sim.logs.store.store import LogStore

CELLS = 1 << 20  # of the tables of a block: request times candidate
COLUMNS = ("ad", "bid", "stage", "slot", "price_micros")
RANKED = 1


@dataclass(frozen=True, eq=False)
class Auctions:
    """Some logged auctions as tables: the candidates [R, n] and the page [R, k] as it was logged.

    A candidate that did not reach ranking, or has no bid or prediction, has bid 0: it is never eligible. So
    has one that was not shown, if its advertiser had spent the day's logged budget.
    """

    rows: np.ndarray  # [R] their numbers in the log
    ad: np.ndarray  # [R, n], -1 padding
    bid: np.ndarray
    pctr: np.ndarray | None  # None: none was logged, and all are alike
    pcvr: np.ndarray | None  # None: the declared rule has none in its scores
    pcvr_exponent: float
    slots: np.ndarray  # [R]
    reserve: np.ndarray  # [R], NaN not logged
    placement: np.ndarray  # [R], -1 none
    shown: np.ndarray  # [R, k] columns of the logged ads by slot, -1 empty
    price: np.ndarray  # [R, k] micro-units, -1 unknown or empty
    propensity: np.ndarray | None  # [R, k]
    is_winners_only: bool = False
    _qualities: dict[float, np.ndarray] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def n_places(self) -> int:
        return self.shown.shape[1]

    @property
    def ads(self) -> np.ndarray:
        """The logged ads by slot.  [R, k]"""
        return take_columns(self.ad, self.shown, -1)

    @property
    def n_shown(self) -> np.ndarray:
        return (self.shown >= 0).sum(axis=1)

    def take(self, rows: np.ndarray) -> Auctions:
        """Those of some requests (a mask or indices)."""
        parts: dict[str, Any] = {
            name: value[rows]
            for name, value in vars(self).items()
            if isinstance(value, np.ndarray) and not name.startswith("_")
        }
        return replace(self, **parts, _qualities={a: q[rows] for a, q in self._qualities.items()})

    def quality(self, squashing: float) -> np.ndarray:
        """pCTR ** squashing, times the declared power of the pCVR, as the cascade forms it.  [R, n]"""
        if squashing not in self._qualities:
            if len(self._qualities) > 3:
                self._qualities.clear()
            pctr = np.where(self.ad >= 0, 1.0, 0.0) if self.pctr is None else self.pctr
            fusion = Fusion(pctr=squashing, pcvr=0.0 if self.pcvr is None else self.pcvr_exponent)
            quality = fused_quality(fusion, pctr, lambda: self.pcvr)
            self._qualities[squashing] = np.ascontiguousarray(quality)
        return self._qualities[squashing]

    @property
    def weight(self) -> np.ndarray:
        """What the pCVR makes of scores; 1 without.  [R, n]"""
        if self.pcvr is None:
            return np.ones(self.bid.shape)
        return np.power(self.pcvr, self.pcvr_exponent, dtype=np.float64)

    def reserves(self, rule: Rule) -> np.ndarray:
        """The reserve of each request: its own where logged, else the rule's; no less than a further one."""
        if rule.ignores_logged_reserve:
            reserve = np.full(len(self), rule.reserve_cpc)
        else:
            reserve = np.where(np.isnan(self.reserve), rule.reserve_cpc, self.reserve)
        return reserve if rule.least is None else np.maximum(reserve, rule.least[self.placement])


@dataclass(frozen=True, eq=False)
class ReplayedPages:
    """Pages as a rule makes them.  [R, k] each; empty places have column -1 and price 0"""

    column: np.ndarray
    ads: np.ndarray
    cpc: np.ndarray  # before rounding
    micros: np.ndarray
    bid: np.ndarray
    quality: np.ndarray

    @property
    def score(self) -> np.ndarray:
        return self.bid * self.quality


def blocks(store: LogStore, rows: np.ndarray | None = None, cells: int = CELLS) -> Iterator[Auctions]:
    """The auctions of the log in order, or those of some rows, in blocks of about so many cells."""
    sizes = np.diff(store.first)
    chosen = np.arange(store.n_requests) if rows is None else rows
    start = 0
    while start < len(chosen):
        ahead = sizes[chosen[start : start + cells]]
        width = np.maximum.accumulate(np.maximum(ahead, 1))
        n = max(1, int(np.searchsorted(width * np.arange(1, len(width) + 1), cells, side="right")))
        yield load(store, chosen[start : start + n])
        start += n


@lru_cache(maxsize=2)
def spending_of(store: LogStore) -> LoggedSpending | None:
    """Who had spent a budget by when; None where the log has no budgets."""
    return None if store.budgets is None else LoggedSpending(store)


def load(store: LogStore, rows: np.ndarray, *, with_budgets: bool = True) -> Auctions:
    """The auctions of these rows; `with_budgets`, without the ads of who had spent the day's."""
    about = store.about
    exponent = 0.0 if about.rule is None or not about.has("pcvr") else float(about.rule.pcvr or 0.0)
    wanted = ("pctr", "propensity", *(("pcvr",) if exponent else ()))
    further = [name for name in wanted if about.has(name)]
    table = store.padded(rows, (*COLUMNS, *further))
    ad, bid = table["ad"], table["bid"]
    pctr = table.get("pctr")
    is_in = (ad >= 0) & (table["stage"] >= RANKED) & (bid >= 0)
    if pctr is not None:
        is_in &= pctr >= 0  # neither is true of NaN
    pcvr = table.get("pcvr")
    if pcvr is not None:
        is_in &= pcvr >= 0
        pcvr = np.where(is_in, pcvr, 0).astype(pcvr.dtype)
    slots = np.maximum(store.requests["slots"][rows].astype(np.int64), 1)
    slot = np.where(ad >= 0, table["slot"], -1)
    spending = spending_of(store) if with_budgets else None
    if spending is not None:
        is_in &= ~spending.is_out(np.asarray(rows, np.int64), ad) | (slot >= 0)
    if pctr is not None:
        pctr = np.where(is_in, pctr, 0).astype(pctr.dtype)
    most = int(max(slots.max(initial=1), slot.max(initial=-1) + 1))
    shown = np.full((len(rows), most), -1, np.int64)
    r, c = np.nonzero(slot >= 0)
    shown[r, slot[r, c]] = c

    def by_slot(name: str, empty: float) -> np.ndarray:
        return take_columns(np.ascontiguousarray(table[name]), shown, empty)

    return Auctions(
        rows=np.asarray(rows, np.int64),
        ad=np.ascontiguousarray(ad),
        bid=np.where(is_in, bid, 0.0),
        pctr=pctr,
        pcvr=pcvr,
        pcvr_exponent=exponent,
        slots=slots,
        reserve=store.requests["reserve"][rows].astype(np.float64),
        placement=store.requests["placement"][rows].astype(np.int64),
        shown=shown,
        price=by_slot("price_micros", -1),
        propensity=by_slot("propensity", np.nan) if "propensity" in table else None,
        is_winners_only=about.level == "winners",
    )


def replay(auctions: Auctions, rule: Rule) -> ReplayedPages:
    """The auctions under a rule: who is shown where, at what price."""
    n, k = auctions.shown.shape
    bid, quality = _entered(auctions, rule)
    reserve = auctions.reserves(rule)
    column = np.full((n, k + 1), -1, np.int64)
    ranked_bid, ranked_quality, cpc = np.zeros((n, k + 1)), np.zeros((n, k + 1)), np.zeros((n, k))
    for slots, rows in _by_slots(auctions):
        result = auction(
            bid[rows], quality[rows], slots=slots, pricing=rule.pricing, reserve_cpc=reserve[rows],
            score_floor=rule.score_floor, slot_effects=rule.effects(slots), **rule.parameters,
        )  # fmt: skip
        column[rows, : slots + 1] = result.ranked
        ranked_bid[rows, : slots + 1], ranked_quality[rows, : slots + 1] = result.bid, result.quality
        cpc[rows, :slots] = result.cpc
    cpc = _rule_extensions(cpc, ranked_bid, ranked_quality, reserve, rule)
    beyond = np.arange(k) >= auctions.slots[:, None]
    column = np.where(beyond, -1, column[:, :k])
    own = np.where(column >= 0, ranked_bid[:, :k], 0.0)
    return ReplayedPages(
        column=column,
        ads=take_columns(auctions.ad, column, -1),
        cpc=cpc,
        micros=rule.rounding.micros(cpc, own),
        bid=own,
        quality=ranked_quality[:, :k],
    )


def listed(auctions: Auctions, rule: Rule) -> ReplayedPages:
    """The pages as they were logged, in their order, with the prices the rule would have given them.

    The runner-up is the best of those not shown.
    """
    n, k = auctions.shown.shape
    bid, quality = _entered(auctions, rule)
    reserve = auctions.reserves(rule)
    order = np.argsort(auctions.shown < 0, axis=1, kind="stable")  # empty places to the end
    column = np.take_along_axis(auctions.shown, order, axis=1)
    n_shown = auctions.n_shown
    r, p = np.nonzero(auctions.shown >= 0)
    rest = bid.copy()
    rest[r, auctions.shown[r, p]] = 0.0
    best = auction(rest, quality, slots=1, reserve_cpc=reserve, score_floor=rule.score_floor).ranked[:, 0]
    whole = np.pad(column, ((0, 0), (0, 1)), constant_values=-1)
    whole[np.arange(n), n_shown] = best
    # An ad that the rule would not have let in is priced as if it had: no ad can pay more than the bid.
    own_bid = take_columns(auctions.bid, whole, 0.0)
    own_quality = take_columns(quality, whole, 0).astype(np.float64)
    cpc = np.zeros((n, k))
    listed_bid = np.where(np.cumprod(own_bid > 0, axis=1), own_bid, 0.0)
    for slots, rows in _by_slots(auctions):
        cpc[rows, :slots] = reprice(
            listed_bid[rows], own_quality[rows], slots=slots, pricing=rule.pricing,
            reserve_cpc=reserve[rows], score_floor=rule.score_floor, slot_effects=rule.effects(slots),
            **rule.parameters,
        )  # fmt: skip
    cpc = _rule_extensions(cpc, own_bid, own_quality, reserve, rule)
    back = np.argsort(order, axis=1, kind="stable")

    def in_slots(values: np.ndarray) -> np.ndarray:
        return np.take_along_axis(np.where(column >= 0, values, 0), back, axis=1)

    cpc, own_bid, own_quality = in_slots(cpc), in_slots(own_bid[:, :-1]), in_slots(own_quality[:, :-1])
    micros = rule.rounding.micros(cpc, own_bid)
    return ReplayedPages(auctions.shown, auctions.ads, cpc, micros, own_bid, own_quality)


def runner_up(auctions: Auctions, rule: Rule) -> tuple[np.ndarray, np.ndarray]:
    """Column and score of the ad below each logged one: the next shown, or the best of the rest.  [R, k]

    Column -1 and score 0 where there is none.
    """
    n, k = auctions.shown.shape
    bid, quality = _entered(auctions, rule)
    rest = bid.copy()
    r, p = np.nonzero(auctions.shown >= 0)
    rest[r, auctions.shown[r, p]] = 0.0
    best = auction(rest, quality, slots=1, reserve_cpc=auctions.reserves(rule)).ranked[:, 0]
    below = np.pad(auctions.shown[:, 1:], ((0, 0), (0, 1)), constant_values=-1)
    last = np.arange(k) == auctions.n_shown[:, None] - 1
    below = np.where(last, best[:, None], below)
    score = take_columns(auctions.bid, below, 0.0) * take_columns(quality, below, 0)
    return below, np.where(below >= 0, score, 0.0)


def _entered(auctions: Auctions, rule: Rule) -> tuple[np.ndarray, np.ndarray]:
    """Bids and qualities as the rule lets them in."""
    bid, quality = auctions.bid, auctions.quality(rule.squashing)
    if rule.min_pctr and auctions.pctr is not None:
        bid = np.where(auctions.pctr >= rule.min_pctr, bid, 0.0)
    if rule.boosts is not None:
        quality = quality * rule.boosts[auctions.ad]
    return bid, quality


def _by_slots(auctions: Auctions) -> Iterator[tuple[int, Any]]:
    """The requests by the number of their slots: prices of vcg depend on it."""
    values = np.unique(auctions.slots)
    for slots in values.tolist():
        yield slots, slice(None) if len(values) == 1 else np.nonzero(auctions.slots == slots)[0]


def _rule_extensions(
    cpc: np.ndarray, bid: np.ndarray, quality: np.ndarray, reserve: np.ndarray, rule: Rule
) -> np.ndarray:
    """Prices with the rule's step above the runner-up and its factor.  bid, quality: [R, k+1]"""
    if rule.increment:
        score = bid * quality
        with np.errstate(divide="ignore", invalid="ignore"):
            critical_bid = np.where(
                (score[:, 1:] > 0) & (quality[:, :-1] > 0), score[:, 1:] / quality[:, :-1], 0.0
            )
        stepped = np.where(critical_bid > 0, critical_bid + rule.increment, 0.0)
        cpc = np.minimum(np.maximum(cpc, stepped), bid[:, :-1])
    return cpc if rule.factor == 1 else cpc * rule.factor


@dataclass(frozen=True, eq=False)
class PageMatch:
    """Pages of a rule compared with the logged ones."""

    is_same_ad: np.ndarray  # [R, k]; two empty places are the same
    is_same_price: np.ndarray  # [R, k] of the same ad
    is_priced: np.ndarray  # [R, k] a price was logged, and the log can tell what it should be

    @property
    def is_page(self) -> np.ndarray:
        """Whether the whole page is as logged.  [R]"""
        return (self.is_same_ad & (self.is_same_price | ~self.is_priced)).all(axis=1)


def match_pages(auctions: Auctions, played: ReplayedPages, rule: Rule) -> PageMatch:
    is_same_ad = played.column == auctions.shown
    is_same_price = is_same_ad & (played.micros == auctions.price)
    return PageMatch(is_same_ad, is_same_price, priced(auctions, rule))


def priced(auctions: Auctions, rule: Rule) -> np.ndarray:
    """Where a price was logged and the log can tell what it should have been.  [R, k]

    Where only winners were logged the runner-up of a full page is unknown: the price of its last slot is
    open (with vcg, all of them).
    """
    known = (auctions.shown >= 0) & (auctions.price >= 0)
    if not auctions.is_winners_only or rule.pricing == "first":
        return known
    n_shown = auctions.n_shown
    is_full = (n_shown >= auctions.slots)[:, None]
    is_last = np.arange(auctions.n_places) == n_shown[:, None] - 1
    return known & ~(is_full & (is_last | (rule.pricing == "vcg")))


def is_page_but_for_ties(auctions: Auctions, played: ReplayedPages, rule: Rule) -> np.ndarray:
    """Whether the page is as logged, but for ads of equal scores in each other's place.  [R]"""
    own = listed(auctions, rule)
    score, other = own.score, played.score
    is_alike = np.abs(score - other) <= 1e-12 * np.maximum(score, other)
    is_alike &= (auctions.shown >= 0) == (played.column >= 0)
    is_paid = (own.micros == auctions.price) | ~priced(auctions, rule)
    return (is_alike & is_paid).all(axis=1) & (played.column != auctions.shown).any(axis=1)


def chosen_rows(rows: Sequence[int] | np.ndarray, most: int) -> np.ndarray:
    """At most so many of them, evenly spread."""
    rows = np.asarray(rows, np.int64)
    return rows if len(rows) <= most else rows[np.linspace(0, len(rows) - 1, most).astype(np.int64)]
