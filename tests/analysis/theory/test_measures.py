from itertools import permutations

import numpy as np
import pytest

from cascade_sim.analysis import metrics
from cascade_sim.analysis.theory.measures import Distribution, c_phi, gppms, place_weights, regret

MEASURES = gppms(3)
METRICS = {
    "DCG@3": lambda s, y: metrics.dcg(s, y, k=3),
    "NDCG@3": lambda s, y: metrics.ndcg(s, y, k=3),
    "precision@3": lambda s, y: metrics.precision(s, y, k=3),
    "recall@3": lambda s, y: metrics.recall(s, y, k=3),
    "AUC": metrics.auc,
    "Spearman": lambda s, y: metrics.spearman(s, -y),
}


def supervision(rng, measure, n):
    if measure.supervision == "order":
        return rng.permutation(n) + 1.0
    y = rng.integers(0, 5 if measure.supervision == "grades" else 2, n).astype(float)
    y[:2] = 1, 0  # at least one of each
    return y


@pytest.mark.parametrize("name", MEASURES)
def test_a_pair_of_utility_and_weights_is_the_metric(name):
    rng, measure = np.random.default_rng(0), MEASURES[name]
    for n in (2, 3, 5, 8):
        y = supervision(rng, measure, n)
        scores = rng.permutation(n) / 1.0 if name == "Spearman" else rng.integers(0, 3, n) / 1.0
        assert measure.value(y, scores) == pytest.approx(METRICS[name](scores, y).value[0], abs=1e-12)


@pytest.mark.parametrize("name", MEASURES)
def test_weights_do_not_rise_and_utilities_are_not_negative(name):
    rng, measure = np.random.default_rng(1), MEASURES[name]
    phi = measure.phi(6)
    assert phi[0] > 0 and (np.diff(phi) <= 0).all() and phi[-1] >= 0
    assert (measure.utility(np.stack([supervision(rng, measure, 6) for _ in range(20)])) >= 0).all()


@pytest.mark.parametrize("name", MEASURES)
def test_no_order_beats_the_one_by_expected_utility(name):
    rng, measure = np.random.default_rng(2), MEASURES[name]
    support = np.stack([supervision(rng, measure, 4) for _ in range(5)])
    distribution = Distribution(support, rng.dirichlet(np.ones(5)))
    orders = np.array(list(permutations(range(4))), float)
    values = distribution.mean(np.stack([measure.value(y, orders) for y in support]))
    u = distribution.mean(measure.utility(support))
    np.testing.assert_allclose(regret(measure, distribution, orders), values.max() - values, atol=1e-12)
    assert regret(measure, distribution, u) == pytest.approx(0, abs=1e-12)
    assert regret(measure, distribution, -u) == pytest.approx(values.max() - values.min(), abs=1e-12)


def test_tied_places_share_their_weight():
    phi = np.array([5.0, 3.0, 1.0])
    assert place_weights([[2.0, 7.0, 2.0], [1.0, 2.0, 3.0]], phi).tolist() == [[2, 5, 2], [1, 3, 5]]


def test_c_phi_adds_the_gaps_of_opposite_places():
    assert c_phi([5.0, 2.0, 1.0]) == 5 - 1
    assert c_phi([1.0, 0.5, 0.25, 0.0]) == pytest.approx(np.sqrt(1**2 + 0.25**2))
    assert c_phi([1.0, 0.5, 0.25, 0.0], p=1) == pytest.approx(1 + 0.25)
    assert c_phi([1.0, 1.0]) == 0 == c_phi([1.0])
