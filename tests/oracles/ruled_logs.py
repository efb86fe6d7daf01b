"""Logs whose auction rounds its prices, squashes and has a reserve, with the truth of other rules.

Drawn and priced in plain numpy, not by the simulator's auction: bids of four decimals, predictions that are
nearly right, clicks by the truth and the slot. Each seed has a rule of its own, none of it the default.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from cascade_sim.logs.store.format import About
from cascade_sim.logs.store.format import Rule as DeclaredRule
from worlds.logged_market import made_market

EXAMINED = np.array([1.0, 0.7, 0.5])
MICROS = 1_000_000
WAYS = ("up", "down", "nearest")
SEEDS = tuple(range(101, 111))  # of the ten logs, fixed before anything was looked at


@dataclass(frozen=True)
class LogRule:
    """What an auction by second scores is told; money in micro-units where it is whole."""

    squashing: float = 1.0
    reserve: float = 0.0
    unit: int = 1
    how: str = "nearest"
    increment: float = 0.0
    slots: int = 3


def rule_of(seed: int) -> LogRule:
    """The rule of the log of this seed."""
    rng = np.random.default_rng([seed, 1])
    return LogRule(
        squashing=float(rng.choice([0.6, 0.7, 0.8])),
        reserve=float(rng.choice([0.2, 0.25, 0.3])),
        unit=int(rng.choice([10_000, 20_000])),
        how=WAYS[int(rng.integers(3))],
        increment=float(rng.choice([0.0, 0.01])),
    )


@dataclass(frozen=True)
class RuledLog:
    """A log of `requests` requests by a rule; everything is made from the seed."""

    seed: int
    requests: int = 6_000
    candidates: int = 8
    ads: int = 60

    @property
    def rule(self) -> LogRule:
        return rule_of(self.seed)

    @cached_property
    def drawn(self) -> dict[str, np.ndarray]:
        """ad, bid, pctr, ctr and the draws of clicks.  [R, n]"""
        rng = np.random.default_rng([self.seed, 2])
        shape = (self.requests, self.candidates)
        ad = np.sort(np.argsort(rng.random((self.requests, self.ads)), axis=1)[:, : self.candidates], axis=1)
        level, appeal = rng.normal(-1.3, 0.5, self.ads), rng.normal(0, 0.5, self.ads)
        bid = np.round(np.exp(level[ad] + rng.normal(0, 0.25, shape)), 4)
        logit = -2.2 + appeal[ad] + rng.normal(0, 0.4, shape)
        pctr = 1 / (1 + np.exp(-logit))
        ctr = 1 / (1 + np.exp(-(logit + rng.normal(0, 0.2, shape))))
        return {"ad": ad, "bid": bid, "pctr": pctr, "ctr": ctr, "draw": rng.random(shape)}

    def pages(self, rule: LogRule) -> tuple[np.ndarray, np.ndarray]:
        """Columns of the winners [R, k], -1 empty, and their prices in micro-units."""
        bid, pctr, rows = self.drawn["bid"], self.drawn["pctr"], np.arange(self.requests)
        score = np.where(bid >= rule.reserve, bid * pctr**rule.squashing, -1.0)
        order = np.argsort(-score, axis=1, kind="stable")
        winners = np.full((self.requests, rule.slots), -1)
        price = np.zeros((self.requests, rule.slots), np.int64)
        for k in range(rule.slots):
            own, below = order[:, k], order[:, k + 1]
            is_shown, has_next = score[rows, own] > 0, score[rows, below] > 0
            lowest = np.where(
                has_next, score[rows, below] / pctr[rows, own] ** rule.squashing + rule.increment, 0.0
            )
            money = np.minimum(np.maximum(lowest, rule.reserve), bid[rows, own])
            micros = np.round(money * MICROS, 3)
            units = np.round(micros / rule.unit, 9)
            turned = {"up": np.ceil(units), "down": np.floor(units), "nearest": np.floor(units + 0.5)}
            paid = np.minimum(turned[rule.how] * rule.unit, np.round(bid[rows, own] * MICROS))
            winners[:, k] = np.where(is_shown, own, -1)
            price[:, k] = np.where(is_shown, paid, 0)
        return winners, price

    def revenue(self, rule: LogRule) -> np.ndarray:
        """True expected revenue of each request.  [R]"""
        winners, price = self.pages(rule)
        ctr = np.take_along_axis(self.drawn["ctr"], np.maximum(winners, 0), 1)
        seen = np.where(winners >= 0, ctr * EXAMINED[: rule.slots], 0.0)
        return np.sum(seen * price, axis=1) / MICROS

    def lift(self, **changes: Any) -> float:
        """The true lift of revenue by a change of the rule, on these requests."""
        return float(self.revenue(replace(self.rule, **changes)).sum() / self.revenue(self.rule).sum() - 1)

    def declared(self) -> DeclaredRule:
        own = self.rule
        return DeclaredRule(
            pricing="gsp", squashing=own.squashing, reserve_cpc=own.reserve, score_floor=0.0,
            rounding=own.unit / MICROS, rounding_how=own.how, increment=own.increment,
        )  # fmt: skip

    def market(self, folder: Path, *, rule: DeclaredRule | None | str = "its own") -> Path:
        """The log as the folder of an imported log, with a declared rule; None: without one."""
        own, drawn = self.rule, self.drawn
        winners, price = self.pages(own)
        shape = drawn["ad"].shape
        slot, paid = np.full(shape, -1), np.full(shape, -1, np.int64)
        r, k = np.nonzero(winners >= 0)
        slot[r, winners[r, k]] = k
        paid[r, winners[r, k]] = price[r, k]
        chance = drawn["ctr"] * EXAMINED[np.maximum(slot, 0)]
        candidates = {
            "ad": drawn["ad"], "bid": drawn["bid"], "pctr": drawn["pctr"], "slot": slot, "price_micros": paid,
            "click": np.where(slot >= 0, drawn["draw"] < chance, -1), "stage": np.where(slot >= 0, 2, 1),
        }  # fmt: skip
        requests = {
            "time": np.arange(self.requests) * 10.0,
            "slots": np.full(self.requests, own.slots),
            "first": np.arange(self.requests + 1) * self.candidates,
        }
        told = self.declared() if isinstance(rule, str) else rule
        about = About(f"ruled-{self.seed}", "2026-03-03T00:00:00+00:00", level="bids", rule=told)
        return made_market(
            folder, requests, {name: values.ravel() for name, values in candidates.items()}, about
        )
