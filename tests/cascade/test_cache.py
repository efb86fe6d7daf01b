"""A block with a memo is served to the same bits, and asks each model once for the same candidates."""

from dataclasses import replace

import numpy as np
import pytest

from cascade_sim.cascade.cache import BlockCache, of_pairs, of_sets, once
from cascade_sim.cascade.serve import serve, shadow
from cascade_sim.scenario.schema import resolved_arms
from worlds.cascades import decided
from worlds.tiny_market import make_block


class Counted:
    """A seat that writes down the candidates it was asked for."""

    def __init__(self, scorer, by_pair):
        self.name, self.link, self._scorer, self.by_pair = scorer.name, scorer.link, scorer, by_pair
        self.asked = []

    def predict(self, block, ids):
        self.asked.append(ids.shape)
        return self._scorer.predict(block, ids)


@pytest.fixture(scope="module")
def arms(study):
    specs = resolved_arms(study.sim.scenario)
    return {name: study.sim.arm(name, spec) for name, spec in specs.items()}


def test_every_arm_its_shadow_and_the_next_decide_the_same_from_one_memo(study, arms, block):
    kept = replace(block, memo=BlockCache())
    for arm in (*arms.values(), *map(shadow, arms.values())):
        plain = decided(serve(block, arm, study.sim.platform))
        answered = decided(serve(kept, arm, study.sim.platform))
        assert {name: array.tobytes() for name, array in plain.items()} == {
            name: array.tobytes() for name, array in answered.items()
        }, arm.name


@pytest.mark.parametrize("by_pair", [True, False])
def test_a_part_is_answered_from_the_whole_only_where_bits_allow(study, arms, block, by_pair):
    arm = next(iter(arms.values()))
    seat = Counted(arm.last.scorer, by_pair)
    arm = arm.with_stage(-1, scorer=seat)
    kept = replace(block, memo=BlockCache())
    whole = serve(kept, shadow(arm), study.sim.platform).retrieved.shape
    serve(kept, arm, study.sim.platform)
    part = (len(block), arm.most_auctioned)
    assert seat.asked == ([whole] if by_pair else [whole, part])


def test_a_set_is_found_once_by_its_key_and_what_is_said_of_it_is_kept(block):
    found, said = [], []

    @of_sets
    def first(block, n, name):
        found.append((n, name))
        return np.tile(np.arange(n, dtype=np.int32), (len(block), 1))

    @of_pairs(lambda: False)
    def value(block, ids):
        said.append(ids.shape)
        return ids * 2.0

    kept = replace(block, memo=BlockCache())
    whole = first(kept, 5, "a")
    assert first(kept, 5, "a") is whole and first(kept, 5, "b") is not whole
    assert value(kept, whole) is value(kept, whole) and len(said) == 1
    value(kept, whole.copy())  # of no set: not kept
    value(kept, whole.copy())
    assert len(said) == 3 and found == [(5, "a"), (5, "b")]
    assert first(block, 5, "a") is not first(block, 5, "a")  # without a memo nothing is


def test_some_requests_of_a_block_do_not_take_its_memo_along(block):
    assert replace(block, memo=BlockCache()).take(slice(3)).memo is None


def test_padding_and_strangers_are_computed():
    memo, whole = BlockCache(), np.array([[1, 4, 9], [0, 2, 5]], np.int32)
    assert memo.candidates("n", lambda: whole) is memo.candidates("n", lambda: whole.copy()) is whole
    memo.values("k", whole, lambda: whole * 10, True)
    for ids in ([[1, 9], [2, -1]], [[1, 8], [0, 2]], [[9, 1], [0, 2]]):
        asked = np.array(ids, np.int32)
        assert (memo.values("k", asked, lambda: np.full((2, 2), -7), True) == -7).all(), ids
    part = np.array([[4, 9], [0, 5]], np.int32)
    assert memo.values("k", part, lambda: None, True).tolist() == [[40, 90], [0, 50]]
    assert memo.values("other", part, lambda: part, True) is part


def test_other_bids_are_not_taken_for_these(study, arms, block):
    """A what-if with another bid shares the traffic, not the answer."""
    arm = next(iter(arms.values()))
    platform = study.sim.platform
    other = replace(platform, bids=platform.bids.with_bid(0, 1000.0))
    kept = replace(block, memo=BlockCache())
    serve(kept, arm, platform)
    assert serve(kept, arm, other).page.bid.tobytes() == serve(block, arm, other).page.bid.tobytes()


def test_a_stage_of_another_model_is_asked(study, arms, block):
    first, *_ = arms.values()
    seat = Counted(first.last.scorer, True)
    kept = replace(block, memo=BlockCache())
    serve(kept, first, study.sim.platform)
    serve(kept, first.with_stage(0, scorer=seat, bid="init", rates=None), study.sim.platform)
    assert len(seat.asked) == 1


def test_what_is_made_of_the_same_arrays_is_made_once():
    memo, a, b = BlockCache(), np.arange(3), np.arange(3)
    first = memo.made("sum", (a, b), lambda: a + b)
    assert memo.made("sum", (a, b), lambda: a - b) is first
    for what, of in (("difference", (a, b)), ("sum", (b, a)), ("sum", (a, a))):  # equal, but not the same
        assert memo.made(what, of, lambda: a - b) is not first


def test_a_decorated_call_is_made_once_in_a_block_with_a_memo():
    added = once(lambda block, values, by: values + by)
    plain, values = make_block([0]), np.arange(3)
    kept = replace(plain, memo=BlockCache())
    assert added(plain, values, 1) is not added(plain, values, 1)
    first = added(kept, values, 1)
    assert added(kept, values, 1) is first and added(kept, values, 2) is not first
    assert added(kept, np.arange(3), 1) is not first  # equal, but not the same
    listed = once(lambda block, values, by: values + by[0])
    assert listed(kept, values, [1]) is not listed(kept, values, [1])  # no hash: not kept


def test_a_memo_keeps_what_it_knows_by_its_place_in_memory():
    memo = BlockCache()
    for i in range(50):  # an array that is gone leaves its place to the next
        made = memo.made("twice", (np.full(8, i),), lambda i=i: np.full(8, 2 * i))
        assert made[0] == 2 * i


def test_a_memo_that_is_trimmed_still_answers_right_and_keeps_the_first_set():
    memo = BlockCache()
    sets = [np.arange(n, dtype=np.int32)[None, :] for n in (3, 4, 5, 6)]
    for ids in sets:
        memo.candidates(ids.size, lambda ids=ids: ids)
        memo.values("k", ids, lambda ids=ids: ids * 10, True)
        memo.made("sum", (ids,), lambda ids=ids: ids.sum())
    memo.trim(most_sets=2, most_known=1, most_made=1)
    kept = [memo.candidates(ids.size, lambda: None) for ids in (sets[0], sets[3])]
    assert kept[0] is sets[0] and kept[1] is sets[3]
    assert memo.values("k", sets[3], lambda: None, True).tolist() == [[0, 10, 20, 30, 40, 50]]
    asked = []
    for ids in sets:
        memo.made("sum", (ids,), lambda ids=ids: asked.append(ids.size))
    assert asked == [3, 4, 5]
