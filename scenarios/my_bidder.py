"""What this is: a bidder of one's own. What to do with it: change the rule, name the class in a scenario as
`kind: path/to/my_bidder.py:Frugal` (from the working folder or beside the scenario), and test it first:

    python -m cascade_sim check-bidder my_bidder.py:Frugal
"""

import numpy as np

from cascade_sim.agents.bidding import MICROS, Bidder, Feedback, MarketTime, Portfolio


class Frugal(Bidder):
    """Bids a share of the value that follows the return: lower when a click brings less than `margin`.

    return = (value of the clicks - spend) / value of the clicks, since the last update;
    share <- share * (1 + step) where the return is above the margin, share * (1 - step) where it is below,
    within [0.1, 1]. Without clicks, the share stays.
    """

    # Everything that `observe` changes, as numpy arrays: a run that is stopped and resumed goes on from them.
    STATE = ("share",)

    # The engine gives the portfolio of all m advertisers with this bidder; what follows comes from `options`.
    def __init__(self, portfolio: Portfolio, margin: float = 0.3, step: float = 0.02) -> None:
        super().__init__(portfolio)
        if not 0.0 <= margin < 1.0:
            raise ValueError(f"option margin: expected a number in [0, 1), found {margin!r}")
        if not 0.0 < step < 1.0:
            raise ValueError(f"option step: expected a number in (0, 1), found {step!r}")
        self.margin, self.step = margin, step
        self.share = np.ones(self.n_advertisers)
        self.mean_value = self.per_advertiser(self.value)  # [m]

    # Asked at each update; the bids hold until the next. `payable` is the value, and 0 where the budget is 0.
    def bids(self, now: MarketTime) -> np.ndarray:
        """[a] bid per click of each ad, 0 or more"""
        return self.payable * self.share[self.owner]

    # Told before the next bids. All arrays are [m]: no loop over advertisers; change nothing you are given.
    def observe(self, feedback: Feedback, now: MarketTime) -> None:
        worth = feedback.clicks * self.mean_value
        profit = worth - feedback.spend_micros / MICROS
        factor = np.where(profit > self.margin * worth, 1.0 + self.step, 1.0 - self.step)
        moved = np.clip(self.share * factor, 0.1, 1.0)
        self.share = np.where(feedback.clicks > 0, moved, self.share)

    # Optional: `participation(now)` [m] in [0, 1], to take part in only a share of the requests.
