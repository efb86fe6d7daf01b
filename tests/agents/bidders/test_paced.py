"""The rules of adaptive and PID pacing, step by step."""

import numpy as np
import pytest

from cascade_sim.agents.bidders.paced import JUMP, Adaptive, Pid
from cascade_sim.agents.bidding import Feedback, MarketTime, Portfolio

BUDGET = 1_000_000
LARGE_COUNT = 10_000  # so many clicks that chance plays no part


def portfolio(m=1):
    return Portfolio(np.full(m, 2.0), np.arange(m), np.ones(m), np.full(m, BUDGET, dtype=np.int64))


def tell(bidder, spend, x, clicks=LARGE_COUNT, day=0):
    spend = np.atleast_1d(np.asarray(spend, dtype=np.int64))
    zero = np.zeros_like(spend)
    now = MarketTime((day + x) * 86400.0, day, x, x)
    bidder.observe(Feedback(zero, zero + clicks, spend, zero, zero, zero), now)
    return bidder.bids(now)


def test_adaptive_pacing_moves_mu_by_epsilon_times_the_error():
    bidder = Adaptive(portfolio(), epsilon=10.0)
    bids = tell(bidder, BUDGET // 5, 0.1)  # 10 % of the traffic, 20 % of the budget
    assert bidder.mu == pytest.approx(np.exp(10 * (0.2 - 0.1)) - 1)
    assert bids == pytest.approx(2.0 / (1 + bidder.mu))


def test_mu_stays_between_0_and_its_bound():
    bidder = Adaptive(portfolio(), epsilon=100.0, max_mu=3.0)
    assert tell(bidder, BUDGET // 2, 0.01) == pytest.approx(2.0 / (1 + 3.0))
    for i in range(2, 60):
        bids = tell(bidder, 0, i / 100)
    assert bids == pytest.approx(2.0) and bidder.mu == 0.0


@pytest.mark.parametrize("cls", [Adaptive, Pid])
def test_spend_below_plan_leaves_full_bids_and_charges_nothing_up(cls):
    bidder = cls(portfolio())
    for i in range(1, 50):
        assert tell(bidder, BUDGET // 200, i / 100) == 2.0
    # No credit was gathered: a burst is answered at once.
    assert tell(bidder, BUDGET * 6 // 10, 0.5) < 1.5


@pytest.mark.parametrize("cls", [Adaptive, Pid])
def test_a_lead_that_chance_explains_is_not_answered(cls):
    assert tell(cls(portfolio()), BUDGET // 5, 0.1, clicks=4) == 2.0  # 0.2 +- 0.1 against 0.1
    assert tell(cls(portfolio()), BUDGET // 5, 0.1, clicks=400) < 2.0  # 0.2 +- 0.01


def test_a_single_click_does_not_move_the_level_further_than_a_jump():
    bidder = Adaptive(portfolio(), epsilon=100.0)
    tell(bidder, 9 * BUDGET // 10, 0.01, clicks=9)
    per_budget = (9 + 1) / 0.9
    assert bidder.level == pytest.approx(-JUMP * per_budget * (0.9 - 0.01))


def test_pid_is_the_sum_of_its_three_parts():
    k_p, k_i, k_d, window = 0.5, 8.0, 0.2, 0.1
    bidder = Pid(portfolio(), k_p=k_p, k_i=k_i, k_d=k_d, window=window)
    bids = tell(bidder, BUDGET // 5, 0.1)
    error = 0.1 - 0.2
    e = (1 - np.exp(-0.1 / window)) / 0.1 * error
    assert bids == pytest.approx(2.0 * np.exp(k_p * e + k_i * error + k_d * (e - 0)))


def test_phi_and_the_integral_are_clamped_so_that_nothing_winds_up():
    bidder = Pid(portfolio(), max_phi=1.0, k_i=100.0)
    assert tell(bidder, BUDGET // 2, 0.01) == pytest.approx(2.0 * np.exp(-1.0))
    assert bidder.level == -1.0
    bids = [float(tell(bidder, 0, i / 100)[0]) for i in range(2, 50)]
    assert bids[-1] == 2.0  # a far larger integral would still hold it down


@pytest.mark.parametrize("cls", [Adaptive, Pid])
def test_spend_already_over_the_budget_is_borne(cls):
    bidder = cls(portfolio())
    bids = tell(bidder, 2 * BUDGET, 0.3)
    assert np.isfinite(bids).all() and (bids >= 0).all()
    assert tell(bidder, 0, 0.4) == pytest.approx(bids)  # a spent budget teaches nothing more


@pytest.mark.parametrize("cls", [Adaptive, Pid])
def test_a_new_day_keeps_the_level_and_forgets_the_plan(cls):
    bidder = cls(portfolio())
    for i in range(1, 20):
        tell(bidder, BUDGET // 19, i / 20)
    level = bidder.level.copy()
    tell(bidder, 0, 0.0, day=1)
    assert bidder.spent == 0.0 and bidder.traffic == 0.0
    assert bidder.level <= level + 1e-12 and bidder.level < 0.0  # it ran dry at 0.95: no higher than before
    if cls is Pid:
        assert bidder.rate_error == 0.0 and bidder.phi == bidder.level


def test_a_budget_that_ran_dry_begins_the_next_day_lower():
    bidder = Adaptive(portfolio(), epsilon=1e-6)  # all but still during the day
    tell(bidder, BUDGET // 2, 0.2)
    tell(bidder, BUDGET // 2, 0.4)
    tell(bidder, 0, 0.0, day=1)
    assert bidder.level == pytest.approx(np.log(0.4) / 2, abs=1e-4)


def test_budgets_of_different_sizes_are_paced_alike():
    budgets = np.array([10**6, 10**9, 10**12], dtype=np.int64)
    bidder = Pid(Portfolio(np.ones(3), np.arange(3), np.ones(3), budgets))
    for i in range(1, 10):
        bids = tell(bidder, budgets // 5, i / 20)
    assert bids[0] == pytest.approx(bids[1]) == pytest.approx(bids[2]) and bids[0] < 0.5
