"""Adaptive pacing, PID pacing and throttling on a synthetic market.

Budgets are spent, evenly, and only budgets that bind are paced: 300 advertisers with budgets of 10 to 300 %
of what they would spend unpaced.
"""

from functools import cache

import numpy as np
import pytest

from cascade_sim.agents.bidders import BIDDERS
from worlds.synthetic_market import CTR, SyntheticMarket

PACED = ("adaptive", "pid", "throttling")
CASES = [
    (kind, minutes, seed) for kind in PACED for minutes, seed in ((2, 0), (5, 1), (10, 2), (15, 3), (15, 4))
]
FIRST_DAY_DEVIATION = 0.2  # nothing is known in the first morning
LATER_DEVIATION = 0.13
TYPICAL_DEVIATION = 0.04


@cache
def spent_without_limits(kind, minutes):
    """In a market where no budget binds."""
    market = SyntheticMarket(m=150, seed=20, ratio=(1.1, 3.0))
    return market.run(BIDDERS[kind](market.portfolio), days=1, minutes=minutes).spend.sum()


@cache
def two_days(kind, minutes, seed):
    market = SyntheticMarket(seed=seed)
    return market.run(BIDDERS[kind](market.portfolio), days=2, minutes=minutes)


def binding(market):
    """Budgets below 90 % of unpaced spend, and of 100 clicks or more: fewer cannot be even, whoever paces."""
    clicks = market.ratios * market.requests * market.sum(market.landscape(market.value)[0] * CTR)
    return (market.ratios <= 0.9) & (clicks >= 100)


@pytest.mark.drill
@pytest.mark.parametrize(("kind", "minutes", "seed"), CASES)
def test_budgets_that_bind_are_spent_to_95_percent_and_more_on_each_day(kind, minutes, seed):
    history = two_days(kind, minutes, seed)
    binds = binding(history.market)
    assert binds.sum() > 100
    for day in (0, 1):
        spent = history.spent(day)[binds]
        assert (spent <= 1.0).all() and spent.mean() > 0.99
        assert np.mean(spent >= 0.95) > 0.98 and spent.min() > 0.9


@pytest.mark.parametrize(("kind", "minutes", "seed"), CASES)
@pytest.mark.few(4)
def test_budgets_are_spent_with_the_traffic(kind, minutes, seed):
    history = two_days(kind, minutes, seed)
    binds = binding(history.market)
    assert history.deviation(0)[binds].max() < FIRST_DAY_DEVIATION
    later = history.deviation(1)[binds]
    assert later.max() < LATER_DEVIATION and np.median(later) < TYPICAL_DEVIATION


@pytest.mark.parametrize(("kind", "minutes", "seed"), CASES)
def test_budgets_that_do_not_bind_are_left_alone(kind, minutes, seed):
    history = two_days(kind, minutes, seed)
    free = history.market.ratios >= 1.1
    multiplier = history.bid[:, :, free].mean(axis=1)  # [days, advertisers]
    assert free.sum() > 50
    assert multiplier.mean() > 0.99
    assert np.mean(multiplier > 0.99) > 0.97


@pytest.mark.parametrize("kind", PACED)
@pytest.mark.parametrize("minutes", [2, 15])
@pytest.mark.few(2)
def test_budgets_that_do_not_bind_spend_what_they_would_unpaced(kind, minutes):
    """Both markets draw the same chance as long as the bids are the same."""
    unpaced = spent_without_limits("fixed", minutes)
    assert spent_without_limits(kind, minutes) == pytest.approx(unpaced, rel=0.01)


def test_unpaced_budgets_run_dry_early():
    history = two_days("fixed", 5, 1)
    market = history.market
    tight = market.ratios < 0.5
    assert (history.spent(1)[tight] == 1.0).all()
    assert (history.deviation(1)[tight] > 0.3).all()
    assert (history.spend[1, -72:][:, tight].sum(axis=0) == 0).all()  # nothing in the last 6 hours


@pytest.mark.parametrize("kind", PACED)
@pytest.mark.few(1)
def test_budgets_of_few_clicks_are_still_spent_and_free_ones_still_left_alone(kind):
    market = SyntheticMarket(seed=9, clicks_per_day=(30.0, 200.0))
    history = market.run(BIDDERS[kind](market.portfolio), days=3, minutes=5)
    assert history.spent(2)[market.ratios <= 0.9].mean() > 0.95
    assert history.bid[:, :, market.ratios >= 1.1].mean() > 0.985


@pytest.mark.parametrize("kind", PACED)
def test_a_bidder_learns_again_when_its_traffic_doubles(kind):
    market = SyntheticMarket(seed=10, ratio=(0.3, 0.6), clicks_per_day=(1000.0, 5000.0))
    bidder = BIDDERS[kind](market.portfolio)
    market.run(bidder, days=1, minutes=15)
    market.requests = market.requests * 2
    second = market.run(bidder, days=1, minutes=15)  # the moments begin at day 0 again: a day change, too
    assert second.spent(0).mean() > 0.98 and second.deviation(0).max() < 0.15
