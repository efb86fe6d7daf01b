"""A bidder that never changes its bids."""

import numpy as np

from cascade_sim.agents.bidding import Bidder, MarketTime, Portfolio, number


class Fixed(Bidder):
    """Fixed bids: bid = factor * value; 0 for an advertiser whose budget is 0.

    Args:
        portfolio: values and budgets of the advertisers.
        factor: share of the value that is bid, >= 0.

    >>> portfolio = Portfolio(np.array([0.4, 0.6]), np.array([0, 0]), np.array([0.1, 0.2]), np.array([10**6]))
    >>> noon = MarketTime(time=43200.0, day=0, elapsed=0.5, expected_traffic=0.5)
    >>> Fixed(portfolio, factor=0.5).bids(noon).tolist()
    [0.2, 0.3]
    """

    def __init__(self, portfolio: Portfolio, factor: float = 1.0) -> None:
        super().__init__(portfolio)
        self.factor = number("factor", factor, 0.0)

    def bids(self, now: MarketTime) -> np.ndarray:
        return self.factor * self.payable
