"""Pacing by taking part: full bids, in a part of the requests."""

import numpy as np

from cascade_sim.agents.bidding import Feedback, MarketTime, Portfolio, number
from cascade_sim.agents.day_plan import DayBidder


class Throttling(DayBidder):
    """Probabilistic throttling: bid = value in a share p of requests, p = clip(g / (r - z sd), floor, 1).

    g = clip((1 - S) / (1 - X), 0, 2), the budget left beside the traffic left: below 1 while the share spent
    is above the share of traffic, so p falls; above 1 otherwise, so p rises.
    r, the spend rate without throttling, in budgets per day's traffic: (sum of spend shares) / (PRIOR + sum
    of p * traffic shares), both sums forgetting over `window` days of traffic. Spend is proportional to p, so
    this needs no gain. sd = r / sqrt(clicks seen): a rate that chance may explain does not throttle.
    Before any traffic p = 1. A new day keeps r and begins with S = X = 0. Budget 0: p = 0.

    Args:
        portfolio: values, owners and budgets of the advertisers.
        floor: lower bound of p, in (0, 1].
        window: memory of the spend rate, in days of traffic, in (0, 30].
        caution: z, in [0, 5].

    >>> portfolio = Portfolio(np.array([0.4, 0.6]), np.array([0, 0]), np.array([0.1, 0.2]), np.array([10**6]))
    >>> noon = MarketTime(time=43200.0, day=0, elapsed=0.5, expected_traffic=0.5)
    >>> Throttling(portfolio).participation(noon).tolist()
    [1.0]
    """

    STATE = (*DayBidder.STATE, "passing", "seen_spend", "seen_traffic", "seen_clicks")
    PRIOR = 1e-3

    def __init__(
        self, portfolio: Portfolio, floor: float = 0.01, window: float = 0.5, caution: float = 1.0
    ) -> None:
        super().__init__(portfolio)
        self.floor = number("floor", floor, 0.0, 1.0, above=True)
        self.window = number("window", window, 0.0, 30.0, above=True)
        self.caution = number("caution", caution, 0.0, 5.0)
        self.passing = np.where(self.has_budget, 1.0, 0.0)
        self.seen_spend = np.zeros(self.n_advertisers)
        self.seen_traffic = np.zeros(self.n_advertisers)
        self.seen_clicks = np.zeros(self.n_advertisers)

    def observe(self, feedback: Feedback, now: MarketTime) -> None:
        step = self.advance(feedback, now)
        # What is seen while a budget runs dry says little: it was spent in an unknown part of the update.
        learns = step.live & (self.spent < 1.0 - 1e-9)
        keep = np.where(learns, np.exp(-step.traffic / self.window), 1.0)
        self.seen_spend = keep * self.seen_spend + np.where(learns, step.spent, 0.0)
        self.seen_traffic = keep * self.seen_traffic + np.where(learns, self.passing * step.traffic, 0.0)
        self.seen_clicks = keep * self.seen_clicks + np.where(learns, feedback.clicks, 0.0)
        if step.ended:
            self.begin_day(feedback, now)
        self.passing = self._pass_through()

    def _pass_through(self) -> np.ndarray:
        pace = self.pace()
        rate = self.seen_spend / (self.PRIOR + self.seen_traffic)
        sure = rate * np.maximum(1.0 - self.caution / np.sqrt(np.maximum(self.seen_clicks, 1.0)), 0.0)
        is_free = sure <= pace
        passing = np.where(is_free, 1.0, pace / np.where(is_free, 1.0, rate))
        return np.where(self.has_budget, np.clip(passing, self.floor, 1.0), 0.0)

    def participation(self, now: MarketTime) -> np.ndarray:
        return self.passing.copy()
