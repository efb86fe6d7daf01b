import math

import numpy as np
import pytest

from answers.told import refused, tells
from cascade_sim.analysis.off_policy import ips
from cascade_sim.analysis.off_policy.bounds import bounds

# four actions; the log hardly tries the last one, which the target prefers
LOGGING = np.array([0.4, 0.3, 0.29, 0.01])
TARGET = np.array([0.3, 0.3, 0.2, 0.2])
CLICK = np.array([0.1, 0.2, 0.3, 0.8])
RATIO = TARGET / LOGGING
TRUTH = float(TARGET @ CLICK)
CLIP = 5.0
SHOWN = float((TARGET * CLICK)[:3].sum())  # what weights up to the clip show
HIDDEN = 0.2


def logs(n, reps, seed, logging=LOGGING):
    rng = np.random.default_rng(seed)
    actions = rng.choice(4, p=logging, size=(reps, n))
    return zip((rng.random((reps, n)) < CLICK[actions]).astype(float), RATIO[actions], strict=True)


def share(found, truth):
    return np.mean([e.low <= truth <= e.high for e in found])


def test_the_truth_lies_between_what_is_shown_and_that_plus_what_may_hide():
    assert SHOWN <= TRUTH <= SHOWN + 1.0 * HIDDEN
    kept = np.where(RATIO <= CLIP, RATIO, 0)
    assert LOGGING @ (kept * CLICK) == pytest.approx(SHOWN, abs=1e-15)
    assert LOGGING @ kept == pytest.approx(1 - HIDDEN, abs=1e-15)


def test_the_outer_interval_holds_the_truth_which_the_inner_one_misses():
    found = [bounds(r, w, CLIP, 1.0) for r, w in logs(1000, 1000, 0)]
    inner, outer = zip(*found, strict=True)
    assert 0.929 <= share(inner, SHOWN) <= 0.971  # the interval of the clipped mean
    assert share(inner, TRUTH) == 0
    assert share(outer, TRUTH) >= 0.975


@pytest.mark.few(1)
@pytest.mark.parametrize("edge", [0.0, 1.0])
def test_the_outer_interval_holds_the_worst_that_may_hide(edge):
    # the hidden action earns nothing, or always 1: the truth is at one end, and half of 5 % may miss it
    rng = np.random.default_rng(1)
    click = np.array([0.1, 0.2, 0.3, edge])
    actions = rng.choice(4, p=LOGGING, size=(1000, 600))
    reward = (rng.random((1000, 600)) < click[actions]).astype(float)
    outer = [bounds(r, w, CLIP, 1.0).outer for r, w in zip(reward, RATIO[actions], strict=True)]
    assert 0.96 <= share(outer, float(TARGET @ click)) <= 0.995


def test_an_action_that_was_never_logged_is_within_the_bounds_while_ips_is_biased():
    without = np.array([0.4, 0.3, 0.3, 0.0])
    ratio = np.divide(TARGET, without, out=np.zeros(4), where=without > 0)
    rng = np.random.default_rng(2)
    actions = rng.choice(4, p=without, size=4000)
    reward = (rng.random(4000) < CLICK[actions]).astype(float)
    outer = bounds(reward, ratio[actions], CLIP, 1.0).outer
    assert outer.low < TRUTH < outer.high
    assert outer.diagnostics.clipped_mass == pytest.approx(HIDDEN, abs=0.02)
    assert ips(reward, ratio[actions]).diagnostics.verdict == "refuse"


def test_figures_of_a_small_log():
    reward, weights = np.array([1.0, 0, 1, 1]), np.array([0.5, 1, 0.5, 8])
    inner, outer = bounds(reward, weights, 2, 1.0, method="bernstein")
    shown = np.array([0.5, 0, 0.5, 0])
    assert inner.value == outer.value == shown.mean()
    log_term = math.log(2 / 0.025)
    half = math.sqrt(2 * shown.var(ddof=1) * log_term / 4) + 7 * 2 * log_term / (3 * 3)
    assert (inner.low, inner.high) == pytest.approx((0.25 - half, 0.25 + half))
    assert (outer.low, outer.high) == (0, 1)  # no wider than rewards can be
    assert outer.diagnostics.clipped_mass == pytest.approx(1 - (0.5 + 1 + 0.5) / 4)


def test_the_ends_of_the_outer_interval_are_means_of_one_column_each():
    reward, weights = next(logs(20_000, 1, 3))
    kept = np.where(weights <= CLIP, weights, 0)
    outer = bounds(reward, weights, CLIP, 1.0, method="bernstein").outer
    log_term = math.log(2 / 0.025)
    ends = []
    for column, sign in ((kept * reward, -1), (1 + kept * (reward - 1), 1)):
        half = math.sqrt(2 * column.var(ddof=1) * log_term / 20_000) + 7 * CLIP * log_term / (3 * 19_999)
        ends.append(column.mean() + sign * half)
    assert (outer.low, outer.high) == pytest.approx(tuple(ends))


def test_bernstein_is_wider_and_never_misses_here():
    found = [
        (bounds(r, w, CLIP, 1.0, method="bernstein").outer, bounds(r, w, CLIP, 1.0).outer)
        for r, w in logs(1000, 200, 4)
    ]
    assert all(a.low <= b.low and a.high >= b.high for a, b in found)
    assert share([a for a, _ in found], TRUTH) == 1


def test_more_data_narrows_the_inner_interval_and_not_what_is_hidden():
    widths = []
    for n in (2000, 200_000):
        inner, outer = bounds(*next(logs(n, 1, 5)), CLIP, 1.0)
        widths.append((inner.high - inner.low, outer.high - outer.low))
    assert widths[1][0] < 0.15 * widths[0][0]
    assert HIDDEN < widths[1][1] < HIDDEN + 0.02


def test_limits_of_each_request_are_tighter_than_one_for_all():
    reward, weights = next(logs(4000, 1, 6))
    most = np.where(np.arange(4000) % 2, 1.0, 2.0)
    reward = reward * most
    by_request, for_all = (bounds(reward, weights, CLIP, m).outer for m in (most, 2.0))
    assert by_request.high < for_all.high
    assert by_request.low < TRUTH * 1.5 < by_request.high


def test_losses_are_bounded_below():
    reward, weights = next(logs(4000, 1, 7))
    outer = bounds(reward - 1, weights, CLIP, 0.0, reward_min=-1.0).outer
    assert outer.low < TRUTH - 1 < outer.high
    shifted = bounds(reward, weights, CLIP, 1.0).outer
    assert (outer.low, outer.high) == pytest.approx((shifted.low - 1, shifted.high - 1))


def test_nothing_clipped_leaves_ips():
    rng = np.random.default_rng(8)
    weights = rng.choice([0.5, 1.5], size=1000)
    reward = rng.random(1000)
    inner = bounds(reward, weights, math.inf, 1.0).inner
    plain = ips(reward, weights)
    assert (inner.value, inner.low, inner.high) == (plain.value, plain.low, plain.high)


def test_everything_clipped_leaves_the_range_of_rewards():
    outer = bounds(np.ones(50), np.full(50, 9.0), 2, 3.0).outer
    assert (outer.low, outer.high) == (0, 3)


def test_the_inner_interval_says_what_it_leaves_out():
    inner, outer = bounds(*next(logs(4000, 1, 9)), CLIP, 1.0)
    assert inner.diagnostics.bias_unknown and inner.diagnostics.verdict == "warn"
    assert tells(inner.diagnostics.reason, "hidden", "outer interval")
    assert outer.diagnostics.verdict == "ok" and not outer.diagnostics.bias_unknown


def test_wrong_propensities_are_refused():
    weights = np.random.default_rng(10).choice([0.8, 1.6], size=2000)
    for found in bounds(np.ones(2000), weights, 2, 1.0):
        assert found.low is found.high is None
        assert found.diagnostics.verdict == "refuse" and tells(found.diagnostics.reason, 1, "propensities")


def test_a_reward_at_its_limit_may_be_above_it_in_the_last_digit():
    """Two clicks at bids of 0.1 and 0.7 earn 0.8; the limit, a sum of floats, is a hair less."""
    limit = np.array([0.1 + 0.7, 1.0] * 20)
    reward = np.array([800_000 / 1e6, 0.0] * 20)
    assert limit[0] < reward[0]
    found = bounds(reward, np.ones(40), 10.0, limit)
    assert found.inner.value == pytest.approx(0.4)
    with pytest.raises(ValueError, match=r"reward\[0\] is 0.8"):
        bounds(reward, np.ones(40), 10.0, limit - 1e-6)


def test_bad_arguments_are_named():
    with refused("reward[1]", "3.0", "0.0 to 2.0", kind=ValueError):
        bounds([1, 3], [1, 1], 2, 2.0)
    with pytest.raises(ValueError, match=r"reward\[0\] is -1.0"):
        bounds([-1, 1], [1, 1], 2, 2.0)
    with refused("clip", 0, kind=ValueError):
        bounds([1, 1], [1, 1], 0, 2.0)
    with refused("clip", "inf", kind=ValueError):
        bounds([1, 1], [1, 1], math.inf, 2.0, method="bernstein")
    with refused("method", "'t'", "'bernstein'", "'normal'", kind=ValueError):
        bounds([1, 1], [1, 1], 1, 2.0, method="normal")
    with pytest.raises(ValueError, match="no clusters"):
        bounds([1, 1], [1, 1], 1, 2.0, method="bernstein", clusters=[0, 1])
