import numpy as np
import pytest

from cascade_sim.analysis.statistics.levels import (
    LEAST,
    RETURNING,
    autoregression,
    dickey_fuller_p,
    gls_line,
    stationarity_test,
)
from drills.drift_power import DRIFTS, KINDS, LEVELS, noise, rates


def seeded(seed):
    return np.random.Generator(np.random.PCG64(seed))


def wave(n):
    """A curve that anybody can write down: a rise, a slow and a fast wave."""
    t = np.arange(n)
    return 0.01 * t + np.sin(0.37 * t) + 0.5 * np.cos(1.9 * t * t)


# statsmodels 0.15.0: adfuller(wave(60), maxlag=k, regression="c", autolag=None)[:2] for k = 0 .. 3
ADFULLER = [
    (-2.9007276850826202, 0.04526344301265758),
    (-2.495960330203129, 0.11646031657138212),
    (-2.7020426813702256, 0.07368546247413423),
    (-3.523971357706815, 0.007392382949427931),
]
# statsmodels 0.15.0: GLS(wave(60), [1, t], sigma=rho ** |i - j|): params[1], bse[1]
GLS = {
    0.3: (0.007891851948979355, 0.006886531014999963),
    0.9: (0.003095704422663212, 0.02897238560761475),
}


@pytest.mark.parametrize("lags", range(4))
def test_the_unit_root_statistic_and_its_p_value_are_those_of_statsmodels(lags):
    found = autoregression(wave(60)[None], lags, True)
    statistic, p = ADFULLER[lags]
    assert found.statistic[0] == pytest.approx(statistic, rel=1e-9)
    assert dickey_fuller_p(found.statistic[0]) == pytest.approx(p, rel=1e-9)


@pytest.mark.parametrize("rho", list(GLS))
def test_the_line_with_correlated_errors_is_that_of_statsmodels(rho):
    found = gls_line(wave(60)[None], np.array([rho]))
    assert (found[0][0], found[1][0]) == pytest.approx(GLS[rho], rel=1e-9)


def test_p_values_of_a_unit_root_fall_with_the_statistic_and_meet_the_published_limits():
    """Of many points, 1, 5 and 10 % at -3.43, -2.86 and -2.57 (MacKinnon)."""
    assert [dickey_fuller_p(x) for x in (-3.43, -2.86, -2.57)] == pytest.approx([0.01, 0.05, 0.1], rel=0.02)
    values = [dickey_fuller_p(x) for x in np.linspace(-20, 4, 200)]
    assert values == sorted(values) and (values[0], values[-1]) == (0.0, 1.0)


def test_a_steady_rise_drifts_and_its_slope_is_told_with_an_interval():
    found = stationarity_test(noise(seeded(1), 160, 0.5) + 0.02 * np.arange(160))
    assert found.is_drifting and not found.is_stationary and found.slope_p < 0.01
    assert found.low < 0.02 < found.high and found.low > 0
    down = stationarity_test(noise(seeded(1), 160, 0.5) - 0.02 * np.arange(160))
    assert down.is_drifting and down.high < 0


def test_noise_that_lasts_is_no_drift_and_comes_back():
    found = stationarity_test(3.0 + noise(seeded(2), 160, 0.8))
    assert not found.is_drifting and found.is_stationary
    assert found.low < 0 < found.high and found.unit_root_p < 0.05
    assert found.persistence == pytest.approx(0.8, abs=0.15)


def test_a_random_walk_is_seen_by_its_persistence():
    found = stationarity_test(noise(seeded(4), 200, 1.0))
    assert found.is_drifting and found.persistence_p < 0.025 and found.unit_root_p > 0.05
    assert found.persistence > RETURNING


def test_the_verdict_does_not_depend_on_unit_level_or_direction():
    curve = noise(seeded(5), 100, 0.9)
    found, moved, turned = (stationarity_test(y) for y in (curve, 1000 * curve - 7, -curve))
    assert found.drift_p == moved.drift_p == turned.drift_p
    assert moved.slope == pytest.approx(1000 * found.slope) and turned.slope == pytest.approx(-found.slope)


def test_curves_without_noise_are_judged_by_what_they_are():
    level, line = stationarity_test(np.full(80, -3.1)), stationarity_test(0.5 * np.arange(80))
    assert level.is_stationary and (level.slope, level.slope_p) == (0.0, 1.0)
    assert line.is_drifting and line.slope == line.low == line.high == pytest.approx(0.5)


def test_a_curve_that_has_broken_off_drifts_and_nothing_more_is_known():
    found = stationarity_test([*np.zeros(90), np.nan])
    assert found.is_drifting and not found.is_stationary and np.isnan(found.slope)


@pytest.mark.parametrize("curve", [np.zeros(LEAST - 1), np.zeros((2, 80))])
def test_too_few_points_are_refused(curve):
    with pytest.raises(ValueError, match=f"at least {LEAST} points"):
        stationarity_test(curve)


def test_the_interval_of_a_slope_covers_it_as_often_as_it_says():
    """60 curves: 57 on average, fewer than 51 once in a hundred times."""
    rng = seeded(6)
    found = [stationarity_test(noise(rng, 100, 0.7) + 0.03 * np.arange(100)) for _ in range(60)]
    assert sum(one.low < 0.03 < one.high for one in found) >= 51


@pytest.mark.drill
@pytest.mark.parametrize("n", [100, 200])
@pytest.mark.parametrize("kind", list(LEVELS))
def test_a_level_is_seldom_called_a_drift_whatever_the_correlation_of_its_noise(kind, n):
    """Nominal 5 %: of 200 curves 10, more than 20 once in 800 times; at 0.95 and 100 points some more."""
    assert rates(kind, n, 200)["drifting"] <= 0.10


POWER = [
    ("line, 2 sd in all, correlation 0.5", 100, 0.65),
    ("line, 4 sd in all, correlation 0.8", 200, 0.9),
    ("random walk", 100, 0.2),
    ("random walk", 200, 0.5),
    ("transient, not left out", 100, 0.8),
]


@pytest.mark.drill
@pytest.mark.parametrize(("kind", "n", "least"), POWER)
def test_lines_and_random_walks_are_found(kind, n, least):
    assert kind in DRIFTS and rates(kind, n, 200)["drifting"] >= least


@pytest.mark.drill
def test_a_random_walk_is_seldom_said_to_hold():
    assert rates("random walk", 200, 200)["stationary"] <= 0.10


def test_kinds_of_curves_are_drawn_alike_each_time():
    assert rates("random walk", 100, 3) == rates("random walk", 100, 3)
    assert len(KINDS) == 12
