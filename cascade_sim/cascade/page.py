"""Pages and what a click on them costs: the one place where an ad on a page is given its price.

    auctioned    the auction orders the candidates, prices them and cuts the order to the page
    at_reserve   no auction took place: a click costs the reserve, or the bid if that is less
    list_priced  every ad pays the least bid with which it would have been on the list

and for lists that are in their order already, `cpc_in_order` (the auction's rules, no ad moves) and
`cpc_at_reserve` give the prices alone.

Prices become whole micro-units here, never above the bid.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from cascade_sim.auction import EXACT, Rounding, auction, reprice, to_micros


@dataclass(frozen=True)
class Rules:
    """What decides a price beside bids and qualities."""

    slots: int
    slot_effects: np.ndarray  # [slots] or longer
    pricing: str = "gsp"
    reserve_cpc: float | np.ndarray = 0.0  # one, or one of each request [R]
    score_floor: float = 0.0
    parameters: Mapping[str, float] = field(default_factory=dict, hash=False)  # of the pricing rule
    rounding: Rounding = EXACT
    page_slots: np.ndarray | None = None  # [R] of pages with fewer slots, at most `slots`; None: all alike

    @property
    def keywords(self) -> dict[str, Any]:
        """The rules as keyword arguments of `auction` and `reprice`."""
        given = dict(vars(self))
        parameters = given.pop("parameters")
        del given["page_slots"]
        return {**given, **parameters}

    def take(self, rows) -> "Rules":
        """Those of some requests (a slice, a mask or indices)."""
        reserve, slots = self.reserve_cpc, self.page_slots
        return replace(
            self,
            reserve_cpc=reserve[rows] if isinstance(reserve, np.ndarray) else reserve,
            page_slots=None if slots is None else slots[rows],
        )

    def by_slots(self) -> Iterator[tuple[np.ndarray, "Rules"]]:
        """Pages of one size at a time: their rows, and their rules."""
        assert self.page_slots is not None
        for slots in np.unique(self.page_slots):
            rows = np.flatnonzero(self.page_slots == slots)
            own = self.take(rows)
            effects = np.asarray(self.slot_effects)[:slots]
            yield rows, replace(own, slots=int(slots), slot_effects=effects, page_slots=None)


@dataclass(frozen=True)
class Page:
    """What requests show, in slot order, and the runner-up that prices the last slot.

    [R, k+1] each but the prices; an empty place has ad -1 and 0 in all else.
    """

    ads: np.ndarray  # int32 ids
    pctr: np.ndarray
    bid: np.ndarray
    quality: np.ndarray
    cpc_micros: np.ndarray  # [R, k] int64

    def take(self, rows) -> "Page":
        """Those of some requests (a slice, a mask or indices)."""
        return Page(*(values[rows] for values in vars(self).values()))

    def with_rows(self, rows: np.ndarray, part: "Page") -> "Page":
        """The page with those of other requests in these rows."""

        def merged(whole: np.ndarray, new: np.ndarray) -> np.ndarray:
            whole = whole.astype(np.result_type(whole, new))
            whole[rows] = new
            return whole

        return Page(*map(merged, vars(self).values(), vars(part).values()))


def auctioned(
    ids: np.ndarray,
    pctr: np.ndarray,
    bid: np.ndarray,
    quality: np.ndarray,
    rules: Rules,
    *,
    are_ids_sorted: bool = True,
) -> Page:
    """The page of an auction among candidates [R, c]; equal scores go to the smaller id.

    Candidates that ascend by id, as the sets of the cascade do, need no look at the ids.
    """
    if rules.page_slots is not None:
        return _by_slots(ids, pctr, bid, quality, rules, are_ids_sorted)
    from cascade_sim.foundation.kernels import take_columns  # numba is loaded when first needed

    result = auction(bid, quality, ids=None if are_ids_sorted else ids, **rules.keywords)
    ranked_quality = result.quality.astype(quality.dtype, copy=False)
    return Page(
        ads=take_columns(ids, result.ranked, -1),
        pctr=ranked_quality if quality is pctr else take_columns(pctr, result.ranked, 0),
        bid=result.bid,
        quality=ranked_quality,
        cpc_micros=to_micros(result.cpc, result.bid[:, :-1]),
    )


def _by_slots(
    ids: np.ndarray, pctr: np.ndarray, bid: np.ndarray, quality: np.ndarray, rules: Rules, are_sorted: bool
) -> Page:
    """`auctioned` where pages differ in size: slots that a page does not have stay empty."""
    n, k = len(ids), rules.slots
    whole: Page | None = None
    for rows, own in rules.by_slots():
        if own.slots < 1:
            continue
        some = [np.ascontiguousarray(values[rows]) for values in (ids, pctr, bid, quality)]
        page = auctioned(some[0], some[1], some[2], some[3], own, are_ids_sorted=are_sorted)
        if whole is None:
            whole = _empty_page(n, k, page)
        for name, values in vars(page).items():
            all_rows = getattr(whole, name)
            if name == "cpc_micros":
                all_rows[rows, : own.slots] = values
            else:
                all_rows[rows, : own.slots] = values[:, :-1]
                all_rows[rows, k] = values[:, -1]  # the runner-up has the last place on every page
    if whole is None:
        whole = _empty_page(n, k, Page(ids, pctr, bid, quality, np.zeros((0, 0), np.int64)))
    return whole


def _empty_page(n: int, slots: int, like: Page) -> Page:
    ads = np.full((n, slots + 1), -1, like.ads.dtype)
    pctr, bid, quality = (np.zeros(ads.shape, values.dtype) for values in (like.pctr, like.bid, like.quality))
    return Page(ads, pctr, bid, quality, np.zeros((n, slots), np.int64))


def at_reserve(
    ads: np.ndarray, pctr: np.ndarray, bid: np.ndarray, quality: np.ndarray, reserve_cpc: float
) -> Page:
    """The page of ads [R, k+1] that no auction put there."""
    return Page(ads, pctr, bid, quality, cpc_at_reserve(bid[:, :-1], reserve_cpc))


def list_priced(page: Page, rules: Rules) -> Page:
    """The page with prices that do not depend on the place: what outbids the first ad beyond the list.

    Each ad is priced as if it were alone above the runner-up.
    """
    shape = page.cpc_micros.shape

    def pairs(values: np.ndarray) -> np.ndarray:
        beyond = np.broadcast_to(values[:, -1:], shape)
        return np.stack([values[:, :-1], beyond], axis=2).reshape(-1, 2).astype(np.float64)

    reserve = rules.reserve_cpc
    if isinstance(reserve, np.ndarray):
        reserve = np.repeat(reserve, shape[1])
    alone = replace(
        rules, slots=1, slot_effects=np.ones(1), pricing="gsp", parameters={}, reserve_cpc=reserve
    )
    cpc = cpc_in_order(pairs(page.bid), pairs(page.quality), alone)
    return replace(page, cpc_micros=cpc.reshape(shape))


def cpc_in_order(bid: np.ndarray, quality: np.ndarray, rules: Rules) -> np.ndarray:
    """Micro-units per click of lists [R, k+1] in rank order, runner-up last; 0 bids end a list.  [R, k]"""
    if rules.page_slots is not None:
        prices = np.zeros((len(bid), rules.slots), np.int64)
        for rows, own in rules.by_slots():
            columns = [*range(own.slots), rules.slots]
            if own.slots:
                prices[rows, : own.slots] = cpc_in_order(
                    bid[rows][:, columns], quality[rows][:, columns], own
                )
        return prices
    return to_micros(reprice(bid, quality, **rules.keywords), bid[:, :-1])


def cpc_at_reserve(bid: np.ndarray, reserve_cpc: float | np.ndarray) -> np.ndarray:
    """Micro-units per click of ads that no auction priced: the reserve, or a bid below it.  [R, k]"""
    return to_micros(reserve_cpc, bid)
