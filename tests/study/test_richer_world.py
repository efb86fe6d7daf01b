"""Every option of a world at once: a whole study, and the questions that are asked of it."""

import json

import numpy as np
import pytest

from answers.told import refused
from cascade_sim.context import RunContext
from cascade_sim.counterfactual.whatif import what_if_study
from cascade_sim.diagnostics.reopen import evaluation_blocks, page_columns, reopen
from cascade_sim.diagnostics.trace import trace
from cascade_sim.storage.tables import read_table
from cascade_sim.study.run import run_study
from house.test_determinism import SHORT, digests
from worlds.tiny_market import tiny_scenario

# A request every two minutes and a half: the log lasts half a day, the evaluation begins six hours later.
EVERYTHING = (
    *("world.intent={weight: 0.7, common_shift_sd: 0.5, group: G2}", "world.bids.tail=3"),
    *("world.id_effects={user: 0.3, ad: 0.3, advertiser: 0.3, weight: 0.5}", "world.drift.per_day=0.2"),
    *(
        "world.seasonality={daily: 0.3, weekly: 0.2, groups: {G4: 0.5}}",
        "world.churn={available_share: 0.6, mean_lifetime_days: 1.0}",
    ),
    *("world.history={length: 5, candidate_pool: 10}", "traffic.requests_per_second=0.0067"),
    *("auction.reserve_cpc=0.2", "off_policy.targets.more=[auction.reserve_cpc=0.25]"),
    *("off_policy.requests=300", "off_policy.randomise.reserve_cpc=0.3"),
)


def study_by(workers, folder):
    """The study in a folder, by so many workers, with a cache of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cascade_sim.study.run.write_report", lambda *_: None)  # the page is not under test
        patch.setenv("CASCADE_SIM_CACHE", str(folder / "cache"))
        scenario = tiny_scenario(*SHORT, *EVERYTHING)
        run_study(scenario, RunContext(folder / "run", workers=workers, device="cpu"))
    return folder / "run"


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    return study_by(1, tmp_path_factory.mktemp("one"))


@pytest.fixture(scope="module")
def run(one):
    return reopen(one)


@pytest.mark.drill
def test_a_study_again_and_with_other_workers_writes_the_same_bytes(one, tmp_path):
    two = study_by(2, tmp_path)
    assert (one / "metrics.json").read_bytes() == (two / "metrics.json").read_bytes()
    assert digests(one) == digests(two)


def test_ads_that_are_not_there_are_never_shown_and_new_ones_come_after_the_log(run):
    lives, shown = run.sim.world.lives, {}
    for table in ("log", "evaluate-logloss"):
        rows = read_table(run.path, table, ["ad", "time"])
        assert lives.is_available(rows["ad"], rows["time"]).all()
        shown[table] = set(rows["ad"].tolist())
    start, end = (read_table(run.path, "log", ["time"])["time"][at] for at in (0, -1))
    evaluated = read_table(run.path, "evaluate-logloss", ["ad", "time"])
    in_log = lives.is_available(evaluated["ad"][:, None], np.linspace(start, end, 200)[None, :]).any(axis=1)
    assert 0.05 < np.mean(~in_log) < 0.95  # cold: nobody can have seen them while the log was written
    assert not {*evaluated["ad"][~in_log].tolist()} & shown["log"]


def test_a_trace_is_the_logged_page_at_the_logged_time(run):
    rows = read_table(run.path, "evaluate-logloss", ["request", "time", "ad"])
    answer = trace(run, int(rows["request"][-1]), ad=int(rows["ad"][-1]))
    assert answer["same_as_log"] is True and answer["time"] == rows["time"][-1]
    assert answer["ad"]["dropped_by"] is None
    there = run.sim.world.lives.is_available(np.arange(600), rows["time"][-1])
    assert answer["funnel"]["corpus"] == there.sum()
    assert all(there[best["ad"]] for best in answer["true_best"])


def test_a_trace_of_an_ad_that_is_not_there_says_so(run):
    rows = read_table(run.path, "evaluate-logloss", ["request", "time"])
    gone = int(np.argmin(run.sim.world.lives.is_available(np.arange(600), rows["time"][0])))
    with refused(f"ad {gone}", kind=Exception):
        trace(run, int(rows["request"][0]), ad=gone)


def test_a_question_meets_the_evaluation_as_it_was(run):
    metrics = json.loads((run.path / "metrics.json").read_text())
    change = ["auction.reserve_cpc=0.5"]
    answer = what_if_study(run.path, change)
    current, variant = answer["current"]["metrics"], metrics["arms"]["logloss"]
    same = [name for name in current if name in variant]
    assert {"rpm", "ctr", "rcs"} <= set(same)
    assert all(current[name]["value"] == variant[name]["value"] for name in same)


def test_pages_of_the_log_have_the_expected_clicks_of_their_time(run):
    metrics = json.loads((run.path / "metrics.json").read_text())
    columns = page_columns(run.sim.environment, run.path, "logloss", 200)
    times = np.concatenate([block.times for block, _ in evaluation_blocks(run.sim, 200)])
    logged = read_table(run.path, "evaluate-logloss", ["request", "time"])
    assert np.array_equal(np.unique(logged["time"]), times[np.isin(times, logged["time"])])
    expected = columns["expected_clicks"].sum() / columns["impressions"].sum()
    assert expected == pytest.approx(metrics["arms"]["logloss"]["expected_ctr"]["value"], rel=1e-9)


def test_randomised_logs_follow_the_evaluation_and_are_answered_from(run):
    logged = read_table(run.path, "off-policy", ["ad", "time"])
    assert logged["time"][0] > read_table(run.path, "evaluate-logloss", ["time"])["time"].max()
    assert run.sim.world.lives.is_available(logged["ad"], logged["time"]).all()
    section = json.loads((run.path / "metrics.json").read_text())["off_policy"]
    assert "more" in json.dumps(section)
