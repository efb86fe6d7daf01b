"""The bidder that never changes."""

import numpy as np

from cascade_sim.agents.bidders.fixed import Fixed
from worlds.synthetic_market import SyntheticMarket


def test_a_fixed_bidder_bids_its_factor_of_the_value_whatever_happens():
    market = SyntheticMarket(m=10, seed=1)
    history = market.run(Fixed(market.portfolio, factor=0.7), days=2, minutes=60)
    assert np.allclose(history.bid, 0.7) and history.spend.sum() > 0


def test_a_factor_of_0_never_spends():
    market = SyntheticMarket(m=10, seed=1)
    assert market.run(Fixed(market.portfolio, factor=0), days=1, minutes=60).spend.sum() == 0
