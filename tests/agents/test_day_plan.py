"""The account of a day: shares of budget and traffic, the plan, and what a new day forgets."""

import numpy as np
import pytest

from cascade_sim.agents.bidding import Feedback, MarketTime, Portfolio
from cascade_sim.agents.day_plan import FASTEST, HORIZON, DayBidder

BUDGET = 1_000_000


def day_bidder(budgets=(BUDGET,)):
    m = len(budgets)
    return DayBidder(Portfolio(np.ones(m), np.arange(m), np.ones(m), np.array(budgets, dtype=np.int64)))


def news(spend, today=0, clicks=1):
    spend = np.atleast_1d(spend)
    zero = np.zeros_like(spend)
    return Feedback(zero, zero + clicks, spend, zero, zero + today, zero)


def at(elapsed, day=0):
    return MarketTime((day + elapsed) * 86400.0, day, elapsed, elapsed)


def test_an_advertiser_on_plan_is_asked_for_its_share_of_the_traffic():
    bidder = day_bidder()
    step = bidder.advance(news(BUDGET // 10), at(0.1))
    assert step.traffic == pytest.approx(0.1) and step.error == pytest.approx(0.1 - 0.1)
    assert bidder.pace() == pytest.approx(1.0)


def test_a_lead_is_made_good_within_the_horizon():
    bidder = day_bidder()
    bidder.advance(news(3 * BUDGET // 20), at(0.1))
    assert bidder.pace() == pytest.approx(1.0 - (0.15 - 0.10) / HORIZON)


def test_near_the_end_what_is_left_goes_to_the_traffic_that_is_left():
    bidder = day_bidder()
    bidder.advance(news(94 * BUDGET // 100), at(0.95))
    assert bidder.pace() == pytest.approx((1 - 0.94) / (1 - 0.95))


def test_catching_up_has_a_limit_and_a_spent_budget_plans_nothing():
    bidder = day_bidder((BUDGET, BUDGET, 0))
    bidder.advance(news([0, BUDGET, 0], clicks=0), at(0.5))
    assert bidder.pace()[:2].tolist() == [FASTEST, 0.0]
    assert bidder.dry_at.tolist() == [1.0, 0.5, 1.0]
    assert bidder.advance(news([0, 0, 0]), at(0.6)).live.tolist() == [True, False, False]


@pytest.mark.parametrize("today", [0, 7 * BUDGET // 10])  # an engine may still show the old day's sum
def test_at_midnight_the_update_belongs_to_the_day_that_ends(today):
    bidder = day_bidder()
    bidder.advance(news(6 * BUDGET // 10), at(0.9))
    feedback = news(BUDGET // 10, today=today)
    step = bidder.advance(feedback, at(0.0, day=1))
    assert step.ended and step.traffic == pytest.approx(0.1) and step.spent == pytest.approx(0.1)
    assert bidder.spent == pytest.approx(0.7)
    bidder.begin_day(feedback, at(0.0, day=1))
    assert bidder.spent == 0.0 and bidder.traffic == 0.0 and bidder.clicks == 0.0 and bidder.day == 1


def test_an_update_across_midnight_is_divided_between_the_days():
    bidder = day_bidder()
    bidder.advance(news(BUDGET // 2), at(0.9))
    feedback = news(BUDGET // 5, today=BUDGET // 20)
    step = bidder.advance(feedback, at(0.05, day=1))
    assert step.spent == pytest.approx(0.20 - 0.05)
    bidder.begin_day(feedback, at(0.05, day=1))
    assert bidder.spent == pytest.approx(0.05) and bidder.traffic == pytest.approx(0.05)


def test_a_simulation_may_start_on_any_day_without_a_day_ending():
    bidder = day_bidder()
    assert not bidder.advance(news(0), at(0.1, day=5)).ended
    assert bidder.day == 5
    assert bidder.advance(news(0), at(0.0, day=6)).ended


def test_the_noise_of_spend_is_that_of_its_clicks():
    bidder = day_bidder()
    bidder.advance(news(BUDGET // 2, clicks=25), at(0.5))
    assert bidder.noise() == pytest.approx(0.5 / np.sqrt(25))
