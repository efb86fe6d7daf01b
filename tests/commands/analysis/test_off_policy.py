"""`cascade_sim off-policy` on a run folder."""

import re
import shutil

import pytest

from answers.section_text import says
from answers.table_text import plain
from answers.told import refused, tells
from cascade_sim import SEMANTICS, off_policy
from cascade_sim.cli import main
from cascade_sim.ope.estimates import LAUNCH_ESTIMATORS
from cascade_sim.scenario.file import dump_scenario
from cascade_sim.storage.folder import json_text
from cascade_sim.storage.model_store import ModelStore
from worlds.randomised_logs import logged
from worlds.tiny_market import tiny_scenario


def as_run(path, scenario, modules=None, logs=None):
    path.mkdir(parents=True, exist_ok=True)
    (path / "scenario.yaml").write_text(dump_scenario(scenario))
    (path / "manifest.json").write_text(json_text({"semantics": SEMANTICS, "status": "complete"}))
    (path / "metrics.json").write_text(json_text({"arms": {}}))
    for name, module in (modules or {}).items():
        ModelStore(path).export(module, path / "models" / f"{name}.safetensors")
    if logs is not None:
        shutil.copytree(logs / "logs", path / "logs")
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    world = logged()
    modules = {name: module for name, module in world.modules.items() if "(" not in name}
    return as_run(tmp_path_factory.mktemp("run") / "a", world.scenario, modules, world.folder)


def head_and_tables(capsys):
    """The headline on one line, and all else that was printed."""
    head, _, tables = capsys.readouterr().out.partition("\n\n")
    return plain(head), plain(tables)


def test_a_question_is_answered_with_the_figures_of_its_weights(run, capsys):
    assert main(["off-policy", str(run), "--set", "auction.reserve_cpc=0.62", "--estimand", "jittered"]) == 0
    text = capsys.readouterr().out
    assert says(text, "jitter", "another centre", "not a launch")
    assert "auction.reserve_cpc=0.62" in text
    for word in (
        "doubly robust",
        "ESS %",
        "mean w",
        "max %",
        "clipped %",
        "outer (bounds)",
        "truth (simulator)",
    ):
        assert word in text
    assert says(text, "bias", "unknown")
    assert "log reserve" in text and "squashing" in text


def test_by_default_a_launch_without_jitter_is_answered_for(run, capsys):
    assert main(["off-policy", str(run), "--set", "auction.reserve_cpc=0.62"]) == 0
    text = capsys.readouterr().out
    assert says(
        text.splitlines()[0], "From the log alone", "auction.reserve_cpc = 0.62", "revenue per request"
    )
    assert says(text, "launch without jitter") and "auction.reserve_cpc=0.62" in text
    for word in ("local linear", "local DR", "bias ≤", "the current values", "as logged, with jitter"):
        assert word in text
    assert "SNIPS" not in text and "outer (bounds)" not in text


def test_pages_are_said_to_be_drawn_still(run, capsys):
    assert main(["off-policy", str(run), "--set", "slates.temperature=0.5", "--no-truth"]) == 0
    text = capsys.readouterr().out
    assert says(text, "pages drawn as the log") and says(text, "Not a launch")


def test_the_headline_of_pages_has_their_value_and_that_of_the_log_as_they_have_no_lift(run, capsys):
    assert main(["off-policy", str(run), "--set", "slates.temperature=0.5", "--no-truth"]) == 0
    head, tables = head_and_tables(capsys)
    told = re.fullmatch(
        r"From the log alone, slates.temperature = 0.5: (\S+ \[.*\]) revenue per request; as logged (.*\])\.",
        head,
    )
    assert f"page IPS {told[1]}" in tables and f"as logged {told[2]}" in tables


def test_the_headline_of_several_questions_counts_as_without_an_estimate_only_what_is(run, capsys):
    assert main(["off-policy", str(run), "--no-truth"]) == 0
    head, _ = head_and_tables(capsys)
    answers = off_policy(run, truth=False).answers.values()
    asked = [answer["rewards"]["revenue"]["estimators"] for answer in answers if answer["changes"]]
    n_refused = sum((rows.get("local_dr") or rows["slate_ips"])["verdict"] == "refuse" for rows in asked)
    n_pages = sum("slate_ips" in rows and rows["slate_ips"]["verdict"] != "refuse" for rows in asked)
    assert n_refused and n_pages
    assert tells(head, f"{n_refused} of 8", f"{n_pages} of 8")


def test_an_estimator_asked_for_alone_speaks_in_the_headline_and_is_named(run, capsys):
    asked = ["off-policy", str(run), "--set", "auction.reserve_cpc=0.62", "--no-truth", "--estimator"]
    assert main([*asked, "direct_method"]) == 0
    head, _ = head_and_tables(capsys)
    assert "%" in head and tells(head, "direct method", "unknown")


def test_the_estimand_is_the_scenario_s_unless_asked_for(run):
    asked = {"auction.reserve_cpc": 0.62}
    kinds = {
        kind: off_policy(run, asked, estimand=kind, truth=False).answers["the asked policy"]
        for kind in (None, "launch", "jittered")
    }
    assert kinds[None] == kinds["launch"] and kinds["jittered"]["estimand"] == "jittered"
    frame = off_policy(run, asked, truth=False).frame()
    assert set(frame["estimand"]) == {"launch"} and set(frame["estimator"]) == set(LAUNCH_ESTIMATORS)
    assert frame["lift_low"].notna().all()
    with refused("'jittered'?"):
        off_policy(run, asked, estimand="jitter")


def test_a_launch_beyond_the_jitter_is_refused_with_what_to_log(run, capsys):
    assert main(["off-policy", str(run), "--set", "auction.reserve_cpc=0.3", "--no-truth"]) == 1
    text = capsys.readouterr().out
    assert says(text, "refuse", "auction.reserve_cpc", "of 1500 requests lie beyond")
    assert says(text, "off_policy.randomise.reserve_cpc = 0.42 or more")


def test_the_truth_can_be_left_out_and_estimators_chosen(run, capsys):
    options = ("--no-truth", "--estimator", "cascade_dr", "--reward", "clicks")
    assert main(["off-policy", str(run), "--set", "slates.temperature=0.5", *options]) == 0
    text = capsys.readouterr().out
    assert "cascade DR" in text and "Clicks per request" in text
    assert "simulator" not in text and "page IPS" not in text


def test_another_model_s_order_of_the_lists_is_answered_for(run, capsys):
    assert main(["off-policy", str(run), "--set", "ranking.model=logloss", "--no-truth"]) in (0, 1)
    assert "ranking.model=logloss" in capsys.readouterr().out


def test_a_question_out_of_reach_is_refused_with_the_reason(run, capsys):
    assert main(["off-policy", str(run), "--set", "auction.reserve_cpc=0.2", "--no-truth"]) == 1
    text = capsys.readouterr().out
    assert "no estimate" in text and "exploration is missing" in text


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--set", "auction.reserv_cpc=1"], "--set auction.reserv_cpc=1: 'auction.reserve_cpc'?"),
        (["--set", "auction.squashing=0.1", "--estimand", "jittered"], "--set auction.squashing=0.1: 0"),
        (["--set", "ranking.model=wide"], "unknown model 'wide'"),
        (["--estimator", "snip"], "'snips'?"),
        (["--set", "auction.reserve_cpc=0.6", "--estimator", "snips"], "--estimand jittered"),
        (["--estimand", "jitter"], "jittered"),
    ],
)
def test_mistakes_are_refused(run, options, text, capsys):
    assert main(["off-policy", str(run), *options]) == 2
    assert tells(capsys.readouterr().err, *text.split())


def test_a_run_without_randomisation_is_told_which_key_to_set(tmp_path, capsys):
    folder = as_run(tmp_path / "plain", tiny_scenario())
    assert main(["off-policy", str(folder), "--set", "auction.reserve_cpc=0.2"]) == 2
    assert "add off_policy: {randomise: {reserve_cpc: 0.3}}" in capsys.readouterr().err
