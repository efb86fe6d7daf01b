"""Markets with a soft floor: prices of what was shown, while budgets run dry."""

import numpy as np

from worlds.timed_market import SCARCE, live

FLOOR = 0.9


def test_a_market_charges_by_the_soft_floor_while_budgets_run_dry():
    finished = live(SCARCE, auction={"pricing": "soft_floor", "soft_floor": FLOOR})
    log = finished.log
    bid, cpc = log["bid"], log["cpc_micros"] / 1e6
    is_below = bid < FLOOR
    assert min(is_below.sum(), (~is_below).sum()) > 100
    np.testing.assert_allclose(cpc[is_below], bid[is_below], atol=1e-6)
    assert np.all(cpc[~is_below] >= FLOOR - 1e-6) and np.all(cpc <= bid + 1e-6)
    assert (cpc[~is_below] > FLOOR + 1e-6).any()
    assert (finished.run.ledger.available <= 0).any()
