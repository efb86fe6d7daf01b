"""A market without auctions: prices of a random landscape, a daily curve of traffic, clicks by chance.

An ad with bid b wins a request when b is above a log-normal price; it is clicked by chance, a click costs the
price below the bid (second) or the bid (first). Spend stops at the budget, as the engine's does.
"""

from dataclasses import dataclass, field

import numpy as np
from scipy.special import ndtr

from cascade_sim.agents.bidding import MICROS, Bidder, Feedback, MarketTime, Portfolio

DAY = 86400.0
LOW, HIGH = 0.19, 1.76  # traffic over the day, as a multiple of its mean
SIGMA = 0.6  # of the log price
CTR = 0.05
ADS_EACH = 3


def traffic_share(elapsed: np.ndarray) -> np.ndarray:
    """Share of the day's traffic by then: the integral of a curve from 0.19 (4 am) to 1.76 (4 pm)."""
    middle, swing = (HIGH + LOW) / 2, (HIGH - LOW) / 2
    turn, start = 2 * np.pi * (np.asarray(elapsed) - 4 / 24), -2 * np.pi * 4 / 24
    raw = middle * np.asarray(elapsed) - swing * (np.sin(turn) - np.sin(start)) / (2 * np.pi)
    return raw / middle


@dataclass
class SyntheticMarket:
    m: int = 300
    seed: int = 0
    pricing: str = "second"
    clicks_per_day: tuple[float, float] = (200.0, 5000.0)  # unpaced, log-uniform
    ratio: tuple[float, float] = (0.1, 3.0)  # budget / unpaced spend, log-uniform
    cvr: float = 0.1
    pcvr_error: float = 0.0  # log of the platform's error, by advertiser
    no_budget: bool = False
    rng: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self.rng = rng = np.random.default_rng(self.seed)
        a = self.m * ADS_EACH
        self.owner = np.arange(a) % self.m
        self.value = np.exp(0.35 * rng.standard_normal(a))
        self.price = np.exp(rng.uniform(-0.8, 0.3, self.m))  # median price of each advertiser's requests
        won, cost = self.landscape(self.value)
        rate = self.sum(won * CTR)
        wanted = np.exp(rng.uniform(*np.log(self.clicks_per_day), self.m))
        self.requests = wanted / rate  # per day
        self.unpaced = self.requests * self.sum(won * CTR * cost)  # money per day
        self.ratios = np.exp(rng.uniform(*np.log(self.ratio), self.m))
        self.budget = np.full(self.m, 2**60) if self.no_budget else self.micros(self.ratios * self.unpaced)
        self.true_cvr = np.full(self.m, self.cvr)
        error = np.exp(self.pcvr_error * rng.standard_normal(self.m))
        self.portfolio = Portfolio(self.value, self.owner, (self.cvr * error)[self.owner], self.budget)

    @staticmethod
    def micros(money: np.ndarray) -> np.ndarray:
        return np.round(np.asarray(money) * MICROS).astype(np.int64)

    def sum(self, of_ad: np.ndarray) -> np.ndarray:
        return np.bincount(self.owner, weights=of_ad, minlength=self.m)

    def landscape(self, bid: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Win rate and mean cost per click of each ad at its bid.  [a], [a]"""
        price = self.price[self.owner]
        z = np.log(np.maximum(bid, 1e-12) / price) / SIGMA
        won = ndtr(z)
        below = price * np.exp(SIGMA**2 / 2) * ndtr(z - SIGMA) / np.maximum(won, 1e-300)
        return won, (bid if self.pricing == "first" else np.minimum(below, bid))

    def run(self, bidder: Bidder, days: int = 2, minutes: float = 5.0) -> "History":
        """Ask, sell, tell, for some days."""
        steps = int(round(24 * 60 / minutes))
        rows: dict[str, list[np.ndarray]] = {"spend": [], "bid": [], "clicks": [], "conversions": []}
        today = np.zeros(self.m, dtype=np.int64)
        for i in range(days * steps):
            now, then = self.time_at(i, steps), self.time_at(i + 1, steps)
            share = (then.expected_traffic or 1.0) - now.expected_traffic
            bids, passing = bidder.bids(now), bidder.participation(now)
            feedback, value = self.sell(bids, passing, share, today)
            today = today + feedback.spend_micros
            rows["spend"].append(feedback.spend_micros)
            rows["bid"].append(passing * self.sum(bids) / self.sum(self.value))
            rows["clicks"].append(value)
            rows["conversions"].append(feedback.conversions)
            if then.day != now.day:
                today = np.zeros(self.m, dtype=np.int64)
            shown = today if then.day == now.day else np.zeros_like(today)
            bidder.observe(
                Feedback(*(getattr(feedback, k) for k in FIELDS), shown, feedback.participated), then
            )
        shape = (days, steps, self.m)
        return History(self, *(np.array(rows[k]).reshape(shape) for k in rows))

    @staticmethod
    def time_at(i: int, steps: int) -> MarketTime:
        elapsed = (i % steps) / steps
        return MarketTime(i / steps * DAY, i // steps, elapsed, float(traffic_share(elapsed)))

    def sell(
        self, bids: np.ndarray, passing: np.ndarray, share: float, today: np.ndarray
    ) -> tuple[Feedback, np.ndarray]:
        """The outcome of one update, and the value of the clicks it brought."""
        rng = self.rng
        busy = share * np.exp(0.1 * rng.standard_normal())  # traffic is not quite as expected
        took_part = rng.poisson(self.requests * busy * passing)
        won, cost = self.landscape(bids)
        shown = rng.poisson(took_part[self.owner] * won)
        clicked = rng.binomial(shown, CTR)
        spend = self.micros(self.sum(clicked * cost * np.exp(0.1 * rng.standard_normal(len(cost)))))
        left = self.budget - today
        part = np.where(spend > left, left / np.maximum(spend, 1), 1.0)  # runs dry on the way
        clicks = np.floor(self.sum(clicked) * part).astype(np.int64)
        shown_m = np.floor(self.sum(shown) * part).astype(np.int64)
        conversions = rng.binomial(clicks, self.true_cvr)
        seen = np.floor(took_part * part).astype(np.int64)
        spend = np.minimum(spend, left)
        return Feedback(shown_m, clicks, spend, conversions, today, seen), self.sum(
            clicked * self.value
        ) * part


FIELDS = ("impressions", "clicks", "spend_micros", "conversions")


@dataclass
class History:
    """What happened: all [days, updates, m]."""

    market: SyntheticMarket
    spend: np.ndarray  # micro-units
    bid: np.ndarray  # bid * participation, as a multiple of the value
    value: np.ndarray  # of clicks
    conversions: np.ndarray

    def spent(self, day: int) -> np.ndarray:
        """Share of the budget spent in a day.  [m]"""
        return self.spend[day].sum(0) / self.market.budget

    def deviation(self, day: int) -> np.ndarray:
        """Largest distance between the share of its spend and the share of traffic during a day.  [m]"""
        steps = self.spend.shape[1]
        share = traffic_share(np.arange(1, steps + 1) / steps)
        total = np.maximum(self.spend[day].sum(0), 1)
        return np.abs(np.cumsum(self.spend[day], 0) / total - share[:, None]).max(0)
