"""Estimators on real logs."""

from dataclasses import replace

import numpy as np
import pytest

from cascade_sim.ope.estimates import (
    PARAMETER_ESTIMATORS,
    SLATE_ESTIMATORS,
    centre_forecast,
    estimate,
    estimates,
    inner_and_outer,
    page_gain,
    page_odds,
    parameter_evidence,
    parameter_forecast,
    parameter_truth,
    slate_evidence,
    slate_truth,
    slopes,
    true_slopes,
)
from cascade_sim.ope.log import randomiser, read_parameter_log, read_slate_log
from cascade_sim.scenario.targets import Target
from worlds.randomised_logs import logged

CHEAPER = Target("cheaper", {"reserve_cpc": 0.6})
COLDER = Target("colder", temperature=0.5)


def parameters_of(target, reward="revenue"):
    world = logged()
    log = read_parameter_log(world.folder, world.scenario)
    forecast = parameter_forecast(world.sim, world.arm, log, target)[reward]
    return parameter_evidence(log, randomiser(world.scenario), target, reward, forecast, 10.0)


def pages_of(target, reward="revenue"):
    world = logged()
    log = read_slate_log(world.folder, world.scenario)
    odds = page_odds(world.sim, world.arm, log, target)
    return slate_evidence(log, 0.7, odds, reward, page_gain(log)[reward])


def test_every_estimator_is_there():
    assert tuple(estimates(parameters_of(CHEAPER))) == PARAMETER_ESTIMATORS
    assert tuple(estimates(pages_of(COLDER))) == SLATE_ESTIMATORS
    assert tuple(estimates(pages_of(COLDER), ("cascade_dr", "ips"))) == ("cascade_dr",)


@pytest.mark.parametrize("name", ["ips", "clipped_ips", "snips"])
def test_a_target_that_changes_nothing_is_the_mean_of_the_log(name):
    evidence = parameters_of(Target("same"))
    assert estimate(name, evidence).value == pytest.approx(evidence.columns["reward"].mean())


@pytest.mark.parametrize("name", ["slate_ips", "reward_interaction_ips", "independent_ips"])
def test_pages_drawn_as_logged_are_the_mean_of_the_log(name):
    evidence = pages_of(Target("same", is_pages=True))
    expected = evidence.columns["reward"].sum(axis=1).mean()
    assert estimate(name, evidence).value == pytest.approx(expected)


def test_weights_average_to_one():
    for weights in (
        parameters_of(CHEAPER).columns["weights"],
        pages_of(COLDER).columns["conditional"].prod(axis=1),
        *pages_of(COLDER).columns["marginal"].T,
    ):
        assert weights.mean() == pytest.approx(1.0, abs=4 * weights.std() / np.sqrt(len(weights)))


@pytest.mark.parametrize("reward", ["revenue", "clicks"])
def test_unbiased_estimates_are_within_their_noise_of_the_truth(reward):
    world = logged()
    log, drawn = (
        read_parameter_log(world.folder, world.scenario),
        read_slate_log(world.folder, world.scenario),
    )
    for evidence, truth in (
        (parameters_of(CHEAPER, reward), parameter_truth(world.sim, world.arm, log, CHEAPER)),
        (pages_of(COLDER, reward), slate_truth(world.sim, world.arm, drawn, COLDER)),
    ):
        for name, one in estimates(evidence).items():
            if name != "direct_method":
                assert abs(one.value - truth[reward].mean()) < 4 * one.standard_error, name


def test_pages_that_earn_just_what_was_forecast_leave_no_error_to_weigh():
    world = logged()
    log = read_slate_log(world.folder, world.scenario)
    gain = page_gain(log)["revenue"]
    shown = np.where(log.places >= 0, np.take_along_axis(gain, np.maximum(log.places, 0), 1), 0.0)
    sure = replace(log, reward={"revenue": shown * log.slot_effects})
    odds = page_odds(world.sim, world.arm, log, Target("cold", temperature=0.35))
    evidence = slate_evidence(sure, 0.7, odds, "revenue", gain)
    robust, direct = (estimate(name, evidence) for name in ("cascade_dr", "direct_method"))
    assert robust.value == pytest.approx(direct.value, rel=1e-12)
    assert robust.standard_error == pytest.approx(direct.standard_error, rel=1e-9)
    without = slate_evidence(log, 0.7, odds, "revenue", np.zeros_like(gain))
    plain, no_model = (estimate(name, without) for name in ("reward_interaction_ips", "cascade_dr"))
    assert plain.value == pytest.approx(no_model.value, rel=1e-12)


def test_a_target_out_of_reach_is_refused():
    for name, one in estimates(parameters_of(Target("far", {"reserve_cpc": 0.2}))).items():
        assert (one.low is None) == (name != "direct_method")


def test_the_outer_interval_holds_the_inner_one():
    both = inner_and_outer(parameters_of(Target("cheaper", {"reserve_cpc": 0.5})))
    assert both.outer.low <= both.inner.low and both.inner.high < both.outer.high
    assert inner_and_outer(pages_of(COLDER)) is None


def test_rows_cut_from_the_evidence_are_those_requests():
    evidence = parameters_of(CHEAPER)
    part = evidence.rows(slice(100, 400))
    assert estimate("ips", part).value == pytest.approx(
        (evidence.columns["weights"] * evidence.columns["reward"])[100:400].mean()
    )
    assert len(part.limit) == 300


def test_slopes_from_the_log_are_within_their_noise_of_served_differences():
    world = logged()
    log = read_parameter_log(world.folder, world.scenario)
    truth = true_slopes(world.sim, world.arm, log)
    found = slopes(
        log, randomiser(world.scenario), "clicks", centre_forecast(world.sim, world.arm, log)["clicks"]
    )
    for parameter, one in found.items():
        assert abs(one.value - truth[parameter]["clicks"]) < 4 * one.standard_error
    # Noise that is smaller than what is to be seen: to be within it says something.
    assert found["reserve_cpc"].standard_error < -truth["reserve_cpc"]["clicks"]
