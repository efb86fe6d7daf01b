"""Logs of a market that is not of our family, with its truth: to see what worlds fitted to it get right.

Bids are Pareto, of advertisers in verticals, with multipliers by segment and hour. Users belong to segments,
which like verticals more or less. What a request is after (a vertical) is hidden: neither the log nor the
platform's model knows it. Candidates are as many as targeting brings, pages have two to four slots by
placement, and slots are looked at less and less by a law that nobody wrote down. Nothing of it is drawn, or
put together, as the simulator does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from cascade_sim.auction import run_auction

HOUR, DAY = 3600.0, 86_400.0
EXAMINED = np.array([1.0, 0.58, 0.41, 0.27])
VERTICALS, SEGMENTS = 8, 6
RESERVE, SQUASHING = 0.2, 0.9


@dataclass(frozen=True)
class OtherFamily:
    """A market of `requests` requests over `days` days."""

    requests: int = 12_000
    days: float = 8.0
    ads: int = 240
    users: int = 2500
    seed: int = 5
    intent: float = 1.6  # how much more an ad of the wanted vertical is clicked, in logits
    base: float = -3.1
    people: int = 0  # whose requests: the same ads before others

    @cached_property
    def auctions(self) -> dict[str, np.ndarray]:
        """Everything, padded to the largest request: [R, n] and [R]. Made once, in one order."""
        rng, n_ads = np.random.default_rng(self.seed), self.ads
        vertical = rng.integers(0, VERTICALS, n_ads)
        owner = np.sort(rng.integers(0, n_ads // 3, n_ads))
        owner = np.unique(owner, return_inverse=True)[1]
        level = rng.normal(0, 0.35, owner.max() + 1)
        # Pareto with index 2.1: the mean is there, the variance hardly
        bid_of = 0.35 * (1.0 - rng.random(n_ads)) ** (-1 / 2.1) * np.exp(level[owner])
        ad_appeal = rng.standard_t(4, n_ads) * 0.35 - 0.25 * np.log(bid_of)
        fond = rng.normal(0, 0.7, (SEGMENTS, VERTICALS))
        share = np.array([0.34, 0.25, 0.17, 0.12, 0.08, 0.04])
        # targeting: ads of verticals that a segment likes come up more often, a few ads very often
        popular = (rng.permutation(n_ads) + 6.0) ** -0.7
        rng = np.random.default_rng([self.seed, 1 + self.people])  # numpy takes [seed, 0] for seed alone
        segment_of = rng.choice(SEGMENTS, self.users, p=share)
        eager = rng.normal(0, 0.35, self.users)
        fame = 1.0 / (np.arange(self.users) + 4.0) ** 0.8
        r = self.requests
        curve = 1.0 + 0.7 * np.sin(2 * np.pi * (np.arange(24) - 9) / 24)
        # a day lasts 24 hours whose share of the traffic follows the curve
        edges = np.concatenate([[0.0], np.cumsum(np.tile(curve, int(np.ceil(self.days))))])
        edges = edges[: int(round(24 * self.days)) + 1]
        time = np.interp(np.sort(rng.random(r)) * edges[-1], edges, np.arange(len(edges)) * HOUR)
        hour = (time // HOUR % 24).astype(int)
        user = rng.choice(self.users, r, p=fame / fame.sum())
        segment = segment_of[user]
        placement = (rng.random(r) < 0.4).astype(int)
        slots = np.where(placement == 1, 4, 2)
        pull = popular[None, :] * np.exp(0.6 * fond[segment][:, vertical])
        count = np.clip(4 + rng.negative_binomial(3, 0.22, r), 4, 30)
        key = np.log(pull) - np.log(rng.exponential(size=(r, n_ads)))
        order = np.argsort(-key, axis=1)[:, : count.max()]
        is_there = np.arange(count.max())[None, :] < count[:, None]
        ad = np.sort(np.where(is_there, order, n_ads), axis=1)
        is_there, ad = ad < n_ads, np.minimum(ad, n_ads - 1)
        swing = np.exp(0.15 * np.sin(2 * np.pi * hour / 24) + 0.2 * (segment == 2) - 0.15 * (segment == 4))
        bid = np.round(bid_of[ad] * swing[:, None] * np.exp(0.12 * rng.standard_normal(ad.shape)), 4)
        known = (
            self.base + ad_appeal[ad] + fond[segment][np.arange(r)[:, None], vertical[ad]]
            + eager[user][:, None] + 0.2 * np.cos(2 * np.pi * (hour - 20) / 24)[:, None]
        )  # fmt: skip
        liked = np.exp(0.8 * fond[segment])
        wanted = (rng.random(r)[:, None] < np.cumsum(liked / liked.sum(1, keepdims=True), 1)).argmax(1)
        ctr = 1 / (1 + np.exp(-(known + self.intent * (vertical[ad] == wanted[:, None]))))
        # the platform's model: nearly right about what is known, a little too steep, blind to the intent
        pctr = 1 / (1 + np.exp(-(1.12 * known + 0.75 + 0.25 * rng.standard_normal(ad.shape))))
        draw = rng.random((3, *ad.shape))
        return {
            "ad": np.where(is_there, ad, -1), "bid": np.where(is_there, bid, 0.0),
            "pctr": np.where(is_there, pctr, 0.0).astype(np.float32), "ctr": np.where(is_there, ctr, 0.0),
            "time": time, "user": user, "segment": segment, "placement": placement, "slots": slots,
            "owner": owner, "draw": draw, "vertical": vertical, "wanted": wanted,
        }  # fmt: skip

    def page(self, *, slots: int = 4, model: str = "pctr", **rule: Any) -> tuple[np.ndarray, np.ndarray]:
        """Winners [R, 4] (columns, -1 empty) and their prices in money under a rule of the auction.

        `model` "ctr" ranks by the truth, intent and all.
        """
        a = self.auctions
        rule = {"squashing": SQUASHING, "reserve_cpc": RESERVE, **rule}
        won = run_auction(a["bid"], a[model].astype(np.float64), slots=4, ids=a["ad"], **rule)
        is_on = np.arange(4)[None, :] < np.minimum(a["slots"], slots)[:, None]
        winners = np.where(is_on, won.winners, -1)
        return winners, np.where(winners >= 0, won.cpc, 0.0)

    def expected(self, examined: np.ndarray = EXAMINED, **rule: Any) -> np.ndarray:
        """True expected revenue of every request under a rule, or as if slots had other effects.  [R]"""
        winners, price = self.page(**rule)
        return np.sum(self.clicked(winners, examined) * price, axis=1)

    def clicked(self, winners: np.ndarray, examined: np.ndarray = EXAMINED) -> np.ndarray:
        """The true chances of clicks on a page.  [R, 4]"""
        ctr = np.take_along_axis(self.auctions["ctr"], np.maximum(winners, 0), 1)
        return np.where(winners >= 0, ctr * examined[None, :], 0.0)

    def counted_lift(self, **rule: Any) -> float:
        """The lift by who knows every CTR, and of slots no more than their clicks in the log."""
        winners, _ = self.page()
        chance = self.clicked(winners)
        draw = np.take_along_axis(self.auctions["draw"][0], np.maximum(winners, 0), 1)
        found = np.sum(draw < chance, axis=0) / np.sum(self.clicked(winners, np.ones(4)), axis=0)
        found[0] = 1.0
        return float(self.expected(found, **rule).sum() / self.expected(found).sum() - 1)

    def lift(self, resamples: int = 400, **rule: Any) -> dict[str, float]:
        """The true lift of revenue by a rule, with the interval over requests."""
        before, after = self.expected(), self.expected(**rule)
        rng = np.random.default_rng(self.seed + 1)
        drawn = rng.integers(0, len(before), (resamples, len(before)))
        lifts = after[drawn].sum(1) / before[drawn].sum(1) - 1
        low, high = np.percentile(lifts, [2.5, 97.5])
        return {"value": float(after.sum() / before.sum() - 1), "low": float(low), "high": float(high)}

    def lifts_before_others(
        self, rules: Mapping[str, Mapping[str, Any]], times: int = 12
    ) -> dict[str, float]:
        """The true lift of revenue by each rule before other people, `times` as many."""
        today, then = 0.0, dict.fromkeys(rules, 0.0)
        for people in range(1, times + 1):
            others = replace(self, people=people)
            today += others.expected().sum()
            for name, rule in rules.items():
                then[name] += others.expected(**rule).sum()
        return {name: float(revenue / today - 1) for name, revenue in then.items()}

    def columns(self) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """The log's tables of requests and candidates, as a store has them."""
        a, (winners, price) = self.auctions, self.page()
        is_there = a["ad"] >= 0
        shape = a["ad"].shape
        slot, paid = np.full(shape, -1, np.int16), np.full(shape, -1, np.int64)
        rows, places = np.nonzero(winners >= 0)
        at = winners[rows, places]
        slot[rows, at] = places
        paid[rows, at] = np.rint(price[rows, places] * 1e6).astype(np.int64)
        chance = np.where(slot >= 0, a["ctr"] * EXAMINED[np.maximum(slot, 0)], 0.0)
        click = np.where(slot >= 0, a["draw"][0] < chance, -1).astype(np.int8)
        bought = (click == 1) & (a["draw"][1] < 0.12)
        delay = np.where(bought, -1800.0 * np.log(a["draw"][2]) ** 1, np.nan).astype(np.float32)
        conversion = np.where(click == 1, bought, np.where(slot >= 0, 0, -1)).astype(np.int8)
        candidates = {
            "ad": a["ad"], "bid": a["bid"], "pctr": a["pctr"], "slot": slot, "price_micros": paid,
            "click": click, "conversion": conversion, "conversion_delay": delay,
        }  # fmt: skip
        requests = {
            "time": a["time"], "user": a["user"], "segment": a["segment"], "placement": a["placement"],
            "slots": a["slots"], "reserve": np.full(self.requests, RESERVE),
            "first": np.concatenate([[0], np.cumsum(is_there.sum(1))]),
        }  # fmt: skip
        return requests, {name: values[is_there] for name, values in candidates.items()}

    def store(self, folder: Path, name: str = "other") -> Any:
        """The log as an imported log in a folder."""
        from cascade_sim.logs.store.format import About, Rule
        from cascade_sim.logs.store.store import write_store

        rule = Rule(pricing="gsp", squashing=SQUASHING, reserve_cpc=RESERVE, score_floor=0.0)
        about = About(name, "2026-03-02T00:00:00+00:00", currency="EUR", level="bids", rule=rule)
        return write_store(folder, about, *self.columns(), {}, advertiser=self.auctions["owner"])
