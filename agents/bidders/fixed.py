"""A bidder that never changes its bids."""

import numpy as np

from cascade_sim.agents.bidding import Bidder, Moment, Portfolio, number


class Fixed(Bidder):
    """bid = factor * value, whatever happens; 0 for an advertiser whose budget is 0."""

    def __init__(self, portfolio: Portfolio, factor: float = 1.0) -> None:
        super().__init__(portfolio)
        self.factor = number("factor", factor, 0.0)

    def bids(self, moment: Moment) -> np.ndarray:
        return self.factor * self.payable
