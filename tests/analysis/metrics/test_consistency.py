import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascade_sim.analysis.metrics.consistency import (
    among_top,
    membership,
    rcs,
    rcs_shares,
    rcs_split,
    top_ids,
)
from effort import examples

ROWS = st.lists(st.lists(st.integers(-1, 8), min_size=3, max_size=3), min_size=1, max_size=6)


def padded(rng, n_rows, width, n_ads):
    """Distinct ids per row with padding at the end."""
    ids = np.argsort(rng.random((n_rows, n_ads)), axis=1)[:, :width].astype(np.int32)
    ids[np.arange(width) >= rng.integers(0, width + 1, n_rows)[:, None]] = -1
    return ids


@given(ROWS, st.data())
@examples(60)
def test_membership_agrees_with_looking_each_ad_up(rows, data):
    pool = data.draw(
        st.lists(st.lists(st.integers(-1, 8), min_size=4, max_size=4), min_size=len(rows), max_size=len(rows))
    )
    expected = [[ad >= 0 and ad in members for ad in row] for row, members in zip(rows, pool, strict=True)]
    assert membership(np.array(rows), np.array(pool)).tolist() == expected


def test_membership_looks_only_within_the_same_request_across_many_requests():
    rng = np.random.default_rng(0)
    ids, pool = padded(rng, 3000, 4, 30), padded(rng, 3000, 10, 30)
    naive = (ids[:, :, None] == pool[:, None, :]).any(2) & (ids >= 0)
    assert (membership(ids, pool) == naive).all()
    assert naive.any() and not naive[ids >= 0].all()


def test_nothing_is_a_member_of_an_empty_pool_and_padding_is_never_a_member():
    assert not membership(np.array([[3]]), np.zeros((1, 0), int)).any()
    assert not membership(np.array([[-1]]), np.array([[-1]])).any()


def test_different_numbers_of_requests_are_refused():
    with pytest.raises(ValueError, match="membership"):
        membership(np.zeros((2, 1), int), np.zeros((3, 1), int))


def test_rcs_is_the_share_of_ideal_winners_that_reach_ranking():
    ideal = np.array([[3, 1, 2], [5, 6, -1], [-1, -1, -1]])
    competitive = np.array([[2, 9, 3, 8], [7, 8, 9, 5], [1, 2, 3, 4]])
    result = rcs(ideal, competitive)
    assert result[:2].tolist() == [2 / 3, 1 / 2]
    assert np.isnan(result[2])


def test_rcs_does_not_depend_on_order_or_padding():
    rng = np.random.default_rng(1)
    ideal, competitive = padded(rng, 200, 5, 40), padded(rng, 200, 20, 40)
    result = rcs(ideal, competitive)
    assert np.isnan(result).any() and (result > 0).any()
    np.testing.assert_array_equal(rcs(rng.permuted(ideal, axis=1), rng.permuted(competitive, axis=1)), result)
    wider = np.pad(competitive, ((0, 0), (0, 7)), constant_values=-1)
    np.testing.assert_array_equal(rcs(np.pad(ideal, ((0, 0), (0, 2)), constant_values=-1), wider), result)


def test_rcs_splits_by_exposure_of_the_ideal_winners():
    is_exposed = np.array([True, True, False, False])
    exposed, unexposed = rcs_split(np.array([[0, 1, 2], [2, 3, -1]]), np.array([[1, 2], [3, 0]]), is_exposed)
    assert exposed[0] == 1 / 2 and unexposed[0] == 1 / 1
    assert np.isnan(exposed[1]) and unexposed[1] == 1 / 2


def test_the_split_parts_weigh_up_to_the_whole():
    rng = np.random.default_rng(2)
    ideal, competitive = padded(rng, 300, 5, 40), padded(rng, 300, 20, 40)
    is_exposed = rng.random(40) < 0.3
    exposed, unexposed = rcs_split(ideal, competitive, is_exposed)
    n_exposed = ((ideal >= 0) & is_exposed[ideal]).sum(1)
    n_unexposed = ((ideal >= 0) & ~is_exposed[ideal]).sum(1)
    hits = np.nan_to_num(exposed) * n_exposed + np.nan_to_num(unexposed) * n_unexposed
    np.testing.assert_allclose(hits, np.nan_to_num(rcs(ideal, competitive)) * (ideal >= 0).sum(1), atol=1e-12)


def test_the_best_ads_come_first_and_ties_go_to_the_smaller_id():
    ids = np.array([[7, 3, 5, 1]])
    assert top_ids(ids, np.array([[2.0, 9.0, 2.0, 2.0]]), 3).tolist() == [[3, 1, 5]]


def test_padding_and_unscored_ads_are_never_chosen():
    ids = np.array([[4, 2, 9, -1], [-1, -1, -1, -1]])
    score = np.array([[-np.inf, np.nan, -5.0, 100.0], [1.0, 2.0, 3.0, 4.0]])
    assert top_ids(ids, score, 2).tolist() == [[9, -1], [-1, -1]]
    assert top_ids(ids, score, 6).tolist() == [[9, -1, -1, -1, -1, -1], [-1] * 6]


def test_an_infinitely_good_ad_may_win():
    assert top_ids(np.array([[4, 2]]), np.array([[1.0, np.inf]]), 2).tolist() == [[2, 4]]


@given(
    st.integers(0, 10_000), st.integers(1, 12), st.integers(0, 14), st.sampled_from([np.float32, np.float64])
)
@examples(80)
def test_the_choice_agrees_with_sorting_each_request_by_hand(seed, n, k, dtype):
    rng = np.random.default_rng(seed)
    ids = padded(rng, 8, n, 30)
    score = rng.choice([-np.inf, np.nan, -1.0, -0.0, 0.0, 0.25, 3.0], (8, n)).astype(dtype)
    expected = np.full((8, k), -1)
    for row in range(8):
        usable = [(-s, a) for s, a in zip(score[row], ids[row], strict=True) if a >= 0 and s > -np.inf]
        best = [a for _, a in sorted(usable)][:k]
        expected[row, : len(best)] = best
    assert top_ids(ids, score, k).tolist() == expected.tolist()
    order = rng.permuted(np.tile(np.arange(n), (8, 1)), axis=1)
    shuffled = top_ids(np.take_along_axis(ids, order, 1), np.take_along_axis(score, order, 1), k)
    assert shuffled.tolist() == expected.tolist()


@given(st.integers(0, 2**32 - 1), st.integers(1, 40), st.integers(0, 45), st.sampled_from([2, 5, 1000]))
@examples(60)
def test_the_best_ids_are_those_of_a_plain_sort_whatever_ties_and_gaps_there_are(seed, n, k, n_scores):
    rng = np.random.default_rng(seed)
    ids = rng.permuted(np.tile(np.arange(-3, n - 3), (4, 1)), axis=1).clip(-1).astype(np.int32)
    score = rng.integers(0, n_scores, ids.shape).astype(np.float64)
    score[rng.random(ids.shape) < 0.1] = -np.inf
    score[rng.random(ids.shape) < 0.1] = np.nan
    for row, worth, found in zip(ids, score, top_ids(ids, score, k), strict=True):
        real = [(-w, a) for a, w in zip(row.tolist(), worth.tolist(), strict=True) if a >= 0 and w > -np.inf]
        best = [a for _, a in sorted(real)][:k]
        assert found.tolist() == best + [-1] * (k - len(best))


def test_the_whole_share_and_its_parts_are_those_of_each_alone():
    rng = np.random.default_rng(4)
    ideal, competitive = padded(rng, 300, 5, 40), padded(rng, 300, 20, 40)
    is_exposed = rng.random(40) < 0.3
    whole, *parts = rcs_shares(ideal, competitive, is_exposed)
    np.testing.assert_array_equal(whole, rcs(ideal, competitive))
    for found, kept in zip(parts, (is_exposed, ~is_exposed), strict=True):
        np.testing.assert_array_equal(found, rcs(np.where(kept[ideal], ideal, -1), competitive))


@pytest.mark.parametrize("k", [1, 3, 16, 17, 30])
def test_who_is_among_the_best_is_told_without_finding_them_all(k):
    generator = np.random.default_rng(k)
    ids = np.sort(generator.permuted(np.tile(np.arange(60, dtype=np.int32), (40, 1)), axis=1)[:, :25], axis=1)
    ids[3:6, 20:] = -1
    score = generator.integers(0, 6, ids.shape).astype(np.float32)  # many ties
    score[generator.random(ids.shape) < 0.1] = -np.inf
    wanted = generator.integers(-1, 60, (40, 5)).astype(np.int32)
    assert (among_top(wanted, ids, score, k) == membership(wanted, top_ids(ids, score, k))).all()
    sizes = generator.integers(0, k + 1, 40)
    by_row = np.concatenate(
        [membership(wanted[r : r + 1], top_ids(ids, score, k)[r : r + 1, :n]) for r, n in enumerate(sizes)]
    )
    assert (among_top(wanted, ids, score, sizes) == by_row).all()
