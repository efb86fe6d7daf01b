import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

from cascade_sim.analysis.metrics.consistency import rcs
from cascade_sim.cascade.fusion import Fusion
from cascade_sim.cascade.serve import Stage, shadow
from cascade_sim.environments.evaluators import corpus as detail
from cascade_sim.foundation.progress import Progress
from cascade_sim.storage.tables import read_table, tables
from cascade_sim.study import evaluate
from cascade_sim.study.evaluate import Evaluation, ablation_arms
from cascade_sim.study.results import collect
from oracles.rcs_sql import rcs_sql
from worlds.cascades import with_stage_of
from worlds.tiny_market import run_phases, tiny_scenario

SHORT = ("phases.cold_start=200", "phases.log=200", "phases.shadow=60", "phases.evaluate=150")


@pytest.fixture(scope="module")
def reserved(tmp_path_factory):
    """A study whose auction turns many ads away, with an arm of another size and one of other rules."""
    scenario = tiny_scenario(
        *SHORT, "auction.reserve_cpc=2.2", "auction.score_floor=0.02",
        "arms={logloss: {}, wide: {pre_ranking: {size: 30}}, ltr: {pre_ranking: {model: ltr}}, "
        "known: {pre_ranking: {bid: opt, size: 4}}, free: {auction: {reserve_cpc: 0.0}}, short: {slots: 2}, "
        "own_bids: {ranking: {bid: init}}, own_ranker: {ranking: {model: logloss}}}",
    )  # fmt: skip
    return run_phases(scenario, tmp_path_factory.mktemp("reserved"), tmp_path_factory.mktemp("cache"))


def array_rcs(study, name):
    """Mean RCS of the requests looked at in detail, from the decisions of a fresh serving."""
    sim, evaluation = study.sim, study.evaluation
    found = []
    for index in range(-(-evaluation.n_requests // sim.scenario.traffic.block)):
        block = sim.arrivals.block("evaluate", index, evaluation.n_requests)
        arm = evaluation.arms[name]
        ideal = sim.serve(block, shadow(arm)).win_set
        found.append(rcs(ideal, sim.serve(block, arm).competitive_set))
    return np.nanmean(np.concatenate(found)[: evaluation.n_quality])


def logged_rcs(study, name):
    arm = study.evaluation.arms[name]
    logs = study.folder / "logs"
    shadow_log, service_log = logs / "shadow" / "*.parquet", logs / f"service-{name}" / "*.parquet"
    return rcs_sql(shadow_log, service_log, c=arm.most_auctioned, k=arm.slots)


@pytest.mark.parametrize("name", ["logloss", "ltr", "distill-pre"])
def test_rcs_by_sql_over_the_logs_is_rcs_by_arrays(study, name):
    assert study.evaluation.n_quality == 200
    assert logged_rcs(study, name) == pytest.approx(array_rcs(study, name), abs=1e-12)
    assert 0.05 < logged_rcs(study, name) < 1


@pytest.mark.parametrize("name", ["logloss", "wide", "ltr", "known"])
def test_rcs_by_sql_leaves_out_what_the_auction_would_not_admit(reserved, name):
    assert logged_rcs(reserved, name) == pytest.approx(array_rcs(reserved, name), abs=1e-12)
    assert reserved.metrics["funnel"][name]["win_set"] < 3  # some slots stay empty
    assert 0.05 < logged_rcs(reserved, name) < 1


def test_the_service_is_logged_of_those_arms_whose_ranking_stage_the_shadow_is(study, reserved):
    """The shadow's scores are the baseline's: joined with an arm of other rules they would say nothing."""
    for one, expected in (
        (study, {"logloss", "ltr", "distill-pre"}),
        (reserved, {"logloss", "wide", "ltr", "known"}),
    ):
        logged = {
            table.removeprefix("service-") for table in tables(one.folder) if table.startswith("service-")
        }
        assert logged == expected
    assert {"free", "short", "own_bids", "own_ranker"} <= set(reserved.metrics["arms"])


def test_more_requests_are_logged_than_are_held_against_the_whole_corpus(study, monkeypatch, tmp_path):
    monkeypatch.setattr(detail, "CORPUS_PAIRS", 50 * 600)
    found = evaluated(study, tmp_path)
    assert (found.n_detail, found.n_quality) == (50, 200)
    assert len(np.unique(read_table(tmp_path, "shadow")["request"])) == 200
    assert len(found.tallies["ltr"].joined("detail")["best"]) == 50
    assert collect(found)["attribution"]["ltr"]["requests"] == 50


def evaluated(study, folder):
    """The study's models evaluated again, into another folder; the log of exposures is the study's."""
    shutil.copytree(study.folder / "logs" / "log", folder / "logs" / "log")
    with Progress(quiet=True) as progress:
        found = Evaluation(study.sim, folder, progress)
        found.run()
    return found


@pytest.mark.parametrize("rows", [7, 499])
def test_a_long_evaluation_keeps_sums_of_a_few_requests_in_a_row(study, monkeypatch, tmp_path, rows):
    monkeypatch.setattr(evaluate, "MAX_ROWS", rows)
    found = evaluated(study, tmp_path)
    assert {len(c) for t in found.tallies.values() for c in t.joined("columns").values()} == {rows}
    metrics = collect(found)["arms"]
    for arm, row in study.metrics["arms"].items():
        whole, summed = (
            np.array([entry["value"] for entry in r.values()], float)  # None becomes NaN
            for r in (row, metrics[arm])
        )
        assert list(row) == list(metrics[arm])
        assert summed == pytest.approx(whole, rel=1e-12, abs=1e-12, nan_ok=True), arm
    assert metrics["ltr"]["rcs"]["low"] != study.metrics["arms"]["ltr"]["rcs"]["low"]


def test_sums_over_many_blocks_do_not_depend_on_who_serves_them_nor_when(study, monkeypatch, tmp_path):
    """Three parts of a sum can be added in two ways, two only in one: here every sum has four."""
    monkeypatch.setattr(evaluate, "MAX_ROWS", 1)
    monkeypatch.setattr(evaluate, "GROUPS", 1)
    kept = []
    for workers in (1, 3):
        monkeypatch.setattr(study.sim.arrivals, "workers", workers)
        found = evaluated(study, tmp_path / str(workers))
        kept.append(
            {
                (arm, name): sums
                for arm, tally in found.tallies.items()
                for name, sums in {**tally.columns, **tally.vectors}.items()
            }
        )
    assert kept[0].keys() == kept[1].keys() and {len(sums) for sums in kept[0].values()} == {1}
    assert all(sums.dtype == np.float64 for sums in kept[0].values())  # counts stay whole up to 2^53
    assert all(np.array_equal(sums, kept[1][name]) for name, sums in kept[0].items())


def test_an_ordinary_evaluation_keeps_a_row_per_request(study):
    columns = study.evaluation.tallies["ltr"].joined("columns")
    log = read_table(study.folder, "evaluate-ltr")
    first = study.sim.arrivals.first_request("evaluate")
    clicks = np.bincount(log["request"] - first, log["click"], 500)
    assert np.array_equal(columns["clicks"], clicks) and clicks.sum() > 0


def test_an_arm_with_a_high_reserve_is_not_excused_by_an_oracle_of_its_own(reserved):
    """Against the baseline's oracle, which has its reserve, the arm without one may do better than 1."""
    rows = reserved.metrics["arms"]
    assert (
        rows["free"]["welfare_vs_oracle"]["value"] > 1.5 > 1 > rows["logloss"]["welfare_vs_oracle"]["value"]
    )
    assert (
        rows["ranker"]["payment_error_vs_oracle"]["value"] < rows["free"]["payment_error_vs_oracle"]["value"]
    )


def test_an_auction_that_admits_nobody_is_measured_too(tmp_path):
    """Empty pages throughout: metrics that need a shown ad are undefined, and the run goes on."""
    scenario = tiny_scenario(*SHORT, "auction.reserve_cpc=1000", "models.ltr.epochs=1")
    found = run_phases(scenario, tmp_path, tmp_path / "cache").metrics
    row = found["arms"]["logloss"]
    assert row["ctr"]["value"] is None and row["rcs"]["value"] is None
    assert row["revenue_per_request"]["value"] == 0.0 and found["funnel"]["logloss"]["win_set"] == 0
    assert found["models"]["rank"]["win_set"]["auc"]["value"] is None
    assert 0 < found["models"]["rank"]["pre_ranking_set"]["auc"]["value"] < 1


def test_every_seat_of_every_arm_has_its_quality_measured(reserved):
    assert list(reserved.metrics["models"]) == ["rank", "logloss", "ltr"]


def test_the_metrics_hold_the_mean_rcs_of_all_requests(study):
    sim, evaluation = study.sim, study.evaluation
    values = []
    for index in range(4):
        block = sim.arrivals.block("evaluate", index, 500)
        arm = evaluation.arms["ltr"]
        values.append(rcs(sim.serve(block, shadow(arm)).win_set, sim.serve(block, arm).competitive_set))
    assert len(np.concatenate(values)) == 500
    assert study.metrics["arms"]["ltr"]["rcs"]["value"] == pytest.approx(np.concatenate(values).mean())


def test_the_ablation_replaces_one_seat_at_a_time_and_the_last_row_is_exactly_1(study, reserved):
    for one in (study, reserved):
        rows = one.metrics["ablation"]
        seats = [(row["bid"], row["model"]) for row in rows]
        assert seats == [("init", "logloss"), ("opt", "logloss"), ("init", "rank"), ("opt", "rank")]
        assert rows[0]["rcs"]["value"] == one.metrics["arms"]["logloss"]["rcs"]["value"] < 1
        assert rows[-1]["rcs"] == {"value": 1.0, "low": 1.0, "high": 1.0, "lift": rows[-1]["rcs"]["lift"]}
        assert one.metrics["arms"]["ranker"]["rcs"]["value"] == 1.0


def test_replacing_both_seats_gives_1_for_a_named_fusion_too(study):
    sim = study.sim
    block = sim.arrivals.block("evaluate", 0, 500)
    seat = Stage(sim.scorers["rank"], "opt", Fusion(pctr=0.5, pcvr=0.5))
    arm = with_stage_of(study.evaluation.baseline, -1, seat)
    last = list(ablation_arms(arm).values())[-1]
    ideal = sim.serve(block, shadow(arm)).win_set
    assert np.all(rcs(ideal, sim.serve(block, last).competitive_set) == 1.0)


def test_all_arms_meet_the_same_requests(study):
    requests = [
        np.unique(read_table(study.folder, f"evaluate-{arm}")["request"]) for arm in study.metrics["arms"]
    ]
    assert all(np.array_equal(requests[0], other) for other in requests)
    assert len(requests[0]) == 500


def test_the_automatic_arms_are_always_there(study):
    names = ["logloss", "ltr", "distill-pre", "random", "bid_only", "pctr_only", "ranker"]
    assert list(study.metrics["arms"]) == names
    for arm in ("random", "bid_only"):
        assert study.metrics["arms"][arm]["proxy_ece"]["value"] is None
    assert study.metrics["arms"]["ltr"]["proxy_ece"]["value"] is None
    assert study.metrics["arms"]["bid_only"]["single_objective_rcs"]["value"] is None
    assert study.metrics["arms"]["ranker"]["proxy_ece"]["value"] == 0.0


def test_exposed_ads_are_those_the_deployed_cascade_showed_often_enough(study):
    log = read_table(study.folder, "log")
    for ad in range(0, 600, 23):
        shown = int(((log["ad"] == ad) & ~log["is_explored"]).sum())
        assert study.evaluation.evaluator.is_exposed[ad] == (shown >= 3)
    assert 0 < study.evaluation.evaluator.is_exposed.sum() < 600


def test_the_funnel_counts_the_candidates_after_each_stage(study):
    expected = {"corpus": 600, "pre_ranking_set": 60.0, "competitive_set": 15.0, "win_set": 3.0}
    assert all(funnel == expected for funnel in study.metrics["funnel"].values())


def test_the_scenario_may_have_the_truth_in_both_seats(tmp_path):
    """The oracle as the only arm: nothing is trained, and every yardstick is met exactly."""
    scenario = tiny_scenario(
        *SHORT, "models={}", "cascade.pre_ranking={model: truth, bid: opt, size: 15}",
        "cascade.ranking={model: truth}", "arms={oracle: {}}", "report.baseline=oracle",
    )  # fmt: skip
    found = run_phases(scenario, tmp_path, tmp_path / "cache").metrics
    exact = {name: entry["value"] for name, entry in found["arms"]["oracle"].items()}
    ones = (
        "rcs",
        "single_objective_rcs",
        "true_value_recall",
        "welfare_vs_oracle",
        "revenue_vs_oracle",
        "proxy_pcoc",
    )
    assert {name: exact[name] for name in ones} == dict.fromkeys(ones, 1.0)
    zeros = ("cpc_error", "cpc_bias", "payment_error_vs_oracle", "proxy_ece")
    assert {name: exact[name] for name in zeros} == dict.fromkeys(zeros, 0.0)
    assert exact["revenue_pcoc"] == pytest.approx(1.0, rel=1e-12)
    assert found["ablation"][-1]["rcs"]["value"] == 1.0
    ranking = found["attribution"]["oracle"]["stages"]
    assert ranking[1]["ecpm_lost"]["value"] == pytest.approx(0, abs=1e-9)
    assert ranking[2]["ecpm_lost"]["value"] == pytest.approx(0, abs=1e-9)
    assert torch.get_num_threads() == 1


def test_an_arm_that_goes_by_two_names_is_served_and_measured_once(study, monkeypatch):
    evaluation, served = study.evaluation, []
    block = study.sim.arrivals.block("evaluate", 0, evaluation.n_requests)
    measure_arm = Evaluation._measure_arm

    def watched(self, block, arm, *rest):
        served.append(arm.name)
        return measure_arm(self, block, arm, *rest)

    monkeypatch.setattr(Evaluation, "_measure_arm", watched)
    by_arm = evaluation.measure_block(block)
    assert list(by_arm) == list(evaluation.all_arms())
    (_, as_it_is), *_, (_, both) = ((key, arm.name) for key, arm in evaluation.ablations.items())
    assert not {as_it_is, both} & set(served)
    for name, twin in ((as_it_is, evaluation.baseline.name), (both, "ranker")):
        for kind in ("columns", "vectors"):
            left, right = getattr(by_arm[name], kind), getattr(by_arm[twin], kind)
            assert {key: table.tobytes() for key, table in left.items()} == {
                key: table.tobytes() for key, table in right.items()
            }
        assert by_arm[twin].detail and not by_arm[name].detail


def test_arms_that_share_a_model_ask_it_once_for_the_whole_corpus(study, monkeypatch):
    sim, evaluation = study.sim, study.evaluation
    block = sim.arrivals.block("evaluate", 0, evaluation.n_requests).take(slice(20))
    asked = []
    for scorer in {id(s): s for s in sim.scorers.values()}.values():
        predict = type(scorer).predict
        watched = lambda self, block, ids, predict=predict: (  # noqa: E731
            asked.append((self.name, ids.shape)),
            predict(self, block, ids),
        )[1]
        if predict.__name__ != "<lambda>":
            monkeypatch.setattr(type(scorer), "predict", watched)
    heads = {name: (arm, sim.serve(block, arm)) for name, arm in evaluation.arms.items()}
    wide = evaluation.baseline.with_stage(0, size=evaluation.baseline.most_auctioned + 1)
    wide = replace(wide, name="wide")
    heads["wide"] = (wide, sim.serve(block, wide))
    asked.clear()
    found = detail.corpus_columns(sim.environment, sim.world.n_ads, block, heads, "")
    whole = [name for name, shape in asked if shape[1] == sim.world.n_ads]
    assert len(whole) == len(set(whole)) and evaluation.baseline.stages[0].scorer.name in whole
    for name, (arm, decision) in heads.items():
        alone = detail.corpus_columns(sim.environment, sim.world.n_ads, block, {name: (arm, decision)}, "")
        assert {key: column.tobytes() for key, column in alone[name].items()} == {
            key: column.tobytes() for key, column in found[name].items()
        }
