import math

import numpy as np
import pytest
from sklearn.metrics import average_precision_score

from cascade_sim.ltr.study import Measured, measure

LISTS = np.array([0, 2, 4, 4])
LABELS = np.array([1.0, 0, 0, 0])


def test_a_file_is_measured_by_list_and_as_a_whole():
    scores = np.array([0.0, 1, 0, 1])
    found = measure(scores, np.array([0.8, 0.4, 0.2, 0.2]), LABELS, LISTS, "binary")
    assert found.ndcg[0] == pytest.approx(1 / math.log2(3))
    assert np.isnan(found.ndcg[1:]).all()  # no positives, no items
    assert found.means["ndcg"] == pytest.approx(1 / math.log2(3))
    assert found.loss.tolist() == pytest.approx([-math.log(0.8) - math.log(0.6), -2 * math.log(0.8), 0])
    assert found.means["loss"] == pytest.approx((-3 * math.log(0.8) - math.log(0.6)) / 4)
    assert found.ece[:2].tolist() == pytest.approx([(0.2 + 0.4) / 2, 0.2])
    assert found.means["ece"] == pytest.approx((0.3 + 0.2) / 2)
    assert found.means["pcoc"] == pytest.approx(1.6 / 1)


def test_auc_pr_is_of_all_items_together_and_as_scikit_learn_has_it():
    rng = np.random.default_rng(5)
    lists = np.concatenate([[0], np.cumsum(rng.integers(1, 30, 40))])
    labels = (rng.random(lists[-1]) < 0.3).astype(float)
    predictions = np.round(np.clip(0.2 + 0.3 * labels + rng.normal(0, 0.2, len(labels)), 0.01, 0.99), 2)
    found = measure(rng.random(len(labels)), predictions, labels, lists, "binary")
    assert len(np.unique(predictions)) < len(labels) / 3  # many ties
    assert found.means["auc_pr"] == pytest.approx(average_precision_score(labels, predictions), abs=1e-12)
    graded = measure(predictions, predictions, labels, lists, "graded")
    assert math.isnan(graded.means["auc_pr"])


def test_a_ranker_without_finite_scores_is_not_defined():
    none = Measured.undefined(LISTS)
    assert not none.is_defined and all(math.isnan(value) for value in none.means.values())
    assert measure(LABELS, LABELS, LABELS, LISTS, "binary").is_defined


def test_grades_are_measured_by_squared_error():
    found = measure(LABELS, np.array([3.0, 0, 0, 1]), np.array([2.0, 0, 1, 0]), LISTS, "graded")
    assert found.means["loss"] == pytest.approx((1 + 0 + 1 + 1) / 4)
    assert found.means["pcoc"] == pytest.approx(4 / 3)


def test_the_error_of_the_mean_counts_valid_lists_only():
    labels = np.array([1.0, 0, 0, 1, 0, 0])
    found = measure(np.array([1.0, 0, 1, 0, 1, 0]), labels, labels, np.array([0, 2, 4, 6]), "binary")
    values = [1, 1 / math.log2(3)]
    assert found.ndcg_error == pytest.approx(np.std(values, ddof=1) / math.sqrt(2))
    alone = measure(LABELS, LABELS, LABELS, LISTS, "binary")
    assert alone.ndcg_error == 0
    assert math.isnan(measure(LABELS, LABELS, 0 * LABELS, LISTS, "binary").means["pcoc"])


def plain_ndcg(scores, grades, k):
    """The formula in loops, scores without ties; None where no item has a grade above 0."""
    order = sorted(range(len(scores)), key=lambda i: -scores[i])
    gain = sum((2 ** grades[i] - 1) / math.log2(place + 2) for place, i in enumerate(order[:k]))
    best = sum((2**g - 1) / math.log2(place + 2) for place, g in enumerate(sorted(grades, reverse=True)[:k]))
    return gain / best if best else None


def test_order_is_of_the_grades_and_scale_of_the_labels_as_in_plain_loops():
    rng = np.random.default_rng(3)
    lists = np.concatenate([[0], np.cumsum(rng.integers(1, 16, 12))])
    grades = rng.integers(0, 5, lists[-1]).astype(float)
    grades[lists[0] : lists[1]] = 0
    labels = (grades >= 2).astype(float)  # a list may have a grade of 1 and no positive
    scores, predictions = rng.normal(size=lists[-1]), rng.uniform(0.1, 0.9, lists[-1])
    found = measure(scores, predictions, labels, lists, "binary", grades)
    for column, k in ((found.ndcg, 10), (found.ndcg_1, 1)):
        for i, value in enumerate(column):
            own = slice(lists[i], lists[i + 1])
            expected = plain_ndcg(scores[own], grades[own], k)
            assert np.isnan(value) if expected is None else value == pytest.approx(expected)
    losses = [-math.log(p if y else 1 - p) for p, y in zip(predictions, labels, strict=True)]
    assert found.means["loss"] == pytest.approx(sum(losses) / len(losses))
    assert found.means["pcoc"] == pytest.approx(sum(predictions) / sum(labels))
    assert found.means["auc_pr"] == pytest.approx(average_precision_score(labels, predictions))
    on_labels = measure(scores, predictions, labels, lists, "binary")
    assert on_labels.means["loss"] == found.means["loss"]
    assert on_labels.means["ndcg"] != pytest.approx(found.means["ndcg"], abs=0.01)
