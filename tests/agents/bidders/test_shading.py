"""Shading: how much below the value it pays to bid, in first-price and second-price markets."""

import numpy as np
import pytest

from cascade_sim.agents.bidders.fixed import Fixed
from cascade_sim.agents.bidders.shading import Shading
from cascade_sim.agents.bidding import MICROS, MarketTime
from worlds.synthetic_market import CTR, SyntheticMarket

NOW = MarketTime(0.0, 0, 0.0, 0.0)


def surplus(history, first_day):
    return (history.value[first_day:].sum() - history.spend[first_day:].sum() / MICROS).item()


def played(bidder_class, pricing, minutes, seed, clicks=(200.0, 5000.0)):
    market = SyntheticMarket(m=200, seed=seed, pricing=pricing, no_budget=True, clicks_per_day=clicks)
    bidder = bidder_class(market.portfolio)
    return market, bidder, market.run(bidder, days=5, minutes=minutes)


def best_fixed_shade(market):
    """The surplus per day of the best single shade of each advertiser, known from the landscape."""
    by_shade = []
    for shade in np.arange(0.1, 1.01, 0.02):
        won, cost = market.landscape(market.value * shade)
        by_shade.append(market.requests * market.sum(won * CTR * (market.value - cost)))
    return np.max(by_shade, axis=0).sum()


@pytest.mark.drill
@pytest.mark.parametrize(("minutes", "seed"), [(5, 1), (15, 2)])
def test_in_a_first_price_market_shading_earns_nearly_the_best_surplus(minutes, seed):
    market, bidder, shaded = played(Shading, "first", minutes, seed)
    _, _, truthful = played(Fixed, "first", minutes, seed)
    best = 2 * best_fixed_shade(market)  # of the last two days
    assert abs(surplus(truthful, 3)) < 0.05 * best  # who pays the value for a click earns nothing
    assert surplus(shaded, 3) > 0.9 * best
    assert 0.5 < np.median(bidder.shade) < 0.8


@pytest.mark.drill
@pytest.mark.parametrize(("minutes", "seed"), [(5, 1), (15, 2)])
def test_in_a_second_price_market_shading_stays_near_the_truth(minutes, seed):
    _, bidder, shaded = played(Shading, "second", minutes, seed)
    _, _, truthful = played(Fixed, "second", minutes, seed)
    assert np.median(bidder.shade) > 0.98 and np.quantile(bidder.shade, 0.1) > 0.85
    assert surplus(shaded, 3) > 0.96 * surplus(truthful, 3)


def test_with_few_clicks_shading_still_pays_in_a_first_price_market():
    market, _, shaded = played(Shading, "first", 15, 3, clicks=(30.0, 200.0))
    assert surplus(shaded, 3) > 0.8 * 2 * best_fixed_shade(market)


def test_half_of_the_updates_bid_lower_in_the_balanced_order_of_thue_and_morse():
    market = SyntheticMarket(m=1, seed=1, no_budget=True)
    bidder = Shading(market.portfolio, dither=0.25)
    order = []
    for _ in range(8):
        order.append(int(bidder.bids(NOW)[0] == pytest.approx(market.value[0])))
        bidder.updates = bidder.updates + 1
    assert order == [0, 1, 1, 0, 1, 0, 0, 1]
    bidder.updates = np.array(0)
    assert bidder.bids(NOW) == pytest.approx(0.75 * market.value)
