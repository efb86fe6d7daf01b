"""Every command that opens a log, asked of one whose rule nobody declared: refused, and no sure headline."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import warnings
from importlib import import_module
from pathlib import Path

import pytest

import cascade_sim.live
from answers.told import tells, warned
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
NO_EVIDENCE = "No evidence about the log: its rule reproduces"
# What a market without a rule is asked, by command.
ASKED = {
    "whatif": ["{market}", "--set", "auction.reserve_cpc=0.4"],
    "landscape": ["{market}", "--ad", "3"],
    "critical-bids": ["{market}"],
    "trace": ["{market}", "--request", "0"],
    "export-logs": ["{market}", "--out", "{out}"],
    "off-policy": ["{market}", "--set", "auction.reserve_cpc=0.4"],
    "run": ["{market}/scenario.yaml", "--out", "{out}"],
    "sweep": ["{market}/scenario.yaml", "--over", "auction.reserve_cpc=0.3,0.4", "--out", "{out}"],
    "fit-world": ["{market}", "--replicates", "0", "--out", "{out}.yaml"],
}
# Asked for something that no log without propensities, or no replayed log, has: refused with that.
BEYOND = {
    "check-power": ["{market}/scenario.yaml", "--replications", "10"],
    "coverage": ["{market}/scenario.yaml"],
}
# Those that read runs, here of one that was accepted all the same.
OF_RUNS = {
    "compare": ["{run}", "{other}"],
    "report": ["{run}", "--out", "{out}.html"],
    "baseline": ["{run}", "--out", "{out}.json"],
    "check": ["{run}", "--against", "{out}.json"],
}
SERVED = {"serve"}  # by a page, looked at below
# Those that train models or compare worlds, and need a fitted world, which opens its log by the same line.
OF_FITTED_WORLDS = {"tune", "variants", "contrast", "realism"}
# What finds or writes a rule, and what opens no log at all.
WITHOUT_A_QUESTION = {"audit-logs", "import-logs", "validate", "bench"}
WITHOUT_A_LOG = {
    *("init", "schema", "theory", "ltr"),
    *("check-model", "check-retriever", "check-bidder", "check-auctions"),
}
SURE = re.compile(
    r"\[[+−]|[+−]\d[\d.]*\s%|significant(?!ly different)|get worse|gets worse|earns? more|Ship |stays best"
)


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    return LOG.market(tmp_path_factory.mktemp("bare") / "market", rule=None)


def accepted_run(bare, folder, *overrides):
    """A run that replays the log all the same, with an arm that loses revenue and a question."""
    scenario = folder / "scenario.yaml"
    text = (bare / "scenario.yaml").read_text().replace("{log: .}", f"{{log: {bare}}}")
    text = text.replace("  logged: {}", "  logged: {}\n  dear: {auction: {reserve_cpc: 0.5}}")
    scenario.write_text(text + "what_if:\n  reserve: ['auction.reserve_cpc=0.4,0.5']\n")
    words = [word for override in overrides for word in ("--set", override)]
    out = folder / "run"
    assert main(["run", str(scenario), "--accept-mismatch", "--quiet", "--out", str(out), *words]) == 0
    return out


@pytest.fixture(scope="module")
def accepted(bare, tmp_path_factory):
    return accepted_run(bare, tmp_path_factory.mktemp("accepted"))


@pytest.fixture(scope="module")
def dearer(bare, tmp_path_factory):
    return accepted_run(bare, tmp_path_factory.mktemp("dearer"), "auction.reserve_cpc=0.3")


def test_every_command_is_asked_or_has_a_reason_not_to_be():
    groups = (ASKED, BEYOND, OF_RUNS, SERVED, OF_FITTED_WORLDS, WITHOUT_A_QUESTION, WITHOUT_A_LOG)
    named = [name for group in groups for name in group]
    assert sorted(named) == sorted(COMMANDS)
    offered = {
        name
        for name, (module, _) in COMMANDS.items()
        if any("--accept-mismatch" in option.opts for option in import_module(module).command.params)
    }
    assert offered == {*ASKED, *BEYOND, *SERVED, *OF_FITTED_WORLDS, "compare", "check"}


@pytest.mark.parametrize("command", sorted({**ASKED, **BEYOND}))
def test_a_log_without_its_rule_is_refused_before_any_answer(command, bare, tmp_path, capsys):
    words = [word.format(market=bare, out=tmp_path / "out") for word in {**ASKED, **BEYOND}[command]]
    assert main([command, *words]) == 2
    told = capsys.readouterr()
    assert not SURE.search(told.out)
    if command not in ("off-policy", *BEYOND):  # which say first what the log lacks
        assert tells(told.err, "rule", "none is declared", "gsp", "squashing 1")
        assert re.search(r"reproduces 0\.[05] % of the logged pages", told.err)
        assert "audit-logs" in told.err and "--adopt" in told.err and "--accept-mismatch" in told.err
    assert not list(tmp_path.iterdir())


def headlines(text):
    """What stands above the tables: the first paragraph of a terminal's text."""
    return text.split("\n\n")[0]


@pytest.mark.parametrize("command", sorted({*ASKED} - {"off-policy"}))
def test_accepted_every_command_says_it_first_and_its_headline_claims_nothing(
    command, bare, tmp_path, capfd, recwarn
):
    words = [word.format(market=bare, out=tmp_path / "out") for word in ASKED[command]]
    assert main([command, *words, "--accept-mismatch"]) in (0, 1)
    told = capfd.readouterr()
    evidence = [str(each.message) for each in recwarn if issubclass(each.category, Notice)]
    assert any("evidence" in line for line in evidence)
    assert not SURE.search(headlines(told.out)), headlines(told.out)
    for page in tmp_path.rglob("*.html"):
        assert_no_claim(page.read_text())


@pytest.mark.parametrize("command", [*OF_RUNS])  # in their order: a check needs a baseline
def test_no_command_on_accepted_runs_has_a_headline_that_claims_a_change(
    command, accepted, dearer, tmp_path_factory, capsys
):
    out = tmp_path_factory.getbasetemp() / "of-runs"
    paths = {"run": accepted, "other": dearer, "out": out}
    words = [word.format(**paths) for word in OF_RUNS[command]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Notice)
        assert main([command, *words]) in (0, 1)
    told = capsys.readouterr().out
    assert not SURE.search(headlines(told)), headlines(told)
    if command == "compare":
        assert NO_EVIDENCE in headlines(told).replace("\n", " ")
    for page in (accepted / "report.html", out.with_suffix(".html")):
        if page.exists():
            assert_no_claim(page.read_text())


def assert_no_claim(page):
    """The first heading of a page's sections is the evidence, and no sure sentence."""
    text = re.sub(r"(?s)<(style|script).*?</\1>", "", page)
    heading = re.sub(r"<[^>]+>", "", re.search(r"(?s)<h2[^>]*>(.*?)</h2>", text)[1])
    assert heading.startswith(NO_EVIDENCE) and not SURE.search(heading), heading


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
    assert tells(told[1], "another auction") and "scenario's rule" not in done.stderr


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


def test_the_live_page_of_an_accepted_log_leads_with_the_evidence(bare):
    with accepting_mismatch(), warnings.catch_warnings():
        warnings.simplefilter("ignore", Notice)
        assert Session(bare).no_evidence.startswith(NO_EVIDENCE)
    script = (Path(cascade_sim.live.__file__).parent / "live.js").read_text()
    assert "if (about.no_evidence) return [shown(about.no_evidence)];" in script  # of every headline


def test_accepted_answers_have_the_reproduced_share_in_their_facts(bare, accepted):
    with accepting_mismatch(), warned("evidence", kind=Notice):
        answer = whatif(bare, {"auction.reserve_cpc": 0.5}).answer
    known = answer["replay"]["reproduced"]
    assert not known["is_enough"] and known["pages"] < LEAST["pages"]
    assert what_if_headline(answer).startswith(NO_EVIDENCE)
    assert "reproduces" in answer["notes"][0]
    metrics = json.loads((accepted / "metrics.json").read_text())
    assert metrics["replay"]["reproduced"] == known | {"market": metrics["replay"]["reproduced"]["market"]}
    assert sweep_headline({"cells": [], **metrics}, "expected_ctr", "expected_rpm").startswith(NO_EVIDENCE)


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
    assert answer["replay"]["replayed"] == {"page_match_rate": 1.0, "price_match_rate": 1.0}
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
        assert tells(capsys.readouterr().err, file, "the run wrote")
        assert {path: path.read_bytes() for path in market.rglob("*") if path.is_file()} == content
    for place, words in (
        (bare / "store", "folder"),
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
    assert tally["pages_matched"] == tally["requests"] == 300
