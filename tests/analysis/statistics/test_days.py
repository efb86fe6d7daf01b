"""Lifts in the market and their intervals over days."""

import numpy as np
import pytest
from scipy.special import stdtrit

from answers.market import make_market
from cascade_sim.analysis.statistics.days import MIN_DAYS, RATIOS, market_contrasts, market_lifts


def arms_of(days, seed=0, same=False):
    """A baseline whose days differ, and an arm that earns about 10 % more on each."""
    rng = np.random.default_rng(seed)
    found = make_market(["base", "other"], days)["arms"]
    tide = np.repeat(rng.uniform(0.5, 2.0, days), 24)
    draw = np.ones(days) if same else rng.normal(1.0, 0.02, days)
    for name, factor in (("base", np.ones(days)), ("other", 1.1 * draw)):
        found[name]["hours"]["revenue"] = (100 * tide * np.repeat(factor, 24)).tolist()
        found[name]["hours"]["requests"] = (1000 * tide).tolist()
    return found


def test_a_lift_is_the_ratio_of_the_totals():
    found = arms_of(7)
    own, base = (np.sum(found[arm]["hours"]["revenue"]) for arm in ("other", "base"))
    lifts = market_lifts(found, "base")
    assert set(lifts) == {"other"} and set(lifts["other"]) == set(RATIOS)
    assert lifts["other"]["revenue_per_request"]["value"] == pytest.approx(own / base - 1)


def test_what_days_have_in_common_cancels():
    """The days differ by a factor of four; an arm that earns 10 % more on each has next to no interval."""
    lift = market_lifts(arms_of(7, same=True), "base")["other"]["revenue_per_request"]
    assert lift["value"] == pytest.approx(0.1) and lift["high"] - lift["low"] < 1e-9


def test_equal_days_give_the_t_interval_of_their_differences():
    found = make_market(["base", "other"], 6)["arms"]
    lifts = np.array([0.08, 0.11, 0.09, 0.13, 0.1, 0.12])
    found["base"]["hours"]["revenue"] = [10.0] * 144
    found["other"]["hours"]["revenue"] = np.repeat(10 * (1 + lifts), 24).tolist()
    lift = market_lifts(found, "base")["other"]["revenue_per_request"]
    half = stdtrit(5, 0.975) * lifts.std(ddof=1) / np.sqrt(6)
    assert (lift["value"], lift["high"]) == (pytest.approx(0.105), pytest.approx(0.105 + half))


def test_the_interval_covers_the_true_lift_about_as_often_as_it_says():
    inside = 0
    for seed in range(400):
        lift = market_lifts(arms_of(7, seed), "base")["other"]["revenue_per_request"]
        inside += lift["low"] <= 0.1 <= lift["high"]
    assert 0.90 <= inside / 400 <= 0.99


@pytest.mark.parametrize("days", [1, MIN_DAYS - 1])
def test_few_days_give_no_interval(days):
    lift = market_lifts(arms_of(days), "base")["other"]["revenue_per_request"]
    assert lift["value"] is not None and lift["low"] is None and lift["high"] is None


def test_part_of_a_day_is_no_day():
    found = arms_of(7)
    for arm in found.values():
        arm["hours"] = {name: values[:-5] for name, values in arm["hours"].items()}
    assert market_lifts(found, "base")["other"]["revenue_per_request"]["low"] is None


def test_a_ratio_to_nothing_is_undefined_and_a_missing_baseline_gives_no_lifts():
    found = arms_of(7)
    found["base"]["hours"]["conversions"] = [0] * 168
    assert market_lifts(found, "base")["other"]["conversions"] == {"value": None, "low": None, "high": None}
    assert market_lifts(found, "nobody") == {}


def test_contrasts_hold_every_arm_against_every_other_paired_by_day():
    arms = {**arms_of(7), "idle": {}}
    found = market_contrasts(arms)
    pairs = {(arm, rival) for arm, rivals in found.items() for rival in rivals}
    assert pairs == {("base", "other"), ("other", "base")}
    for arm, rival in pairs:
        name = "revenue_per_request"
        assert found[arm][rival] == {name: market_lifts(arms, rival)[arm][name]}
