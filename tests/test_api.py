"""The simulator from Python, as README shows it."""

import subprocess
import sys

import pytest

import cascade_sim
from answers.section_text import says
from answers.told import refused, tells
from cascade_sim.foundation.errors import UserError
from worlds.tiny_market import QUICK, ROOT, TINY

SHORT = (
    *TINY,
    *("phases.cold_start=300", "phases.log=300", "phases.shadow=60", "phases.evaluate=128"),
    *("report.resamples=20", "report.detail_requests=20"),
)


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    """README's example on a tiny market."""
    from cascade_sim import compare, run, whatif

    out = tmp_path_factory.mktemp("api")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CASCADE_SIM_CACHE", str(out / "cache"))
        patch.setattr("cascade_sim.study.run.write_report", lambda *_: None)  # drawn in test_study.py
        study = run(QUICK, out=out / "quick", set=SHORT, workers=1)
        wider = run(QUICK, out=out / "wider", set=[*SHORT, "cascade.pre_ranking.size=30"], workers=1)
    answer = whatif(study, {"auction.reserve_cpc": [0.5, 0.9]}, out=out / "asked")
    return study, wider, answer, compare(study, wider)


def test_a_run_has_its_metrics_as_a_table_and_its_logs(example):
    study, *_ = example
    frame = study.frame().set_index(["arm", "metric"])
    own = study.metrics["arms"]["ltr"]["expected_ctr"]
    assert frame.loc[("ltr", "expected_ctr"), "value"] == own["value"]
    assert frame.loc[("ltr", "expected_ctr"), "lift_low"] == own["lift"]["low"]
    assert frame.loc[("logloss", "expected_ctr")].isna()["lift"]  # the baseline
    log = study.log("evaluate-logloss")
    assert len(log) == 128 * 3 and {"request", "ad", "click", "charge_micros"} <= set(log.columns)
    with refused("'evaluat'", "cold_start"):
        study.log("evaluat")


def test_a_notebook_shows_a_result_in_a_line(example):
    assert all(len(repr(one)) < 1000 for one in example)
    assert str(example[0].path) in repr(example[0])


def test_a_what_if_is_a_table_of_both_sides(example):
    study, _, answer, _ = example
    frame = answer.frame()
    assert set(frame["setting"]) == {"auction.reserve_cpc = 0.5", "auction.reserve_cpc = 0.9"}
    rpm = frame[frame["metric"] == "rpm"].iloc[0]
    assert rpm["current"] == study.metrics["arms"]["logloss"]["rpm"]["value"]
    assert rpm["difference"] == rpm["variant"] - rpm["current"]
    assert {path.name for path in answer.files} >= {"whatif.json", "whatif.html"}
    assert list(answer.variance_reduction().columns) == ["setting", "revenue", "times", "low", "high"]


def test_compared_runs_are_a_table_and_a_list_of_keys(example):
    _, wider, _, found = example
    assert found.scenario().values.tolist() == [[str(wider.path), "cascade.pre_ranking.size", 15, 30]]
    frame = found.frame()
    assert set(frame["arm"]) == set(wider.metrics["arms"])
    ctr = frame[(frame["arm"] == "logloss") & (frame["metric"] == "expected_ctr")].iloc[0]
    assert bool(ctr["is_paired"]) and ctr["difference_low"] <= ctr["difference"] <= ctr["difference_high"]


def test_nothing_is_printed(tmp_path, capsys, monkeypatch):
    from cascade_sim import run

    monkeypatch.setattr("cascade_sim.study.run.write_report", lambda *_: None)
    minimal = {
        "name": "minimal",
        "world": {"users": 50, "ads": 80, "advertisers": 20, "slot_effects": (1.0, 0.5)},
        "cascade": {
            "retrieval": {"size": 30}, "pre_ranking": {"size": 8, "model": "constant"},
            "ranking": {"model": "truth"}, "slots": 2,
        },
        "phases": {"cold_start": 0, "log": 0, "shadow": 0, "evaluate": 64},
        "arms": {"production": {}, "wide": {"pre_ranking": {"size": 16}}},
        "report": {"resamples": 10, "detail_requests": 8},
    }  # fmt: skip
    study = run(minimal, out=tmp_path / "minimal", seed=5, workers=1)
    assert capsys.readouterr() == ("", "")
    assert study.metrics["seed"] == 5 and set(study.metrics["arms"]) >= {"production", "wide"}


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda f: f.run({"name": "x", "arms": {"a": {}}, "wrld": {}}), "scenario: wrld: 'wrld'"),
        (lambda f: f.run("nowhere.yaml"), "nowhere.yaml: file"),
        (lambda f: f.run(QUICK, set="seed=1"), "list path.to.key=value"),
        (lambda f: f.run(QUICK, set=["seed"]), "--set seed: '='"),
        (lambda f: f.run(QUICK, seeds=0), "seeds: 1 0"),
        (lambda f: f.whatif("nowhere", slots=2), "nowhere"),
        (lambda f: f.compare("nowhere", "nowhere"), "nowhere"),
        (lambda f: f.compare("nowhere"), "two runs"),
        (lambda f: f.compare("nowhere", 3), "run() 3"),
        (lambda f: f.run(3), "scenario: dict 3"),
        (lambda f: f.whatif("nowhere", "slots=2"), "changes: dict"),
        (
            lambda f: f.whatif("x", {"slots": 2}, requests=0),
            "requests: 1 0",
        ),
    ],
)
def test_mistakes_are_user_errors(call, said):
    with pytest.raises(UserError) as error:
        call(cascade_sim)
    assert tells(error.value, *said.split())


def test_a_wrong_parameter_is_named_with_its_file(example):
    study, *_ = example
    with refused("auction.reserve=1:", "'reserve'", "'reserve_cpc'?"):
        cascade_sim.whatif(study, {"auction.reserve": 1})
    with pytest.raises(UserError, match="nothing to change"):
        cascade_sim.whatif(study)


def test_importing_the_package_is_light_and_knows_its_names():
    code = (
        "import sys, cascade_sim; heavy = {'numpy', 'torch', 'pandas', 'click'} & set(sys.modules); "
        "print(sorted(heavy), {'run', 'whatif', 'compare'} <= set(dir(cascade_sim)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[] True"
    with pytest.raises(AttributeError, match="no attribute 'frobnicate'"):
        cascade_sim.frobnicate  # noqa: B018


def test_a_notebook_shows_a_table_and_trusts_no_name(tmp_path):
    from cascade_sim.api import RunResult

    entry = {"value": 0.25, "low": 0.2, "high": 0.3}
    shown = RunResult(tmp_path / "<b>", {"arms": {"<script>": {"expected_ctr": entry}}})._repr_html_()
    assert "&lt;script&gt;" in shown and "<script>" not in shown and "&lt;b&gt;" in shown and "0.25" in shown


def test_a_notebook_shows_arms_best_first_and_their_lift_in_the_market(tmp_path):
    from answers.report import make_metrics
    from cascade_sim.analysis.report.comparisons import ordered_arms
    from cascade_sim.api import RunResult

    metrics = make_metrics()
    table = RunResult(tmp_path, metrics).overview()
    assert list(table["arm"]) == ordered_arms(metrics)
    first, second = table.columns[1:3]
    assert says(first, "revenue per request", "lift") and says(second, "lift", "in the market")
    del metrics["market"]
    assert "in the market" not in "".join(RunResult(tmp_path, metrics).overview().columns)


def test_a_notebook_tells_the_story_of_the_study_and_no_other(tmp_path):
    from answers.report import make_metrics
    from cascade_sim.api import RunResult

    metrics = make_metrics()
    for part in ("market", "what_if", "off_policy"):
        metrics.pop(part, None)
    lift = {"value": 0.09, "low": 0.08, "high": 0.1}
    metrics["arms"]["pctr_only"]["expected_revenue_per_request"]["lift"] = lift
    behind = {"expected_revenue_per_request": {"value": -0.05, "low": -0.06, "high": -0.04}}
    metrics["contrasts"]["distill-pre"]["pctr_only"] = behind
    arms = ", ".join(f"{arm}: {{}}" for arm in metrics["arms"])
    rule = "name: x\narms: {" + arms.replace("ltr: {}", "ltr: {auction: {pricing: first}}") + "}\n"
    assert "pctr_only" in RunResult(tmp_path, metrics).headline()
    (tmp_path / "scenario.yaml").write_text(rule)
    shown = RunResult(tmp_path, metrics)
    assert shown.headline().startswith("Ship") and "pctr_only" not in shown.headline()
    assert "pctr_only" not in list(shown.overview()["arm"])


def test_a_notebook_shows_verdict_lift_and_interval_first(tmp_path):
    from answers.sweep import FOUR, findings
    from answers.whatif import answer
    from cascade_sim.api import SweepResult, TraceResult, WhatIfResult

    asked = WhatIfResult({**answer((0.3, 0.9), (0.5, 1.1)), "run": "tiny", "seed": 3})
    shown = asked._repr_html_()
    assert shown.startswith(f"<p><b>{asked.headline()}</b></p>") and len(asked.headline()) > 10
    assert says(asked.overview().columns[1], "revenue per request", "lift")
    assert all(" % [" in text.replace("\u00a0", " ") for text in asked.overview().iloc[1:, 1])
    swept = SweepResult(findings(FOUR))
    assert swept.headline().startswith("Best in") and swept.overview().iloc[0, 1] == "reference"
    stages = [{"stage": "retrieval", "rank": 3}]
    ad = {"ad": 40, "advertiser": 7, "dropped_by": "pre_ranking", "stages": stages}
    traced = TraceResult({"request": 1, "arm": "now", "win_set": [], "ad": ad})
    assert says(traced.headline(), "Ad 40", "advertiser 7", "dropped by pre-ranking")
    assert "retrieval" in traced._repr_html_()
    page = TraceResult({"request": 1, "arm": "now", "win_set": [{"slot": 1}]})
    assert page.headline() == "" and page._repr_html_().startswith("<p><b>Request 1 in arm now")


def test_a_shipped_scenario_has_a_name_and_a_scenario_can_be_given_itself(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    quick = cascade_sim.load_scenario("quick", set=["cascade.slots=2"])
    assert (quick.name, quick.cascade.slots) == ("quick", 2)
    assert cascade_sim.load_scenario(quick) is quick
    assert cascade_sim.load_scenario(quick, seed=7).seed == 7
    assert cascade_sim.load_scenario("scenarios/quick.yaml") == cascade_sim.load_scenario("quick")
    own = tmp_path / "scenarios" / "quick.yaml"
    own.parent.mkdir()
    own.write_text(
        "name: own\narms: {now: {}}\ncascade: {pre_ranking: {model: truth}, ranking: {model: truth}}\n"
    )
    assert cascade_sim.load_scenario("scenarios/quick.yaml").name == "own"
    with refused("scenarios/quick.yaml:", "'quick'?"):
        cascade_sim.load_scenario("elsewhere/scenarios/quick.yaml")
    with refused("quik:", "'quick'?"):
        cascade_sim.load_scenario("quik")
