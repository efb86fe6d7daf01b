import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from cascade_sim.analysis.metrics.discrimination import (
    auc,
    auc_from_histogram,
    gauc,
    group_auc,
    score_histogram,
)


def naive_auc(score, p):
    won = weight = 0.0
    for i in range(len(score)):
        for j in range(len(score)):
            if i != j:
                pair = p[i] * (1 - p[j])
                weight += pair
                won += pair * (1.0 if score[i] > score[j] else 0.5 if score[i] == score[j] else 0.0)
    return won / weight if weight else np.nan


@given(st.integers(0, 10_000), st.integers(1, 10), st.booleans())
@settings(max_examples=80)
def test_auc_within_requests_agrees_with_counting_pairs(seed, n, is_hard):
    rng = np.random.default_rng(seed)
    score = rng.integers(-2, 3, (5, n)) / 2 if seed % 2 else rng.normal(size=(5, n))
    label = rng.random((5, n))
    label = np.round(label) if is_hard else label
    valid = rng.random((5, n)) < 0.8
    result, weight = group_auc(np.where(valid, score, np.nan), label, valid)
    expected = [naive_auc(score[r][valid[r]], label[r][valid[r]]) for r in range(5)]
    np.testing.assert_allclose(result, expected, atol=1e-10)
    assert weight.tolist() == np.where(np.isnan(expected), 0, valid.sum(1)).tolist()
    order = rng.permuted(np.tile(np.arange(n), (5, 1)), axis=1)
    moved = [np.take_along_axis(a, order, 1) for a in (score, label, valid)]
    np.testing.assert_allclose(group_auc(*moved)[0], result, atol=1e-10)


@pytest.mark.parametrize("levels", [3, 50, 10**9])
def test_auc_agrees_with_scikit_learn_on_clicks_with_ties(levels):
    rng = np.random.default_rng(levels)
    score, click = rng.integers(0, levels, 2000) / levels, rng.integers(0, 2, 2000)
    assert auc(score, click) == pytest.approx(roc_auc_score(click, score), abs=1e-12)


def test_soft_labels_are_the_average_over_independent_clicks():
    score, p = np.array([0.3, 0.2, 0.9]), np.array([0.5, 0.2, 0.4])
    clicks = np.array(np.meshgrid(*[[0, 1]] * 3)).reshape(3, -1).T
    chance = np.prod(np.where(clicks == 1, p, 1 - p), axis=1)
    d = score[:, None] - score[None, :]
    above = (d > 0) + 0.5 * (d == 0)
    pairs = clicks[:, :, None] * (1 - clicks[:, None, :])
    expected = (chance[:, None, None] * pairs * above).sum() / (chance[:, None, None] * pairs).sum()
    assert auc(score, p) == pytest.approx(expected)


def test_all_tied_scores_are_no_better_than_chance():
    assert auc(np.ones(6), [0, 1, 0.3, 0.2, 1, 0]) == pytest.approx(0.5)


def test_requests_with_only_one_outcome_or_one_candidate_are_undefined():
    result, weight = group_auc([[1.0, 2.0], [1.0, 2.0], [3.0, np.nan]], [[0, 0], [1, 1], [0.4, 0.4]])
    assert np.isnan(result).all()
    assert weight.tolist() == [0, 0, 0]


def test_gauc_weighs_requests_by_their_candidates():
    result, weight = group_auc([[1.0, 2, 3], [2, 1, 9]], [[0, 0, 1], [0, 1, 0]], [[1, 1, 1], [1, 1, 0]])
    assert result.tolist() == [1, 0]
    assert gauc(result, weight) == pytest.approx((3 * 1 + 2 * 0) / (3 + 2))
    assert np.isnan(gauc([np.nan], [4.0]))


def test_gauc_differs_from_pooled_auc_when_requests_differ_in_level():
    score, click = np.array([[0.1, 0.2], [0.8, 0.9]]), np.array([[0, 1], [0, 1]])
    assert gauc(*group_auc(score, click)) == 1
    assert auc(score, click) == pytest.approx(3 / 4)


def test_the_histogram_form_is_exact_when_bins_do_not_mix_scores():
    rng = np.random.default_rng(7)
    score, p = rng.integers(0, 6, (40, 9)) / 6, rng.random((40, 9))
    sums = score_histogram(score, p, edges=np.arange(1, 6) / 6 - 1e-9)
    pos, neg, own = (sums.sum(0)[i] for i in range(3))
    assert auc_from_histogram(pos, neg, own) == pytest.approx(auc(score, p), abs=1e-12)
    np.testing.assert_allclose(
        auc_from_histogram(sums[:, 0], sums[:, 1], sums[:, 2]), group_auc(score, p)[0], atol=1e-10
    )
    assert abs(auc_from_histogram(pos, neg) - auc(score, p)) < 1 / score.size


def test_the_histogram_leaves_out_padding_and_puts_an_edge_into_the_bin_above():
    sums = score_histogram([[0.5, 0.2, 0.9]], [[1.0, 0.25, 1.0]], [0.5], valid=[[True, True, False]])
    assert sums.tolist() == [[[0.25, 1], [0.75, 0], [0.25 * 0.75, 0]]]
