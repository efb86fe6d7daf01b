"""A run that was stopped goes on to the same bytes as one that was not; another run is never taken for it."""

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from answers.told import tells
from cascade_sim.cli import main
from cascade_sim.storage.checkpoints import load_figures
from worlds.timed_market import MARKET, SCARCE, WORLD
from worlds.tiny_market import ROOT

MODELS = {
    "rank": {"kind": "coaction", "hidden": 8, "dims": 4, "features": ["user", "quality", "G1"], "epochs": 1}
}
ROW_GROUP = 60
TELL_THE_TIME = ("manifest.json", ".lock", "report.html")
SCENARIO = {
    **WORLD,
    "cascade": {**WORLD["cascade"], "ranking": {"model": "rank", "bid": "init"}},  # type: ignore[dict-item]
    "models": MODELS,
    "arms": {"now": {}, "first": {"auction": {"pricing": "first"}}},
    "market": {**MARKET, **SCARCE, "days": 0.03, "requests_per_second": 0.3, "checkpoint": 300.0},
}


@pytest.fixture(scope="module")
def scenario(tmp_path_factory):
    path = tmp_path_factory.mktemp("scenario") / "timed.yaml"
    path.write_text(json.dumps(SCENARIO))  # JSON is YAML
    return path


@pytest.fixture(autouse=True, scope="module")
def small_parts():
    """So that a market of two thousand impressions seals some before its first checkpoint."""
    from cascade_sim.market import study as market_study

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(market_study, "ROW_GROUP", ROW_GROUP)
        yield


@pytest.fixture(autouse=True, scope="module")
def no_report():
    """It follows from the rest, and takes longer than all of it."""
    from cascade_sim.study import run as study

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(study, "write_report", lambda *arguments: None)
        yield


def run(scenario, out, *options):
    return main(["run", str(scenario), "--out", str(out), "--workers", "1", "--quiet", *options])


def results(out: Path) -> dict[str, bytes]:
    """Every file that neither tells the time nor belongs to the report."""
    files = (p for p in sorted(out.rglob("*")) if p.is_file() and p.name not in TELL_THE_TIME)
    return {str(p.relative_to(out)): p.read_bytes() for p in files if p.parent.name != "figures"}


@pytest.fixture(scope="module")
def whole(scenario, tmp_path_factory):
    """The folder of a run that nothing stopped."""
    out = tmp_path_factory.mktemp("undisturbed") / "out"
    assert run(scenario, out) == 0
    return out


@pytest.fixture(scope="module")
def undisturbed(whole):
    return results(whole)


def stopped_at(monkeypatch, module, name, n):
    """Ctrl-C at the n-th call of a function."""
    real, calls = getattr(module, name), []

    def counted(*arguments, **options):
        calls.append(1)
        if len(calls) == n:
            raise KeyboardInterrupt
        return real(*arguments, **options)

    monkeypatch.setattr(module, name, counted)


def drilled(*values):
    """One of many such places: `make drill` goes through all."""
    return pytest.param(*values, marks=pytest.mark.drill)


@pytest.mark.parametrize(
    ("module", "name", "n"),
    [
        drilled("study.prepare", "impression_columns", 1),  # while the log is written
        drilled("training.fit", "train", 2),
        drilled("study.evaluate", "TableWriter", 2),
        drilled("market.study", "market_columns", 1),  # before the first checkpoint
        ("market.study", "market_columns", 21),  # after several
        drilled("market.study", "save_state", 1),  # parts are sealed, but there is no state yet
        drilled("market.study", "save_state", 3),
        drilled("market.study", "save_figures", 1),  # an arm is done, and its figures are not written yet
        drilled("market.study", "save_state", 11),  # in the second arm
        drilled("study.run", "write_report", 1),
    ],
)
def test_a_run_stopped_anywhere_goes_on_to_the_same_bytes(
    scenario, undisturbed, tmp_path, monkeypatch, module, name, n
):
    import importlib

    out = tmp_path / "out"
    if name == "train":  # not from the cache of the tests before
        monkeypatch.setenv("CASCADE_SIM_CACHE", str(tmp_path / "cache"))
    with monkeypatch.context() as patch:
        stopped_at(patch, importlib.import_module(f"cascade_sim.{module}"), name, n)
        assert run(scenario, out) == 130
    assert json.loads((out / "manifest.json").read_text())["status"] == "running"
    assert run(scenario, out, "--resume") == 0
    assert results(out) == undisturbed
    assert not (out / "checkpoints").exists()


@pytest.mark.drill
def test_what_was_finished_is_not_done_again(scenario, tmp_path, monkeypatch):
    from cascade_sim.market import study as market_study
    from cascade_sim.study import prepare as experiment

    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        stopped_at(patch, market_study, "save_state", 11)
        assert run(scenario, out) == 130
    done = load_figures(out / "checkpoints" / "now.json")
    assert done["requests"] > 500

    def refuse(*arguments, **options):
        raise AssertionError("done already")

    monkeypatch.setattr(experiment, "impression_columns", refuse)
    rows = []
    real = market_study.market_columns
    monkeypatch.setattr(market_study, "market_columns", lambda *a: rows.append(len(a[1].block)) or real(*a))
    assert run(scenario, out, "--resume") == 0
    assert sum(rows) < done["requests"]  # of the second arm, what came behind its last checkpoint


KILLED = """
import os, signal, sys
from cascade_sim.cli import main
from cascade_sim.market import study
study.ROW_GROUP = int(sys.argv[3])
save_state = study.save_state
def saved_for_the_last_time(*arguments, **options):
    save_state(*arguments, **options)
    os.kill(os.getpid(), signal.SIGKILL)
study.save_state = saved_for_the_last_time
main(["run", sys.argv[1], "--out", sys.argv[2], "--workers", "1", "--quiet"])
"""


@pytest.mark.drill
def test_a_run_killed_without_a_word_goes_on_too(scenario, undisturbed, tmp_path):
    out = tmp_path / "out"
    words = [sys.executable, "-c", KILLED, str(scenario), str(out), str(ROW_GROUP)]
    child = subprocess.run(words, cwd=ROOT)
    assert child.returncode == -signal.SIGKILL and (out / "checkpoints" / "now.npz").exists()
    assert run(scenario, out, "--resume") == 0
    assert results(out) == undisturbed


def test_a_finished_run_is_left_as_it_is(scenario, whole):
    before = {p: p.stat().st_mtime_ns for p in whole.rglob("*") if p.is_file()}
    assert run(scenario, whole, "--resume") == 0
    assert {p: p.stat().st_mtime_ns for p in whole.rglob("*") if p.is_file()} == before


@pytest.fixture(scope="module")
def stopped(scenario, tmp_path_factory):
    """The folder of a run that was stopped on its way through its first market."""
    from cascade_sim.market import study as market_study

    out = tmp_path_factory.mktemp("stopped") / "out"
    with pytest.MonkeyPatch.context() as patch:
        stopped_at(patch, market_study, "market_columns", 21)
        assert run(scenario, out) == 130
    return out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--set", "seed=2"), "another scenario"),
        (("--set", "market.window=30"), "another scenario"),
        (("--seeds", "2"), "another number of --seeds"),
    ],
)
def test_another_run_does_not_go_on_in_this_ones_folder(
    scenario, stopped, tmp_path, capsys, options, message
):
    out = shutil.copytree(stopped, tmp_path / "out")
    before = results(out)
    assert run(scenario, out, "--resume", *options) == 2
    assert message in capsys.readouterr().err
    assert results(out) == before  # and loses nothing


OWN = """
from agents.bidding import Bidder


class Own(Bidder):
    STATE = ({state})

    def __init__(self, portfolio):
        super().__init__(portfolio)
        self.level = self.value * {factor}

    def bids(self, now):
        return self.level

    def observe(self, feedback, now):
        self.level = self.level * 0.9
"""


def own_scenario(folder, **parts):
    (folder / "own.py").write_text(OWN.format(**{"state": '"level",', "factor": 1.0, **parts}))
    market = {**SCENARIO["market"], "bidders": {"own": {"kind": "own.py:Own"}}}
    (folder / "own.yaml").write_text(json.dumps({**SCENARIO, "market": market}))
    return folder / "own.yaml"


@pytest.mark.drill
def test_a_bidder_of_ones_own_goes_on_with_what_it_had_learned(tmp_path, monkeypatch):
    from cascade_sim.market import study as market_study

    scenario = own_scenario(tmp_path)
    assert run(scenario, tmp_path / "whole") == 0
    with monkeypatch.context() as patch:
        stopped_at(patch, market_study, "save_state", 3)
        assert run(scenario, tmp_path / "out") == 130
    assert run(scenario, tmp_path / "out", "--resume") == 0
    assert results(tmp_path / "out") == results(tmp_path / "whole")


@pytest.mark.drill
@pytest.mark.parametrize(
    ("first", "then", "message"),
    [
        ({"state": ""}, {"state": ""}, "market.bidders.own: level state"),
        ({}, {"factor": 0.5}, "other content"),
    ],
)
def test_a_bidder_that_forgets_or_was_changed_does_not_go_on(
    tmp_path, monkeypatch, capsys, first, then, message
):
    from cascade_sim.market import study as market_study

    scenario = own_scenario(tmp_path, **first)
    with monkeypatch.context() as patch:
        stopped_at(patch, market_study, "save_state", 3)
        assert run(scenario, tmp_path / "out") == 130
    assert run(own_scenario(tmp_path, **then), tmp_path / "out", "--resume") == 2
    assert tells(capsys.readouterr().err, *message.split())


def test_resuming_where_nothing_lies_is_a_run_like_any_other(scenario, undisturbed, tmp_path):
    assert run(scenario, tmp_path / "new", "--resume") == 0
    assert results(tmp_path / "new") == undisturbed
