"""Logs of auctions whose rule is known: drawn bids and predictions, pages by a rule, then what is planted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from cascade_sim.auction import auction, to_micros
from cascade_sim.logs.store.format import About
from cascade_sim.logs.store.store import LogStore, write_store

EFFECTS = (1.0, 0.75, 0.55, 0.4)


@dataclass(frozen=True)
class Log:
    """Candidates [R, n] and pages; `slot` and `price` [R, n] say what was logged of each candidate."""

    ad: np.ndarray
    bid: np.ndarray
    pctr: np.ndarray
    slots: int
    placement: np.ndarray
    advertiser: np.ndarray
    slot: np.ndarray
    price: np.ndarray

    def with_pages(self, winners: np.ndarray, micros: np.ndarray) -> Log:
        slot, price = np.full(self.ad.shape, -1), np.full(self.ad.shape, -1, np.int64)
        r, k = np.nonzero(winners >= 0)
        slot[r, winners[r, k]] = k
        price[r, winners[r, k]] = micros[r, k]
        return replace(self, slot=slot, price=price)

    def with_some(self, rows: np.ndarray, other: Log) -> Log:
        """The pages of another log in these rows."""
        slot, price = self.slot.copy(), self.price.copy()
        slot[rows], price[rows] = other.slot[rows], other.price[rows]
        return replace(self, slot=slot, price=price)

    def winners(self, k: int) -> np.ndarray:
        """The column of the ad in slot k, -1 if empty.  [R]"""
        is_there = self.slot == k
        return np.where(is_there.any(axis=1), is_there.argmax(axis=1), -1)


def drawn(
    seed: int,
    requests: int = 1500,
    candidates: int = 8,
    slots: int = 3,
    ads: int = 60,
    placements: int = 2,
    single: bool = False,
) -> Log:
    """Bids of four decimals and predictions, without pages."""
    rng = np.random.default_rng(seed)
    ad = np.sort(np.argsort(rng.random((requests, ads)), axis=1)[:, :candidates], axis=1)
    level = rng.normal(0, 0.4, ads)
    bid = np.round(np.exp(level[ad] + rng.normal(0, 0.3, ad.shape)), 4)
    pctr = 0.02 * np.exp(rng.normal(0, 0.5, ad.shape))
    pctr = pctr.astype(np.float32) if single else pctr
    nothing = np.full(ad.shape, -1, np.int64)
    placement = rng.integers(0, placements, requests)
    return Log(ad, bid, pctr, slots, placement, np.arange(ads) // 2, nothing, nothing)


def cents(how: str, unit: int = 10_000) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """Money to multiples of so many micro-units, never above the bid."""
    turn: dict[str, Any] = {"up": np.ceil, "down": np.floor, "nearest": lambda x: np.floor(x + 0.5)}

    def rounded(cpc: np.ndarray, bid: np.ndarray) -> np.ndarray:
        units = np.round(cpc * 1_000_000 / unit, 9)  # what floats leave behind the ninth place is no money
        return np.minimum(turn[how](units).astype(np.int64) * unit, to_micros(bid))

    return rounded


def paged(
    log: Log,
    *,
    squashing: float = 1.0,
    boosts: np.ndarray | None = None,
    rounded: Callable[[np.ndarray, np.ndarray], np.ndarray] = to_micros,
    bid: np.ndarray | None = None,
    step: float = 0.0,
    factor: float = 1.0,
    **rule: Any,
) -> Log:
    """The log with the pages that a rule makes."""
    rule = {"pricing": "gsp", "slot_effects": EFFECTS, **rule}
    quality = log.pctr if squashing == 1 else np.power(log.pctr, squashing, dtype=np.float64)
    if boosts is not None:
        quality = quality * boosts[log.ad]
    result = auction(log.bid if bid is None else bid, quality, slots=log.slots, **rule)
    own = result.bid[:, :-1]
    has_next = result.bid[:, 1:] > 0
    cpc = np.minimum(result.cpc + step * has_next, own) * factor
    return log.with_pages(result.winners, rounded(cpc, own))


def stored(
    folder: Path, log: Log, rule: dict[str, Any] | None = None, *, is_winners_only: bool = False, **about: Any
) -> LogStore:
    """The log as a market."""
    from cascade_sim.logs.store.format import Rule

    n, width = log.ad.shape
    kept = (log.slot >= 0) if is_winners_only else np.ones(log.ad.shape, bool)
    first = np.concatenate([[0], np.cumsum(kept.sum(axis=1))])
    reserve = about.pop("reserve", np.full(n, np.nan))
    further = {name: values[kept] for name, values in about.pop("further", {}).items()}
    requests = {
        "time": np.arange(n) * 10.0,
        "slots": about.pop("slots", np.full(n, log.slots)),
        "placement": log.placement,
        "reserve": reserve,
        "first": first,
    }
    candidates = {
        "ad": log.ad[kept],
        "bid": log.bid[kept],
        "slot": log.slot[kept],
        "price_micros": log.price[kept],
        **further,
    }
    if not about.pop("without_pctr", False):
        candidates["pctr"] = log.pctr[kept]
    names = {
        "requests": [f"req-{row}" for row in range(n)],
        "placements": [f"place-{code}" for code in range(int(log.placement.max()) + 1)],
        "advertisers": [f"house-{code}" for code in range(int(log.advertiser.max()) + 1)],
        "ads": [f"ad-{code}" for code in range(len(log.advertiser))],
    }
    level = "winners" if is_winners_only else "bids"
    told = About(
        **{
            "name": "tuesday", "starts": "2026-03-03T00:00:00+00:00", "level": level,
            "rule": None if rule is None else Rule(**rule), **about,
        }
    )  # fmt: skip
    return write_store(folder, told, requests, candidates, names, advertiser=log.advertiser)
