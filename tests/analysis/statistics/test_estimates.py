import numpy as np
import pytest

from cascade_sim.analysis.statistics.estimates import (
    MISSING,
    NBSP,
    Estimate,
    decimals_for,
    estimate,
    finite,
    interval_text,
    lift_of,
    number_text,
    percent_text,
)


@pytest.mark.parametrize("undefined", [None, float("nan"), float("inf"), "0.5", True, {}])
def test_what_is_not_a_finite_number_counts_as_undefined(undefined):
    assert finite(undefined) is None


def test_numbers_of_numpy_are_numbers():
    assert finite(np.float32(0.5)) == 0.5 and finite(np.int64(3)) == 3.0


def test_a_null_entry_has_neither_value_nor_lift():
    assert estimate(None) == Estimate() and lift_of(None) == Estimate()
    assert lift_of({"value": 1.0, "lift": None}) == Estimate()


def test_the_margin_is_the_longer_half_of_a_skewed_interval():
    assert Estimate(10.0, 9.0, 13.0).half_width == 13.0 - 10.0


def test_an_interval_that_touches_zero_decides_nothing():
    assert not Estimate(1.0, 0.0, 2.0).is_above_zero and not Estimate(-1.0, -2.0, 0.0).is_below_zero
    assert Estimate(1.0, 0.1, 2.0).is_above_zero and Estimate(-1.0, -2.0, -0.1).is_below_zero


def test_numbers_carry_a_real_minus_and_zero_carries_no_sign():
    assert number_text(-1.25, 1) == "−1.2"
    assert number_text(2.0, 1, signed=True) == "+2.0"
    assert number_text(-0.001, 1, signed=True) == "0.0"
    assert number_text(20000, 0) == "20,000"
    assert number_text(None, 1) == MISSING


def test_percent_for_a_sentence_does_not_break_at_the_end_of_a_line():
    text = percent_text(Estimate(0.037, 0.029, 0.045))
    assert text.replace(NBSP, " ") == "+3.7 % [+2.9, +4.5]" and " " not in text


def test_a_value_without_interval_has_no_brackets():
    assert interval_text(Estimate(1.0), 1) == "" and percent_text(Estimate(0.5)) == f"+50.0{NBSP}%"


def test_the_largest_value_of_a_column_sets_its_decimals():
    assert decimals_for([0.0085, 0.0011], digits=2) == 4
    assert decimals_for([612.0, 38.0]) == 0
    assert decimals_for([None]) == 2
