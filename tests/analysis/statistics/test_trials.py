"""Effects read from trials: exact where arithmetic can say it, by many repetitions where only draws can."""

import numpy as np
import pytest

from cascade_sim.analysis.statistics.trials import (
    cuped,
    mixture_half_width,
    outside_washout,
    ratio_effect,
    running_effect,
    switchback_effect,
    tightest,
)


def covers(effect, truth):
    return effect.low <= truth <= effect.high


def test_a_ratio_effect_is_the_difference_of_ratios_of_sums():
    found = ratio_effect([3.0, 5.0, 1.0, 2.0], [2.0, 2.0, 1.0, 3.0], [True, True, False, False])
    assert found.treatment == 8 / 4 and found.control == 3 / 4
    assert found.difference.value == 2 - 0.75 and found.lift.value == pytest.approx(2 / 0.75 - 1)


def test_the_interval_of_means_is_that_of_two_samples():
    from scipy.special import stdtrit

    rng = np.random.default_rng(1)
    y, treated = rng.normal(size=200), np.arange(200) < 100
    found = ratio_effect(y, np.ones(200), treated)
    variance = sum(y[rows].var() / 100 for rows in (treated, ~treated)) * 200 / 199
    half = stdtrit(199, 0.975) * np.sqrt(variance)
    assert found.difference.high - found.difference.value == pytest.approx(half)
    assert found.units == 200


def test_an_arm_without_any_request_leaves_the_effect_undefined():
    found = ratio_effect([1.0, 2.0], [1.0, 1.0], [True, True])
    assert found.treatment is found.difference.value is found.lift.low is None


def test_a_control_of_zero_has_a_difference_and_no_lift():
    found = ratio_effect([1.0, 2.0, 0.0, 0.0], np.ones(4), [True, True, False, False])
    assert found.difference.value == 1.5 and found.lift.value is None


def user_trials(rng, n_users=300, lift=0.1, by_user=True):
    """Users differ in how often they come and in what they spend; revenue is rare and skewed."""
    visits = 1 + rng.poisson(rng.gamma(1.0, 8.0, n_users))
    user = np.repeat(np.arange(n_users), visits)
    n = len(user)
    taste = rng.gamma(0.5, 2.0, n_users)[user]
    treated = (rng.random(n_users) < 0.5)[user] if by_user else rng.random(n) < 0.5
    revenue = (rng.random(n) < 0.2) * rng.exponential(taste) * np.where(treated, 1 + lift, 1.0)
    return revenue, np.ones(n), treated, user


def test_intervals_by_user_cover_the_truth_and_those_by_request_do_not():
    rng = np.random.default_rng(2)
    hits = np.zeros(2)
    for _ in range(600):
        top, bottom, treated, user = user_trials(rng)
        hits += [
            covers(ratio_effect(top, bottom, treated, clusters).difference, 0.2 * 0.1)
            for clusters in (user, None)
        ]
    by_user, by_request = hits / 600
    assert 0.92 <= by_user <= 0.975
    assert by_request < 0.85


def test_intervals_of_the_lift_cover_it_when_requests_are_drawn():
    rng = np.random.default_rng(3)
    hits = 0
    for _ in range(600):
        top, bottom, treated, _ = user_trials(rng, lift=0.5, by_user=False)
        hits += covers(ratio_effect(top, bottom, treated).lift, 0.5)
    assert 0.925 <= hits / 600 <= 0.98


def test_days_that_both_arms_share_cancel():
    rng = np.random.default_rng(4)
    weather = rng.normal(100.0, 30.0, 6)
    tops = np.concatenate([weather + 5.0, weather]) + rng.normal(0, 0.1, 12)
    treated, day = np.repeat([True, False], 6), np.tile(np.arange(6), 2)
    paired = ratio_effect(tops, np.ones(12), treated, day).difference
    apart = ratio_effect(tops, np.ones(12), treated).difference
    assert covers(paired, 5.0) and paired.high - paired.low < 0.5
    assert apart.high - apart.low > 20


def switchback_trial(rng, days=6, per_day=12, effect=0.5):
    """Slots of a day differ widely; noise within a slot is small."""
    n = days * per_day
    slots, level = np.arange(n), 10.0 + 5 * np.sin(2 * np.pi * np.arange(n) / per_day)
    treated = rng.random(n) < 0.5
    requests = rng.poisson(200 + 150 * np.cos(2 * np.pi * slots / per_day)).astype(float) + 1
    return (level + effect * treated + rng.normal(0, 0.5, n)) * requests, requests, treated, slots


def test_switchback_intervals_cover_the_truth_within_hours_of_the_day():
    rng = np.random.default_rng(5)
    found = [switchback_effect(*switchback_trial(rng), slots_per_day=12) for _ in range(120)]
    assert 0.89 <= np.mean([covers(one.difference, 0.5) for one in found]) <= 0.985
    values = np.array([one.difference.value for one in found])
    assert abs(values.mean() - 0.5) < 4 * values.std() / np.sqrt(120)
    widths = [one.difference.high - one.difference.low for one in found]
    trials = [switchback_trial(np.random.default_rng(seed)) for seed in range(10)]
    unadjusted = [switchback_effect(*trial).difference for trial in trials]
    assert np.mean([one.high - one.low for one in unadjusted]) > 4 * np.mean(widths)


def test_a_switchback_without_hours_in_both_arms_compares_nothing():
    assert switchback_effect([1.0, 2.0], [1.0, 1.0], [True, False], [0, 1], 2).treatment is None


def test_an_hour_that_one_arm_never_had_does_not_count():
    # Slots 0 and 2 are the morning, 1 and 3 the evening, which was always treated.
    found = switchback_effect([4.0, 90.0, 3.0, 80.0], np.ones(4), [True, True, False, True], [0, 1, 2, 3], 2)
    assert (found.treatment, found.control, found.units) == (4.0, 3.0, 2)
    assert found.difference.value == 1.0 and found.difference.low is None


def test_rows_after_a_change_of_arm_are_left_out():
    times = np.array([5.0, 95.0, 105.0, 195.0, 205.0, 305.0, 390.0])
    treated = np.array([True, True, True, True, False, False, False])
    kept = outside_washout(times, times // 100, treated, 100.0, 10.0)
    # 5 is the start of the trial (control before it), 205 follows a change; 105 and 305 do not.
    assert kept.tolist() == [False, True, True, True, False, True, True]


def test_cuped_is_unbiased_covers_the_truth_and_shrinks_the_variance_by_the_correlation():
    rng = np.random.default_rng(6)
    n, correlation, values, ratios, hits = 400, 0.8, [], [], 0
    for _ in range(800):
        x = rng.normal(size=n)
        y = correlation * x + np.sqrt(1 - correlation**2) * rng.normal(size=n)
        treated = rng.random(n) < 0.5
        found = cuped(y + 0.3 * treated, np.ones(n), x, np.ones(n), treated)
        values.append((found.plain.value, found.adjusted.value))
        ratios.append(found.variance_ratio)
        hits += covers(found.adjusted, 0.3)
    plain, adjusted = np.array(values).T
    assert abs(adjusted.mean() - 0.3) < 4 * adjusted.std() / np.sqrt(800)
    assert np.mean(ratios) == pytest.approx(1 - correlation**2, abs=0.01)
    assert adjusted.var() / plain.var() == pytest.approx(1 - correlation**2, abs=0.06)
    assert 0.93 <= hits / 800 <= 0.97


def test_cuped_of_a_ratio_takes_out_what_users_are_like():
    rng = np.random.default_rng(7)
    n, plain, adjusted, claimed = 500, [], [], []
    for _ in range(400):
        taste = rng.gamma(4.0, 0.25, n)
        now, before = rng.poisson(20, n) + 1, rng.poisson(20, n) + 1
        spent, spent_before = rng.poisson(taste * now), rng.poisson(taste * before)
        found = cuped(spent, now, spent_before, before, rng.random(n) < 0.5)
        plain.append(found.plain.value)
        adjusted.append(found.adjusted.value)
        claimed.append(found.variance_ratio)
    assert np.var(adjusted) / np.var(plain) == pytest.approx(np.mean(claimed), rel=0.3)
    assert np.mean(claimed) < 0.5


def test_a_covariate_that_says_nothing_changes_nothing():
    treated = np.arange(100) % 2 == 0
    found = cuped(np.arange(100.0), np.ones(100), np.ones(100), np.ones(100), treated)
    assert found.theta == 0.0 and found.variance_ratio == 1.0
    assert found.adjusted.value == found.plain.value == -1.0


def test_cuped_needs_traffic_before_the_trial():
    treated = np.arange(10) % 2 == 0
    assert cuped(np.ones(10), np.ones(10), np.zeros(10), np.zeros(10), treated) is None


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
