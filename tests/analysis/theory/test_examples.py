from fractions import Fraction

import numpy as np
import pytest

from cascade_sim.analysis import metrics
from cascade_sim.analysis.theory.examples import (
    COMPATIBLE_PREDICTIONS,
    average_precision,
    expected_reciprocal_rank,
    often_a_little_or_seldom_a_lot,
    preferred,
    ranknet_optimum,
    regression_and_ranking_losses,
    two_halves,
)
from cascade_sim.analysis.theory.losses import LOSSES
from cascade_sim.analysis.theory.measures import Distribution, gppms, regret


def test_equal_utilities_do_not_make_orders_equal_for_err_and_ap():
    values = two_halves()
    mixed, blocked = (0, 2, 1, 3), (0, 1, 2, 3)
    # ERR, a stop in one reader of two: 1-3-2-4 finds items at places 1, 3 or 2, 4; 1-2-3-4 at 1, 2 or 3, 4
    half = Fraction(1, 2)
    err_mixed = half * (half + half * half / 3 + half / 2 + half * half / 4)
    err_blocked = half * (half + half * half / 2 + half / 3 + half * half / 4)
    assert values["ERR"][mixed] == err_mixed and values["ERR"][blocked] == err_blocked
    assert err_mixed - err_blocked == Fraction(1, 48)
    assert values["AP"][mixed] - values["AP"][blocked] == Fraction(-1, 24)
    assert all(len(set(found.values())) > 1 and len(found) == 24 for found in values.values())


def test_for_every_gppm_the_same_two_cases_leave_all_orders_equal():
    distribution = Distribution(np.array([[1.0, 1, 0, 0], [0, 0, 1, 1]]), np.array([0.5, 0.5]))
    for measure in gppms(2).values():
        if measure.supervision != "order":
            orders = np.array(list(two_halves()["AP"]), float)
            assert regret(measure, distribution, orders) == pytest.approx(np.zeros(24), abs=1e-15)


def test_exact_values_are_those_of_the_metrics():
    y, order = (1, 0, 2, 1), (2, 1, 0, 3)
    scores = np.empty(4)
    scores[list(order)] = [4, 3, 2, 1]
    found = metrics.err(scores, y, max_grade=2).value[0]
    assert float(expected_reciprocal_rank(y, order, 2)) == pytest.approx(found)
    assert float(average_precision(y, order)) == pytest.approx(metrics.average_precision(scores, y).value[0])


def test_ranknet_counts_wins_and_misses_the_better_item():
    distribution = often_a_little_or_seldom_a_lot()
    s = ranknet_optimum(distribution)
    assert s[0] - s[1] == pytest.approx(np.log(0.6 / 0.4), abs=1e-4)
    dcg = gppms(3)["DCG@3"]
    assert regret(dcg, distribution, s) == pytest.approx((6 / 5 - 3 / 5) * (1 - 1 / np.log2(3)))
    u = distribution.mean(dcg.utility(distribution.support))
    for loss in LOSSES.values():
        assert regret(dcg, distribution, loss.best(u, 4.0)) == pytest.approx(0, abs=1e-15)


def test_ranknet_finds_the_order_where_wins_tell_it():
    distribution = Distribution(np.array([[2.0, 1, 0], [2, 0, 1]]), np.array([0.7, 0.3]))
    s = ranknet_optimum(distribution)
    assert s[0] > s[1] > s[2] and s.sum() == pytest.approx(0, abs=1e-9)
    assert s[1] - s[2] == pytest.approx(np.log(0.7 / 0.3), abs=1e-3)


def test_ranknet_takes_nothing_from_ties():
    distribution = Distribution(np.array([[1.0, 0], [0, 1], [1, 1]]), np.array([0.5, 0.2, 0.3]))
    s = ranknet_optimum(distribution)
    assert s[0] - s[1] == pytest.approx(np.log(0.5 / 0.2), abs=1e-4)


def test_regression_and_ranking_losses_of_four_rankers():
    found = regression_and_ranking_losses()
    labels = np.array([0.4, 0.4, 0.5])
    for i, p in enumerate(np.array(COMPATIBLE_PREDICTIONS)):
        s = np.log(p / (1 - p))
        assert found["SigmoidCE"][i] == pytest.approx(-(labels @ np.log(p) + (1 - labels) @ np.log(1 - p)))
        softmax = np.exp(s) / np.exp(s).sum()
        assert found["SoftmaxCE"][i] == pytest.approx(-(labels @ np.log(softmax)) / labels.sum())
        assert found["ListCE(sigmoid)"][i] == pytest.approx(-(labels @ np.log(p / p.sum())) / labels.sum())


def test_the_compatible_pair_prefers_the_ranker_in_order_and_the_other_pair_does_not():
    found = regression_and_ranking_losses()
    sigmoid, softmax, compatible = found["SigmoidCE"], found["SoftmaxCE"], found["ListCE(sigmoid)"]
    for alpha in np.linspace(0.001, 0.999, 50):
        assert np.argmin((1 - alpha) * sigmoid + alpha * compatible) == 3
        assert np.argmin((1 - alpha) * sigmoid + alpha * softmax) == 0
    assert preferred(sigmoid, compatible) == 3 and preferred(sigmoid, softmax) == 0
    # 0.4 and 0.6 are as far from 0.5, and shares 2 : 2 : 3 are the same in .2 .2 .3 and .4 .4 .6
    assert sigmoid[0] == pytest.approx(sigmoid[3]) and compatible[1] == pytest.approx(compatible[3])


def test_a_trade_off_has_no_preferred_ranker():
    assert preferred([1.0, 2.0], [2.0, 1.0]) is None
    assert preferred([1.0, 1.0], [2.0, 2.0]) is None
    assert preferred([1.0, 1.0], [2.0, 1.0]) == 1
