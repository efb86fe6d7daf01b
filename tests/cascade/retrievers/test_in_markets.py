"""A market behind a learned retriever, which learns again and searches at the bids of the moment."""

from dataclasses import replace

import numpy as np
import pytest

from cascade_sim.cascade.retrievers.routes import MergedRoutes
from cascade_sim.cascade.serve import retrieve, serve
from cascade_sim.environments.evaluators.corpus import attribution_columns, best_of_corpus
from cascade_sim.market.trainer import Trainer
from cascade_sim.scenario.file import scenario_data
from cascade_sim.scenario.schema import Scenario, resolved_arms
from worlds.learning_market import learning_scenario, learning_sim, live_and_learn
from worlds.timed_market import same

ARM = "now"


def scenario_of(retrieval, **market):
    """The market that learns, with this retrieval."""
    data = scenario_data(learning_scenario(market))
    data["models"]["towers"] = {"features": ["user", "quality", "tier", "G1"], "dims": 4, "batch": 128}
    data["cascade"]["retrieval"] = retrieval
    return Scenario.model_validate(data)


@pytest.fixture(scope="module")
def found():
    scenario = scenario_of({"model": "towers", "size": 60}, exploration=0.3, exploration_pool="corpus")
    return live_and_learn(learning_sim(scenario), ARM)


def learned(arm):
    """The learned retriever of an arm, or of its first route."""
    retriever = arm.retrieval.retriever
    return retriever.routes[0].retriever if isinstance(retriever, MergedRoutes) else retriever


@pytest.mark.parametrize(
    "retrieval",
    [
        {"model": "towers", "size": 60},
        {"routes": {"learned": {"model": "towers", "size": 40}, "near": {"size": 20}}},
    ],
)
def test_the_retriever_learns_again_and_its_ads_are_encoded_anew(retrieval):
    scenario = scenario_of(retrieval)
    sim = learning_sim(scenario)
    before = sim.arm(ARM, resolved_arms(scenario)[ARM])
    found = live_and_learn(sim, ARM)
    after = found.run.server.arm
    assert not np.array_equal(learned(before)._codes, learned(after)._codes)
    assert learned(before) is not learned(after) and learned(after).name == "towers"
    block = sim.arrivals.block("evaluate", 0, 64)
    assert not np.array_equal(retrieve(block, before, sim.platform), retrieve(block, after, sim.platform))


def test_it_goes_on_from_its_state(found):
    sim = found.run.trainer.sim
    other = Trainer(sim, sim.arm(ARM, resolved_arms(sim.scenario)[ARM]), sim.scenario.market.training)
    other.restore(found.run.trainer.state())
    assert np.array_equal(learned(other.arm)._codes, learned(found.run.trainer.arm)._codes)


def test_the_number_of_workers_changes_no_bit(found):
    scenario = scenario_of({"model": "towers", "size": 60}, exploration=0.3, exploration_pool="corpus")
    same(found, live_and_learn(learning_sim(scenario), ARM, workers=3))


def test_random_pages_have_ads_that_are_not_retrieved(found):
    narrow = live_and_learn(learning_sim(scenario_of({"model": "towers", "size": 60}, exploration=0.3)), ARM)
    seen = {}
    for name, market in (("corpus", found), ("retrieved", narrow)):
        ads = market.log["ad"][market.log["is_explored"]]
        seen[name] = np.sort(np.bincount(ads, minlength=200))
    # The rarest half of the ads: of the corpus each comes as often as any other.
    assert seen["corpus"][:100].sum() > 1.5 * seen["retrieved"][:100].sum()


def test_retrieval_looks_at_the_bids_of_the_window():
    scenario = scenario_of({"model": "towers", "size": 60})
    sim = learning_sim(scenario)
    arm, block = sim.arm(ARM, resolved_arms(scenario)[ARM]), sim.arrivals.block("evaluate", 0, 64)
    out = sim.world.advertiser == 3  # its budget is exhausted
    now = replace(sim.platform, bids=sim.platform.bids.with_bids(np.where(out, 0.0, sim.world.init_bid)))
    usual, found = retrieve(block, arm, sim.platform), retrieve(block, arm, now)
    assert out[usual[usual >= 0]].any() and not out[found[found >= 0]].any()
    assert (found >= 0).all()  # others come in their place


def test_the_panel_says_what_each_stage_loses_of_the_corpus_and_what_part_of_it_was_shown(found):
    raw, log, sim = found.metrics["learning"], found.log, found.run.server.sim
    lost = [name for name in raw["panel"][0] if name.startswith("lost ")]
    assert lost == ["lost retrieval", "lost pre_ranking", "lost ranking"]
    arm = sim.arm(ARM, resolved_arms(sim.scenario)[ARM])  # as it was at the start
    block = sim.arrivals.block("panel", 0, 96)
    best = best_of_corpus(sim.environment, sim.world.n_ads, arm, block)
    expected = attribution_columns(sim.environment, arm, block, serve(block, arm, sim.platform), best)
    for name in (*lost, "best"):
        assert np.allclose(raw["panel"][0][name][: len(block)], expected[name])
    start, end = raw["time"][1], raw["time"][2]
    own = (log["time"] > start) & (log["time"] <= end) & ~log["is_explored"]
    assert raw["panel"][2]["coverage"] == len(np.unique(log["ad"][own])) / sim.world.n_ads
    assert raw["panel"][0]["coverage"] is None


def test_coverage_counts_all_that_was_shown_since_the_deployment_before_however_little_is_learned_from(found):
    data = scenario_data(found.run.trainer.sim.scenario)
    data["market"]["training"]["window"] = 100.0  # of 500 seconds between two deployments
    short = live_and_learn(learning_sim(Scenario.model_validate(data)), ARM)
    first = [run.trainer.metrics(1800.0)["panel"][1]["coverage"] for run in (found.run, short.run)]
    assert first[0] == first[1] > 0  # up to then both are served by the study's models
