"""The budget multiplier: one factor per advertiser, such that the budget is just spent."""

import numpy as np

from agents.bidding import Feedback, Moment, Portfolio, number, one_of
from agents.day_plan import DayBidder

EARLY = 0.05  # traffic share before which a day's spend is too little to project from
LARGEST_RATIO = 10.0  # projections are trusted within this factor


class Multiplier(DayBidder):
    """bid = value / lambda, lambda in [1, max_lambda]: the pacing equilibrium, approached step by step.

    projected = S / X: the share of the budget that the day would spend; X is the traffic while it lasted.
    every = "day": at the end of each day     ln lambda <- ln lambda + step * ln projected.
    every = "update": after each update       ln lambda <- ln lambda + step * dx * ln projected,
    dx the update's share of the day's traffic. Both clipped to [0, ln max_lambda], so that an advertiser who
    spends less than its budget ends at lambda = 1. A day without any traffic or spend at lambda 1 changes
    nothing. A new day keeps lambda and counts from 0.
    """

    STATE = (*DayBidder.STATE, "log_lambda")

    def __init__(
        self, portfolio: Portfolio, step: float = 0.5, every: str = "day", max_lambda: float = 100.0
    ) -> None:
        super().__init__(portfolio)
        self.step = number("step", step, 0.0, 10.0, above=True)
        self.every = one_of("every", every, ("day", "update"))
        self.max_log = float(np.log(number("max_lambda", max_lambda, 1.0, 1e6, above=True)))
        self.log_lambda = np.zeros(self.n_advertisers)

    def observe(self, feedback: Feedback, moment: Moment) -> None:
        update = self.advance(feedback, moment)
        if self.every == "update":
            if float(self.traffic) >= EARLY:
                self._move(self.step * update.traffic)
        elif update.ended:
            self._move(self.step)
        if update.ended:
            self.begin_day(feedback, moment)

    def _move(self, size: float) -> None:
        lasted = np.minimum(self.dry_at, float(self.traffic))
        projected = self.spent / np.maximum(lasted, 1e-9)
        change = size * np.log(np.clip(projected, 1.0 / LARGEST_RATIO, LARGEST_RATIO))
        self.log_lambda = np.where(
            self.has_budget, np.clip(self.log_lambda + change, 0.0, self.max_log), self.log_lambda
        )

    @property
    def lambdas(self) -> np.ndarray:
        """[m] >= 1"""
        return np.exp(self.log_lambda)

    def bids(self, moment: Moment) -> np.ndarray:
        return self.payable / self.lambdas[self.owner]
