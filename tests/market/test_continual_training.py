"""Months in small: a market that redeploys its ranker again and again, with all that is measured of it."""

import json

import numpy as np
import pytest

from cascade_sim.analysis.metrics.stability import LAST
from cascade_sim.cascade.links import with_calibrator
from cascade_sim.context import RunContext
from cascade_sim.market import trainer as market_training
from cascade_sim.market.panel import learning_sections
from cascade_sim.market.study import run_market
from cascade_sim.models.calibrators import Platt
from cascade_sim.study.results import combine_seeds
from cascade_sim.training import fit as recipes
from cascade_sim.training.data import split_pages
from worlds.learning_market import learning_scenario, learning_sim

# A deployment every quarter of a minute, from the 15 pages or so since the last: one pass over the stream.
STREAM = {"window": 15.0, "charging": {"click_delay": 0.0}, "checkpoint": 600.0}
EVERY = {"interval": 15.0, "window": None, "panel": 8}
ONCE = Platt(0.7, -1.5)


def sim_for(market=None, training=EVERY, **ranker):
    scenario = learning_scenario({**STREAM, **(market or {})}, **training)
    rank = scenario.models["rank"].model_copy(update={"batch": 16, **ranker})
    cascade = scenario.cascade.model_copy(
        update={"pre_ranking": scenario.cascade.pre_ranking.model_copy(update={"model": "random"})}
    )
    models = {"rank": rank}
    sim = learning_sim(
        scenario.model_copy(
            update={"models": models, "cascade": cascade, "arms": {"now": scenario.arms["now"]}}
        )
    )
    if rank.calibrator:
        sim.scorers["rank"] = with_calibrator(sim.scorers["rank"], ONCE)
    return sim


def run_in(folder, sim):
    return run_market(sim, "now", RunContext(folder))


REFITTED = {"objective": "softmax", "calibrator": "platt", "refit": True, "held_out": 0.5}


@pytest.fixture(scope="module")
def figures(tmp_path_factory):
    return run_in(tmp_path_factory.mktemp("whole"), sim_for(objective="softmax"))


def section_of(figures):
    return learning_sections({"now": figures}, "now", 10, 1)["now"]


@pytest.mark.drill
def test_a_long_stream_gets_its_curves_and_its_mark(figures):
    found = section_of(figures)
    n = len(found["version"])
    drift = found["drift"]
    assert drift["deployments"] == found["version"][-1] >= LAST
    assert drift["judged"] == drift["deployments"] - drift["deployments"] // 3
    assert all(len(found[m]) == n for m in ("mean_score", "mean_pctr", "mean_ctr", "logloss", "ece"))
    assert all(len(found[m]) == n for m in ("auc", "gauc", "page_auc", "page_gauc"))
    assert drift["paper_stable"] in (0.0, 1.0) and drift["drifting"] in (0.0, 1.0)
    assert drift["slope"]["low"] < drift["slope"]["value"] < drift["slope"]["high"]
    past = [entry["value"] for entry in found["page_gauc"]][1 + drift["deployments"] // 3 :][
        : drift["judged"]
    ]
    assert found["settled"]["page_gauc"]["value"] == pytest.approx(np.mean(past))
    assert found["settled"]["difference"]["page_gauc"]["value"] == 0  # it is the baseline itself
    assert found["ranker"] == {
        "model": "rank", "objective": "softmax", "batching": None, "calibrator": None, "refit": False,
        "has_scale": False,
    }  # fmt: skip
    truths = {one["value"] for one in found["mean_ctr"]}
    assert len(truths) == 1  # the same requests and the same ads each time
    assert found["mean_pctr"][-1]["value"] / truths.pop() == pytest.approx(found["pcoc"][-1]["value"])


@pytest.mark.drill
def test_over_worlds_the_verdict_becomes_the_share_of_those_that_drift(figures):
    studies = []
    for seed, mark in enumerate((1.0, 0.0, 1.0, 1.0)):
        section = section_of(figures)
        section["drift"] = {**section["drift"], "drifting": mark}
        studies.append({"seed": seed, "market": {"arms": {"now": {"learning": section}}}})
    drift = combine_seeds(studies)["market"]["arms"]["now"]["learning"]["drift"]
    assert drift["drifting"] == 0.75 and drift["deployments"] >= LAST
    assert drift["slope"]["low"] == pytest.approx(drift["slope"]["value"])  # the same in all four


@pytest.mark.drill
def test_a_market_with_a_refitted_calibrator_goes_on_to_the_same_bytes(tmp_path, monkeypatch):
    """Stopped after its second checkpoint: the calibrator of that moment is in it."""
    short = {"days": 0.01, "window": 60.0, "checkpoint": 300.0}
    often = {"interval": 120.0, "window": 240.0, "panel": 8}
    figures = run_in(tmp_path / "whole", sim_for(short, often, **REFITTED))

    class Stopped(Exception):
        pass

    from cascade_sim.market import study as market_study

    kept = []

    def save_and_stop(path, state, save=market_study.save_state):
        save(path, state)
        kept.append(state)
        if len(kept) == 2:
            raise Stopped

    with monkeypatch.context() as patch:
        patch.setattr(market_study, "save_state", save_and_stop)
        with pytest.raises(Stopped):
            run_in(tmp_path / "parts", sim_for(short, often, **REFITTED))
    assert set(kept[1]["trainer"]["calibrators"]) == {"rank"}
    again = run_in(tmp_path / "parts", sim_for(short, often, **REFITTED))
    assert json.dumps(again) == json.dumps(figures)


FEW = {"interval": 200.0, "window": 300.0, "panel": 16}  # three deployments in the 690 seconds of `lived`


@pytest.fixture
def fits(monkeypatch):
    """(pages, options) of every fit for an objective, (pages, scores' module) of every calibrator."""
    seen, apart = [], []
    train, calibrate = recipes.train_pages, market_training.fit_calibrator

    def watched(module, view, data, objective, plan, **options):
        seen.append((data, options))
        return train(module, view, data, objective, plan, **options)

    def watched_calibrator(name, spec, view, net, pages, *rest):
        apart.append(pages)
        return calibrate(name, spec, view, net, pages, *rest)

    monkeypatch.setattr(recipes, "train_pages", watched)
    monkeypatch.setattr(market_training, "fit_calibrator", watched_calibrator)
    return seen, apart


def test_a_refitted_calibrator_learns_from_pages_that_its_model_did_not_see(fits):
    trained, apart = fits
    sim = sim_for(training=FEW, **REFITTED)
    found = lived(sim)
    assert len(trained) == len(apart) == 3
    for (own, _), held in zip(trained, apart, strict=True):
        assert not set(own.request) & set(held.request)
        assert len(held.request) / (len(own.request) + len(held.request)) == pytest.approx(0.5, abs=0.1)
        again = split_pages(held, 0.5, sim.seed)[1]  # the same requests would be held out again
        assert np.array_equal(again.request, held.request)
    served = found.trainer.arm.last.scorer
    assert served.link == "calibrator" and served.calibrator.name == "platt"
    assert served.calibrator is not ONCE and found.trainer.state()["calibrators"]["rank"]


def test_without_refit_the_model_sees_every_page_and_the_calibrator_stays(fits):
    trained, apart = fits
    sim = sim_for(training=FEW, **{**REFITTED, "refit": False})
    found = lived(sim)
    assert apart == [] and found.trainer.arm.last.scorer.calibrator is ONCE
    assert found.trainer.state()["calibrators"] == {}
    recent = np.unique(found.trainer.recent.state()["request"])
    assert set(trained[-1][0].request) <= set(recent) and len(trained[-1][0].request) > 250


def test_a_refit_mends_the_scale_of_scores_that_have_none():
    """Against clicks of the last deployment's own pages, the calibrator's mean is theirs."""
    off, right = (
        lived(sim_for(training=FEW, **{**REFITTED, "calibrator": one, "refit": bool(one)}))
        for one in (None, "platt")
    )
    last = [run.trainer.metrics(691.2)["panel"][-1] for run in (off, right)]
    pcoc = [np.sum(one["shown_predicted"]) / np.sum(one["shown_true"]) for one in last]
    assert pcoc[0] > 2 and 0.5 < pcoc[1] < 1.7


def test_a_held_out_part_without_a_click_leaves_the_calibrator(monkeypatch):
    real = market_training.arrived_clicks
    monkeypatch.setattr(market_training, "arrived_clicks", lambda shown, now: 0 * real(shown, now))
    found = lived(sim_for(training=FEW, **REFITTED))
    assert found.trainer.arm.last.scorer.calibrator is ONCE and found.trainer.version == 3


def test_batching_reaches_the_trainer_and_changes_what_is_learned(fits):
    trained, _ = fits
    ends = {}
    for batching in ("samples", "lists"):
        run = lived(sim_for(training=FEW, objective="sbcr", batching=batching))
        assert {options["batching"] for _, options in trained} == {batching}
        trained.clear()
        ends[batching] = run.trainer.metrics(691.2)["panel"][-1]["page_score"]
    assert ends["samples"] != ends["lists"]


def test_a_pointwise_ranker_learns_from_pages_only_if_told_to(fits):
    trained, _ = fits
    lived(sim_for(training=FEW))
    assert trained == []
    lived(sim_for(training=FEW, batching="lists"))
    assert len(trained) == 3


def lived(sim):
    """The run of an arm's market, whose clicks are known at once."""
    from cascade_sim.market.run import MarketRun
    from cascade_sim.market.study import arm_market
    from cascade_sim.scenario.schema import resolved_arms

    spec = resolved_arms(sim.scenario)["now"]
    run = MarketRun(
        sim, sim.arm("now", spec), arm_market(sim, spec).model_copy(update={"window": 50.0, "days": 0.008})
    )
    run.run()
    return run
