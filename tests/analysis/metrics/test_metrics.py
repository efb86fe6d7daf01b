"""What holds for every metric, by one list of properties."""

import numpy as np
import pytest

from cascade_sim.analysis import metrics
from worlds.ragged_lists import ragged

EVERY = {**metrics.ORDER, **metrics.SCALE}


def value(name, scores, labels, lists):
    grades = labels if name in ("ndcg", "dcg", "err", "spearman", "mse") else (labels > 0).astype(float)
    inputs = scores if name in metrics.ORDER else 1 / (1 + np.exp(-scores))
    return EVERY[name](inputs, grades, lists)


def test_all_names_are_there():
    wanted = (
        "auc gauc ndcg dcg err average_precision precision recall spearman mrr "
        "logloss mse ece ece_per_request pcoc stability"
    )
    assert set(wanted.split()) <= set(metrics.__all__)
    assert all(callable(getattr(metrics, name)) for name in wanted.split())
    assert set(EVERY) == set(wanted.split()) - {"gauc", "stability"}


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.few(4)
def test_the_order_of_items_and_of_lists_does_not_matter(name):
    scores, labels, lists = ragged(21)
    found = value(name, scores, labels, lists)
    rng = np.random.default_rng(0)
    shuffled = rng.permutation(len(lists) - 1)
    order = np.concatenate([rng.permutation(np.arange(lists[r], lists[r + 1])) for r in shuffled])
    moved = value(
        name, scores[order], labels[order], np.concatenate([[0], np.cumsum(np.diff(lists)[shuffled])])
    )
    np.testing.assert_allclose(moved.value, found.value[shuffled], atol=1e-12)
    np.testing.assert_array_equal(moved.valid, found.valid[shuffled])


@pytest.mark.parametrize("name", EVERY)
def test_values_are_numbers_exactly_where_valid(name):
    scores, labels, lists = ragged(22)
    found = value(name, scores, labels, lists)
    np.testing.assert_array_equal(np.isfinite(found.value), found.valid)
    assert found.items.tolist() == np.diff(lists).tolist()
    assert not found.valid[np.diff(lists) == 0].any() and found.valid.any()


@pytest.mark.parametrize("name", EVERY)
def test_empty_input_has_no_valid_value(name):
    for lists, n in (([0], 0), ([0, 0, 0], 2)):
        found = value(name, np.zeros(0), np.zeros(0), np.array(lists))
        assert found.valid.tolist() == [False] * n and np.isnan(found.mean())


@pytest.mark.parametrize("name", EVERY)
def test_extreme_scores_and_one_item_lists_are_no_trouble(name):
    scores, labels = np.array([200.0, -200.0, 0.0, 200.0]), np.array([0.0, 1.0, 1.0, 0.0])
    found = value(name, scores, labels, np.array([0, 2, 3, 4]))
    assert np.isfinite(found.value[found.valid]).all()
    assert found.valid[0]


@pytest.mark.parametrize("name", metrics.ORDER)
def test_order_metrics_see_nothing_but_the_order(name):
    scores, labels, lists = ragged(23)
    np.testing.assert_array_equal(
        value(name, np.exp(scores) * 7, labels, lists).value, value(name, scores, labels, lists).value
    )


@pytest.mark.parametrize("name", sorted(set(metrics.ORDER) - {"spearman"}))
def test_no_order_is_better_than_the_labels_own(name):
    scores, labels, lists = ragged(24)
    cut = {"k": 2} if name in ("precision", "recall") else {}
    labels = labels if name in ("ndcg", "dcg", "err") else (labels > 0).astype(float)
    best, found = (EVERY[name](s, labels, lists, **cut) for s in (labels, scores))
    assert (best.value[best.valid] >= found.value[best.valid] - 1e-12).all()
    assert best.mean() > found.mean() + 0.01
