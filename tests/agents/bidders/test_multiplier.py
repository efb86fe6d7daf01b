"""The budget multiplier: its rule, and the pacing equilibrium it comes to."""

import numpy as np
import pytest

from cascade_sim.agents.bidders.multiplier import FIRST_ELASTICITY, Multiplier
from cascade_sim.agents.bidding import Feedback, MarketTime, Portfolio
from worlds.synthetic_market import SyntheticMarket

BUDGET = 1_000_000


def multiplier(**options):
    return Multiplier(Portfolio(np.array([3.0]), np.array([0]), np.ones(1), np.array([BUDGET])), **options)


def tell(bidder, spend, x, day=0):
    now = MarketTime((day + x) * 86400.0, day, x, x)
    zero = np.zeros(1, dtype=np.int64)
    bidder.observe(Feedback(zero, zero + 10, zero + int(spend), zero, zero, zero), now)
    return bidder.bids(now)


def test_a_budget_spent_by_noon_raises_lambda_as_if_twice_the_budget_were_wanted():
    bidder = multiplier(step=0.5)
    assert tell(bidder, BUDGET, 0.5) == 3.0  # nothing moves during the day
    bids = tell(bidder, 0, 0.0, day=1)
    assert bidder.lambdas == pytest.approx(2.0 ** (0.5 / FIRST_ELASTICITY))
    assert bids == pytest.approx(3.0 / bidder.lambdas)


def test_each_update_moves_by_its_share_of_the_traffic():
    bidder = multiplier(step=0.5, every="update")
    tell(bidder, 0.3 * BUDGET, 0.1)
    assert bidder.log_lambda == pytest.approx(0.5 / FIRST_ELASTICITY * 0.1 * np.log(0.3 / 0.1))


def test_lambda_never_falls_below_1_and_never_rises_above_its_bound():
    bidder = multiplier(max_lambda=1.5)
    for day in range(1, 10):
        tell(bidder, 0.2 * BUDGET, 0.0, day=day)
        assert bidder.lambdas == 1.0
    for day in range(10, 30):
        tell(bidder, 0, 0.0, day=day)
        tell(bidder, BUDGET, 0.05, day=day)
    assert bidder.lambdas == pytest.approx(1.5)


@pytest.mark.drill
@pytest.mark.parametrize("every", ["day", "update"])
@pytest.mark.parametrize("seed", [1, 2])
def test_over_days_it_comes_to_the_pacing_equilibrium(every, seed):
    market = SyntheticMarket(m=200, seed=seed, clicks_per_day=(1000.0, 5000.0))
    bidder = Multiplier(market.portfolio, every=every)
    history = market.run(bidder, days=12, minutes=30)
    last = np.mean([history.spent(day) for day in range(7, 12)], axis=0)
    # Spend is at most the budget, and who spends clearly less than the budget bids the full value.
    assert (last <= 1.0).all()
    assert (history.bid[7:, :, last < 0.9].mean(axis=(0, 1)) > 0.98).all() and (last < 0.9).sum() > 30
    binds = market.ratios < 0.9
    assert last[binds].mean() > 0.95 and np.quantile(last[binds], 0.05) > 0.9
    # It lasts the day, where it ran dry in the morning at first.
    assert np.median(history.deviation(0)[binds]) > 0.5 > 0.15 > np.median(history.deviation(11)[binds])
