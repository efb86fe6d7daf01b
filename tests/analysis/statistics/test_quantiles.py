import numpy as np
import pytest

from cascade_sim.analysis.statistics.quantiles import quantile_intervals


def one(values, request, n, level, resamples=200, seed=1):
    (found,) = quantile_intervals(np.asarray(values, float), np.asarray(request), n, [level], resamples, seed)
    return found


def test_the_value_is_the_least_that_so_large_a_share_does_not_exceed():
    values, request = [3.0, 1.0, 2.0, 4.0], [0, 1, 2, 3]
    assert [one(values, request, 4, level)["value"] for level in (0.25, 0.5, 0.51, 0.9)] == [1, 2, 3, 4]


def test_the_interval_covers_the_median_about_as_often_as_it_says():
    rng = np.random.default_rng(5)
    hits = 0
    for seed in range(200):
        values = rng.exponential(size=300)
        found = one(values, np.arange(300), 300, 0.5, seed=seed)
        hits += found["low"] <= np.log(2) <= found["high"]
    assert 0.9 <= hits / 200 <= 0.99


def test_requests_are_resampled_with_all_their_values():
    """Values that come in fives say no more than one each."""
    values = np.random.default_rng(2).normal(size=100)
    single = one(values, np.arange(100), 100, 0.5, resamples=500)
    fives = one(np.repeat(values, 5), np.repeat(np.arange(100), 5), 100, 0.5, resamples=500)
    assert single == fives


def test_requests_without_values_count_as_requests():
    values = np.random.default_rng(2).normal(size=50)
    dense, thin = one(values, np.arange(50), 50, 0.5), one(values, 2 * np.arange(50), 100, 0.5)
    assert dense["value"] == thin["value"] and dense != thin


def test_the_order_of_the_values_does_not_matter_and_repetition_gives_the_same():
    rng = np.random.default_rng(3)
    values, request = rng.normal(size=60), rng.integers(0, 20, 60)
    mixed = rng.permutation(60)
    assert one(values, request, 20, 0.9) == one(values[mixed], request[mixed], 20, 0.9)


def test_nothing_gives_nothing():
    assert one([], np.zeros(0, int), 10, 0.5) == {"value": None, "low": None, "high": None}


def test_a_constant_has_an_interval_without_width():
    found = one([0.5] * 8, np.arange(8), 8, 0.9)
    assert found == {"value": 0.5, "low": 0.5, "high": pytest.approx(0.5)}
