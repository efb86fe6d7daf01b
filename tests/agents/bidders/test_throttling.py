"""The rule of throttling, step by step."""

import numpy as np
import pytest

from cascade_sim.agents.bidders.throttling import Throttling
from cascade_sim.agents.bidding import Feedback, MarketTime, Portfolio
from cascade_sim.agents.day_plan import HORIZON

BUDGET = 1_000_000


def throttling(**options):
    return Throttling(Portfolio(np.array([2.0]), np.array([0]), np.ones(1), np.array([BUDGET])), **options)


def tell(bidder, spend, x, clicks=10_000, day=0):
    now = MarketTime((day + x) * 86400.0, day, x, x)
    zero = np.zeros(1, dtype=np.int64)
    bidder.observe(Feedback(zero, zero + clicks, zero + int(spend), zero, zero, zero), now)
    return bidder.participation(now)


def test_the_share_of_requests_is_the_pace_over_the_unthrottled_rate():
    bidder = throttling(caution=0.0)
    passing = tell(bidder, 0.2 * BUDGET, 0.1)
    rate = 0.2 / (bidder.PRIOR + 0.1)
    assert passing == pytest.approx((1 - (0.2 - 0.1) / HORIZON) / rate)
    assert bidder.bids(MarketTime(0.0, 0, 0.1, 0.1)).tolist() == [2.0]  # bids stay at the value


def test_it_falls_while_the_share_spent_leads_the_traffic_and_rises_when_it_lags():
    bidder = throttling(window=30.0)
    at_first = tell(bidder, 0.12 * BUDGET, 0.1)
    ahead = tell(bidder, 0.12 * BUDGET, 0.2)
    assert ahead < at_first < 1.0
    assert tell(bidder, 0.0, 0.3, clicks=0) > ahead


def test_a_rate_that_chance_explains_does_not_throttle():
    assert tell(throttling(caution=2.0), 0.12 * BUDGET, 0.1, clicks=9) == 1.0
    assert tell(throttling(caution=2.0), 0.12 * BUDGET, 0.1, clicks=900) < 1.0


def test_a_spent_budget_goes_to_the_floor_and_a_new_day_opens_again_at_the_learned_rate():
    bidder = throttling(floor=0.02, window=30.0, caution=0.0)
    for i in range(1, 5):
        tell(bidder, 0.2 * BUDGET, i / 20)  # four times as fast as the budget lasts, whatever it passes on
    assert tell(bidder, 0.2 * BUDGET, 0.25) == 0.02
    passing = tell(bidder, 0, 0.0, clicks=0, day=1)
    assert 0.02 < passing < 1.0
    assert passing == pytest.approx(bidder.seen_traffic / bidder.seen_spend, rel=0.05)
