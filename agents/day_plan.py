"""Progress of an advertiser in its day: the share of the budget spent beside the share of traffic gone."""

from dataclasses import dataclass

import numpy as np

from cascade_sim.agents.bidding import Bidder, Feedback, MarketTime, Portfolio

DRY = 0.999  # from this share on, a budget counts as spent
FASTEST = 2.0  # catching up is planned at no more than this multiple of an even pace
HORIZON = 0.15  # within this share of the day's traffic, a lead or a lag is to be made good


@dataclass(frozen=True)
class Step:
    """What an update brought, in shares of a day's budget and of a day's traffic."""

    traffic: float  # share of the day's traffic expected since the last update
    spent: np.ndarray  # [m] share of the budget spent since the last update
    planned: np.ndarray  # [m] share that was to be spent
    live: np.ndarray  # [m] bool: the budget was not yet spent when the update began
    ended: bool  # a day has ended with this update

    @property
    def error(self) -> np.ndarray:
        """planned - spent: above 0 when too little was spent.  [m]"""
        return self.planned - self.spent


class DayBidder(Bidder):
    """A bidder that knows its plan for the day: spend in proportion to the traffic, and be done at its end.

    With S the share of the budget spent and X the share of traffic gone, the plan for an update with the
    traffic share dx is  dx * pace,  pace = clip(1 + (X - S) / min(HORIZON, 1 - X), 0, FASTEST):  a lead or a
    lag is made good within the horizon; near the day's end pace = (1 - S) / (1 - X), and what is left of the
    budget goes to the traffic that is left.
    A budget spent before the end is `dry_at` the traffic share X of that moment (1 otherwise).
    S, X and dry_at begin anew with each day. An update that reaches into the next day is closed as the last
    one of the old day; what it spent in the new day is only counted as spent.
    """

    STATE: tuple[str, ...] = ("day", "traffic", "spent", "clicks", "dry_at")

    def __init__(self, portfolio: Portfolio) -> None:
        super().__init__(portfolio)
        self.day = np.array(-1, dtype=np.int64)  # none yet
        self.traffic = np.array(0.0)
        self.spent = np.zeros(self.n_advertisers)
        self.clicks = np.zeros(self.n_advertisers)
        self.dry_at = np.ones(self.n_advertisers)

    def advance(self, feedback: Feedback, now: MarketTime) -> Step:
        """Take an update into the account of the day. When a day has ended, call `begin_day` after it."""
        share = np.asarray(feedback.spend_micros, dtype=np.float64) / self.budget_or_one
        ended = 0 <= int(self.day) != now.day
        if not ended:
            self.day = np.array(now.day, dtype=np.int64)
        reached = 1.0 if ended else max(now.expected_traffic, float(self.traffic))
        if ended:  # less what already belongs to the new day
            share = share - np.minimum(share, self._in_new_day(feedback, now))
        traffic = reached - float(self.traffic)
        pace = self.pace()
        live = (self.spent < DRY) & self.has_budget
        self.spent = self.spent + share
        self.clicks = self.clicks + feedback.clicks
        self.traffic = np.array(reached)
        self.dry_at = np.where(live & (self.spent >= DRY), reached, self.dry_at)
        return Step(traffic, share, pace * traffic, live, ended)

    def begin_day(self, feedback: Feedback, now: MarketTime) -> None:
        """Start the account of the day of `now`."""
        self.day = np.array(now.day, dtype=np.int64)
        self.traffic = np.array(float(now.expected_traffic))
        self.spent = self._in_new_day(feedback, now)
        self.clicks = np.zeros(self.n_advertisers)
        self.dry_at = np.where(self.spent >= DRY, now.expected_traffic, 1.0)

    def _in_new_day(self, feedback: Feedback, now: MarketTime) -> np.ndarray:
        """Share of the new day's budget that an update has already spent. At midnight: nothing."""
        if now.elapsed <= 0.0:
            return np.zeros(self.n_advertisers)
        return np.asarray(feedback.spend_today_micros, dtype=np.float64) / self.budget_or_one

    def pace(self) -> np.ndarray:
        """Share of the budget to spend per share of traffic from now on: 1 when on plan.  [m] in [0, 2]"""
        left = np.clip(1.0 - float(self.traffic), 1e-9, HORIZON)
        pace = np.clip(1.0 + (self.traffic - self.spent) / left, 0.0, FASTEST)
        return np.where(self.spent < 1.0, pace, 0.0)

    def noise(self) -> np.ndarray:
        """Standard deviation of `spent` if clicks come by chance: S / sqrt(clicks).  [m]"""
        return self.spent / np.sqrt(np.maximum(self.clicks, 1.0))
