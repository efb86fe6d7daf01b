"""Settlement: pages and money of a block, request by request, against budgets that run out.

The cascade scores a block in parallel and hands over each request's ranked list (deeper than the page).
`list_pages` then fills pages for the current budgets: an ad whose advertiser has nothing left, or sits
this request out, is passed over; the next in line moves up and is priced by the next one still there. Users
look at the pages, and `ledger.take` goes through the requests in order, taking what is due from what is
left, up to the first request that leaves an advertiser with nothing; from the one behind it on, pages are
listed anew. So no advertiser ever gives more than it has, and settlement does not depend on how requests
were cut into blocks (what a torch model predicts may, in the last bit).
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cascade_sim.cascade.page import Rules, cpc_at_reserve, cpc_in_order
from cascade_sim.foundation.compilation import kernel


@dataclass(frozen=True)
class RankedLists:
    """What the cascade hands over. [R, D] in rank order; ad -1 is the end of a list."""

    ads: np.ndarray  # int32
    bid: np.ndarray  # float64
    quality: np.ndarray  # float64
    prediction: np.ndarray  # float64, the pCTR of the stage that decided; 0 where it predicts none
    is_in: np.ndarray  # bool: takes part in this request (throttling)
    is_cut: np.ndarray  # [R] bool: candidates beyond the last one were not handed over
    is_auctioned: np.ndarray  # [R] bool; otherwise no auction made the order, and a slot costs the reserve
    is_explored: np.ndarray  # [R] bool
    served_by_stage: np.ndarray  # [R] int8: the stage whose order it is, by its place in arm.stage_names
    raw_score: np.ndarray  # float32, what is dumped beside the prediction; NaN where that says it all
    entrants: np.ndarray  # [R, c] int: advertisers of the ads that reached the auction and take part; or -1
    routes: np.ndarray | None = None  # [R, D, routes] bool: each brought it; None: none are merged
    slots: np.ndarray | None = None  # [R] int: places of pages that have their own number; None: all alike
    reserve: np.ndarray | None = None  # [R] float64: of requests that have their own; None: the arm's

    def take(self, rows) -> "RankedLists":
        fields: dict[str, Any] = vars(self)
        taken = {name: None if value is None else value[rows] for name, value in fields.items()}
        return RankedLists(**taken)  # type: ignore[arg-type]  # None only where it may be


@dataclass(frozen=True)
class ListedPages:
    """What is shown. All [R, k]; column -1 is an empty slot."""

    column: np.ndarray  # int64, place in the ranked list
    cpc_micros: np.ndarray  # int64

    def take(self, rows) -> "ListedPages":
        return ListedPages(self.column[rows], self.cpc_micros[rows])


def list_pages(
    lists: RankedLists, owner: np.ndarray, available_micros: np.ndarray, rules: Rules, start: int = 0
) -> tuple[ListedPages, int]:
    """The pages of the requests from `start` on, if no budget runs out on the way.

    owner [ads] is each ad's advertiser, available_micros [advertisers] what they have left; `rules` are those
    of requests that have no slots or reserve of their own. Returns
    the pages [R, k] and where they end: R, or the first request whose list is cut too short for k ads and a
    runner-up. Rows outside are empty.
    """
    column = np.full((len(lists.ads), rules.slots + 1), -1, np.int64)
    rules = _own_rules(lists, rules)
    slots = np.full(len(column), rules.slots) if rules.page_slots is None else rules.page_slots
    stop = int(_list(lists.ads, lists.is_in, lists.is_cut, owner, available_micros, slots, start, column))
    cpc_micros = np.zeros((len(column), rules.slots), np.int64)
    rows = slice(start, stop)
    cpc_micros[rows] = _prices(lists.take(rows), column[rows], rules.take(rows))
    return ListedPages(column[:, :-1], cpc_micros), stop


def _own_rules(lists: RankedLists, rules: Rules) -> Rules:
    """The rules with slots and reserves of the requests' own."""
    if lists.reserve is not None:
        rules = replace(rules, reserve_cpc=lists.reserve)
    if lists.slots is not None and int(lists.slots.min(initial=rules.slots)) < rules.slots:
        rules = replace(rules, page_slots=np.minimum(lists.slots, rules.slots).astype(np.int64))
    return rules


def _prices(lists: RankedLists, column: np.ndarray, rules: Rules) -> np.ndarray:
    """What clicks on the ads in these places cost; the last place is the runner-up's.  [R, k]"""
    at, is_filled, is_auctioned = np.maximum(column, 0), column >= 0, lists.is_auctioned[:, None]
    bid = np.where(is_filled, np.take_along_axis(lists.bid, at, 1), 0.0)
    quality = np.where(is_filled & is_auctioned, np.take_along_axis(lists.quality, at, 1), 0.0)
    cpc = cpc_in_order(bid, quality, rules)
    if is_auctioned.all():
        return cpc
    reserve = np.asarray(rules.reserve_cpc)[..., None]
    return np.where(is_auctioned, cpc, cpc_at_reserve(bid[:, :-1], reserve))


@kernel
def _list(ads, is_in, is_cut, owner, available, slots, start, column):
    """Fill column [R, k+1] with the places of those who can pay; return where a list was cut too short.

    The runner-up is in the last column, also of a page of fewer slots.
    """
    n_requests, depth = ads.shape
    for r in range(start, n_requests):
        n_listed, seen_end, n_wanted = 0, False, slots[r] + 1
        for j in range(depth):
            if ads[r, j] < 0:
                seen_end = True
                break
            if available[owner[ads[r, j]]] <= 0 or not is_in[r, j]:
                continue
            column[r, n_listed if n_listed < slots[r] else column.shape[1] - 1] = j
            n_listed += 1
            if n_listed == n_wanted:
                break
        if n_listed < n_wanted and is_cut[r] and not seen_end:
            column[r, :] = -1
            return r
    return n_requests
