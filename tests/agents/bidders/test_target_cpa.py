"""Target CPA: the realised cost per conversion comes to the target, also with late conversions."""

import numpy as np
import pytest

from cascade_sim.agents.bidders.target_cpa import TargetCpa
from cascade_sim.agents.bidding import MICROS, Feedback, MarketTime, Portfolio
from worlds.synthetic_market import SyntheticMarket


def realised(history, bidder, first_day):
    """Realised CPA as a multiple of the target.  [m]"""
    conversions = history.conversions[first_day:].sum(axis=(0, 1))
    return history.spend[first_day:].sum(axis=(0, 1)) / np.maximum(conversions, 1) / bidder.target


@pytest.mark.drill
@pytest.mark.parametrize("minutes", [5, 15])
@pytest.mark.parametrize("cpa", [None, 6.0])
def test_the_realised_cpa_comes_to_the_target_though_the_platform_predicts_badly(minutes, cpa):
    market = SyntheticMarket(
        m=200, seed=4, pricing="first", no_budget=True, pcvr_error=0.4, clicks_per_day=(500.0, 5000.0)
    )
    bidder = TargetCpa(market.portfolio, cpa=cpa)
    history = market.run(bidder, days=6, minutes=minutes)
    ratio = realised(history, bidder, first_day=2)
    assert np.median(ratio) == pytest.approx(1.0, abs=0.03)
    assert np.mean(np.abs(ratio - 1.0) < 0.1) > 0.9
    weight = history.conversions[2:].sum(axis=(0, 1)) * bidder.target
    assert history.spend[2:].sum() / weight.sum() == pytest.approx(1.0, abs=0.05)


def test_in_a_second_price_market_it_bids_more_until_the_target_is_reached_or_the_bound():
    market = SyntheticMarket(m=200, seed=4, no_budget=True, pcvr_error=0.4, clicks_per_day=(500.0, 5000.0))
    bidder = TargetCpa(market.portfolio, cpa=6.0)
    ratio = realised(market.run(bidder, days=6, minutes=15), bidder, first_day=2)
    is_inside = np.abs(bidder.log_correction) < 0.95 * bidder.max_log
    assert is_inside.mean() > 0.7
    assert np.mean(np.abs(ratio[is_inside] - 1.0) < 0.1) > 0.9
    assert (ratio < 1.15).all()  # where it could win all there is, it stays below its target


TWO = Portfolio(np.array([1.0, 3.0]), np.array([0, 0]), np.array([0.1, 0.2]), np.array([2**60]))
NOON = MarketTime(43200.0, 0, 0.5, 0.5)


def tell(bidder, spend, conversions, time):
    zero = np.zeros(1, dtype=np.int64)
    feedback = Feedback(zero, zero + 1, zero + int(spend * MICROS), zero + conversions, zero, zero)
    bidder.observe(feedback, MarketTime(time, 0, 0.5, 0.5))


def test_the_first_bids_are_the_target_times_the_conversion_rate_or_the_value():
    assert TargetCpa(TWO).bids(NOON).tolist() == [1.0, 3.0]
    assert TargetCpa(TWO, cpa=5.0).bids(NOON) == pytest.approx([5.0 * 0.1, 5.0 * 0.2])
    assert TargetCpa(TWO).target == pytest.approx(MICROS * (1.0 + 3.0) / (0.1 + 0.2))


def test_the_correction_moves_by_what_conversions_were_worth_above_their_cost():
    bidder = TargetCpa(TWO, cpa=5.0, k=0.5, prior=4.0)
    tell(bidder, spend=30.0, conversions=8, time=900.0)
    assert bidder.log_correction == pytest.approx(0.5 * (8 * 5 - 30) / (30 + 4 * 5))


def test_spend_whose_conversions_cannot_have_come_yet_does_not_count():
    bidder = TargetCpa(TWO, cpa=5.0, delay=3600.0, prior=4.0)
    tell(bidder, spend=30.0, conversions=0, time=36.0)
    due = 30.0 * (1 - np.exp(-36 / 3600))
    assert bidder.log_correction == pytest.approx(-due / (due + 4 * 5))
    hasty = TargetCpa(TWO, cpa=5.0, prior=4.0)
    tell(hasty, spend=30.0, conversions=0, time=36.0)
    assert hasty.log_correction < 10 * bidder.log_correction


def test_late_conversions_do_not_lower_the_bids_for_long_when_the_delay_is_known():
    """6 conversions worth 5 each per 30 spent, an hour late."""
    known, unknown = TargetCpa(TWO, cpa=5.0, delay=3600.0), TargetCpa(TWO, cpa=5.0)
    for i in range(1, 13):
        for bidder in (known, unknown):
            tell(bidder, 30.0, 0 if i < 5 else 6, 900.0 * i)
    assert np.abs(known.log_correction) < np.abs(unknown.log_correction)


def test_an_ad_that_never_converts_is_not_bid_for():
    never = Portfolio(np.ones(2), np.array([0, 1]), np.array([0.0, 0.1]), np.array([2**60, 2**60]))
    assert TargetCpa(never, cpa=5.0).bids(NOON) == pytest.approx([0.0, 0.5])
    assert TargetCpa(never).bids(NOON) == pytest.approx([0.0, 1.0])
