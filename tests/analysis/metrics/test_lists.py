import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from answers.told import refused
from cascade_sim.analysis.metrics.lists import (
    PerRequest,
    check_lists,
    falling_order,
    flat,
    rank_lists,
    sum_lists,
)
from effort import examples
from worlds.ragged_lists import each_list, ragged


@given(st.integers(0, 10_000), st.booleans())
@examples(40)
def test_the_sort_keeps_lists_apart_and_puts_high_scores_first(seed, ties):
    scores, _, lists = ragged(seed, ties=ties)
    order = falling_order(scores, lists)
    lexical = np.lexsort((-scores, np.repeat(np.arange(len(lists) - 1), np.diff(lists))))
    np.testing.assert_array_equal(scores[order], scores[lexical])
    for chosen, own in each_list(order, np.arange(len(scores)), lists=lists):
        assert sorted(chosen) == own.tolist()


def test_more_lists_than_sixteen_bits_count_are_kept_apart():
    lists = np.arange(0, 2 * 70_000 + 1, 2)
    scores = np.random.default_rng(0).permutation(140_000).astype(float)
    order = falling_order(scores, lists).reshape(-1, 2)
    assert (order.min(1) == lists[:-1]).all() and (scores[order[:, 0]] > scores[order[:, 1]]).all()


def test_runs_of_equal_scores_end_with_their_list():
    ranking = rank_lists([2.0, 1.0, 1.0, 1.0, 3.0], [0, 3, 3, 5])
    assert ranking.is_first.tolist() == [True, True, False, True, True]
    assert ranking.rank.tolist() == [0, 1, 2, 0, 1]
    assert ranking.order[3:].tolist() == [4, 3]
    assert ranking.items.tolist() == [3, 0, 2]


def test_ties_share_the_mean_of_their_places():
    ranking = rank_lists([5.0, 1.0, 1.0, 1.0], None)
    assert ranking.tie_mean(np.array([1.0, 2.0, 3.0, 7.0])).tolist() == [1, 4, 4, 4]
    assert ranking.tie_sum(np.array([1.0, 2.0, 3.0, 7.0])).tolist() == [1, 12]


def test_sums_of_empty_lists_are_zero():
    assert sum_lists([1.0, 2.0, 4.0], check_lists([0, 0, 2, 2, 3, 3], 3)).tolist() == [0, 3, 0, 4, 0]


@pytest.mark.parametrize("lists", [[], [1, 3], [0, 2], [0, 2, 1, 3], [0.0, 3.0], [[0, 3]]])
def test_offsets_that_do_not_cover_the_items_are_refused(lists):
    with pytest.raises(ValueError, match="lists must"):
        check_lists(np.asarray(lists), 3)


def test_scores_that_are_not_numbers_or_not_flat_are_refused():
    with refused("scores", "NaN", "item 1", kind=ValueError):
        rank_lists([0.0, np.nan, 1.0])
    with pytest.raises(ValueError, match="flat"):
        flat([[1.0]], "labels")
    with pytest.raises(ValueError, match="with 3 items"):
        flat([1.0], "labels", 3)
    with pytest.raises(ValueError, match="other lists"):
        rank_lists(rank_lists([1.0, 2.0], [0, 1, 2]), [0, 2])


def test_infinite_scores_have_a_place():
    assert rank_lists([0.0, -np.inf, np.inf]).order.tolist() == [2, 0, 1]


def test_the_mean_counts_valid_requests_once_or_by_their_items():
    found = PerRequest(np.array([1.0, np.nan, 0.25]), np.array([True, False, True]), np.array([1, 5, 3]))
    assert found.mean() == pytest.approx((1 + 0.25) / 2)
    assert found.mean(by="items") == pytest.approx((1 * 1 + 3 * 0.25) / 4)
    assert found.skipped == pytest.approx(1 / 3)
    with pytest.raises(ValueError, match="by is"):
        found.mean(by="clicks")
    nothing = PerRequest(np.zeros(0), np.zeros(0, bool), np.zeros(0, int))
    assert np.isnan(nothing.mean()) and np.isnan(nothing.skipped)
