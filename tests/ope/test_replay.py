"""Forecasts for other policies: served from the log, without the truth."""

import numpy as np
import pytest

from cascade_sim.cascade.serve import score
from cascade_sim.ope.estimates import centre_forecast, page_gain, page_odds, parameter_forecast
from cascade_sim.ope.log import read_parameter_log, read_slate_log
from cascade_sim.ope.slates import log_odds
from cascade_sim.scenario.targets import Target
from cascade_sim.study.simulation import Simulation
from worlds.randomised_logs import Unasked, logged, small_scenario


@pytest.fixture(scope="module")
def blind():
    """The same world and models, and nobody to ask for the truth."""
    world = logged()
    sim = Simulation(small_scenario(), world.sim.seed)
    sim.scorers, sim.environment._truth = world.sim.scorers, Unasked()
    return sim


def test_the_policy_that_wrote_the_log_is_forecast_as_it_was_logged(blind):
    world = logged()
    log = read_parameter_log(world.folder, world.scenario)
    forecast = parameter_forecast(blind, world.arm, log, Target("same", estimand="jittered"))
    for reward in ("revenue", "clicks"):
        assert forecast[reward] == pytest.approx(log.forecast[reward], rel=1e-12)


def test_a_reserve_beyond_all_bids_is_forecast_to_earn_nothing(blind):
    world = logged()
    log = read_parameter_log(world.folder, world.scenario)
    assert (
        parameter_forecast(blind, world.arm, log, Target("dear", {"reserve_cpc": 1e6}))["revenue"].sum() == 0
    )


def test_the_forecast_at_the_centres_knows_nothing_of_the_noise(blind):
    world = logged()
    log = read_parameter_log(world.folder, world.scenario)
    forecast = centre_forecast(blind, world.arm, log)["clicks"]
    assert not np.array_equal(forecast, log.forecast["clicks"])
    for z in (log.noise["reserve_cpc"], log.noise["squashing"]):
        assert abs(np.corrcoef(forecast, z)[0, 1]) < 4 / np.sqrt(len(z))


def test_pages_of_another_temperature_have_the_logged_scores(blind):
    world = logged()
    log = read_slate_log(world.folder, world.scenario)
    odds = page_odds(blind, world.arm, log, Target("cold", temperature=0.2))
    assert np.array_equal(odds, log_odds(log.listed.score, 0.2))
    same = page_odds(blind, world.arm, log, Target("same", is_pages=True))
    assert np.array_equal(same, log_odds(log.listed.score, 0.7))


def test_pages_of_another_model_have_its_scores_for_the_same_list(blind):
    world = logged()
    log = read_slate_log(world.folder, world.scenario)
    odds = page_odds(blind, world.arm, log, Target("other", model="logloss"))
    block = world.sim.arrivals.block("slates", 0, 1200)
    stage = world.arm.stages[0]  # the same model with the same kind of bid
    own = score(block, log.listed.ads[:256], stage, world.arm, world.sim.platform).score
    expected = log_odds(np.where(log.listed.is_there[:256], own, 0.0), 0.7)
    assert odds[:256] == pytest.approx(expected, abs=1e-5)
    kept = page_odds(blind, world.arm, log, Target("rank", model="rank"))
    assert kept == pytest.approx(log_odds(log.listed.score, 0.7), abs=1e-4)


def test_the_gain_of_an_ad_is_its_pctr_times_its_price():
    log = read_slate_log(logged().folder, logged().scenario)
    gain = page_gain(log)
    assert gain["revenue"][3, 1] == pytest.approx(
        float(log.listed.pctr[3, 1]) * log.listed.cpc_micros[3, 1] / 1e6
    )
    assert gain["clicks"][3, 1] == log.listed.pctr[3, 1]
