"""Launches from jittered logs: parameters whose response has a kink where the current value lies."""

import math

import numpy as np
import pytest

from answers.told import refused, tells
from cascade_sim.analysis.off_policy import lift
from cascade_sim.analysis.off_policy.coverage import expected_band
from cascade_sim.analysis.off_policy.gradient import parameter_weights
from cascade_sim.analysis.off_policy.launch import LADDER, JitteredParameter, launches

SIGMA = 0.3


def response(z):
    """Rises slowly up to the current value, then falls fast, as revenue against a reserve."""
    return np.where(z < 0, 1 + 0.05 * z, 1 - 0.35 * z + 0.08 * z**2)


def parameters(*at):
    return [JitteredParameter(f"parameter {i}", f"noise {i}", SIGMA, where) for i, where in enumerate(at)]


def jittered(seed, n, at=-0.5, model=1.2):
    """Clicks at these rates, worth that differs by request; the model is too high by a factor."""
    rng = np.random.default_rng(seed)
    z, worth = rng.normal(size=(n, 1)), rng.gamma(4.0, 0.25, n)
    reward = worth * (rng.random(n) < 0.4 * np.clip(response(z[:, 0]), 0, 2))
    rate = [0.4 * model * worth * response(place) for place in (z[:, 0], np.full(n, at), np.zeros(n))]
    return reward, z, parameters(at), *rate


def truth(at):
    return 0.4 * float(response(np.array(at))), float(response(np.array(at)) / response(np.array(0.0))) - 1


@pytest.mark.drill
@pytest.mark.parametrize("at", [-0.5, 0.6])
def test_where_the_gate_says_ok_the_launch_is_covered_and_the_moved_centre_is_not(at):
    logs, n = 200, 3000
    value, gain = truth(at)
    found = [launches(*jittered(seed, n, at)) for seed in range(logs)]
    for name in ("local_linear", "local_dr"):
        for right, answers in (
            (value, [answer[name] for answer in found]),
            (gain, [answer[name].lift for answer in found]),
        ):
            fine = [answer for answer in answers if answer.diagnostics.verdict == "ok"]
            assert len(fine) > 0.5 * logs
            share = np.mean([answer.low <= right <= answer.high for answer in fine])
            assert share >= expected_band(len(fine))[0], (name, share)
    moved = []
    for seed in range(logs):
        reward, z, *_ = jittered(seed, n, at)
        moved.append(lift("snips", reward, parameter_weights(z[:, 0], SIGMA, at * SIGMA)))
    assert np.mean([answer.low <= gain <= answer.high for answer in moved]) < 0.6


def test_a_straight_response_is_found_exactly_with_no_bias():
    z = np.linspace(-2.4, 2.4, 2001)[:, None]
    line, at = 2 + 0.3 * z[:, 0], np.full(2001, 2.15)
    for answer in launches(line, z, parameters(0.5), 0.5 * line, 0.5 * at, np.ones(2001)).values():
        assert (answer.value, answer.bias) == pytest.approx((2.15, 0), abs=1e-9)
        assert answer.lift.value == pytest.approx(0.075)
        assert answer.bandwidth == (LADDER[-1],)


def test_two_parameters_are_fixed_together():
    rng = np.random.default_rng(1)
    z = rng.normal(size=(20_000, 2))
    rate = lambda first, second: 1 + 0.2 * first - 0.1 * second - 0.1 * first * second  # noqa: E731
    reward = rate(*z.T) + rng.normal(size=20_000)
    flat = np.ones(20_000)
    found = launches(reward, z, parameters(0.8, -0.5), rate(*z.T), rate(0.8, -0.5) * flat, flat)
    for answer in found.values():
        assert answer.low < rate(0.8, -0.5) < answer.high and answer.current.low < 1 < answer.current.high
        assert len(answer.bandwidth) == 2


def test_the_model_s_own_bend_is_taken_off_and_bounds_what_is_left():
    reward, z, where, logged, there, here = jittered(2, 20_000)
    found = launches(reward, z, where, logged, there, here)
    linear, corrected = found["local_linear"], found["local_dr"]
    assert corrected.bandwidth > linear.bandwidth  # less is at stake, so more requests may take part
    assert corrected.diagnostics.ess > linear.diagnostics.ess
    assert corrected.standard_error < linear.standard_error
    assert 0 < corrected.bias < corrected.standard_error
    narrow = corrected.high - corrected.low
    assert narrow > 2 * 1.95 * corrected.standard_error  # the bound makes it longer


def test_today_s_values_have_no_lift():
    reward, z, _, logged, _, here = jittered(3, 4000)
    for answer in launches(reward, z, parameters(0.0), logged, here, here).values():
        assert (answer.lift.value, answer.lift.low, answer.lift.high) == (0, 0, 0)
        assert answer.value == answer.current.value


def test_rewards_in_other_units_have_the_same_lift():
    columns = jittered(4, 4000)
    once = launches(*columns)["local_dr"]
    reward, z, where, *forecasts = columns
    more = launches(100 * reward, z, where, *(100 * forecast for forecast in forecasts))["local_dr"]
    assert more.bandwidth == once.bandwidth and more.lift.low == pytest.approx(once.lift.low)
    assert more.high == pytest.approx(100 * once.high)


@pytest.mark.parametrize("at", [-2.6, 2.6])
def test_a_launch_beyond_the_noise_is_refused_with_what_to_log(at):
    for answer in launches(*jittered(5, 20_000, at)).values():
        assert answer.low is answer.lift.low is answer.value is None
        reason = answer.diagnostics.reason
        assert "exploration is missing" in reason and f"noise 0 = {2.6 * SIGMA / 2:.2g} or more" in reason


def test_a_parameter_that_was_not_moved_is_refused():
    reward, z, where, *forecasts = jittered(6, 1000)
    for answer in launches(reward, np.zeros_like(z), where, *forecasts).values():
        assert answer.low is None and tells(answer.diagnostics.reason, "moved", "noise 0")


def test_too_few_requests_are_refused():
    for answer in launches(*jittered(7, 80)).values():
        assert answer.low is None and "log" in answer.diagnostics.reason


def test_a_bend_that_the_model_does_not_know_is_found_by_the_log():
    """The forecast is flat, so that its own miss is nothing; a wider kernel gives another answer."""
    rng = np.random.default_rng(8)
    z = rng.normal(size=(20_000, 1))
    reward = np.exp(-2 * z[:, 0] ** 2) + 0.1 * rng.normal(size=20_000)
    flat = np.full(20_000, 0.5)
    for answer in launches(reward, z, parameters(0.2), flat, flat, flat).values():
        assert answer.bias == 0 and answer.low is None
        assert "contradicts the model" in answer.diagnostics.reason


def test_nothing_but_zeros_is_refused():
    _, z, where, *forecasts = jittered(9, 2000)
    for answer in launches(np.zeros(2000), z, where, *forecasts).values():
        assert answer.low is answer.lift.low is None


def test_bad_columns_are_named():
    reward, z, where, *forecasts = jittered(10, 100)
    with refused("z", "(100,)", "(100, 1)", kind=ValueError):
        launches(reward, z[:, 0], where, *forecasts)
    with pytest.raises(ValueError, match=r"predicted_current\[3\] is nan"):
        launches(reward, z, where, *forecasts[:2], np.where(np.arange(100) == 3, math.nan, 1.0))
    with refused("z", "finite", kind=ValueError):
        launches(reward, np.where(z > 0, math.inf, z), where, *forecasts)
