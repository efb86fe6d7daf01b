"""What pairing is worth: the variance of a difference on the same stretches against other stretches."""

import numpy as np
import pytest

from cascade_sim.analysis.statistics.pairing import STRETCHES, variance_ratio, worth_of_pairing


def by_shifting(a, b):
    """Arm b on every other stretch than arm a, one shift after another."""
    shifted = [np.var(np.roll(b, h) - a, ddof=1) for h in range(1, len(a))]
    return np.mean(shifted) / np.var(b - a, ddof=1)


def test_the_worth_is_that_of_serving_the_second_arm_on_every_other_stretch():
    draw = np.random.default_rng(1)
    for _ in range(20):
        a = draw.normal(size=11)
        b = 0.8 * a + 0.3 * draw.normal(size=11)
        assert variance_ratio(a, b, np.ones((1, 11)))[0] == pytest.approx(by_shifting(a, b), rel=1e-12)


def test_arms_that_share_nothing_gain_nothing_and_those_that_share_most_gain_much():
    draw = np.random.default_rng(2)
    common, own, other = draw.normal(size=(3, 128 * 400))
    alone = worth_of_pairing(own, other, 200, 1)
    assert 0.7 < alone["low"] < alone["value"] < alone["high"] < 1.4
    # Var(a) = Var(b) = 1 + 0.01 and Var(b - a) = 0.01: (1.01 + 1.00) / 0.01 = 201
    near = worth_of_pairing(common, common + 0.1 * own, 200, 1)
    assert near["low"] < 201 < near["high"] and near["value"] == pytest.approx(201, rel=0.35)


def test_a_stretch_counts_by_its_mean_however_long_it_is():
    a, b = np.arange(20.0), np.arange(20.0) ** 1.1
    found = worth_of_pairing(np.repeat(a, 3), np.repeat(b, 3), 50, 1, stretches=20)
    assert found["value"] == pytest.approx(by_shifting(a, b), rel=1e-12)


def test_arms_that_never_differ_or_too_few_requests_have_no_worth():
    nothing = {"value": None, "low": None, "high": None}
    x = np.arange(300.0)
    assert worth_of_pairing(x, x, 20, 1) == nothing
    assert worth_of_pairing(x[:7], x[:7] + 1, 20, 1) == nothing


def test_a_constant_difference_leaves_no_variance():
    """d_g is the same on every stretch: the ratio has no end, which is no number."""
    x = np.random.default_rng(3).integers(0, 9, STRETCHES) * 1.0
    assert worth_of_pairing(x, x + 2.0, 20, 1)["value"] is None


def test_the_same_numbers_give_the_same_interval():
    draw = np.random.default_rng(4)
    a, b = draw.normal(size=(2, 500))
    assert worth_of_pairing(a, b, 50, 9) == worth_of_pairing(a, b, 50, 9)
    assert worth_of_pairing(a, b, 50, 9)["low"] != worth_of_pairing(a, b, 50, 8)["low"]
