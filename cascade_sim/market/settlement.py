"""Settlement: pages and money of a block, request by request, against budgets that run out.

The cascade scores a block in parallel and hands over each request's ranked list (deeper than the page).
`list_pages` then fills pages for the budgets as they stand: an ad whose advertiser has nothing left, or sits
this request out, is passed over; the next in line moves up and is priced by the next one still there. Users
look at the pages, and `ledger.take` goes through the requests in order, taking what is due from what is
left, up to the first request that leaves an advertiser with nothing; from the one behind it on, pages are
listed anew. So no advertiser ever gives more than it has, and settlement does not depend on how requests
were cut into blocks (what a torch model predicts may, in the last bit).
"""

from dataclasses import dataclass

import numpy as np
from numba import njit

from cascade_sim.cascade.page import Rules, cpc_at_reserve, cpc_in_order


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
    answered_by: np.ndarray  # [R] int8: the stage whose order it is (cascade.late)
    raw_score: np.ndarray  # float32, what is dumped beside the prediction; NaN where that says it all
    entrants: np.ndarray  # [R, c] int: advertisers of the ads that reached the auction and take part; or -1

    def take(self, rows) -> "RankedLists":
        return RankedLists(**{name: value[rows] for name, value in vars(self).items()})


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
    """The pages of the requests from `start` on, if nobody's money runs out on the way.

    owner [ads] is each ad's advertiser, available_micros [advertisers] what they have left. Returns
    the pages [R, k] and where they end: R, or the first request whose list is cut too short for k ads and a
    runner-up. Rows outside are empty.
    """
    column = np.full((len(lists.ads), rules.slots + 1), -1, np.int64)
    stop = int(_list(lists.ads, lists.is_in, lists.is_cut, owner, available_micros, start, column))
    cpc_micros = np.zeros((len(column), rules.slots), np.int64)
    cpc_micros[start:stop] = _prices(lists.take(slice(start, stop)), column[start:stop], rules)
    return ListedPages(column[:, :-1], cpc_micros), stop


def _prices(lists: RankedLists, column: np.ndarray, rules: Rules) -> np.ndarray:
    """What clicks on the ads in these places cost; the last place is the runner-up's.  [R, k]"""
    at, is_filled, is_auctioned = np.maximum(column, 0), column >= 0, lists.is_auctioned[:, None]
    bid = np.where(is_filled, np.take_along_axis(lists.bid, at, 1), 0.0)
    quality = np.where(is_filled & is_auctioned, np.take_along_axis(lists.quality, at, 1), 0.0)
    cpc = cpc_in_order(bid, quality, rules)
    return (
        cpc
        if is_auctioned.all()
        else np.where(is_auctioned, cpc, cpc_at_reserve(bid[:, :-1], rules.reserve_cpc))
    )


@njit(cache=True, nogil=True)
def _list(ads, is_in, is_cut, owner, available, start, column):
    """Fill column [R, k+1] with the places of those who can pay; return where a list was cut too short."""
    n_requests, depth = ads.shape
    n_wanted = column.shape[1]
    for r in range(start, n_requests):
        n_listed, seen_end = 0, False
        for j in range(depth):
            if ads[r, j] < 0:
                seen_end = True
                break
            if available[owner[ads[r, j]]] <= 0 or not is_in[r, j]:
                continue
            column[r, n_listed] = j
            n_listed += 1
            if n_listed == n_wanted:
                break
        if n_listed < n_wanted and is_cut[r] and not seen_end:
            column[r, :] = -1
            return r
    return n_requests
