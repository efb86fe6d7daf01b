import math

import numpy as np
import pytest

from cascade_sim.analysis.metrics.stability import LAST, deployments_of, drift_section, stability


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


LEVEL = {"scale_off": [1.0] * 400}


def zigzag(n, slope=0.0, size=1.0):
    return [slope * i + size * (-1) ** i for i in range(n)]


def section(score, version=None, **more):
    return drift_section(version or list(range(1, len(score) + 1)), score, LEVEL, **more)


def test_a_level_is_stable_and_a_slope_above_the_noise_is_not():
    assert section(zigzag(LAST))["paper_stable"] == 1.0
    assert section(zigzag(LAST, slope=2.0 / LAST))["paper_stable"] == 0.0  # rises by 2, noise of 1
    found = section([0.25 * i for i in range(150)])
    assert (found["deployments"], found["paper_stable"]) == (150, 0.0)
    assert found["paper_change"]["value"] == pytest.approx(0.25 * 99)
    assert found["paper_residual"]["value"] < 1e-9


def test_only_the_last_hundred_deployments_count_for_the_paper_s_mark():
    settled = [10.0 * 0.5**i for i in range(50)] + zigzag(LAST, size=0.1)
    assert section(settled)["paper_stable"] == 1.0
    assert drift_section(list(range(1, 151)), settled, LEVEL, last=150)["paper_stable"] == 0.0


def test_too_few_deployments_have_no_mark_but_their_change_is_told():
    found = section(zigzag(LAST - 1, slope=1.0))
    assert found["paper_stable"] is None and found["deployments"] == 99
    assert found["paper_change"]["value"] == pytest.approx(98, rel=0.01)
    assert section([1.0, 2.0])["paper_change"]["value"] is None


def test_untrained_models_and_a_deployment_measured_twice_do_not_count():
    """The last deployment also stands at the end of the market."""
    score = [99.0, *zigzag(LAST), 99.0]
    version = [0, *range(1, LAST + 1), LAST]
    found = section(score, version)
    assert (found["deployments"], found["paper_stable"]) == (LAST, 1.0)
    few = section([99.0, 1.0, 1.0, 1.0, 99.0], [0, 1, 2, 3, 3])
    assert few["deployments"] == 3 and few["paper_change"]["value"] == 0.0


def noisy(n, seed, slope=0.0):
    return (np.random.default_rng(seed).normal(size=n) + slope * np.arange(n)).tolist()


def test_a_transient_is_left_out_a_third_of_the_deployments_or_as_many_as_told():
    curve = [20.0 * 0.8**i + x for i, x in enumerate(noisy(150, 3))]
    found = section(curve)
    assert (found["deployments"], found["judged"], found["drifting"], found["stationary"]) == (
        150,
        100,
        0.0,
        1.0,
    )
    whole = section(curve, after=0)
    assert (whole["judged"], whole["drifting"], whole["stationary"]) == (150, 1.0, 0.0)
    assert section(curve, after=30)["judged"] == 120


def test_a_steady_slope_past_the_transient_drifts_and_is_told_per_deployment():
    found = section(noisy(150, 4, slope=0.05))
    slope = found["slope"]
    assert (found["drifting"], found["stationary"]) == (1.0, 0.0) and found["drift_p"] < 0.01
    assert slope["low"] < 0.05 < slope["high"] and slope["value"] == pytest.approx(0.05, abs=0.01)
    assert found["slope_p"] <= found["drift_p"] and found["unit_root"]["value"] is not None


def test_fewer_than_fifty_deployments_past_the_transient_are_not_judged():
    few, enough = section(noisy(74, 5)), section(noisy(75, 5))
    assert few["judged"] == 74 - 74 // 3 == 50 and few["drifting"] is not None
    found = section(noisy(72, 5))
    assert (found["judged"], found["drifting"], found["stationary"], found["drift_p"]) == (
        48,
        None,
        None,
        None,
    )
    assert found["slope"] == {"value": None, "low": None, "high": None} and enough["drifting"] is not None


def test_the_scale_is_that_of_the_deployments_past_the_transient():
    off = {"off": [8.0] * 30 + [2.0] * 60}
    assert drift_section(list(range(1, 91)), [0.0] * 90, off)["off"]["value"] == pytest.approx(2.0)
    whole = drift_section(list(range(1, 91)), [0.0] * 90, off, after=0)["off"]["value"]
    assert whole == pytest.approx(2.0 ** ((3 * 30 + 60) / 90))


def test_deployments_are_those_that_were_trained_each_once():
    rows, judged = deployments_of([0, 1, 2, 2, 3, 4, 5, 6, 6])
    assert rows == [1, 2, 4, 5, 6, 7] and judged == [4, 5, 6, 7]
    assert deployments_of([0, 1, 2], after=2) == ([1, 2], []) and deployments_of([0]) == ([], [])


def test_the_typical_factor_counts_half_and_double_alike():
    ratios = {"off": [0.5, 2.0, 1.0, None], "shown": [None] * 4}
    found = drift_section([1, 2, 3, 4], [0.0] * 4, ratios, after=0)
    assert found["off"]["value"] == pytest.approx(math.exp(2 * math.log(2) / 3))
    assert found["shown"] == {"value": None, "low": None, "high": None}


def test_a_seat_without_scores_has_no_mark_and_a_curve_that_breaks_is_unstable():
    without = section([None] * LAST)
    assert without["paper_stable"] is None and without["drifting"] is None
    broken = section([*zigzag(LAST - 1), None])
    assert (broken["paper_stable"], broken["drifting"]) == (0.0, 1.0)
    assert broken["paper_change"]["value"] is None and broken["slope"]["value"] is None


def test_moved_is_from_the_first_ten_deployments_to_the_last_ten():
    curve = [0.0, *range(30)]  # the first is before any training and does not count
    found = drift_section(list(range(31)), curve, {})
    assert found["moved"]["value"] == pytest.approx(24.5 - 4.5)
    back = drift_section(list(range(31)), [-x for x in curve], {})
    assert (back["moved"]["value"], back["moved_by"]["value"]) == pytest.approx((-20.0, 20.0))
    assert drift_section(list(range(20)), curve[:20], {})["moved"]["value"] is None
    assert drift_section(list(range(31)), [*curve[:-1], None], {})["moved"]["value"] is None
