import shutil

import numpy as np
import pytest
from scipy.stats import ConstantInputWarning, spearmanr
from sklearn.metrics import average_precision_score, ndcg_score, roc_auc_score

from cascade_sim.analysis.metrics import discrimination
from cascade_sim.analysis.metrics.lists import rank_lists
from cascade_sim.analysis.metrics.order import (
    auc,
    average_precision,
    dcg,
    err,
    gauc,
    mrr,
    ndcg,
    precision,
    recall,
    spearman,
)
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
            padded = discrimination.group_auc([s], [p])[0][0]
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
