import math

import numpy as np
import pytest
from scipy import stats

from answers.told import refused
from cascade_sim.analysis.off_policy.noise import (
    margins,
    mean_interval,
    skewness,
    standard_error,
    unit_totals,
)


def test_the_standard_error_of_a_mean_is_s_over_root_n():
    x = np.array([1.0, 2, 3, 6])
    error, df = standard_error(x - 3)
    assert error == pytest.approx(math.sqrt((4 + 1 + 0 + 9) / 3 / 4)) and df == 3


def test_requests_of_one_user_count_together():
    psi = np.array([1.0, 2, -1, -2, 1, -1])
    error, df = standard_error(psi, ["a", "a", "b", "b", "c", "c"])
    # totals 3, −3, 0 of three users over six requests
    assert error == pytest.approx(math.sqrt(3 / 2 * (9 + 9 + 0)) / 6) and df == 2


def test_users_with_one_request_each_change_nothing():
    psi = np.random.default_rng(0).normal(size=50)
    assert standard_error(psi, np.arange(50)) == pytest.approx(standard_error(psi))
    assert margins(psi, np.arange(50)) == pytest.approx(margins(psi))


def test_one_unit_says_nothing_about_noise():
    assert standard_error(np.zeros(1)) == (math.inf, 0)
    assert standard_error(np.zeros(5), np.ones(5)) == (math.inf, 0)
    assert mean_interval(np.array([2.0])) == (2.0, -math.inf, math.inf)


def test_clusters_must_be_one_per_request():
    with refused("clusters", "(2,)", "(3,)", kind=ValueError):
        unit_totals(np.zeros(3), [1, 2])


def test_skewness_is_the_third_moment_in_standard_deviations():
    x = np.array([0.0, 0, 0, 1])
    assert skewness(x) == pytest.approx((3 * (-1 / 4) ** 3 + (3 / 4) ** 3) / 4 / (3 / 16) ** 1.5)
    assert skewness(-x) == -skewness(x)
    assert skewness(np.full(10, 0.1)) == 0


def test_without_skewness_the_margins_are_students():
    x = np.array([-2.0, -1, 0, 1, 2])
    half = stats.t.ppf(0.975, 4) * math.sqrt(10 / 4 / 5)
    assert margins(x) == pytest.approx((half, half), rel=1e-12)
    wide = stats.t.ppf(0.9995, 4) * math.sqrt(10 / 4 / 5)
    assert margins(x, alpha=0.001) == pytest.approx((wide, wide), rel=1e-12)


def test_the_longer_margin_undoes_the_skewness_of_the_t_statistic():
    x = np.array([0.0] * 90 + [1.0] * 10)
    error, df = standard_error(x - x.mean())
    below, above = margins(x - x.mean())
    t, kappa = stats.t.ppf(0.975, df), skewness(x) / math.sqrt(100)
    at = -above / error  # the t statistic if the truth were the upper end
    assert at + kappa * at**2 / 3 + kappa**2 * at**3 / 27 + kappa / 6 == pytest.approx(-t, rel=1e-12)
    assert below == pytest.approx(t * error)  # Student's is the farther one here
    assert above > 1.2 * below


def test_margins_mirror():
    x = np.random.default_rng(1).exponential(size=200)
    below, above = margins(x - x.mean())
    assert margins(x.mean() - x) == pytest.approx((above, below))


def test_tiny_skewness_joins_on_smoothly():
    x = np.random.default_rng(2).normal(size=400)
    x = np.concatenate([x, -x])
    nearly = x.copy()
    nearly[0] += 1e-7
    assert margins(nearly - nearly.mean()) == pytest.approx(margins(x), rel=1e-6)


@pytest.mark.parametrize(
    ("draw", "truth"),
    [
        (lambda rng, shape: (rng.random(shape) < 0.05).astype(float), 0.05),
        (
            lambda rng, shape: (
                rng.exponential(size=shape) * rng.choice([-1, 2], p=[2 / 3, 1 / 3], size=shape)
            ),
            0,
        ),
        (lambda rng, shape: (rng.random(shape) < 0.2) * rng.lognormal(-0.32, 0.8, shape), 0.2),
    ],
    ids=["rare clicks", "gains and losses", "revenue"],
)
def test_skewed_means_are_covered_95_times_in_100(draw, truth):
    x = draw(np.random.default_rng(5), (1000, 600))
    ends = np.array([mean_interval(row)[1:] for row in x])
    coverage = np.mean((ends[:, 0] <= truth) & (truth <= ends[:, 1]))
    assert 0.929 <= coverage <= 0.971


def test_user_effects_are_covered_only_with_clusters():
    rng = np.random.default_rng(6)
    users = np.repeat(np.arange(60), 10)
    x = rng.normal(size=(1000, 600)) + rng.normal(size=(1000, 60))[:, users]
    covered = {}
    for name, clusters in (("users", users), ("requests", None)):
        ends = np.array([mean_interval(row, clusters)[1:] for row in x])
        covered[name] = np.mean((ends[:, 0] <= 0) & (ends[:, 1] >= 0))
    assert 0.929 <= covered["users"] <= 0.971
    assert covered["requests"] < 0.75
