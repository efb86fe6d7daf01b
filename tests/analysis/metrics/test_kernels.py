"""Kernels on inputs that the metrics themselves do not reach."""

import numpy as np
import pytest

from cascade_sim.analysis.metrics.kernels import expected_reciprocal_stop, pairs_won, positional_sums

FIRST = np.array([True, False, False])
LISTS = np.array([0, 3])
ORDER = np.arange(3)


def test_a_reader_who_may_stop_anywhere_averages_over_tied_orders():
    stop = np.array([0.2, 0.5, 0.9])
    orders = [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)]
    expected = np.mean(
        [
            stop[a] + (1 - stop[a]) * stop[b] / 2 + (1 - stop[a]) * (1 - stop[b]) * stop[c] / 3
            for a, b, c in orders
        ]
    )
    assert expected_reciprocal_stop(stop, ORDER, FIRST, LISTS, 3)[0] == pytest.approx(expected)
    two = np.mean([stop[a] + (1 - stop[a]) * stop[b] / 2 for a, b, c in orders])
    assert expected_reciprocal_stop(stop, ORDER, FIRST, LISTS, 2)[0] == pytest.approx(two)


def test_long_runs_of_certain_passers_stay_exact():
    n = 3000
    stop = np.zeros(n)
    stop[7] = 1.0
    first = np.arange(n) == 0
    found = expected_reciprocal_stop(stop, np.arange(n), first, np.array([0, n]), n)[0]
    assert found == pytest.approx((1 / np.arange(1, n + 1)).sum() / n, rel=1e-12)


def test_places_weigh_by_the_mean_of_the_run():
    found = positional_sums(np.array([3.0, 0.0, 1.0]), np.array([6.0, 3.0, 0.0]), ORDER, FIRST, LISTS)
    assert found.tolist() == [4.0 * (6 + 3 + 0) / 3]


def test_an_item_is_no_pair_with_itself():
    won, total = pairs_won(np.array([0.5, 0.5]), np.arange(2), np.array([True, True]), np.array([0, 2]))
    # ordered pairs (1, 2) and (2, 1) weigh 1/4 each; the first is in order
    assert won[0] == pytest.approx(1 / 4) and total[0] == pytest.approx(2 / 4)
