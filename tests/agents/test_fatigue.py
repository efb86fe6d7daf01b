import numpy as np
import pytest

from answers.told import refused
from cascade_sim.agents.fatigue import after, fatigue_shift, fatigued


def test_a_user_without_exposures_is_not_tired():
    shift = fatigue_shift(np.zeros(3), np.array([0, 2, 2]), strength=0.7)
    assert shift.tolist() == [0, 0, 0]
    assert not np.signbit(shift).any()


def test_the_shift_grows_with_the_logarithm_of_the_memory():
    state = np.array([0.0, 1.0, np.e - 1, 7.0])
    assert fatigue_shift(state, np.array([3, 1, 2, 0, 1]), strength=0.5) == pytest.approx(
        [-0.5 * np.log(8), -0.5 * np.log(2), -0.5, 0, -0.5 * np.log(2)]
    )
    assert fatigue_shift(state, np.array([3]), strength=0.0) == 0


def test_exposures_add_up_and_then_fade_by_half_in_a_half_life():
    state = np.array([0.0, 8.0, 1.0])
    users, impressions = np.array([0, 1, 0]), np.array([5, 2, 3])
    assert after(state, users, impressions, 6 * 3600.0, half_life_hours=6).tolist() == [4, 5, 0.5]
    assert after(state, users, impressions, 12 * 3600.0, half_life_hours=6).tolist() == [2, 2.5, 0.25]
    assert after(state, users, impressions, 0.0, half_life_hours=6).tolist() == [8, 10, 1]
    assert state.tolist() == [0, 8, 1]


def test_an_infinite_half_life_never_forgets():
    assert after(np.array([2.0]), np.array([0]), np.array([1]), 1e9, half_life_hours=np.inf).tolist() == [3]


def test_the_order_of_requests_in_a_window_does_not_matter():
    rng = np.random.default_rng(0)
    state, users, shown = rng.random(50), rng.integers(50, size=4000), rng.integers(6, size=4000)
    order = rng.permutation(4000)
    assert np.array_equal(
        after(state, users, shown, 60.0, half_life_hours=24),
        after(state, users[order], shown[order], 60.0, half_life_hours=24),
    )


def test_a_window_without_requests_only_fades():
    none = np.zeros(0, dtype=np.int64)
    assert after(np.array([4.0]), none, none, 3600.0, half_life_hours=1).tolist() == [2]


def test_windows_without_exposures_may_be_joined():
    none = np.zeros(0, dtype=np.int64)
    state = np.array([4.0, 3.0])
    twice = after(after(state, none, none, 500.0, half_life_hours=2), none, none, 900.0, half_life_hours=2)
    assert twice == pytest.approx(after(state, none, none, 1400.0, half_life_hours=2), rel=1e-14)


def test_regular_exposure_settles_where_fading_and_seeing_balance():
    state, one = np.zeros(1), np.array([0])
    for _ in range(200):
        state = after(state, one, np.array([3]), 3600.0, half_life_hours=1)
    assert state == pytest.approx(3)  # s = (s + 3) / 2


def test_a_shift_moves_the_logit_of_the_ctr():
    ctr, shift = np.array([[0.5, 0.1], [0.5, 0.9]]), np.array([-np.log(3), -1.0])
    by_hand = 1 / (1 + np.exp(-(np.log(ctr / (1 - ctr)) + shift[:, None])))
    assert fatigued(ctr, shift) == pytest.approx(by_hand)
    assert fatigued(ctr, shift)[0, 0] == pytest.approx(1 / 4)


def test_without_fatigue_no_bit_of_the_ctr_changes_and_certainties_stay():
    ctr = np.random.default_rng(1).random((100, 5))
    assert np.array_equal(fatigued(ctr, np.zeros(100)), ctr)
    assert fatigued(np.array([[0.0, 1.0]]), np.array([-2.0])).tolist() == [[0, 1]]


def test_nonsense_is_refused():
    one = np.array([0])
    with pytest.raises(TypeError, match="integers"):
        after(np.zeros(1), one, np.array([0.5]), 1.0, half_life_hours=1)
    with refused("user 4", 2, kind=ValueError):
        after(np.zeros(2), np.array([4]), one, 1.0, half_life_hours=1)
    with pytest.raises(ValueError, match="half-life"):
        after(np.zeros(1), one, one, 1.0, half_life_hours=0)
    with pytest.raises(ValueError, match="time"):
        after(np.zeros(1), one, one, -1.0, half_life_hours=1)
