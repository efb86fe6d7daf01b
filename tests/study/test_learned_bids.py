"""Opt-bids from trained models of conversions, through all phases and in a reopened run."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from cascade_sim.cascade.bids import BatchedRates, TowersRates
from cascade_sim.cascade.cache import BlockCache
from cascade_sim.cascade.serve import Block, admitted, bids, score, serve
from cascade_sim.counterfactual import critical_bids, landscape
from cascade_sim.counterfactual.whatif import what_if_study
from cascade_sim.diagnostics.reopen import reopen
from cascade_sim.diagnostics.trace import trace
from cascade_sim.foundation.progress import Progress
from cascade_sim.storage.model_store import ModelStore
from cascade_sim.storage.tables import read_table
from cascade_sim.study.evaluate import ablation_arms
from cascade_sim.study.prepare import Preparation, deployed_arm
from cascade_sim.study.simulation import Simulation
from worlds.cascades import decided
from worlds.tiny_market import make_block, run_phases, tiny_scenario, z_score
from worlds.whatif_runs import measured_run

SMALL = "features: [conversion], dims: 4, hidden: 8, batch: 128"
CLICKS = f"target: conversion, {SMALL}, epochs: 6"
LEARNED = (
    *("world.conversion.base_logit=-1.0", "phases.log=4000", "bidding.pcvr=pcvr"),
    f"models.pcvr={{{CLICKS}}}",
    f"models.pcvr-wide={{{CLICKS.replace('[conversion]', '[conversion, context]')}, kind: coaction}}",
    f"models.pcvr-pre={{target: conversion, recipe: distill, teacher: pcvr, {SMALL}, epochs: 10}}",
    "arms.opt={pre_ranking: {bid: opt, pcvr: pcvr-pre}}",
    "arms.wide={bidding: {pcvr: pcvr-wide}}",
)


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def learned(tmp_path_factory, cache):
    return run_phases(tiny_scenario(*LEARNED), tmp_path_factory.mktemp("learned"), cache)


@pytest.fixture(scope="module")
def run(learned, tmp_path_factory):
    return measured_run(learned, tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def first(learned):
    return learned.sim.arrivals.block("evaluate", 0, 500)


def test_the_towers_serve_in_the_kernel_and_other_nets_in_batches_by_the_same_rule(learned, first):
    sim, ids = learned.sim, learned.sim.retriever(first.users, 60)
    kinds = {"pcvr": TowersRates, "pcvr-wide": BatchedRates}
    for name, kind in kinds.items():
        rates, scorer = sim.rates(name), sim.scorers[name]
        assert isinstance(rates, kind) and rates is sim.rates(name)
        pcvr = scorer.predict(first, ids)
        assert rates.pcvr(first, ids) == pytest.approx(pcvr, rel=1e-5)
        ratio = np.clip(pcvr / rates.mean[ids], 0.6, 1.4)
        opt = sim.platform.bids.bid("opt", first, ids, "ocpc", 0.4, rates)
        assert opt == pytest.approx(sim.world.init_bid[ids] * ratio, rel=1e-5)
        empty = np.full((len(first), 2), -1, np.int32)
        assert not sim.platform.bids.bid("opt", first, empty, "ocpc", 0.4, rates).any()


def test_the_mean_of_a_model_is_over_the_users_of_the_known_one(learned):
    sim = learned.sim
    everyone = make_block(np.arange(sim.world.n_users))  # fewer than are sampled from
    ids = np.tile(np.arange(sim.world.n_ads, dtype=np.int32), (sim.world.n_users, 1))
    pcvr = sim.scorers["pcvr"].predict(everyone, ids)  # it does not see the context
    assert sim.rates("pcvr").mean == pytest.approx(pcvr.mean(axis=0, dtype=np.float64), rel=1e-5)


def test_a_learned_pcvr_is_calibrated_where_conversions_come_at_once(learned):
    shown = read_table(learned.folder, "evaluate-logloss", ["request", "user", "context", "ad"])
    block = Block(shown["request"], shown["user"], shown["context"], np.zeros(len(shown["user"])))
    ads = shown["ad"][:, None]
    true, predicted = (
        learned.sim.environment._truth.cvr(block, ads),
        learned.sim.rates("pcvr").pcvr(block, ads),
    )
    logs = [read_table(learned.folder, phase, ["conversion"]) for phase in ("cold_start", "log")]
    noise = 3 / np.sqrt(sum(log["conversion"].sum() for log in logs))  # of what it learned its level from
    assert noise < 0.2 and predicted.sum() / true.sum() == pytest.approx(1, abs=noise)
    assert np.corrcoef(true[:, 0], predicted[:, 0])[0, 1] > 0.6


def test_until_it_is_trained_the_deployed_cascade_bids_init(learned):
    arm = deployed_arm(learned.sim)
    assert arm.last.bid == "init" and arm.last.rates is None
    log = read_table(learned.folder, "log", ["bid", "init_bid"])
    assert np.array_equal(log["bid"], log["init_bid"])


def test_arms_bid_by_the_models_they_name(learned, first):
    arms, sim = learned.evaluation.arms, learned.sim
    named = {n: (a.stages[0].pcvr, a.last.pcvr) for n, a in arms.items() if n in ("logloss", "opt", "wide")}
    assert named == {"logloss": (None, "pcvr"), "opt": ("pcvr-pre", "pcvr"), "wide": (None, "pcvr-wide")}
    ids = sim.retriever(first.users, 60)
    by_arm = [bids(first, ids, arms[name].last, arms[name], sim.platform) for name in ("logloss", "wide")]
    assert not np.allclose(*by_arm)


def test_a_memo_keeps_the_bids_of_models_apart(learned, first):
    remembering = replace(first, memo=BlockCache())
    for arm in learned.evaluation.all_arms().values():
        told, plain = (decided(serve(block, arm, learned.sim.platform)) for block in (remembering, first))
        assert all(np.array_equal(told[key], plain[key]) for key in plain), arm.name


def test_a_stage_with_another_pcvr_does_not_guess_the_reserves_verdict(learned, first):
    arm, platform = learned.evaluation.arms["opt"], learned.sim.platform
    ids = learned.sim.retriever(first.users, 60)
    strict = replace(arm, reserve_cpc=1.0)
    for stage, knows in ((arm.stages[0], False), (arm.last, True)):
        scores = score(first, ids, stage, strict, platform)
        assert (scores.bid < 1).any()
        assert (admitted(scores, stage, strict) < 0).any() == knows


def test_the_ablation_replaces_the_pcvr_as_the_bid(learned):
    arms = ablation_arms(learned.evaluation.arms["opt"])
    expected = [("opt (pcvr-pre)", "logloss"), ("opt (pcvr)", "logloss")]
    expected += [("opt (pcvr-pre)", "rank"), ("opt (pcvr)", "rank")]
    assert [(key.bid, key.model) for key in arms] == expected
    rows = learned.metrics["ablation"]
    assert [(row["bid"], row.get("pcvr"), row["role"]) for row in rows] == [
        *(("init", None, "as it is"), ("opt", "pcvr", "bid")),
        *(("init", None, "model"), ("opt", "pcvr", "both")),
    ]
    assert rows[-1]["rcs"]["value"] == 1


def test_a_student_is_nearer_to_its_teacher_than_the_teachers_spread(learned, first):
    ids = learned.sim.retriever(first.users, 60)
    teacher, student = (learned.sim.scorers[name].logit(first, ids) for name in ("pcvr", "pcvr-pre"))
    assert np.mean((teacher - student) ** 2) < 0.1 * teacher.var()


def test_the_models_of_conversions_are_measured_against_conversions(learned):
    assert list(learned.metrics["pcvr_models"]) == ["pcvr", "pcvr-pre", "pcvr-wide"]
    assert not set(learned.metrics["models"]) & set(learned.metrics["pcvr_models"])
    assert learned.metrics["pcvr_models"]["pcvr"]["pre_ranking_set"]["auc"]["value"] > 0.6


@pytest.mark.drill
def test_several_workers_give_the_same_numbers(learned, cache, tmp_path):
    kept = sorted(cache.rglob("*"))
    again = run_phases(tiny_scenario(*LEARNED), tmp_path / "logs", cache, workers=3)
    assert sorted(cache.rglob("*")) == kept  # the same logs, to the byte: nothing was trained again
    assert again.metrics == learned.metrics


def test_a_reopened_run_serves_what_it_served_and_answers_questions(learned, run, first):
    opened = reopen(run)
    for name in ("opt", "wide"):
        here, there = (
            decided(serve(first, arm, sim.platform))
            for arm, sim in ((opened.arm(name), opened.sim), (learned.evaluation.arms[name], learned.sim))
        )
        assert all(np.array_equal(here[key], there[key]) for key in here)
    told = trace(opened, 10, arm_name="opt")
    ad = told["win_set"][-1]["ad"]
    explained = trace(opened, 10, ad, "opt")
    assert told["same_as_log"] and explained["ad"]["bids"]["cascade"] <= opened.sim.world.init_bid[ad]
    arm = opened.arm("opt")
    least = critical_bids.critical_bids(opened.sim, arm, 128)
    assert np.all(least.local_micros <= least.cascade_micros)
    assert np.all(least.cascade_micros <= np.ceil(least.init_bid * 1e6))  # they did win with their own bid
    shape = landscape.landscape(
        opened.sim, arm, ad, np.array([0.5, 1.0, 2.0]) * opened.sim.world.init_bid[ad], 128
    )
    assert np.all(np.diff(shape.impressions) >= 0)


def test_whose_pcvr_it_is_can_be_asked_after_the_fact(learned, run):
    answer = what_if_study(run, ["bidding.pcvr=known,pcvr-wide"], n_requests=500)
    wide = learned.metrics["arms"]["wide"]["revenue_per_request"]["value"]
    assert answer["points"][1]["metrics"]["revenue_per_request"]["value"] == pytest.approx(wide)
    assert answer["current"]["metrics"]["revenue_per_request"]["value"] != pytest.approx(wide)


LATE = (
    *("world.conversion.base_logit=-0.5", "world.conversion.weight=0.5", "world.base_logit=-2.0"),
    *("phases.cold_start=0", "phases.log=9000", "phases.exploration=1.0", "traffic.requests_per_second=10"),
    "world.conversion.delay={means: [20, 300], weights: [0.3, 0.7], window: 5000}",
    f"models={{none: {{{CLICKS}, data: [log]}}, "
    f"wait: {{{CLICKS}, data: [log], delay_correction: wait, delay_window: 500}}, "
    f"elapsed: {{{CLICKS}, data: [log], delay_correction: elapsed, delay_window: 500}}}}",
    *("cascade.pre_ranking.model=constant", "cascade.ranking.model=truth", "arms={now: {}}"),
    "report.baseline=now",
)


@pytest.mark.drill
def test_late_conversions_bias_a_model_without_a_correction_and_not_one_with(tmp_path):
    scenario = tiny_scenario(*LATE)
    sim = Simulation(scenario, scenario.seed)
    with Progress(quiet=True) as progress:
        Preparation(sim, tmp_path, ModelStore(tmp_path / "cache"), progress, torch.device("cpu")).run()
    wanted = ["request", "user", "context", "ad", "time", "click", "conversion", "conversion_time"]
    log = read_table(tmp_path, "log", wanted)
    clicked = {key: values[log["click"]] for key, values in log.items()}
    block = Block(clicked["request"], clicked["user"], clicked["context"], clicked["time"])
    ads = clicked["ad"][:, None]
    true = sim.environment._truth.cvr(block, ads)[:, 0]
    assert abs(z_score(clicked["conversion"].sum(), true)) < 4
    late = clicked["conversion_time"] - clicked["time"]
    assert np.array_equal(np.isfinite(late), clicked["conversion"] & (late <= 5000))
    within = float(sim.delays.observed_within(500.0))
    assert abs(z_score((late <= 500).sum(), true * within)) < 4
    pcoc = {
        name: sim.rates(name).pcvr(block, ads).sum() / (true.sum() * within)
        for name in ("none", "wait", "elapsed")
    }
    ages = float(sim.arrivals.env.now) - clicked["time"]
    seen = float(sim.delays.observed_within(ages).mean()) / within
    noise = 4 / np.sqrt((late <= np.minimum(ages, 500)).sum())  # of a count of conversions, at least
    assert pcoc["none"] == pytest.approx(seen, abs=noise) and pcoc["none"] < 1 - noise
    assert pcoc["elapsed"] == pytest.approx(1, abs=noise)
    assert pcoc["wait"] == pytest.approx(1, abs=1.5 * noise)  # fewer clicks
