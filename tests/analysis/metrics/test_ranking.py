import shutil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ConstantInputWarning, spearmanr
from sklearn.metrics import average_precision_score, ndcg_score, roc_auc_score

from cascade_sim.analysis.metrics.lists import rank_lists
from cascade_sim.analysis.metrics.ranking import (
    auc,
    auc_from_histogram,
    average_precision,
    dcg,
    err,
    gauc,
    mrr,
    ndcg,
    precision,
    recall,
    score_histogram,
    spearman,
    table_auc,
)
from effort import examples
from worlds.ragged_lists import each_list, mean_over_tie_orders, ragged

# Every metric of one order: labels from the first place to the last -> value, written as defined.
IN_ORDER = {
    "dcg": lambda y: sum((2**g - 1) / np.log2(i + 2) for i, g in enumerate(y[:3])),
    "precision": lambda y: (y[:3] > 0).sum() / 3,
    "recall": lambda y: (y[:3] > 0).sum() / (y > 0).sum(),
    "average_precision": lambda y: np.mean([(y[: i + 1] > 0).mean() for i in range(len(y)) if y[i] > 0]),
    "mrr": lambda y: 1 / (np.flatnonzero(y > 0)[0] + 1) if (y[:3] > 0).any() else 0.0,
    "err": lambda y: sum(
        (2 ** y[i] - 1) / 16 / (i + 1) * np.prod(1 - (2 ** y[:i] - 1) / 16) for i in range(min(3, len(y)))
    ),
}
OURS = {
    "dcg": lambda s, y, at: dcg(s, y, at, k=3),
    "precision": lambda s, y, at: precision(s, y, at, k=3),
    "recall": lambda s, y, at: recall(s, y, at, k=3),
    "average_precision": average_precision,
    "mrr": lambda s, y, at: mrr(s, y, at, k=3),
    "err": lambda s, y, at: err(s, y, at, k=3),
}


@pytest.mark.parametrize("name", IN_ORDER)
def test_ties_count_with_their_mean_over_all_orders(name):
    scores, labels, lists = ragged(3, n_lists=60, longest=6)
    found = OURS[name](scores, labels, lists)
    tied = 0
    for r, (s, y) in enumerate(each_list(scores, labels, lists=lists)):
        assert found.valid[r] == (y > 0).any() and found.items[r] == len(y)
        if found.valid[r]:
            assert found.value[r] == pytest.approx(mean_over_tie_orders(IN_ORDER[name], s, y), abs=1e-12)
            tied += len(set(s)) < len(s)
        else:
            assert np.isnan(found.value[r])
    assert tied > 15


@pytest.mark.parametrize("ties", [True, False])
@pytest.mark.parametrize("k", [None, 1, 4, 100])
def test_ndcg_agrees_with_scikit_learn(ties, k):
    scores, labels, lists = ragged(1, ties=ties)
    found = ndcg(scores, labels, lists, k=k)
    for r, (s, y) in enumerate(each_list(scores, labels, lists=lists)):
        if found.valid[r] and len(y) > 1:
            assert found.value[r] == pytest.approx(ndcg_score([2**y - 1], [s], k=k), abs=1e-12)
    assert found.valid.sum() > 20 and found.skipped > 0.2


def test_auc_agrees_with_scikit_learn_and_with_the_padded_form():
    scores, labels, lists = ragged(2, n_lists=80)
    clicks, shares = labels > 0, labels / 4
    found, soft = auc(scores, clicks, lists), auc(scores, shares, lists)
    for r, (s, y, p) in enumerate(each_list(scores, clicks, shares, lists=lists)):
        assert found.valid[r] == (0 < y.sum() < len(y))
        if found.valid[r]:
            assert found.value[r] == pytest.approx(roc_auc_score(y, s), abs=1e-12)
        if len(y):
            padded = table_auc([s], [p])[0][0]
            assert soft.value[r] == pytest.approx(padded, abs=1e-10, nan_ok=True)
    assert auc(scores, clicks).value[0] == pytest.approx(roc_auc_score(clicks, scores), abs=1e-12)


def test_gauc_weighs_requests_by_candidates_unless_told():
    # list one is in order (AUC 1, 3 candidates), list two reversed (AUC 0, 2), list three has no click
    scores, clicks, lists = [3.0, 2, 1, 1, 2, 5], [1.0, 0, 0, 1, 0, 0], [0, 3, 5, 6]
    assert gauc(scores, clicks, lists) == pytest.approx((3 * 1 + 2 * 0) / (3 + 2))
    assert gauc(scores, clicks, lists, weight=[1, 4, 9]) == pytest.approx(1 / (1 + 4))
    assert np.isnan(gauc([1.0], [1.0], [0, 1]))


def test_average_precision_by_thresholds_agrees_with_scikit_learn():
    scores, labels, lists = ragged(4)
    found = average_precision(scores, labels, lists, ties="threshold")
    for r, (s, y) in enumerate(each_list(scores, labels > 0, lists=lists)):
        if found.valid[r]:
            assert found.value[r] == pytest.approx(average_precision_score(y, s), abs=1e-12)
    untied, labels, lists = ragged(4, ties=False)
    both = [average_precision(untied, labels, lists, ties=how).value for how in ("mean", "threshold")]
    np.testing.assert_allclose(*both, atol=1e-12)


def test_spearman_agrees_with_scipy():
    scores, labels, lists = ragged(5, n_lists=80)
    found = spearman(scores, labels, lists)
    for r, (s, y) in enumerate(each_list(scores, labels, lists=lists)):
        assert found.valid[r] == (len(set(s)) > 1 and len(set(y)) > 1)
        if found.valid[r]:
            assert found.value[r] == pytest.approx(spearmanr(s, y).statistic, abs=1e-12)
    with pytest.warns(ConstantInputWarning):
        assert np.isnan(spearmanr([1, 1], [1, 2]).statistic)  # undefined there as well


def test_order_metrics_agree_with_torchmetrics():
    torchmetrics = pytest.importorskip("torchmetrics")
    import torch

    reference = torchmetrics.functional.retrieval
    scores, labels, lists = ragged(6, ties=False)
    ours = {
        "retrieval_normalized_dcg": ndcg(scores, labels, lists, k=5, gain="linear"),
        "retrieval_average_precision": average_precision(scores, labels, lists),
        "retrieval_reciprocal_rank": mrr(scores, labels, lists),
        "retrieval_precision": precision(scores, labels, lists, k=5),
        "retrieval_recall": recall(scores, labels, lists, k=5),
        "retrieval_auroc": auc(scores, labels > 0, lists),
    }
    cut = {"retrieval_normalized_dcg", "retrieval_precision", "retrieval_recall"}
    compared = 0
    for name, found in ours.items():
        for r, (s, y) in enumerate(each_list(scores, labels, lists=lists)):
            if found.valid[r]:
                y = y if "dcg" in name else y > 0
                choices = {"top_k": 5} if name in cut else {}
                theirs = getattr(reference, name)(torch.tensor(s), torch.tensor(y).long(), **choices)
                assert found.value[r] == pytest.approx(float(theirs), abs=1e-6), name
                compared += 1
    assert compared > 100


@pytest.mark.skipif(shutil.which("perl") is None, reason="ir-measures computes ERR with a Perl script")
def test_err_and_ndcg_agree_with_ir_measures(monkeypatch):
    ir_measures = pytest.importorskip("ir_measures")
    import pkgutil

    script = pkgutil.get_data
    # the same arithmetic, printed with more than five digits
    monkeypatch.setattr(
        "ir_measures.providers.gdeval_provider.pkgutil.get_data",
        lambda *a: script(*a).replace(b"%.5f", b"%.12f"),
    )
    scores, labels, lists = ragged(7, n_lists=30, longest=25, ties=False)
    qrels, run = [], []
    for r, (s, y) in enumerate(each_list(scores, labels, lists=lists)):
        qrels += [ir_measures.Qrel(str(r), f"d{i}", int(g)) for i, g in enumerate(y)]
        run += [ir_measures.ScoredDoc(str(r), f"d{i}", float(x)) for i, x in enumerate(s)]
    measures = [ir_measures.parse_measure("ERR@10"), ir_measures.parse_measure("nDCG(dcg='exp-log2')@10")]
    ours = [err(scores, labels, lists, k=10), ndcg(scores, labels, lists, k=10)]
    compared = 0
    for metric in ir_measures.gdeval.iter_calc(measures, qrels, run):
        found = ours[measures.index(metric.measure)]
        if found.valid[int(metric.query_id)]:
            assert metric.value == pytest.approx(found.value[int(metric.query_id)], abs=1e-9)
            compared += 1
    assert compared == 2 * ours[0].valid.sum() > 20


def test_one_sort_serves_all_metrics():
    scores, labels, lists = ragged(8)
    ranking = rank_lists(scores, lists)
    for metric in (ndcg, dcg, err, average_precision, precision, recall, mrr, spearman):
        np.testing.assert_array_equal(metric(ranking, labels).value, metric(scores, labels, lists).value)


def test_lists_without_positives_count_if_told():
    scores, labels, lists = [2.0, 1.0, 1.0], [0.0, 0.0, 1.0], [0, 2, 2, 3]
    assert ndcg(scores, labels, lists).valid.tolist() == [False, False, True]
    assert ndcg(scores, labels, lists, no_positives=1.0).value.tolist()[::2] == [1, 1]
    assert mrr(scores, labels, lists, no_positives=0.0).mean() == pytest.approx((0 + 1) / 2)
    assert not ndcg(scores, labels, lists, no_positives=1.0).valid[1]  # empty


def test_all_tied_scores_get_the_mean_over_all_orders():
    y = [1.0, 0, 0, 0]
    flat = np.zeros(4)
    assert mrr(flat, y).value[0] == pytest.approx((1 + 1 / 2 + 1 / 3 + 1 / 4) / 4)
    assert auc(flat, y).value[0] == 0.5
    assert precision(flat, y, k=2).value[0] == pytest.approx(1 / 4)
    assert recall(flat, y, k=2).value[0] == pytest.approx(2 / 4)


def test_gains_are_a_choice():
    scores, grades = [1.0, 2.0], [3.0, 1.0]
    assert dcg(scores, grades).value[0] == pytest.approx((2**1 - 1) + (2**3 - 1) / np.log2(3))
    assert dcg(scores, grades, gain="linear").value[0] == pytest.approx(1 + 3 / np.log2(3))
    assert dcg(scores, grades, gain=np.sqrt).value[0] == pytest.approx(1 + np.sqrt(3) / np.log2(3))
    with pytest.raises(ValueError, match="gain is"):
        dcg(scores, grades, gain="exp")
    with pytest.raises(ValueError, match="negative"):
        ndcg(scores, [-1.0, 1.0])


@pytest.mark.parametrize("metric", [ndcg, dcg, err, precision, recall, mrr])
def test_a_cut_before_the_first_place_is_refused(metric):
    with pytest.raises(ValueError, match="k must be"):
        metric([1.0], [1.0], k=0)


def test_labels_out_of_range_are_refused():
    with pytest.raises(ValueError, match="in \\[0, 1\\]"):
        auc([1.0, 2.0], [2.0, 0.0])
    with pytest.raises(ValueError, match="max_grade"):
        err([1.0, 2.0], [2.0, 0.0], max_grade=1)
    with pytest.raises(ValueError, match="ties is"):
        average_precision([1.0], [1.0], ties="first")


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
@examples(80)
def test_auc_within_requests_agrees_with_counting_pairs(seed, n, is_hard):
    rng = np.random.default_rng(seed)
    score = rng.integers(-2, 3, (5, n)) / 2 if seed % 2 else rng.normal(size=(5, n))
    label = rng.random((5, n))
    label = np.round(label) if is_hard else label
    valid = rng.random((5, n)) < 0.8
    result, weight = table_auc(np.where(valid, score, np.nan), label, valid)
    expected = [naive_auc(score[r][valid[r]], label[r][valid[r]]) for r in range(5)]
    np.testing.assert_allclose(result, expected, atol=1e-10)
    assert weight.tolist() == np.where(np.isnan(expected), 0, valid.sum(1)).tolist()
    order = rng.permuted(np.tile(np.arange(n), (5, 1)), axis=1)
    moved = [np.take_along_axis(a, order, 1) for a in (score, label, valid)]
    np.testing.assert_allclose(table_auc(*moved)[0], result, atol=1e-10)


@pytest.mark.parametrize("levels", [3, 50, 10**9])
def test_auc_agrees_with_scikit_learn_on_clicks_with_ties(levels):
    rng = np.random.default_rng(levels)
    score, click = rng.integers(0, levels, 2000) / levels, rng.integers(0, 2, 2000)
    expected = roc_auc_score(click, score)
    assert auc(score, click).value[0] == pytest.approx(expected, abs=1e-12)
    assert table_auc([score], [click])[0][0] == pytest.approx(expected, abs=1e-12)


def test_soft_labels_are_the_average_over_independent_clicks():
    score, p = np.array([0.3, 0.2, 0.9]), np.array([0.5, 0.2, 0.4])
    clicks = np.array(np.meshgrid(*[[0, 1]] * 3)).reshape(3, -1).T
    chance = np.prod(np.where(clicks == 1, p, 1 - p), axis=1)
    d = score[:, None] - score[None, :]
    above = (d > 0) + 0.5 * (d == 0)
    pairs = clicks[:, :, None] * (1 - clicks[:, None, :])
    expected = (chance[:, None, None] * pairs * above).sum() / (chance[:, None, None] * pairs).sum()
    assert auc(score, p).value[0] == pytest.approx(expected)
    assert table_auc([score], [p])[0][0] == pytest.approx(expected)


def test_all_tied_scores_are_no_better_than_chance():
    labels = [0, 1, 0.3, 0.2, 1, 0]
    assert auc(np.ones(6), labels).value[0] == pytest.approx(0.5)
    assert table_auc([np.ones(6)], [labels])[0][0] == pytest.approx(0.5)


def test_requests_with_only_one_outcome_or_one_candidate_are_undefined():
    result, weight = table_auc([[1.0, 2.0], [1.0, 2.0], [3.0, np.nan]], [[0, 0], [1, 1], [0.4, 0.4]])
    assert np.isnan(result).all()
    assert weight.tolist() == [0, 0, 0]


def test_a_table_gives_each_request_its_auc_and_its_candidates():
    result, weight = table_auc([[1.0, 2, 3], [2, 1, 9]], [[0, 0, 1], [0, 1, 0]], [[1, 1, 1], [1, 1, 0]])
    assert result.tolist() == [1, 0] and weight.tolist() == [3, 2]


def test_gauc_differs_from_pooled_auc_when_requests_differ_in_level():
    score, click = [0.1, 0.2, 0.8, 0.9], [0, 1, 0, 1]
    assert gauc(score, click, [0, 2, 4]) == 1
    assert auc(score, click).value[0] == pytest.approx(3 / 4)


def test_the_histogram_form_is_exact_when_bins_do_not_mix_scores():
    rng = np.random.default_rng(7)
    score, p = rng.integers(0, 6, (40, 9)) / 6, rng.random((40, 9))
    sums = score_histogram(score, p, edges=np.arange(1, 6) / 6 - 1e-9)
    pos, neg, own = (sums.sum(0)[i] for i in range(3))
    exact = auc(score.ravel(), p.ravel()).value[0]
    assert auc_from_histogram(pos, neg, own) == pytest.approx(exact, abs=1e-12)
    np.testing.assert_allclose(
        auc_from_histogram(sums[:, 0], sums[:, 1], sums[:, 2]), table_auc(score, p)[0], atol=1e-10
    )
    assert abs(auc_from_histogram(pos, neg) - exact) < 1 / score.size


def test_the_histogram_leaves_out_padding_and_puts_an_edge_into_the_bin_above():
    sums = score_histogram([[0.5, 0.2, 0.9]], [[1.0, 0.25, 1.0]], [0.5], valid=[[True, True, False]])
    assert sums.tolist() == [[[0.25, 1], [0.75, 0], [0.25 * 0.75, 0]]]
