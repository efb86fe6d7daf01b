"""Coefficients and slot effects by likelihood: what was put in comes out, and effects never rise."""

import numpy as np
import pytest

from cascade_sim.logs.fit.position_based_fit import fit_examined

EFFECTS = np.array([1.0, 0.6, 0.6, 0.3])
COEFFICIENTS = np.array([-1.5, 0.8, -0.4])


@pytest.fixture(scope="module")
def clicks():
    """Better ads stand higher up, so that slots alone would look better than they are."""
    rng = np.random.default_rng(4)
    n = 60_000
    table = np.column_stack([np.ones(n), rng.normal(size=(n, 2))])
    slot = np.clip(np.round(1.5 - table[:, 1] + rng.normal(size=n)), 0, 3).astype(np.int64)
    chance = EFFECTS[slot] / (1 + np.exp(-table @ COEFFICIENTS))
    return table, rng.random(n) < chance, slot


def test_what_was_put_in_comes_out(clicks):
    table, click, slot = clicks
    found = fit_examined(table, click, slot, 4)
    assert found.coefficients == pytest.approx(COEFFICIENTS, abs=0.06)
    assert found.effects == pytest.approx(EFFECTS, abs=0.08)
    assert found.effects[0] == 1.0 and np.all(np.diff(found.effects) <= 0)
    naive = np.array([click[slot == own].mean() for own in range(4)])
    assert abs(naive[3] / naive[0] - 0.3) > 0.1  # what a mean by slot would say


def test_effects_do_not_rise_where_a_lower_slot_is_clicked_more():
    rng = np.random.default_rng(5)
    slot = rng.integers(0, 3, 30_000)
    click = rng.random(30_000) < np.array([0.1, 0.05, 0.08])[slot]
    found = fit_examined(np.ones((30_000, 1)), click, slot, 3)
    assert found.effects[1] == pytest.approx(found.effects[2], abs=1e-4)
    assert found.effects[1] == pytest.approx(0.65, abs=0.08)


def test_a_row_that_counts_twice_is_a_row_that_is_there_twice(clicks):
    table, click, slot = (values[:4000] for values in clicks)
    count = np.random.default_rng(6).integers(0, 4, 4000)
    again = np.repeat(np.arange(4000), count)
    weighed = fit_examined(table, click, slot, 4, count.astype(float))
    repeated = fit_examined(table[again], click[again], slot[again], 4)
    assert weighed.coefficients == pytest.approx(repeated.coefficients, abs=1e-3)
    assert weighed.effects == pytest.approx(repeated.effects, abs=1e-3)


def test_weights_of_learners_are_not_below_zero(clicks):
    table, click, slot = clicks
    found = fit_examined(table, click, slot, 4, is_positive=True)
    assert found.coefficients[1] > 0.5 and found.coefficients[2] == 0.0


def test_a_start_nearby_leads_to_the_same_place(clicks):
    table, click, slot = clicks
    once = fit_examined(table, click, slot, 4)
    again = fit_examined(table, click, slot, 4, start=once)
    assert again.coefficients == pytest.approx(once.coefficients, abs=1e-3)
