import numpy as np
import pytest
import torch

from cascade_sim.cascade.fusion import Fusion
from cascade_sim.cascade.scorers import BUILT_IN
from cascade_sim.cascade.serve import Stage
from cascade_sim.scenario.schema import resolved_arms
from cascade_sim.study.simulation import Simulation
from worlds.tiny_market import tiny_scenario


def test_a_simulation_starts_with_the_seats_that_need_no_training(sim):
    assert set(sim.scorers) == set(BUILT_IN)
    assert torch.get_num_threads() == 1


def test_an_arm_takes_over_every_parameter_of_its_section():
    stages = "retrieval: {size: 50}, pre_ranking: {model: truth, bid: none, size: 9}"
    stages += ", ranking: {model: truth, bid: init}, slots: 2"
    rules = (
        "auction: {pricing: first, reserve_cpc: 0.1, score_floor: 0.01}, bidding: {rule: none, range: 0.2}"
    )
    scenario = tiny_scenario(f"arms.odd={{{stages}, {rules}}}", "auction.squashing=0.5")
    sim = Simulation(scenario, 3)
    arm = sim.arm("odd", resolved_arms(scenario)["odd"])
    assert (arm.retrieval.size, arm.most_auctioned, arm.slots) == (50, 9, 2)
    assert (arm.pricing, arm.reserve_cpc, arm.score_floor) == ("first", 0.1, 0.01)
    assert (arm.bid_rule, arm.bid_range) == ("none", 0.2)
    assert (arm.stages[0].bid, arm.last.bid) == ("none", "init")
    assert arm.stages[0].scorer is sim.scorers["truth"] and arm.last.fusion == Fusion(pctr=0.5)


def test_an_arm_may_be_given_other_seats_and_keeps_all_other_parameters(sim):
    spec = resolved_arms(sim.scenario)["logloss"]
    noise, truth = (Stage(sim.scorers[name], "opt", Fusion(0.5)) for name in ("random", "truth"))
    arm = sim.arm_of("x", spec, [noise, truth])
    assert arm.name == "x" and arm.stages[0].scores_like(noise) and arm.last == truth
    assert (arm.retrieval.size, arm.most_auctioned, arm.slots) == (60, 15, 3)
    assert (arm.pricing, arm.reserve_cpc, arm.bid_rule, arm.bid_range) == ("gsp", 0.0, "ocpc", 0.4)


def test_a_named_fusion_reaches_the_stage_that_asks_for_it():
    scenario = tiny_scenario(
        "fusions={both: {pctr: 1.0, pcvr: 0.5, bid: 2.0}}",
        "cascade.ranking={model: truth, fusion: both}", "cascade.pre_ranking.model=truth",
    )  # fmt: skip
    sim = Simulation(scenario, 1)
    arm = sim.arm("x", resolved_arms(scenario)["logloss"])
    assert arm.last.fusion == Fusion(pctr=0.5, pcvr=0.25) and arm.stages[0].fusion == Fusion()


def test_a_view_shows_what_the_model_lists(sim):
    view = sim.view(("user", "tier", "G2"))
    assert np.array_equal(view.ad_table[:, 0], sim.world.ad_features["tier"][:, 0])
    assert (view.request_width, view.ad_width) == (1 + 2, 1 + 2)


def test_an_untrained_model_has_no_seat_yet(sim):
    with pytest.raises(KeyError):
        sim.arm("logloss", resolved_arms(sim.scenario)["logloss"])
