"""Settlement: pages, clicks and charges of a block, request by request, against budgets that run out.

The cascade scores a block in parallel and hands over each request's ranked list (deeper than the page).
Settlement then goes through the requests in order. An ad whose advertiser has nothing left, or sits this
request out, is passed over; the next in line moves up and is priced by the next one still there. A
click is charged at once, at most what is left: no advertiser ever pays more than its budget, and
nothing depends on how requests were cut into blocks. A list that runs out before its request has k ads
and a runner-up is asked for again in full (`needs_more`).
"""

from dataclasses import dataclass

import numpy as np
from numba import njit

from cascade_sim.auction import PRICINGS
from cascade_sim.auction_kernels import price_listed


@dataclass(frozen=True)
class RankedLists:
    """What the cascade hands over. All [R, D], in rank order; ad -1 is the end of a list."""

    ads: np.ndarray  # int32
    bid: np.ndarray  # float64
    quality: np.ndarray  # float64
    true_ctr: np.ndarray  # float64, the world's
    click_luck: np.ndarray  # float64 in (0, 1)
    is_in: np.ndarray  # bool: takes part in this request (throttling)
    is_cut: np.ndarray  # [R] bool: candidates beyond the last one were not handed over
    entrants: np.ndarray  # [R, c] int: advertisers of the ads that reached the auction and take part; or -1


@dataclass(frozen=True)
class Pages:
    """What was shown and what came of it. All [R, k]; column -1 is an empty slot."""

    column: np.ndarray  # int64, place in the ranked list
    cpc_micros: np.ndarray  # int64
    clicks: np.ndarray  # bool
    charges_micros: np.ndarray  # int64, the CPC of a click, or what the advertiser had left if that is less


def empty_pages(n_requests: int, slots: int) -> Pages:
    shape = (n_requests, slots)
    return Pages(
        np.full(shape, -1, np.int64),
        np.zeros(shape, np.int64),
        np.zeros(shape, bool),
        np.zeros(shape, np.int64),
    )


def settle(
    lists: RankedLists,
    owner: np.ndarray,
    remaining_micros: np.ndarray,
    took_part: np.ndarray,
    pages: Pages,
    *,
    pricing: str,
    reserve_cpc: float,
    score_floor: float,
    slot_effects: np.ndarray,
    start: int = 0,
) -> int:
    """Settle requests from `start` on. Fills `pages` and lowers `remaining_micros` [advertisers] in place.

    `took_part` [advertisers] int64 grows by the number of requests that an advertiser entered with money
    left: a matter of the auction's candidates, not of how many of them were handed over in rank order.
    Returns the number of requests settled: less than R if the list of that request needs more.
    """
    return int(
        _settle(
            lists.ads, lists.bid, lists.quality, lists.true_ctr, lists.click_luck, lists.is_in, lists.is_cut,
            lists.entrants, owner, remaining_micros, took_part, PRICINGS.index(pricing), float(reserve_cpc),
            float(score_floor), np.ascontiguousarray(slot_effects, np.float64), start,
            pages.column, pages.cpc_micros, pages.clicks, pages.charges_micros,
        )
    )  # fmt: skip


@njit(cache=True, nogil=True)
def _settle(
    ads, bid, quality, true_ctr, luck, is_in, is_cut, entrants, owner, remaining, took_part, pricing,
    reserve, floor, effects, start, column, cpc_micros, clicks, charges,
):  # fmt: skip
    n_requests, depth = ads.shape
    slots = column.shape[1]
    top_bid, top_quality = np.zeros(slots + 1), np.zeros(slots + 1)
    top_score, price = np.zeros(slots + 1), np.zeros(slots)
    counted = np.full(len(remaining), -1)  # the last request that was counted for an advertiser
    for r in range(start, n_requests):
        n_listed, seen_end = 0, False
        for j in range(depth):
            if ads[r, j] < 0:
                seen_end = True
                break
            if remaining[owner[ads[r, j]]] <= 0 or not is_in[r, j]:
                continue
            if n_listed < slots:
                column[r, n_listed] = j
            top_bid[n_listed], top_quality[n_listed] = bid[r, j], quality[r, j]
            top_score[n_listed] = bid[r, j] * quality[r, j]
            n_listed += 1
            if n_listed == slots + 1:
                break
        if n_listed < slots + 1 and is_cut[r] and not seen_end:
            column[r, :] = -1
            return r
        for j in range(entrants.shape[1]):
            entrant = entrants[r, j]
            if entrant >= 0 and remaining[entrant] > 0 and counted[entrant] != r:
                counted[entrant] = r
                took_part[entrant] += 1
        price_listed(top_bid, top_quality, top_score, n_listed, pricing, reserve, floor, effects, price)
        for k in range(min(slots, n_listed)):
            j = column[r, k]
            advertiser = owner[ads[r, j]]
            cpc_micros[r, k] = _micros(price[k], bid[r, j])
            if luck[r, j] < effects[k] * true_ctr[r, j]:
                clicks[r, k] = True
                charge = min(cpc_micros[r, k], remaining[advertiser])
                charges[r, k] = charge
                remaining[advertiser] -= charge
    return n_requests


@njit(cache=True, nogil=True, inline="always")
def _micros(price, bid):
    """As auction.to_micros: to the nearest micro-unit, halves up, not above the bid's whole micro-units."""
    money = price * 1e6
    whole = np.floor(money)
    charge = whole + (1.0 if money - whole >= 0.5 else 0.0)
    most = bid * 1e6
    nearest = np.rint(most)
    if nearest > most * (1 + 4 * 2.220446049250313e-16):
        nearest -= 1.0
    return np.int64(min(charge, nearest))
