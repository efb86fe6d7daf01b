"""Why pages are not as the rule makes them: a reason is a test on the log; what passes none is unexplained.

Two kinds. A change of the rule (a hidden reserve, a boost, another way of rounding, …) explains a page if the
auction with the change gives it exactly as logged; changes may come together. A fact of a page needs no
estimate: equal scores in each other's place, a price above the bid, the price of the ad's last auction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from cascade_sim.auction import floor_micros
from cascade_sim.cascade.page import Rules, cpc_at_reserve, cpc_in_order
from cascade_sim.foundation.kernels import take_columns
from cascade_sim.logs.audit.changes import LEAST, Change, all_changes, apply
from cascade_sim.logs.audit.replay import (
    Auctions,
    ReplayedPages,
    is_page_but_for_ties,
    listed,
    match_pages,
    priced,
    replay,
)
from cascade_sim.logs.audit.rule import Rounding, Rule

if TYPE_CHECKING:
    from cascade_sim.logs.store.store import LogStore

REASONS = {
    "tie": "tie broken otherwise",
    "rounding": "price rounded otherwise",
    "near": "price off by less than its unit",
    "hidden_reserve": "hidden reserve",
    "hidden_floor": "hidden score floor",
    "hidden_filter": "hidden least pCTR",
    "boost": "unlogged boost",
    "increment": "step above the runner-up",
    "price_factor": "prices multiplied",
    "other_rule": "another rule",
    "explored": "page drawn at random",
    "list_price": "drawn page, at the price of its list",
    "flat_price": "drawn page, at one price",
    "above_bid": "price above the bid",
    "fewer_shown": "fewer ads shown than could be",
    "rounded_pctr": "logged pCTR rounded",
    "lagging": "price lags behind",
    "unlogged_bids": "unlogged bid",
    "unexplained": "unexplained",
}
MEANINGS = {
    "tie": "ads of equal scores are in each other's place; ours goes to the ad whose id comes first",
    "rounding": "the price is the rule's, rounded in another way or to another unit",
    "near": "the price is the rule's but for the last digit it was logged with, now above and now below",
    "hidden_reserve": "a price above what the runner-up explains, the same on many pages",
    "hidden_floor": "a price that is the same on many pages once multiplied by the ad's quality",
    "hidden_filter": "ads that could have won were passed over, all below one pCTR",
    "boost": "scores of some advertisers or ads were multiplied by a factor that is not logged",
    "increment": "prices are a constant step above the runner-up's",
    "price_factor": "prices are the rule's times a constant",
    "other_rule": "the page is exactly that of another pricing rule or exponent",
    "explored": "a propensity below 1 was logged, and the ads pay the reserve or an unknown price: no "
    "auction took place",
    "list_price": "a propensity below 1 was logged, and all ads pay what outbids one and the same ad that "
    "was not shown: it prices the list, whatever the slot",
    "flat_price": "a propensity below 1 was logged, and all ads of the page pay the same",
    "above_bid": "no rule charges more than the bid",
    "fewer_shown": "the page ends early: the ads on it are the rule's, in its order and at its prices",
    "rounded_pctr": "order and prices are possible with the digits that the logged pCTRs lack",
    "lagging": "the price is what the ad, or the slot, should have paid in its auction before",
    "unlogged_bids": "all is the rule's but the price in the last slot of a full page: above any loser's",
    "unexplained": "none of the tests",
}
MAX_CHANGES = 5
MAX_SAMPLE = 20_000  # requests that changes are read off
MAX_CELLS = 2_000_000
RARE = {"other_rule", "increment", "price_factor"}  # which chance could imitate on single pages
RARE_SHARE = 0.02  # of the pages looked at, that have to speak for one of those


@dataclass(frozen=True)
class Context:
    """What a log has beside its auctions."""

    advertiser: np.ndarray  # [A]
    n_placements: int
    charging: str


def context_of(store: LogStore) -> Context:
    """Of a log."""
    return Context(store.advertiser, store.about.counts.placements, store.about.charging)


def is_explored(auctions: Auctions, rule: Rule) -> np.ndarray:
    """Whether a page was drawn, and its ads pay the reserve or their bid, or no price was logged.  [R]"""
    bid = take_columns(auctions.bid, auctions.shown, 0.0)
    price = cpc_at_reserve(bid, auctions.reserves(rule)[:, None])
    return is_randomised(auctions) & _is_paid(auctions, price)


def is_randomised(auctions: Auctions) -> np.ndarray:
    """Whether a page was drawn, whatever it costs: propensities of all its ads are below 1.  [R]"""
    if auctions.propensity is None:
        return np.zeros(len(auctions), bool)
    shown = auctions.shown >= 0
    return np.asarray(((auctions.propensity < 1) | ~shown).all(axis=1) & shown.any(axis=1))


def _is_paid(auctions: Auctions, micros: np.ndarray) -> np.ndarray:
    """Whether these are the logged prices of the page, as far as any were logged.  [R, k] -> [R]"""
    is_open = (auctions.shown < 0) | (auctions.price < 0)
    return ((micros == auctions.price) | is_open).all(axis=1)


def is_flat_priced(auctions: Auctions) -> np.ndarray:
    """Whether a page was drawn, and its ads pay one and the same.  [R]"""
    most = auctions.price.max(axis=1, keepdims=True, initial=-1)
    return is_randomised(auctions) & (most[:, 0] >= 0) & _is_paid(auctions, most)


def is_list_priced(auctions: Auctions, rule: Rule) -> np.ndarray:
    """Whether a page was drawn, and all its ads pay what outbids one ad that was not shown.  [R]

    Which one it was, the price of an ad that pays less than its bid tells.
    """
    found = is_randomised(auctions)
    if found.any():
        found[found] = _has_list_price(auctions.take(found), rule)
    return found


def _has_list_price(auctions: Auctions, rule: Rule) -> np.ndarray:
    """`is_list_priced` of drawn pages.  [R]"""
    n, k = auctions.shown.shape
    quality = auctions.quality(rule.squashing)
    bid, own = (take_columns(values, auctions.shown, 0.0) for values in (auctions.bid, quality))
    rest = auctions.bid * quality
    r, p = np.nonzero(auctions.shown >= 0)
    rest[r, auctions.shown[r, p]] = 0.0
    price = auctions.price / 1e6
    rows, slot = np.arange(n), np.argmax(np.where(auctions.price > 0, bid - price, -1.0), axis=1)
    score = price[rows, slot] * own[rows, slot]
    below = np.argmin(np.where(rest > 0, np.abs(rest - score[:, None]), np.inf), axis=1)

    def pairs(values: np.ndarray, others: np.ndarray) -> np.ndarray:
        beyond = np.where(bid > 0, others[rows, below][:, None], 0.0)
        return np.stack([values, beyond], axis=2).reshape(-1, 2).astype(np.float64)

    rules = Rules(1, np.ones(1), "gsp", np.repeat(auctions.reserves(rule), k), rule.score_floor)
    micros = cpc_in_order(pairs(bid, auctions.bid), pairs(own, quality), rules).reshape(n, k)
    is_told = ((auctions.price > 0) & (auctions.shown >= 0)).any(axis=1) & (rest > 0).any(axis=1)
    return is_told & _is_paid(auctions, micros)


def find_changes(
    auctions: Auctions, rule: Rule, context: Context, digits: Digits | None = None
) -> list[Change]:
    """Changes of the rule that these pages, which it does not make, speak for; the strongest first.

    Pages that are possible with the `digits` that pCTRs lack speak for no change but the way of rounding,
    where that is not known.
    """
    left = auctions.take(~explained(auctions, rule) & ~is_randomised(auctions))
    n_first, found = len(left), list[Change]()
    while len(left) and len(found) < MAX_CHANGES:
        best, most = None, 0
        seen: set[str] = set()
        rounded = apply(rule, [change for change in found if change.reason == "rounding"])
        is_possible = np.zeros(len(left), bool) if digits is None else possible(left, rounded, digits, True)
        for before in ((), tuple(found)) if found else ((),):
            start = apply(rule, before)
            for change in all_changes(
                left, start, context.advertiser, context.n_placements, context.charging
            ):
                key = f"{change.reason} {change.values}"
                if key in seen:
                    continue
                seen.add(key)
                by_it = _explained_by(left, rule, change, found)
                if change.reason != "rounding" or rounded.rounding != Rounding():
                    by_it &= ~is_possible
                if by_it.sum() > most:
                    best, most, which = change, int(by_it.sum()), by_it
        least = LEAST if best is None or best.reason not in RARE else max(LEAST, RARE_SHARE * n_first)
        if best is None or most < least:
            break
        found.append(best)
        left = left.take(~which)
    return found


def _explained_by(auctions: Auctions, rule: Rule, change: Change, found: Sequence[Change]) -> np.ndarray:
    """By the change alone or on top of those found before."""
    alone = explained(auctions, change.on(rule))
    for before in _subsets(found, 1):
        alone |= explained(auctions, change.on(apply(rule, before)))
    return alone


def _subsets(changes: Sequence[Change], least: int) -> list[tuple[Change, ...]]:
    return [part for size in range(least, len(changes) + 1) for part in combinations(changes, size)]


def explained(auctions: Auctions, rule: Rule) -> np.ndarray:
    """Whether the rule makes the page as it was logged, ties aside.  [R]"""
    if len(auctions) == 0:
        return np.zeros(0, bool)
    played = replay(auctions, rule)
    return match_pages(auctions, played, rule).is_page | is_page_but_for_ties(auctions, played, rule)


@dataclass
class Classifier:
    """Tells the reason of each page that is not as the rule makes it; labels are collected as they come."""

    rule: Rule
    changes: Sequence[Change]
    unit: int = 1  # micro-units that prices were logged in
    labels: list[tuple[int | str, ...]] = field(default_factory=list)  # numbers of changes, names of facts

    def code(self, label: tuple[int | str, ...]) -> int:
        if label not in self.labels:
            self.labels.append(label)
        return self.labels.index(label)

    def classify(self, auctions: Auctions, is_lagged: np.ndarray, digits: Digits | None) -> np.ndarray:
        """The label of each page, as an index into `labels`.  [R]"""
        codes = np.full(len(auctions), -1, np.int64)
        self._give(codes, is_explored(auctions, self.rule), ("explored",))
        self._give(codes, (codes < 0) & is_list_priced(auctions, self.rule), ("list_price",))
        self._give(codes, (codes < 0) & is_flat_priced(auctions), ("flat_price",))
        for size in range(len(self.changes) + 1):
            for part in combinations(range(len(self.changes)), size):
                left = np.nonzero(codes < 0)[0]
                if len(left) == 0:
                    return codes
                some = auctions.take(left)
                rule = apply(self.rule, [self.changes[i] for i in part])
                played = replay(some, rule)
                is_page = match_pages(some, played, rule).is_page
                self._give(codes, left[is_page], part)
                tied = ~is_page & is_page_but_for_ties(some, played, rule)
                self._give(codes, left[tied], (*part, "tie"))
        left = np.nonzero(codes < 0)[0]
        if len(left):
            some = auctions.take(left)
            for name, is_so in self._facts(some, is_lagged[left], digits):
                self._give(codes, left[is_so & (codes[left] < 0)], (name,))
        self._give(codes, codes < 0, ("unexplained",))
        return codes

    def _give(self, codes: np.ndarray, rows: np.ndarray, label: tuple[int | str, ...]) -> None:
        if np.count_nonzero(rows) if rows.dtype == bool else len(rows):
            codes[rows] = self.code(label)

    def _facts(
        self, auctions: Auctions, is_lagged: np.ndarray, digits: Digits | None
    ) -> list[tuple[str, np.ndarray]]:
        """Tests of single pages, in the order in which they are believed."""
        rule = apply(self.rule, [change for change in self.changes if change.reason == "rounding"])
        played = replay(auctions, rule)
        held = match_pages(auctions, played, rule)
        known = held.is_priced
        bid = take_columns(auctions.bid, auctions.shown, 0.0)
        above_bid = (known & (auctions.price > floor_micros(bid))).any(axis=1)
        is_right = held.is_same_price | ~known
        is_same_page = np.all(held.is_same_ad, axis=1)
        near = held.is_same_ad & (
            np.abs(played.micros - auctions.price) <= max(self.unit, rule.rounding.unit)
        )
        only_rounded = is_same_page & (near | ~known).all(axis=1)
        is_shown, is_played = auctions.shown >= 0, played.column >= 0
        is_prefix = ((held.is_same_ad & is_right) | ~is_shown).all(axis=1) & (
            is_shown.sum(1) < is_played.sum(1)
        )
        facts: list[tuple[str, np.ndarray]] = [("above_bid", np.asarray(above_bid))]
        if digits is not None:
            facts.append(("rounded_pctr", possible(auctions, rule, digits, True)))
        facts += [
            ("near", np.asarray(only_rounded)),
            ("fewer_shown", np.asarray(is_prefix & ~above_bid)),
            ("lagging", np.asarray(is_lagged & is_same_page)),
        ]
        if digits is not None:
            facts.append(("rounded_pctr", possible(auctions, rule, digits)))
        return [
            *facts,
            ("unlogged_bids", _is_priced_by_nobody(auctions, played, rule, is_same_page, is_right)),
        ]


def _is_priced_by_nobody(
    auctions: Auctions, played: ReplayedPages, rule: Rule, is_same_page: np.ndarray, is_right: np.ndarray
) -> np.ndarray:
    """A full page of which only the price of the last slot is wrong: above all losers, at most the bid.  [R]

    In other places an unlogged bidder would have been shown. With vcg the loser raises all prices; so does it
    here once its score, which the last slot gives, is put among the bids.
    """
    if rule.pricing == "first":
        return np.zeros(len(auctions), bool)
    rows, last = np.arange(len(auctions)), auctions.n_shown - 1
    is_full = auctions.n_shown == auctions.slots
    price, own = auctions.price[rows, last], played.micros[rows, last]
    is_above = (price > own) & (price <= floor_micros(played.bid[rows, last]))
    others = is_right.copy()
    others[rows, last] = True
    is_nobody = is_same_page & is_full & is_above
    if rule.pricing != "vcg":
        return is_nobody & others.all(axis=1)
    return is_nobody & _with_phantom(auctions, rule, price, last)


def _with_phantom(auctions: Auctions, rule: Rule, price: np.ndarray, last: np.ndarray) -> np.ndarray:
    """Whether all prices are right with one more loser, whose score the last slot's price tells.  [R]"""
    from dataclasses import replace

    rows = np.arange(len(auctions))
    quality = take_columns(auctions.quality(rule.squashing), auctions.shown, 0).astype(np.float64)[rows, last]
    score = (price / 1e6) * quality
    with_one = replace(
        auctions,
        ad=np.pad(auctions.ad, ((0, 0), (0, 1)), constant_values=0),
        bid=np.column_stack([auctions.bid, score]),
        pctr=None if auctions.pctr is None else np.pad(auctions.pctr, ((0, 0), (0, 1)), constant_values=1),
        pcvr=None if auctions.pcvr is None else np.pad(auctions.pcvr, ((0, 0), (0, 1)), constant_values=1),
        _qualities={},
    )
    played = replay(with_one, rule)
    near = np.abs(played.micros - auctions.price) <= max(2, rule.rounding.unit)  # the score is rounded, too
    return ((played.column == auctions.shown) & (near | ~priced(auctions, rule))).all(axis=1)


@dataclass(frozen=True)
class Digits:
    """How many digits logged pCTRs have: `decimals`, or `significant` ones."""

    decimals: int | None = None
    significant: int | None = None

    def half(self, pctr: np.ndarray) -> np.ndarray:
        """Half of the last digit of each."""
        if self.decimals is not None:
            return np.full(pctr.shape, 0.5 * 10.0**-self.decimals)
        assert self.significant is not None
        with np.errstate(divide="ignore"):
            size = np.floor(np.log10(np.where(pctr > 0, pctr, 1.0)))
        return 0.5 * 10.0 ** (size - self.significant + 1)

    def text(self) -> str:
        if self.decimals is not None:
            return f"{self.decimals} decimals"
        return f"{self.significant} significant digits"


def digits_of(pctr: np.ndarray | None) -> Digits | None:
    """The digits that all logged pCTRs are rounded to; None if they are not rounded to few."""
    if pctr is None:
        return None
    values = pctr[pctr > 0].astype(np.float64)[:100_000]
    if len(np.unique(values)) < 10:
        return None
    for decimals in range(1, 7):
        scaled = values * 10**decimals
        if np.mean(np.abs(scaled - np.rint(scaled)) < 1e-2) > 0.999 and np.mean(scaled >= 0.5) > 0.999:
            return Digits(decimals=decimals)
    for significant in range(1, 6):
        scaled = values / 10.0 ** np.floor(np.log10(values)) * 10 ** (significant - 1)
        if np.mean(np.abs(scaled - np.rint(scaled)) < 1e-2) > 0.999:
            return Digits(significant=significant)
    return None


def possible(auctions: Auctions, rule: Rule, digits: Digits, is_exact: bool = False) -> np.ndarray:
    """Whether order and prices of a page are possible with pCTRs that round to the logged ones.  [R]

    `is_exact`: prices are rounded as the rule has it; else they may be off by their unit.
    """
    if auctions.pctr is None or rule.squashing == 0:
        return np.zeros(len(auctions), bool)
    pctr = auctions.pctr.astype(np.float64)
    half = digits.half(pctr)
    low = np.maximum(pctr - half, 0.0) ** rule.squashing
    high = np.where(pctr > 0, pctr + half, 0.0) ** rule.squashing
    if auctions.pcvr is not None:
        weight = auctions.pcvr.astype(np.float64) ** auctions.pcvr_exponent
        low, high = low * weight, high * weight
    score_low, score_high = auctions.bid * low, auctions.bid * high
    shown, n_shown = auctions.shown, auctions.n_shown
    rows = np.arange(len(auctions))
    is_shown = np.zeros(auctions.ad.shape, bool)
    r, k = np.nonzero(shown >= 0)
    is_shown[r, shown[r, k]] = True
    reserve = auctions.reserves(rule)
    is_rest = ~is_shown & (auctions.bid >= reserve[:, None])
    rest_low = np.where(is_rest, score_low, 0.0).max(axis=1)
    rest_high = np.where(is_rest, score_high, 0.0).max(axis=1)

    def of_page(values: np.ndarray) -> np.ndarray:
        return take_columns(np.ascontiguousarray(values), shown, 0.0)

    own_low, own_high = of_page(score_low), of_page(score_high)
    below_low = np.pad(own_low[:, 1:], ((0, 0), (0, 1)))
    below_high = np.pad(own_high[:, 1:], ((0, 0), (0, 1)))
    last = np.maximum(n_shown - 1, 0)
    below_low[rows, last], below_high[rows, last] = rest_low, rest_high
    is_filled = shown >= 0
    is_ordered = ((own_high >= below_low * (1 - 1e-9)) | ~is_filled).all(axis=1)
    is_ordered &= n_shown >= np.minimum(auctions.slots, n_shown + is_rest.any(axis=1))
    bid, q_low, q_high = of_page(auctions.bid), of_page(low), of_page(high)
    if rule.pricing == "gsp":
        with np.errstate(divide="ignore", invalid="ignore"):
            least = np.where(q_high > 0, below_low / q_high, 0.0)
            most = np.where(q_low > 0, below_high / q_low, np.inf)
        least = np.minimum(np.maximum(least, reserve[:, None]), bid)
        most = np.minimum(np.maximum(most, reserve[:, None]), bid)
    else:  # every price is a mean of scores below over the own quality, so it moves no more than all of them
        own = listed(auctions, rule)
        with np.errstate(divide="ignore", invalid="ignore"):
            shrink = np.where(pctr > 0, low / pctr**rule.squashing, 1.0).min(axis=1)[:, None]
            grow = np.where(pctr > 0, high / pctr**rule.squashing, 1.0).max(axis=1)[:, None]
        is_own_bid = own.cpc >= bid
        least = np.where(is_own_bid, own.cpc, own.cpc * shrink / grow) if rule.pricing != "first" else own.cpc
        most = np.minimum(own.cpc * grow / shrink, bid) if rule.pricing != "first" else own.cpc
    most = np.where(np.isfinite(most), most, bid)
    if is_exact:
        ends = (rule.rounding.micros(end, bid) for end in (least, most))
        is_priced = (auctions.price >= next(ends)) & (auctions.price <= next(ends))
    else:
        room = (rule.rounding.unit if rule.rounding != Rounding() else 1) / 1e6
        price = auctions.price / 1e6
        is_priced = (price >= least - room) & (price <= most + room)
    return is_ordered & (is_priced | ~priced(auctions, rule)).all(axis=1)


@dataclass
class Lag:
    """Prices of the auction before, of the same ad and of the same place; keeps them from block to block."""

    by_ad: np.ndarray  # [A] what the ad should have paid when last shown, -1 never
    by_place: np.ndarray  # [(placements + 1) * slots]
    slots: int  # of the largest page

    @classmethod
    def start(cls, n_ads: int, n_placements: int, slots: int) -> Lag:
        return cls(np.full(n_ads, -1, np.int64), np.full((n_placements + 1) * slots, -1, np.int64), slots)

    def lagged(self, auctions: Auctions, played: ReplayedPages, is_wrong: np.ndarray) -> np.ndarray:
        """Whether every wrong price of a page is that of the ad's, or the slot's, auction before.  [R]"""
        r, k = np.nonzero(played.column >= 0)  # in the order of the log
        prices = played.micros[r, k]
        place = (auctions.placement[r] + 1) * self.slots + k
        wrong = is_wrong & (played.column >= 0)
        is_lagged = np.zeros(len(auctions), bool)
        for keys, table in ((played.ads[r, k], self.by_ad), (place, self.by_place)):
            before = np.full(played.ads.shape, -1, np.int64)
            before[r, k] = _before(keys, prices, table)
            is_lagged |= ((auctions.price == before) | ~wrong).all(axis=1)
        return wrong.any(axis=1) & is_lagged


def _before(keys: np.ndarray, prices: np.ndarray, table: np.ndarray) -> np.ndarray:
    """The price before of the same key, from the table for a key's first; the table gets the last ones."""
    if len(keys) == 0:
        return prices
    order = np.argsort(keys, kind="stable")
    own, paid = keys[order], prices[order]
    is_first = np.r_[True, own[1:] != own[:-1]]
    before = np.empty_like(prices)
    before[order] = np.where(is_first, table[own], np.r_[-1, paid[:-1]])
    is_last = np.r_[is_first[1:], True]
    table[own[is_last]] = paid[is_last]
    return before


def label_names(label: tuple[int | str, ...], changes: Sequence[Change]) -> list[str]:
    """The reasons of a label."""
    return [changes[part].reason if isinstance(part, int) else part for part in label]
