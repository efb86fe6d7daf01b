"""Who is treated: the declared share, the same ones whenever it is asked, and nobody before the trial."""

import numpy as np
import pytest

from answers.told import refused
from cascade_sim.cascade.serve import Block
from cascade_sim.experiments.assignment import Assignment
from cascade_sim.foundation import random as draws
from worlds.tiny_market import part_of, z_score

DAY = 86_400.0


def traffic(n=20_000, days=10.0):
    rng = np.random.default_rng(1)
    times = np.sort(rng.random(n)) * days * DAY
    return Block(np.arange(n), rng.integers(0, 5000, n).astype(np.int32), np.zeros(n, np.float32), times)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.8])
@pytest.mark.parametrize("unit", ["request", "user", "switchback"])
def test_the_declared_share_of_units_is_treated(unit, share):
    block = traffic()
    treated = Assignment(unit, 7, share, 0.0, 600.0).is_treated(block)
    units = {"request": block.requests, "user": block.users, "switchback": block.times // 600}[unit]
    arms = {one: set(treated[units == one]) for one in np.unique(units)[:300]}
    assert all(len(arm) == 1 for arm in arms.values())  # a unit is wholly in one arm
    first = np.unique(units, return_index=True)[1]
    assert abs(z_score(treated[first].sum(), np.full(len(first), share))) < 4


@pytest.mark.parametrize("unit", ["request", "user", "switchback"])
def test_an_assignment_is_a_draw_by_key_however_requests_are_cut(unit):
    block = traffic(500)
    one = Assignment(unit, 7, 0.5, 0.0, 7200.0)
    ids = {"request": block.requests, "user": block.users, "switchback": (block.times // 7200).astype(int)}
    whole = one.is_treated(block)
    assert whole.tolist() == (draws.uniform(7, "assignment", ids[unit]) < 0.5).tolist()
    again = [one.is_treated(part_of(block, slice(i, i + 1)))[0] for i in range(0, 500, 50)]
    assert again == whole[::50].tolist()
    assert (Assignment(unit, 8, 0.5, 0.0, 7200.0).is_treated(block) != whole).any()


def test_nobody_is_treated_before_the_trial_and_a_launch_treats_everybody_from_then_on():
    block = traffic(1000)
    for unit in ("request", "user", "switchback", "all"):
        treated = Assignment(unit, 7, 0.5, 3 * DAY).is_treated(block)
        assert not treated[block.times < 3 * DAY].any() and treated[block.times >= 3 * DAY].any()
    assert Assignment("all", 7, 0.5, 3 * DAY).is_treated(block)[block.times >= 3 * DAY].all()
    assert not Assignment("none", 7).is_treated(block).any()


def test_an_unknown_unit_is_refused():
    with refused("'city'", "request, user", kind=ValueError):
        Assignment("city", 1)
