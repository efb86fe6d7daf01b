"""A cascade of four stages: sets are parts of each other, and what is true of three holds for any number."""

from dataclasses import replace

import numpy as np
import pytest

from cascade_sim.cascade.cache import BlockCache
from cascade_sim.cascade.fusion import Fusion
from cascade_sim.cascade.serve import Arm, Retrieve, Stage, serve, shadow
from worlds.cascades import decided, with_stage_of


@pytest.fixture(scope="module")
def four(sim):
    """Two steps of pre-ranking that know little, then the truth."""
    random, truth = sim.scorers["random"], sim.scorers["truth"]
    stages = (
        Stage(random, "none", Fusion(), size=40, name="coarse"),
        Stage(random, "init", Fusion(), size=12, name="pre_ranking"),
        Stage(truth, "opt", Fusion()),
    )
    return Arm("four", Retrieve(sim.retriever, 60), stages, slots=3)


def test_each_stage_hands_on_a_part_of_what_it_was_handed(sim, block, four):
    found = sim.serve(block, four)
    assert [ids.shape[1] for ids in found.sets] == [60, 40, 12, 3]
    assert four.set_names == ("coarse_set", "pre_ranking_set", "competitive_set", "win_set")
    for whole, part in zip(found.sets, found.sets[1:], strict=False):
        assert all(set(part[r]) <= set(whole[r]) for r in range(len(block)))


def test_a_memo_changes_nothing_and_a_stage_that_hands_on_all_changes_nothing(sim, block, four):
    plain, kept = sim.serve(block, four), sim.serve(replace(block, memo=BlockCache()), four)
    for name, values in decided(plain).items():
        assert np.array_equal(values, decided(kept)[name]), name
    open_gate = four.with_stage(0, size=60)
    without = replace(four, stages=four.stages[1:])
    assert np.array_equal(sim.serve(block, open_gate).win_set, sim.serve(block, without).win_set)


def test_with_ranking_in_every_stage_the_page_is_the_ideal_one(sim, block, four):
    known = with_stage_of(with_stage_of(four, 0, four.last), 1, four.last)
    assert np.array_equal(sim.serve(block, known).win_set, sim.serve(block, shadow(four)).win_set)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_any_stage_may_have_to_answer(sim, block, four, place):
    by = np.where(np.arange(len(block)) % 2, len(four.stages), place).astype(np.int8)
    in_time, late = sim.serve(block, four), serve(block, four, sim.platform, by)
    is_late = by == place
    assert np.array_equal(late.win_set[~is_late], in_time.win_set[~is_late])
    assert (late.win_set[is_late] >= 0).all() and (late.win_set[is_late] != in_time.win_set[is_late]).any()
    if place:  # it answers from what it handed on, and no later stage saw anything
        answered = late.passes[place].ids[is_late]
        assert all(set(page) <= set(ids) for page, ids in zip(late.win_set[is_late], answered, strict=True))
        assert all((one.ids[is_late] == -1).all() for one in late.passes[place + 1 :])
