"""Pacing by the bid: adaptive pacing and PID pacing. Both lower the bids until the budget lasts the day."""

import numpy as np

from cascade_sim.agents.bidding import Feedback, MarketTime, Portfolio, number
from cascade_sim.agents.day_plan import DayBidder, Step

SURPRISE = 1.5  # standard deviations by which spend must lead the plan before a free bidder is paced
RELIEF = 2.0  # standard deviations by which it must lag before a paced one at full bids is free again
TOLERANCE = 0.005  # and by at least this share of the budget
JUMP = 0.4  # the largest change of the log multiplier that a single click may cause


class PacedBidder(DayBidder):
    """What the two have in common: bid = value * exp(level), level in [-max_cut, 0], learned from errors.

    level <- clip(level + gain * (planned - spent) / budget, -max_cut, 0)

    - The gain is at most JUMP * clicks per budget: budgets of a few clicks learn slowly, not wildly.
    - An advertiser starts free (level 0) and is paced once its spend leads the traffic significantly:
      S - X > TOLERANCE + SURPRISE * noise. It is free again when its level is back at 0 and its spend lags:
      X - S > TOLERANCE + RELIEF * noise. Without this, the noise of a budget that does not bind would cost
      it bids, since the level cannot rise above 0.
    - A budget that is spent teaches nothing more that day. At the day's end, had it run dry at traffic share
      x, the level is at most (mean level while it lasted) + ln(x) / 2: as if spend went with the square of
      the bid. What that leaves to do is learned during the next day.
    - A new day keeps the level and begins a new plan.
    """

    STATE: tuple[str, ...] = (
        *DayBidder.STATE,
        "level",
        "is_paced",
        "level_sum",
        "level_traffic",
        "seen_clicks",
        "seen_spent",
    )

    def __init__(self, portfolio: Portfolio, gain: float, max_cut: float) -> None:
        super().__init__(portfolio)
        self.gain, self.max_cut = gain, max_cut
        self.level = np.zeros(self.n_advertisers)
        self.is_paced = np.zeros(self.n_advertisers, dtype=bool)
        self.level_sum = np.zeros(self.n_advertisers)  # of level * traffic, while the budget lasts
        self.level_traffic = np.zeros(self.n_advertisers)
        self.seen_clicks = np.zeros(self.n_advertisers)  # for clicks per budget; older days count less
        self.seen_spent = np.zeros(self.n_advertisers)

    def observe(self, feedback: Feedback, now: MarketTime) -> None:
        step = self.advance(feedback, now)
        self.learn(step, feedback)
        if step.ended:
            self._close_day()
            self.begin_day(feedback, now)

    def learn(self, step: Step, feedback: Feedback) -> None:
        """Move the level by what this update says of spend against the plan."""
        self.seen_clicks = self.seen_clicks + feedback.clicks
        self.seen_spent = self.seen_spent + step.spent
        clicks_per_budget = (self.seen_clicks + 1.0) / np.maximum(self.seen_spent, 1e-12)
        gain = np.minimum(self.gain, JUMP * clicks_per_budget)
        self.level_sum = self.level_sum + np.where(step.live, self.level * step.traffic, 0.0)
        self.level_traffic = self.level_traffic + np.where(step.live, step.traffic, 0.0)

        lead = self.spent - float(self.traffic)
        is_ahead = (lead > TOLERANCE + SURPRISE * self.noise()) & step.live
        is_paced = self.is_paced | is_ahead
        moved = np.clip(self.level + gain * step.error, -self.max_cut, 0.0)
        self.level = np.where(is_paced & step.live, moved, self.level)
        is_behind = -lead > TOLERANCE + RELIEF * self.noise()
        self.is_paced = is_paced & ~(is_behind & (self.level >= 0.0))

    def _close_day(self) -> None:
        budget_exhausted = self.dry_at < 1.0
        mean_level = self.level_sum / np.maximum(self.level_traffic, 1e-9)
        lasting = mean_level + np.log(np.clip(self.dry_at, 1e-3, 1.0)) / 2.0
        lower = np.maximum(np.minimum(self.level, lasting), -self.max_cut)
        self.level = np.where(budget_exhausted, lower, self.level)
        self.is_paced = self.is_paced | (budget_exhausted & (self.level < 0.0))
        self.level_sum = np.zeros(self.n_advertisers)
        self.level_traffic = np.zeros(self.n_advertisers)
        self.seen_clicks, self.seen_spent = self.seen_clicks / 2.0, self.seen_spent / 2.0

    def multiplier(self) -> np.ndarray:
        """What each advertiser bids as a share of its value.  [m] in (0, 1]"""
        return np.exp(self.level)

    def bids(self, now: MarketTime) -> np.ndarray:
        return self.payable * self.multiplier()[self.owner]


class Adaptive(PacedBidder):
    """Adaptive pacing: bid = value / (1 + mu), mu in [0, max_mu].

    mu <- mu - epsilon * (1 + mu) * (planned - spent) / budget, clipped, in its exact exponential form
    1 + mu <- (1 + mu) * exp(-epsilon * (planned - spent) / budget): one epsilon serves every size of budget
    and every mu. When it acts and when it holds still: see PacedBidder (its level is -ln(1 + mu)).

    Args:
        portfolio: values, owners and budgets of the advertisers.
        epsilon: gain, in (0, 100].
        max_mu: upper bound of mu, in (0, 1e6].

    >>> portfolio = Portfolio(np.array([0.4, 0.6]), np.array([0, 0]), np.array([0.1, 0.2]), np.array([10**6]))
    >>> noon = MarketTime(time=43200.0, day=0, elapsed=0.5, expected_traffic=0.5)
    >>> Adaptive(portfolio).bids(noon).tolist()
    [0.4, 0.6]
    """

    def __init__(self, portfolio: Portfolio, epsilon: float = 15.0, max_mu: float = 99.0) -> None:
        gain = number("epsilon", epsilon, 0.0, 100.0, above=True)
        super().__init__(portfolio, gain, float(np.log1p(number("max_mu", max_mu, 0.0, 1e6, above=True))))

    @property
    def mu(self) -> np.ndarray:
        """The price of a unit of budget.  [m] >= 0"""
        return np.expm1(-self.level)


class Pid(PacedBidder):
    """PID pacing: bid = value * exp(phi), phi = clip(k_p e + I + k_d (e - e_before), -max_phi, 0).

    e, the error of the spend rate: (planned - spent) / (budget * traffic share), averaged over the last
    `window` of the day's traffic by exponential weights, so it does not depend on the update interval.
    I <- clip(I + k_i * (planned - spent) / budget, -max_phi, 0): the integral. Being clipped itself, it
    cannot wind up while phi is at a bound, nor while the budget is spent. I is the level of PacedBidder,
    which says when it acts; a free advertiser has phi = 0. A new day keeps I and forgets e.

    Args:
        portfolio: values, owners and budgets of the advertisers.
        k_p: proportional gain, in [0, 10].
        k_i: integral gain, in (0, 100].
        k_d: derivative gain, in [0, 10].
        max_phi: bound of |phi|, in (0, 20].
        window: averaging window of the error, share of the day's traffic, in (0, 1].

    >>> portfolio = Portfolio(np.array([0.4, 0.6]), np.array([0, 0]), np.array([0.1, 0.2]), np.array([10**6]))
    >>> noon = MarketTime(time=43200.0, day=0, elapsed=0.5, expected_traffic=0.5)
    >>> Pid(portfolio).bids(noon).tolist()
    [0.4, 0.6]
    """

    STATE = (*PacedBidder.STATE, "rate_error", "phi")

    def __init__(
        self,
        portfolio: Portfolio,
        k_p: float = 0.3,
        k_i: float = 15.0,
        k_d: float = 0.1,
        max_phi: float = 5.0,
        window: float = 0.05,
    ) -> None:
        gain = number("k_i", k_i, 0.0, 100.0, above=True)
        super().__init__(portfolio, gain, number("max_phi", max_phi, 0.0, 20.0, above=True))
        self.k_p = number("k_p", k_p, 0.0, 10.0)
        self.k_d = number("k_d", k_d, 0.0, 10.0)
        self.window = number("window", window, 0.0, 1.0, above=True)
        self.rate_error = np.zeros(self.n_advertisers)
        self.phi = np.zeros(self.n_advertisers)

    def learn(self, step: Step, feedback: Feedback) -> None:
        super().learn(step, feedback)
        before = self.rate_error
        # Exponential average of the error per traffic; without traffic, the limit of (1 - keep) / dx.
        keep = np.exp(-step.traffic / self.window)
        per_traffic = (1.0 - keep) / step.traffic if step.traffic > 0.0 else 1.0 / self.window
        now = keep * before + per_traffic * step.error
        self.rate_error = np.where(step.live, np.clip(now, -1.0, 1.0), before)
        change = self.rate_error - before
        if step.ended:
            self.rate_error = np.zeros(self.n_advertisers)
            change = np.zeros(self.n_advertisers)
        moved = np.clip(self.k_p * self.rate_error + self.level + self.k_d * change, -self.max_cut, 0.0)
        self.phi = np.where(self.is_paced, moved, 0.0)

    def _close_day(self) -> None:
        super()._close_day()
        self.phi = np.where(self.is_paced, self.level, 0.0)

    def multiplier(self) -> np.ndarray:
        return np.exp(self.phi)
