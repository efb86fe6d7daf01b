"""The auctions of a large log, drawn by keys, so that any part of it can be made by itself."""

from __future__ import annotations

import numpy as np

from cascade_sim.auction import run_auction, to_micros
from cascade_sim.foundation import random as draws

SLOTS, CANDIDATES, ADS = 4, 50, 20_000
EXAMINED = np.array([1.0, 0.8, 0.65, 0.5])


def auctions(request: np.ndarray, reserve_cpc: float = 0.0) -> dict[str, np.ndarray]:
    """The candidates of these requests by column, by ad; -1 where it was not shown.  [R, CANDIDATES] each"""
    one, place = request[:, None], np.arange(CANDIDATES)[None, :]
    step = ADS // CANDIDATES
    ad = (draws.uniform(1, "ad", one, place) * step).astype(np.int32) + (place * step).astype(np.int32)
    bid = np.round(np.exp(0.6 * draws.normal(1, "bid", np.arange(ADS))) * 0.3, 4)[ad]
    quality = -3.5 + 0.8 * draws.normal(1, "quality", np.arange(ADS))
    logit = quality[ad] + 1.2 * (draws.uniform(1, "pair", one, ad) - 0.5)
    pctr = (1 / (1 + np.exp(-logit))).astype(np.float32)
    page = run_auction(bid, pctr, slots=SLOTS, reserve_cpc=reserve_cpc)
    slot = np.full(ad.shape, -1, np.int16)
    price, click = np.full(ad.shape, -1, np.int64), np.full(ad.shape, -1, np.int8)
    row, k = np.nonzero(page.winners >= 0)
    at = row, page.winners[row, k]
    slot[at] = k
    price[at] = to_micros(page.cpc[row, k], bid[at])
    click[at] = draws.uniform(1, "click", request[row], ad[at]) < pctr[at] * EXAMINED[k]
    return {"ad": ad, "bid": bid, "pctr": pctr, "slot": slot, "price_micros": price, "click": click}
