"""The rows of the market's log that a trainer keeps."""

import numpy as np

from cascade_sim.market.trainer import REPLAYED, RecentImpressions
from worlds.learning_market import learning_scenario, learning_sim, live_and_learn


def test_young_rows_are_kept_in_the_order_of_the_log_and_old_ones_forgotten():
    found = live_and_learn(learning_sim(learning_scenario({"days": 0.004})))
    recent = RecentImpressions()
    for settled in found.settled:
        recent.add(settled, found.sim.world.slot_effects)
    log, whole = found.log, recent.state()
    assert set(whole) == set(REPLAYED) and np.array_equal(whole["request"], log["request"])
    for name, logged in (("ad", "ad"), ("click", "click"), ("examination", "examination")):
        assert np.array_equal(whole[name], log[logged])
    middle = float(np.median(log["time"]))
    young = recent.since(middle)
    assert np.array_equal(young["ad"], log["ad"][log["time"] > middle]) and 0 < len(young["ad"]) < len(
        log["ad"]
    )
    assert np.array_equal(recent.state()["request"], young["request"])  # the others are gone


def test_a_state_comes_back_and_nothing_is_a_state_too():
    empty = RecentImpressions()
    assert all(len(column) == 0 and column.dtype == REPLAYED[name] for name, column in empty.state().items())
    state = {name: np.arange(3).astype(dtype) for name, dtype in REPLAYED.items()}
    again = RecentImpressions()
    again.restore(state)
    assert all(np.array_equal(again.state()[name], state[name]) for name in REPLAYED)
