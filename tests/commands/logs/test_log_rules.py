"""Every command that opens a log, asked of one whose rule nobody declared: refused, and no sure headline."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import warnings
from importlib import import_module

import pytest

from cascade_sim.analysis.report.sections.asked import what_if_headline
from cascade_sim.analysis.report.sections.sweep import sweep_headline
from cascade_sim.api import accepting_mismatch, audit_logs, load_scenario, whatif
from cascade_sim.cli import COMMANDS, main
from cascade_sim.foundation.errors import Notice, UserError
from cascade_sim.live.session import Session
from cascade_sim.logs.audit import reproduction
from cascade_sim.logs.audit.reproduction import LEAST, reproduced
from cascade_sim.logs.audit.rule import declared_rule
from cascade_sim.logs.store.store import open_store
from oracles.ruled_logs import SEEDS, LogRule, RuledLog

LOG = RuledLog(SEEDS[1], requests=400)
NO_EVIDENCE = "No evidence about the log, of whose pages the rule reproduces"
# What a market without a rule is asked, by command. Those that only read finished runs, which were accepted
# and say so, are `OF_RUNS`; those that train models need a fitted world, which is looked at by the same line.
ASKED = {
    "whatif": ["{market}", "--set", "auction.reserve_cpc=0.4"],
    "landscape": ["{market}", "--ad", "3"],
    "critical-bids": ["{market}"],
    "trace": ["{market}", "--request", "0"],
    "export-logs": ["{market}", "--out", "{out}"],
    "off-policy": ["{market}", "--set", "auction.reserve_cpc=0.4"],
    "run": ["{market}/scenario.yaml", "--out", "{out}"],
    "sweep": ["{market}/scenario.yaml", "--over", "auction.reserve_cpc=0.3,0.4", "--out", "{out}"],
    "check-power": ["{market}/scenario.yaml", "--replications", "10"],
    "coverage": ["{market}/scenario.yaml"],
}
OF_RUNS = {"compare", "contrast", "check", "realism", "serve"}
OF_TRAINING = {"tune", "variants"}


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    return LOG.market(tmp_path_factory.mktemp("bare") / "market", rule=None)


@pytest.fixture(scope="module")
def accepted(bare, tmp_path_factory):
    """A run that replays the log all the same."""
    out = tmp_path_factory.mktemp("accepted") / "run"
    assert main(["run", f"{bare}/scenario.yaml", "--accept-mismatch", "--quiet", "--out", str(out)]) == 0
    return out


def test_every_command_that_may_continue_is_among_those_asked():
    offered = {
        name
        for name, (module, _) in COMMANDS.items()
        if any("--accept-mismatch" in option.opts for option in import_module(module).command.params)
    }
    assert offered == {*ASKED} | OF_RUNS | OF_TRAINING


@pytest.mark.parametrize("command", sorted(ASKED))
def test_a_log_without_its_rule_is_refused_before_any_answer(command, bare, tmp_path, capsys):
    words = [word.format(market=bare, out=tmp_path / "out") for word in ASKED[command]]
    assert main([command, *words]) == 2
    told = capsys.readouterr()
    assert "[+" not in told.out and "[−" not in told.out
    if command not in ("off-policy", "coverage"):  # which need propensities, and say that first
        assert "the assumed rule, as none is declared, (gsp, squashing 1" in told.err
        assert re.search(r"reproduces 0\.[05] % of the logged pages", told.err)
        assert "audit-logs" in told.err and "--adopt" in told.err and "--accept-mismatch" in told.err
    assert not (tmp_path / "out").exists()


class UsualLog(RuledLog):
    """A log that follows the usual rule."""

    rule = LogRule()


def test_another_auction_may_be_asked_of_a_log_that_follows_the_usual_rule_unsaid(tmp_path):
    """And the command says so once, whatever the number of cells and processes."""
    usual, out = UsualLog(SEEDS[0], requests=300).market(tmp_path / "market", rule=None), tmp_path / "sweep"
    words = [f"{usual}/scenario.yaml", "--over", "auction.reserve_cpc=0.3,0.5", "--workers", "1"]
    command = [sys.executable, "-m", "cascade_sim", "sweep", *words, "--out", str(out), "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True)
    told = done.stderr.splitlines()
    assert done.returncode == 0, done.stderr
    assert all(line.startswith("note: ") for line in told) and len(told) == len({*told}) == 2
    assert "scenario has another auction" in told[1] and "scenario's rule" not in done.stderr


def test_a_log_is_opened_once_for_all_auctions_that_are_asked_of_it(tmp_path, monkeypatch):
    market, opened = LOG.market(tmp_path / "market"), []
    monkeypatch.setattr(reproduction, "open_store", lambda path: opened.append(path) or open_store(path))
    asked = [[], ["auction.reserve_cpc=0.9"], ["auction.squashing=0.2"], ["auction.rounding=0"]]
    scenarios = [load_scenario(market / "scenario.yaml", set=changes) for changes in asked]
    found = [reproduction.reproduction(scenario, market) for scenario in scenarios]
    assert len(opened) == 1 and {each.pages for each in found} == {1.0}
    assert [each.is_changed for each in found] == [False, True, True, True]


def test_the_live_page_does_not_open_it(bare):
    with pytest.raises(UserError, match="none is declared"):
        Session(bare)


def test_accepted_it_says_so_and_no_headline_claims_a_change(bare, accepted, capsys):
    with accepting_mismatch(), pytest.warns(Notice, match="no answer is evidence about the log"):
        answer = whatif(bare, {"auction.reserve_cpc": 0.5}).answer
    known = answer["replay"]["reproduced"]
    assert not known["is_enough"] and known["pages"] < LEAST["pages"]
    assert what_if_headline(answer).startswith(NO_EVIDENCE)
    assert "reproduces" in answer["notes"][0]
    metrics = json.loads((accepted / "metrics.json").read_text())
    assert metrics["replay"]["reproduced"] == known | {"market": metrics["replay"]["reproduced"]["market"]}
    assert NO_EVIDENCE in (accepted / "report.html").read_text()
    assert sweep_headline({"cells": [], **metrics}, "expected_ctr", "expected_rpm").startswith(NO_EVIDENCE)
    capsys.readouterr()
    with pytest.warns(Notice, match="no answer is evidence about the log"):
        main(["compare", str(accepted), str(accepted)])
    assert "reproduces" in capsys.readouterr().out


def test_the_found_rule_is_adopted_and_then_all_of_the_log_comes_out(tmp_path, capsys):
    market = LOG.market(tmp_path / "market", rule=None)
    before = {file: file.read_bytes() for file in market.rglob("*.npy")}
    assert main(["audit-logs", str(market), "--adopt"]) == 0
    assert "Adopted: gsp, squashing 0.7" in capsys.readouterr().out
    assert {file: file.read_bytes() for file in market.rglob("*.npy")} == before
    store, own = open_store(market), LOG.declared()
    declared = declared_rule(store.about.rule, "click")
    shares = reproduced(store, declared.rule)
    assert (shares.pages, shares.winners, shares.prices) == (1.0, 1.0, 1.0)
    assert (store.about.rule.squashing, store.about.rule.rounding) == (own.squashing, own.rounding)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Notice)
        answer = whatif(market, {"auction.reserve_cpc": 0.5}).answer
    assert answer["replay"]["replayed"] == {"pages_as_logged": 1.0, "prices_as_logged": 1.0}
    assert not what_if_headline(answer).startswith(NO_EVIDENCE)
    with pytest.raises(UserError, match="nothing to adopt"):
        audit_logs(market, adopt=True)


def test_what_somebody_changed_is_not_adopted_over(bare, tmp_path, capsys):
    """A digest that is written anew would vouch for the change; an edit of the scenario would be lost."""
    edits = {"manifest.json": ("complete", "finished"), "scenario.yaml": ("name:", "# mine\nname:")}
    for file, (before, after) in edits.items():
        market = shutil.copytree(bare, tmp_path / file)
        (market / file).write_text((market / file).read_text().replace(before, after, 1))
        content = {path: path.read_bytes() for path in market.rglob("*") if path.is_file()}
        assert main(["audit-logs", str(market), "--adopt"]) == 2
        assert f"{file} is not what the run wrote" in capsys.readouterr().err
        assert {path: path.read_bytes() for path in market.rglob("*") if path.is_file()} == content
    for place, words in (
        (bare / "store", "give the folder of the log"),
        (tmp_path / "none", "does not exist"),
    ):
        assert main(["audit-logs", str(place), "--adopt"]) == 2
        assert words in capsys.readouterr().err


@pytest.mark.parametrize("seed", SEEDS[:4])
def test_replays_are_exact_to_the_micro_unit_under_a_rule_with_rounding_and_increment(seed, tmp_path):
    log = RuledLog(seed, requests=300)
    store = open_store(log.market(tmp_path / "market"))
    shares = reproduced(store, declared_rule(store.about.rule, "click").rule)
    assert (shares.pages, shares.winners, shares.prices) == (1.0, 1.0, 1.0)
    tally = audit_logs(tmp_path / "market").answer["tally"]
    assert tally["pages_as_logged"] == tally["requests"] == 300
