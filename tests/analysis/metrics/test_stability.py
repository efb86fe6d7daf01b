import numpy as np
import pytest

from cascade_sim.analysis.metrics.stability import stability


def test_a_straight_rise_is_unstable_and_its_change_is_that_of_its_ends():
    found = stability(0.25 * np.arange(300) - 7)
    assert not found.is_stable and found.mark == "unstable"
    assert found.change == pytest.approx(0.25 * 99) and found.residual == pytest.approx(0, abs=1e-12)


def test_a_level_curve_is_stable_with_and_without_noise():
    assert stability(np.full(150, 0.1)).is_stable
    assert stability([0.1, 0.1, 0.1]).change == 0
    noisy = 3 + np.random.default_rng(0).normal(size=100)
    assert stability(noisy).is_stable and stability(noisy).mark == "stable"


def test_the_line_is_the_least_squares_line():
    y = np.random.default_rng(1).normal(size=40).cumsum()
    slope, level = np.polyfit(np.arange(40), y, 1)
    found = stability(y, last=100)
    assert found.change == pytest.approx(39 * slope)
    assert found.residual == pytest.approx(np.abs(y - level - slope * np.arange(40)).mean())


def test_only_the_last_points_count():
    curve = np.concatenate([np.linspace(-50, 0, 400), np.random.default_rng(2).normal(size=100)])
    assert stability(curve).is_stable and not stability(curve, last=300).is_stable


def test_drift_smaller_than_the_noise_is_not_called_drift():
    alternating = np.tile([1.0, -1.0], 50)  # mean residual about 1
    assert stability(alternating + np.linspace(0, 0.9, 100)).is_stable
    assert not stability(alternating + np.linspace(0, 1.2, 100)).is_stable


def test_independent_noise_is_called_unstable_about_once_in_fifty_times():
    curves = np.random.default_rng(3).normal(size=(2000, 100))
    assert 0.01 < np.mean([not stability(curve).is_stable for curve in curves]) < 0.04


def test_a_diverged_curve_is_unstable():
    assert not stability([1.0, 2.0, np.inf, np.nan]).is_stable
    assert stability([np.nan, 1.0, 1.0, 1.0], last=3).is_stable


@pytest.mark.parametrize(("curve", "last"), [([1.0, 2.0], 100), ([1.0] * 9, 2), ([[1.0, 2.0, 3.0]], 9)])
def test_too_few_points_are_refused(curve, last):
    with pytest.raises(ValueError, match="at least 3 points"):
        stability(curve, last)
