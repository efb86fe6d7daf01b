"""The trace: it repeats the logged decision exactly, and says where an ad stood and fell."""

import json
import shutil

import numpy as np
import pytest

from answers.section_text import says
from answers.told import refused, tells
from cascade_sim.cascade.serve import serve
from cascade_sim.cli import main
from cascade_sim.diagnostics.reopen import reopen
from cascade_sim.diagnostics.trace import explain_ad, find_request, stage_row, trace, trace_text
from cascade_sim.environments.arrivals import FIRST_REQUEST
from cascade_sim.storage.folder import json_text
from cascade_sim.storage.tables import read_table
from worlds.traced_run import REQUEST, ads_by_fate, as_run_folder

FIRST = FIRST_REQUEST["evaluate"]


@pytest.fixture(scope="module")
def folder(study, tmp_path_factory):
    return as_run_folder(study, tmp_path_factory.mktemp("runs") / "tiny")


@pytest.fixture(scope="module")
def run(folder):
    return reopen(folder)


@pytest.fixture(scope="module")
def page(run):
    """A request with everything needed to ask about its ads."""
    request, arm = find_request(run.sim, REQUEST), run.arm()
    return request, arm, serve(request.block, arm, run.sim.platform)


@pytest.mark.parametrize(
    "arm", ["logloss", "ltr", "distill-pre", "random", "bid_only", "pctr_only", "ranker"]
)
def test_the_traced_page_is_the_logged_one(folder, run, arm):
    log = read_table(folder, f"evaluate-{arm}")
    for index in (0, 127, 128, 300, 499):  # ends and middles of blocks
        traced = trace(run, index, arm_name=arm)
        ours = log["request"] == FIRST + index
        for column in ("ad", "advertiser", "cpc_micros", "init_bid"):
            assert [place[column] for place in traced["win_set"]] == log[column][ours].tolist()
        assert [place["clicked"] for place in traced["win_set"]] == log["click"][ours].tolist()
        assert [place["slot"] - 1 for place in traced["win_set"]] == log["slot"][ours].tolist()
        assert {traced["time"]} == set(log["time"][ours].tolist())
        assert {traced["user"]} == set(log["user"][ours].tolist())
        assert traced["same_as_log"] is True


def test_a_request_is_found_by_its_id_and_by_its_number(run):
    assert find_request(run.sim, FIRST + REQUEST).id == find_request(run.sim, REQUEST).id == FIRST + REQUEST


@pytest.mark.parametrize("bad", [-1, 500, FIRST + 500, FIRST_REQUEST["log"]])
def test_an_unknown_request_is_answered_with_the_range(run, bad):
    with refused(bad, f"{FIRST} to {FIRST + 499}", "0 to 499"):
        find_request(run.sim, bad)


def test_the_similarity_shown_is_the_one_retrieval_selects_by(run):
    for user in (0, 63, 64, 149):
        nearest = np.lexsort((np.arange(run.sim.world.n_ads), -run.sim.retriever.similarity(user)))[:60]
        assert sorted(nearest.tolist()) == run.sim.retriever(np.array([user]), 60)[0].tolist()


def test_an_ad_is_dropped_where_the_sets_say(run, page):
    request, arm, decision = page
    for fate, ad in ads_by_fate(run, page).items():
        explained = explain_ad(run.sim, request, arm, decision, ad)
        assert explained["dropped_by"] == fate
        names = ["retrieval", "pre_ranking", "ranking"]
        reached = names if fate is None else names[: names.index(fate) + 1]
        assert [stage["stage"] for stage in explained["stages"] if stage["reached"]] == reached
        for stage in explained["stages"]:
            assert stage["passed"] == (stage["rank"] <= stage["passes"])
            assert (stage["score"] >= stage["last_in"]) == stage["passed"]


def test_the_first_loser_of_the_auction_stands_right_below_the_last_slot(run, page):
    request, arm, decision = page
    runner_up = int(decision.ranked_set[request.row, -1])
    stage = explain_ad(run.sim, request, arm, decision, runner_up)["stages"][2]
    assert stage["rank"] == arm.slots + 1
    assert stage["score"] == stage["first_out"] < stage["last_in"]


def test_the_best_by_true_value_are_those_the_truth_ranks_first(run):
    traced = trace(run, REQUEST, arm_name="ranker")
    best = traced["true_best"][0]
    explained = trace(run, REQUEST, ad=best["ad"], arm_name="ranker")["ad"]
    assert explained["true_rank"] == 1
    assert (explained["true_value"], explained["dropped_by"]) == (best["true_value"], best["dropped_by"])


def test_ranks_break_ties_to_the_smaller_id_and_skip_padding():
    ids, scores = np.array([2, 5, 9, -1]), np.array([1.0, 3.0, 3.0, 0.0])
    assert [stage_row("ranking", scores, ids, ad, 1)["rank"] for ad in (2, 5, 9)] == [3, 1, 2]
    assert stage_row("ranking", scores, ids, 2, 2)["first_out"] == 1.0
    assert stage_row("ranking", scores, ids, 2, 5)["first_out"] is None


def test_the_text_names_what_decided(run, page):
    fates = ads_by_fate(run, page)
    text = trace_text(trace(run, REQUEST, fates["retrieval"]))
    assert says(text, f"request {FIRST + REQUEST}", f"number {REQUEST}", "arm logloss")
    assert tells(text, "600 ads -> 60 retrieved", "15 ranked -> 3 shown")
    assert tells(text, "dropped by retrieval")
    assert says(text, "No bid wins", "retrieval")
    assert "won slot 1" in trace_text(trace(run, REQUEST, fates[None]))
    assert "least init-bid" not in trace_text(trace(run, REQUEST))


def test_the_command_speaks_json(folder, run, capsys):
    assert main(["trace", str(folder), "--request", str(REQUEST), "--ad", "7", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(json_text(trace(run, REQUEST, 7)))


def test_a_page_that_differs_from_the_log_is_a_warning_and_code_1(folder, tmp_path, capsys):
    copy = shutil.copytree(folder, tmp_path / "run")
    shutil.copy(copy / "models" / "distill-pre.safetensors", copy / "models" / "logloss.safetensors")
    assert main(["trace", str(copy), "--request", str(REQUEST)]) == 1
    assert tells(capsys.readouterr().err, "another page", "slot")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--request", "3", "--ad", "600"], "--ad: 600; 0 599"),
        (
            ["--request", "3", "--arm", "loglos"],
            "--arm: 'loglos' 'logloss'?",
        ),
        ([], "error: '--request'"),
    ],
)
def test_a_mistake_in_the_command_is_explained_with_code_2(folder, words, message, capsys):
    assert main(["trace", str(folder), *words]) == 2
    assert tells(capsys.readouterr().err, *message.split())


def test_a_folder_that_is_no_run_is_refused(tmp_path, capsys):
    assert main(["trace", str(tmp_path), "--request", "0"]) == 2
    assert tells(capsys.readouterr().err, tmp_path, "not a run")
