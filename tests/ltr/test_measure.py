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
