"""Coverage, bias and false positives of answers whose properties are known."""

import numpy as np
import pytest

from answers.coverage import normal_answers
from cascade_sim.analysis.off_policy.coverage import (
    MIN_ANSWERS,
    coverage_of,
    expected_band,
    false_positive_rate,
    share,
)


def test_right_intervals_hold():
    found = coverage_of(*normal_answers(), 10.0)
    assert found.verdict == "holds"
    assert found.coverage.value == pytest.approx(0.95, abs=0.011)
    assert found.rmse == pytest.approx(1.0, abs=0.05)
    assert found.width == pytest.approx(2 * 1.96)
    assert found.bias_low < 0 < found.bias_high
    assert found.false_positive_rate.low < 0.05 < found.false_positive_rate.high


def test_intervals_that_claim_too_much_or_too_little_are_told_apart():
    assert coverage_of(*normal_answers(claimed=0.85), 10.0).verdict == "too seldom"
    assert coverage_of(*normal_answers(claimed=1.3), 10.0).verdict == "wider than needed"


def test_bias_costs_coverage_and_is_shown():
    found = coverage_of(*normal_answers(bias=1.0), 10.0)
    assert found.bias == pytest.approx(1.0, abs=0.05)
    assert found.rmse == pytest.approx(np.sqrt(1 + 1), abs=0.05)
    assert found.verdict == "too seldom"
    assert found.false_positive_rate.value == pytest.approx(0.05, abs=0.015)  # both logs are wrong alike


def test_refusals_are_counted_and_do_not_count_as_misses():
    value, low, high = normal_answers(400)
    low[::4], high[::4] = np.nan, np.nan
    found = coverage_of(value, low, high, 10.0)
    assert found.no_estimate == 0.25
    assert found.coverage.n == 300
    assert (
        found.false_positive_rate.n == 100
    )  # of 200 pairs, every other has a refusal: 0, 4, 8, ... are first of theirs


def test_who_always_refuses_has_no_coverage():
    nothing = np.full(50, np.nan)
    found = coverage_of(nothing, nothing, nothing, 1.0)
    assert (found.no_estimate, found.coverage.value, found.bias, found.verdict) == (1.0, None, None, None)


def test_too_few_answers_are_not_judged():
    value, low, high = normal_answers(MIN_ANSWERS - 1)
    assert coverage_of(value, low, high, 99.0).verdict is None


def test_a_false_alarm_is_a_difference_beyond_both_intervals_together():
    value = np.array([0.0, 1.5, 0.0, 1.3])
    low, high = value - 1, value + 1  # the difference has a half width of sqrt(1 + 1) = 1.414
    found = false_positive_rate(value, low, high)
    assert (found.n, found.value) == (2, 0.5)


def test_the_lopsided_ends_that_face_each_other_decide():
    value = np.array([0.0, 1.0])
    assert false_positive_rate(value, value - np.array([9, 0.5]), value + np.array([0.5, 9])).value == 1.0
    assert false_positive_rate(value, value - np.array([0.5, 9]), value + np.array([9, 0.5])).value == 0.0


def test_shares_have_wilson_s_interval():
    found = share(8, 10)
    assert (found.value, found.low, found.high) == (
        0.8,
        pytest.approx(0.4902, abs=1e-3),
        pytest.approx(0.9433, abs=1e-3),
    )
    assert share(0, 20).low == 0 and share(20, 20).high == 1
    assert share(0, 0).value is None


def test_the_band_holds_right_counts_nearly_always():
    low, high = expected_band(1000)
    assert (low, high) == (0.927, 0.970)
    hits = np.random.default_rng(3).binomial(1000, 0.95, 100_000) / 1000
    assert np.mean((hits < low) | (hits > high)) < 0.003
