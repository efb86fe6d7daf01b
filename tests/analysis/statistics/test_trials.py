"""Effects read from trials: exact where arithmetic can say it, by many repetitions where only luck can."""

import numpy as np
import pytest

from cascade_sim.analysis.statistics.trials import cuped, outside_washout, ratio_effect, switchback_effect


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
    """Slots of a day differ widely; luck within a slot is small."""
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
