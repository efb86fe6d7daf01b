"""The budget multiplier: one factor per advertiser, such that the budget is just spent."""

import numpy as np

from cascade_sim.agents.bidding import Feedback, MarketTime, Portfolio, number, one_of
from cascade_sim.agents.day_plan import DayBidder

EARLY = 0.05  # traffic share before which a day's spend is too little to project from
MAX_RATIO = 10.0  # projections are trusted within this factor
FIRST_ELASTICITY = 2.0
ELASTICITIES = (1.0, 10.0)
TELLING = 0.05  # least change of ln lambda from one day to the next that an elasticity is read from


class Multiplier(DayBidder):
    """Budget multiplier: bid = value / lambda, lambda in [1, max_lambda] (pacing equilibrium).

    projected = S / X: the share of the budget that the day would spend; X is the traffic while it lasted.
    every = "day": at the end of each day     ln lambda <- ln lambda + step / E * ln projected.
    every = "update": after each update       ln lambda <- ln lambda + step / E * dx * ln projected,
    dx the update's share of the day's traffic. E is the elasticity of spend, read from the changes of
    ln projected and of the day's mean ln lambda between days: the mean of the old E and the one just seen,
    within ELASTICITIES. ln lambda is clipped to [0, ln max_lambda], so that an advertiser who spends less
    than its budget ends at lambda = 1. A new day keeps lambda and counts from 0.

    Args:
        portfolio: values, owners and budgets of the advertisers.
        step: step size of ln lambda, in (0, 10].
        every: "day" or "update".
        max_lambda: upper bound of lambda, in (1, 1e6].

    >>> portfolio = Portfolio(np.array([0.4, 0.6]), np.array([0, 0]), np.array([0.1, 0.2]), np.array([10**6]))
    >>> noon = MarketTime(time=43200.0, day=0, elapsed=0.5, expected_traffic=0.5)
    >>> Multiplier(portfolio).bids(noon).tolist()
    [0.4, 0.6]
    """

    STATE = (*DayBidder.STATE, "log_lambda", "elasticity", "log_sum", "last_log", "last_projected")

    def __init__(
        self, portfolio: Portfolio, step: float = 0.8, every: str = "day", max_lambda: float = 100.0
    ) -> None:
        super().__init__(portfolio)
        self.step = number("step", step, 0.0, 10.0, above=True)
        self.every = one_of("every", every, ("day", "update"))
        self.max_log = float(np.log(number("max_lambda", max_lambda, 1.0, 1e6, above=True)))
        self.log_lambda = np.zeros(self.n_advertisers)
        self.elasticity = np.full(self.n_advertisers, FIRST_ELASTICITY)
        self.log_sum = np.zeros(self.n_advertisers)  # of ln lambda * traffic share, today while it lasts
        self.last_log = np.zeros(self.n_advertisers)  # yesterday's mean ln lambda
        self.last_projected = np.full(self.n_advertisers, np.nan)  # yesterday's ln projected

    def observe(self, feedback: Feedback, now: MarketTime) -> None:
        update = self.advance(feedback, now)
        self.log_sum = self.log_sum + np.where(update.live, self.log_lambda * update.traffic, 0.0)
        lasted = np.maximum(np.minimum(self.dry_at, float(self.traffic)), 1e-9)
        projected = np.log(np.clip(self.spent / lasted, 1.0 / MAX_RATIO, MAX_RATIO))
        if self.every == "update" and float(self.traffic) >= EARLY:
            self._move(projected, update.traffic)
        if update.ended:
            self._read_elasticity(projected, self.log_sum / lasted)
            if self.every == "day":
                self._move(projected, 1.0)
            self.log_sum = np.zeros(self.n_advertisers)
            self.begin_day(feedback, now)

    def _move(self, projected: np.ndarray, traffic: float) -> None:
        moved = self.log_lambda + self.step * traffic / self.elasticity * projected
        self.log_lambda = np.where(self.has_budget, np.clip(moved, 0.0, self.max_log), self.log_lambda)

    def _read_elasticity(self, projected: np.ndarray, mean_log: np.ndarray) -> None:
        change = mean_log - self.last_log
        is_telling = (np.abs(change) > TELLING) & np.isfinite(self.last_projected)
        seen = (self.last_projected - projected) / np.where(is_telling, change, 1.0)
        seen = np.clip(np.where(is_telling, seen, self.elasticity), *ELASTICITIES)
        self.elasticity = (self.elasticity + seen) / 2.0
        self.last_log, self.last_projected = mean_log, projected

    @property
    def lambdas(self) -> np.ndarray:
        """What each advertiser divides its values by.  [m] >= 1"""
        return np.exp(self.log_lambda)

    def bids(self, now: MarketTime) -> np.ndarray:
        return self.payable / self.lambdas[self.owner]
