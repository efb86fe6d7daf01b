"""Invariants of the ledger, over drawn cases: charges add up, have a click, and stay within the budget."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cascade_sim.cascade.ledger import take
from effort import examples

MANY = examples(2000)
REQUESTS, SLOTS, ADVERTISERS = 6, 3, 4
CELLS = REQUESTS * SLOTS
SIZE = 3 * CELLS + ADVERTISERS


@MANY
@given(st.binary(min_size=SIZE, max_size=SIZE))
def test_charges_have_a_click_add_up_to_revenue_and_stay_within_the_budget(drawn):
    numbers = np.frombuffer(drawn, np.uint8).astype(np.int64)
    payer = (numbers[:CELLS] % ADVERTISERS).reshape(REQUESTS, SLOTS)
    cpc = numbers[CELLS : 2 * CELLS].reshape(REQUESTS, SLOTS)
    click = (numbers[2 * CELLS : 3 * CELLS] % 2 == 0).reshape(REQUESTS, SLOTS)
    budget = numbers[3 * CELLS :] * 2
    due, left = np.where(click, cpc, 0), budget.copy()
    taken, at = np.zeros_like(due), 0
    nobody, took_part = np.full((REQUESTS, 1), -1), np.zeros(ADVERTISERS, np.int64)
    while at < REQUESTS:  # it stops behind each request that empties a purse, and goes on
        part, stopped = take(due, payer, left, nobody, took_part, at, REQUESTS)
        taken += part
        assert stopped > at
        at = stopped
    spent = np.bincount(payer.ravel(), taken.ravel(), ADVERTISERS).astype(np.int64)
    assert taken.sum() == spent.sum() == (budget - left).sum()  # revenue
    assert spent.tolist() == (budget - left).tolist()
    assert np.all(spent <= budget) and np.all(left >= 0)
    assert np.all(taken[~click] == 0) and np.all((taken >= 0) & (taken <= cpc))
    owed = np.bincount(payer.ravel(), due.ravel(), ADVERTISERS).astype(np.int64)
    assert spent.tolist() == np.minimum(owed, budget).tolist()  # nobody is let off while there is money
