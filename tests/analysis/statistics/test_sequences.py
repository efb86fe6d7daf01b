"""Intervals that hold at every look: many trials without any effect, watched at every step."""

import numpy as np
import pytest

from cascade_sim.analysis.statistics.trials import mixture_half_width, running_effect, tightest

TRIALS, LOOKS, PER_LOOK = 2000, 400, 50
FIXED = 1.959964


@pytest.fixture(scope="module")
def without_effect():
    """Differences and their errors at every look of trials whose arms are alike.  [TRIALS, LOOKS] each

    Each look brings PER_LOOK requests to either arm. One in ten earns something, exponentially much: a sum
    over a look is a gamma of a binomial count, its squares those of the exponentials; both arms are drawn.
    """
    rng = np.random.default_rng(11)
    sums, squares = [], []
    for _ in range(2):
        earned = rng.binomial(PER_LOOK, 0.1, (TRIALS, LOOKS))
        values = rng.exponential(size=(TRIALS, LOOKS, 16)) * (np.arange(16) < earned[:, :, None])
        sums.append(values.sum(2).cumsum(1))
        squares.append((values**2).sum(2).cumsum(1))
    n = PER_LOOK * np.arange(1, LOOKS + 1)
    variance = sum((q - s**2 / n) / (n - 1) / n for s, q in zip(sums, squares, strict=True))
    return (sums[0] - sums[1]) / n, np.sqrt(variance)


def test_false_alarms_under_peeking_stay_below_five_percent_and_a_fixed_interval_raises_many(without_effect):
    difference, error = without_effect
    first = 6  # some thirty clicks in either arm
    difference, error = difference[:, first:], error[:, first:]
    target = float(np.median(error[:, 0]) ** -2 * LOOKS / first / 2)
    alarms = (np.abs(difference) > mixture_half_width(error, target)).any(1).mean()
    naive = (np.abs(difference) > FIXED * error).any(1).mean()
    assert alarms <= 0.05
    assert naive > 0.3
    at_the_end = (np.abs(difference[:, -1]) > FIXED * error[:, -1]).mean()
    assert at_the_end == pytest.approx(0.05, abs=0.02)


def test_the_boundary_is_crossed_with_nearly_the_whole_probability_that_it_may_be():
    # A Brownian motion on a fine grid up to 1000 times the target: a bound that is never met would be idle.
    rng = np.random.default_rng(12)
    times = np.geomspace(0.01, 1000.0, 600)
    steps = np.sqrt(np.diff(times, prepend=0.0)) * rng.normal(size=(4000, 600))
    path = steps.cumsum(1) / times
    crossed = (np.abs(path) > mixture_half_width(times**-0.5, 1.0)).any(1).mean()
    assert 0.02 < crossed <= 0.05


def test_an_effect_is_found_and_the_running_interval_goes_on_covering_it():
    rng = np.random.default_rng(13)
    n = 20_000
    treated, step = rng.random(n) < 0.5, np.arange(n) // 200
    y = rng.normal(1.0, 1.0, n) + 0.2 * treated
    running = running_effect(y, np.ones(n), treated, step, 100)
    half = mixture_half_width(running.error, float(running.error[0] ** -2 * 50))
    assert (np.abs(running.difference - 0.2) < half).all()
    assert (np.abs(running.difference) > half)[-50:].all()


def test_the_running_effect_after_the_last_step_is_that_of_all_rows():
    from cascade_sim.analysis.statistics.trials import ratio_effect

    rng = np.random.default_rng(14)
    top, bottom, treated = rng.exponential(size=500), rng.integers(1, 4, 500), rng.random(500) < 0.4
    running = running_effect(top, bottom, treated, np.arange(500) // 100, 5)
    whole, part = ratio_effect(top, bottom, treated), ratio_effect(top[:300], bottom[:300], treated[:300])
    assert running.difference[-1] == pytest.approx(whole.difference.value)
    assert running.difference[2] == pytest.approx(part.difference.value)
    half = FIXED * running.error[-1]
    assert half == pytest.approx(whole.difference.high - whole.difference.value, rel=0.01)


def test_before_both_arms_have_two_rows_nothing_is_known():
    running = running_effect([1.0, 2.0, 3.0, 5.0], np.ones(4), [True, True, False, False], [0, 0, 1, 2], 3)
    assert np.isnan(running.difference[:2]).all() and running.difference[2] == 1.5 - 4.0
    assert np.isinf(mixture_half_width(running.error[:2], 1.0)).all()


def test_the_interval_is_tightest_at_its_target():
    y = tightest(0.05)
    assert y == pytest.approx(np.log(1 + y) + 2 * np.log(20))

    def relative(information, target):
        return float(mixture_half_width(information**-0.5, target)) * information**0.5

    at = relative(100.0, 100.0)
    assert at < relative(100.0, 50.0) and at < relative(100.0, 200.0)
    assert 1.2 < at / FIXED < 1.6  # what watching costs


def test_a_target_must_be_information():
    with pytest.raises(ValueError, match="positive information"):
        mixture_half_width([1.0], 0.0)
