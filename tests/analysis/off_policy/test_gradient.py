import itertools
import math

import numpy as np
import pytest
from scipy import stats

from answers.told import refused, tells
from cascade_sim.analysis.off_policy import ips
from cascade_sim.analysis.off_policy.gradient import joint_sensitivity, parameter_weights, sensitivity

NODES, MASS = np.polynomial.hermite_e.hermegauss(80)
MASS = MASS / MASS.sum()


def response(parameter):
    """Revenue against a reserve: it rises, then drives bids away."""
    return parameter * np.exp(-parameter)


def smoothed(theta, sigma):
    """J(θ) = E[response(θ exp(σ z))], by quadrature."""
    return float(MASS @ response(theta * np.exp(sigma * NODES)))


def slope_by_differences(theta, sigma, step=1e-4):
    up, down = (smoothed(theta * math.exp(s), sigma) for s in (step, -step))
    return (up - down) / (2 * step)


def bend_by_differences(theta, sigma, step=1e-2):
    up, mid, down = (smoothed(theta * math.exp(s), sigma) for s in (step, 0, -step))
    return (up - 2 * mid + down) / step**2


def even_draws(n):
    """Normal draws spread evenly: quantiles of the middles of n equal parts."""
    return stats.norm.ppf((np.arange(n) + 0.5) / n)


@pytest.mark.parametrize("theta", [0.4, 1.0, 2.0])
def test_slope_and_curvature_are_those_of_finite_differences(theta):
    z, sigma = even_draws(200_000), 0.3
    found = sensitivity(response(theta * np.exp(sigma * z)), z, sigma, "log", theta)
    slope = slope_by_differences(theta, sigma)
    assert found.value == pytest.approx(slope, abs=2e-4)
    assert found.per_unit.value == pytest.approx(slope / theta, abs=5e-4)
    assert found.relative.value == pytest.approx(slope / smoothed(theta, sigma), abs=1e-3)
    assert found.curvature.value == pytest.approx(bend_by_differences(theta, sigma), abs=2e-3)


def test_a_linear_parameter_has_the_slope_of_its_polynomial():
    # E[(θ + σ z)²] = θ² + σ²: slope 2 θ, curvature 2
    z, sigma, theta = even_draws(200_000), 0.2, 1.5
    found = sensitivity((theta + sigma * z) ** 2, z, sigma, "linear", theta)
    assert found.value == pytest.approx(2 * theta, rel=1e-3)
    assert found.per_unit.value == found.value
    assert found.curvature.value == pytest.approx(2, rel=2e-2)


def test_slopes_are_unbiased_over_all_logs():
    # z of ±√3 (1/6 each) and 0 (2/3) has the moments of a normal draw up to the fifth
    draws, chance = np.array([-math.sqrt(3), 0, math.sqrt(3)]), np.array([1, 4, 1]) / 6
    sigma, forecast = 0.5, np.array([0.3, -0.7])
    for predicted in (None, forecast):
        slope = bend = 0.0
        for pair in itertools.product(range(3), repeat=2):
            z = draws[list(pair)]
            found = sensitivity(2 + 0.8 * z + 0.3 * z**2, z, sigma, "linear", 1.0, predicted)
            slope += chance[list(pair)].prod() * found.value
            bend += chance[list(pair)].prod() * found.curvature.value
        assert slope == pytest.approx(0.8 / sigma, abs=1e-12)
        assert bend == pytest.approx(2 * 0.3 / sigma**2, abs=1e-12)


def jittered(seed, shape, sigma=0.3, theta=1.5):
    rng = np.random.default_rng(seed)
    worth = rng.gamma(4.0, 0.25, shape)
    z = rng.normal(size=shape)
    return worth * response(theta * np.exp(sigma * z)), z, worth


@pytest.mark.drill
@pytest.mark.parametrize("has_forecast", [False, True])
def test_where_the_gate_says_ok_the_slope_is_covered_95_times_in_100(has_forecast):
    reward, z, worth = jittered(0, (1000, 1000))
    right = slope_by_differences(1.5, 0.3)
    found = [
        sensitivity(r, draws, 0.3, "log", 1.5, response(1.5) * w if has_forecast else None)
        for r, draws, w in zip(reward, z, worth, strict=True)
    ]
    fine = [e for e in found if e.diagnostics.verdict == "ok"]
    assert len(fine) > 900
    assert 0.929 <= np.mean([e.low <= right <= e.high for e in fine]) <= 0.971


def test_a_baseline_cuts_the_error():
    reward, z, worth = jittered(1, 4000)
    plain = sensitivity(reward, z, 0.3, "log", 1.5)
    better = sensitivity(reward, z, 0.3, "log", 1.5, response(1.5) * worth)
    without = (reward * z / 0.3).std() / math.sqrt(4000)
    assert better.standard_error < 0.6 * plain.standard_error < 0.6 * 0.6 * without


def test_a_constant_added_to_all_rewards_changes_no_slope():
    reward, z, _ = jittered(2, 1000)
    once, more = (sensitivity(r, z, 0.3) for r in (reward, reward + 100))
    assert (more.value, more.low, more.high) == pytest.approx((once.value, once.low, once.high), rel=1e-9)


def test_two_parameters_are_read_from_one_log():
    rng = np.random.default_rng(3)
    z = rng.normal(size=(200_000, 2))
    sigma, at = (0.2, 0.1), (1.0, 0.5)
    first, second = at[0] * np.exp(sigma[0] * z[:, 0]), at[1] + sigma[1] * z[:, 1]
    # log k₁ · k₂ + 3 k₂: slopes k₂ in log k₁, and log k₁ + 3 in k₂; mixed 1
    found = joint_sensitivity(np.log(first) * second + 3 * second, z, sigma, ("log", "linear"), at)
    for slope, right in zip(found.slopes, (0.5, 3.0), strict=True):
        assert slope.low < right < slope.high and slope.diagnostics.verdict == "ok"
    assert found.mixed[0, 1].low < 1 < found.mixed[0, 1].high
    assert found.slopes[0] == sensitivity(
        np.log(first) * second + 3 * second, z[:, 0], sigma[0], "log", at[0]
    )


def test_draws_that_go_together_are_refused():
    rng = np.random.default_rng(4)
    z = rng.normal(size=1000)
    both = np.c_[z, 0.6 * z + 0.8 * rng.normal(size=1000)]
    found = joint_sensitivity(rng.random(1000), both, (0.1, 0.1), ("log", "log"), (1.0, 1.0))
    assert found.mixed[0, 1].low is None
    assert tells(found.mixed[0, 1].diagnostics.reason, "draws")


def test_a_parameter_that_was_not_moved_is_refused():
    rng = np.random.default_rng(5)
    for z, sigma in ((rng.normal(size=100), 0.0), (np.zeros(100), 0.3)):
        found = sensitivity(rng.random(100), z, sigma)
        assert found.low is found.per_unit.low is found.curvature.low is None
        assert tells(found.diagnostics.reason, "exploration", "parameter")
    assert sensitivity(rng.random(100), rng.normal(size=100), 0.0).value is None


@pytest.mark.parametrize(
    ("change", "word"), [(lambda z: z + 0.3, "draws z"), (lambda z: 1.4 * z, "squared draws")]
)
def test_draws_that_are_not_standard_normal_are_refused(change, word):
    reward, z, _ = jittered(6, 2000)
    found = sensitivity(reward, change(z), 0.3)
    assert found.low is None and word in found.diagnostics.reason


def test_a_forecast_that_knows_the_draw_is_refused():
    reward, z, worth = jittered(7, 2000)
    found = sensitivity(reward, z, 0.3, "log", 1.5, reward)
    assert found.low is None and "forecast and draws" in found.diagnostics.reason
    assert sensitivity(reward, z, 0.3, "log", 1.5, worth).diagnostics.verdict == "ok"


def test_too_few_requests_are_refused():
    reward, z, _ = jittered(8, 19)
    assert sensitivity(reward, z, 0.3).low is None


@pytest.mark.parametrize(("shift", "wide"), [(0.1, None), (-0.25, None), (0.1, 0.2), (0.0, 0.35)])
def test_parameter_weights_are_ratios_of_densities(shift, wide):
    z = np.linspace(-3, 3, 13)
    there = stats.norm.pdf(0.3 * z, shift, 0.3 if wide is None else wide)
    assert parameter_weights(z, 0.3, shift, wide) == pytest.approx(there / stats.norm.pdf(0.3 * z, 0, 0.3))


def test_parameter_weights_average_to_one_and_use_up_the_log_as_stated():
    for shift in (0.1, 0.25, 0.45):
        w = parameter_weights(NODES, 0.3, shift)
        assert MASS @ w == pytest.approx(1, abs=1e-9)
        assert 1 / (MASS @ w**2) == pytest.approx(math.exp(-((shift / 0.3) ** 2)), rel=1e-6)
    assert math.exp(-(0.83**2)) == pytest.approx(0.5, abs=0.005)
    assert math.exp(-(1.5**2)) == pytest.approx(0.1, abs=0.01)


def test_a_moved_parameter_is_foretold_from_the_log():
    reward, z, _ = jittered(9, 20_000)
    found = ips(reward, parameter_weights(z, 0.3, math.log(1.8 / 1.5)))
    assert found.diagnostics.verdict != "refuse"
    assert found.low < smoothed(1.8, 0.3) < found.high
    assert found.high < smoothed(1.5, 0.3)


def test_bad_arguments_are_named():
    fine = np.linspace(-1, 1, 30)
    with refused("sigma", -1, kind=ValueError):
        sensitivity(fine, fine, -1)
    with refused("scale", "'log'", "'linear'", "'square'", kind=ValueError):
        sensitivity(fine, fine, 1, "square")
    with refused("at", 0, kind=ValueError):
        sensitivity(fine, fine, 1, "log", 0)
    with pytest.raises(ValueError, match=r"z has shape \(30, 2\)"):
        sensitivity(fine, np.c_[fine, fine], 1)
    with refused("1 sigmas", "2 scales", 2, kind=ValueError):
        joint_sensitivity(fine, np.c_[fine, fine], (1,), ("log", "log"), (1, 1))
    with refused("sigma", 0, kind=ValueError):
        parameter_weights(fine, 0, 1)
