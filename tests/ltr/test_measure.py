import math

import numpy as np
import pytest

from cascade_sim.ltr.study import measure

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
