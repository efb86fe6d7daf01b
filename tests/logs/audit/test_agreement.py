"""Where the most intervals meet."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascade_sim.logs.audit.agreement import agreement, commonest, roundest

ENDS = st.tuples(st.integers(0, 30), st.integers(0, 30)).map(sorted)


@given(st.lists(ENDS, min_size=1, max_size=30))
def test_no_point_lies_in_more_intervals(intervals):
    low, high = np.array(intervals, float).T
    met = agreement(low, high)
    counts = [int(((low <= x) & (x <= high)).sum()) for x in range(31)]
    assert met.count == max(counts)
    assert ((low <= met.value) & (met.value <= high)).sum() == met.count
    assert met.low <= met.value <= met.high


def test_thousands_that_agree_are_not_moved_by_those_that_do_not():
    rng = np.random.default_rng(0)
    right, wrong = rng.normal(0, 1e-6, 2000), rng.uniform(0, 2, 3000)
    low = np.concatenate([0.7 + right - 2e-6, wrong])
    high = np.concatenate([0.7 + right + 2e-6, wrong + 1e-5])
    assert agreement(low, high).value == pytest.approx(0.7, abs=3e-6)


def test_half_lines_bound_a_number_from_both_sides():
    low, high = np.array([1.0, 2.0, -np.inf, -np.inf]), np.array([np.inf, np.inf, 3.0, 2.5])
    met = agreement(low, high)
    assert (met.count, met.low, met.high) == (4, 2.0, 2.5)


def test_infinity_is_no_place_to_meet():
    met = agreement(np.array([np.inf, 1.0, 2.0]), np.array([np.inf, 1.5, 2.5]), (0.0, np.inf))
    assert np.isfinite(met.value)


def test_without_intervals_there_is_no_agreement():
    assert agreement(np.array([]), np.array([])).count == 0
    assert agreement(np.array([2.0]), np.array([1.0])).count == 0


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0.4996, 0.50003, 0.5), (0.31, 0.31, 0.31), (0.98, 1.4, 1.0), (1.2, 1.3, 1.2), (5.1, np.inf, 5.1)],
)
def test_the_roundest_number_of_an_interval(low, high, expected):
    assert roundest(low, high) == expected


def test_the_commonest_value_and_how_often_it_occurs():
    assert commonest(np.array([3, 1, 3, 2])) == (3, 2)
    assert commonest(np.array([], int)) == (0, 0)
