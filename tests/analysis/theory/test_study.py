from dataclasses import replace

import numpy as np
import pytest

from cascade_sim.analysis.theory.losses import LOSSES
from cascade_sim.analysis.theory.measures import gppms, regret
from cascade_sim.analysis.theory.study import (
    BoundCheck,
    descend,
    random_distribution,
    ranknet_misorders,
    study_bound,
    study_bounds,
    trial_scores,
)

MEASURES = gppms(3)


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("loss", LOSSES)
def test_no_regret_is_above_its_bound(loss, measure):
    found = study_bound(MEASURES[measure], LOSSES[loss], distributions=12, seed=7, descents=False)
    assert found.violations == 0
    assert found.regret_at_optimum < 1e-12
    assert (found.surrogate >= -found.slack).all() and (found.regret >= -1e-12).all()
    assert (found.regret > 1e-3).sum() > 100 and 0.1 < found.closest <= 1 + 1e-9


@pytest.mark.parametrize("loss", ["pointwise squared", "pointwise square hinge", "pairwise squared"])
def test_a_constant_two_percent_smaller_would_be_caught(loss):
    true = LOSSES[loss]
    smaller = replace(true, constant=lambda u, eta: 0.98 * true.constant(u, eta))
    assert study_bound(MEASURES["NDCG@3"], smaller, 6, seed=7, descents=False).violations > 0


def test_a_wrong_minimiser_would_be_caught():
    true = LOSSES["pointwise logistic"]
    reversed_ = replace(true, best=lambda u, eta: true.best(eta - u, eta))
    found = study_bound(MEASURES["DCG@3"], reversed_, 6, seed=7, descents=False)
    assert found.regret_at_optimum > 0.1 and (found.surrogate < -found.slack).any()


@pytest.mark.parametrize("loss", LOSSES)
def test_a_descent_from_anywhere_ends_in_the_best_order(loss):
    generator, measure = np.random.default_rng(5), MEASURES["NDCG@3"]
    distribution = random_distribution(generator, measure, 4)
    utility = measure.utility(distribution.support)
    eta = 1.05 * utility.max()
    path = descend(LOSSES[loss], distribution, utility, eta, generator.standard_normal(4))
    risks = LOSSES[loss].risk(distribution, utility, path, eta)
    assert (np.diff(risks) <= 1e-12).all() and len(path) > 2
    assert regret(measure, distribution, path[0]) > 0.01
    assert regret(measure, distribution, path[-1]) == pytest.approx(0, abs=1e-12)


def test_trial_scores_turn_single_pairs_round():
    generator, u = np.random.default_rng(6), np.array([0.5, 2.0, 1.0])
    tried = trial_scores(generator, LOSSES["pairwise squared"], u, 3.0)
    # best order 1, 2, 0; each pair turned round beside the third item
    orders = {tuple(np.argsort(-s, kind="stable").tolist()) for s in tried[61:]}
    assert orders == {(2, 1, 0), (0, 1, 2), (1, 0, 2)}


@pytest.mark.parametrize("measure", MEASURES)
def test_every_item_of_a_random_distribution_has_a_use(measure):
    generator = np.random.default_rng(8)
    for n in (2, 5):
        found = random_distribution(generator, MEASURES[measure], n)
        assert found.mean(MEASURES[measure].utility(found.support)).min() > 0
        assert found.probability.sum() == pytest.approx(1)


def test_a_point_above_the_bound_is_counted():
    slack = np.full(3, 1e-12)
    found = BoundCheck(np.array([1.0, 4.0, 0.0]), np.array([1.01, 2.0, 1e-7]), slack, 0.0, 0.0)
    assert found.violations == 1 and found.closest == pytest.approx(1.01)


def test_a_study_covers_every_loss_and_measure_and_repeats():
    chosen = {"NDCG@3": MEASURES["NDCG@3"]}
    first, again = (study_bounds(2, seed=3, measures=chosen) for _ in range(2))
    assert list(first) == list(LOSSES) and list(first["pairwise squared"]) == ["NDCG@3"]
    np.testing.assert_array_equal(
        first["Bregman, x log x"]["NDCG@3"].regret, again["Bregman, x log x"]["NDCG@3"].regret
    )
    assert all(found["NDCG@3"].regret_after_descent < 1e-3 for found in first.values())


def test_ranknet_misorders_graded_items_often():
    found = ranknet_misorders(25, seed=2)
    assert set(found) == {"DCG@3", "NDCG@3", "precision@3", "recall@3", "AUC"}
    assert found["DCG@3"]["share"] > 0.25 and found["DCG@3"]["regret"] > 0.005
