"""check-retriever: a right one passes, and each planted mistake is found by the check meant for it."""

import json
import re

import pytest

from answers.told import refused
from cascade_sim import check_retriever
from cascade_sim.cli import main
from cascade_sim.foundation.errors import UserError
from checks.own_retrievers import MISTAKES, POPULAR, mistaken


@pytest.fixture(autouse=True)
def quickly(monkeypatch):
    monkeypatch.setattr("cascade_sim.checks.retriever.SPEED_SECONDS", 0.0)


def write(folder, text):
    (folder / "mine.py").write_text(text)
    return f"{folder / 'mine.py'}:Popular"


def test_a_retriever_that_keeps_the_contract_passes(tmp_path, capsys):
    assert main(["check-retriever", write(tmp_path, POPULAR), "--option", "taste=0.5", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["ok"] and {check["status"] for check in found["checks"]} <= {"ok", "note"}
    assert {c["check"]: c["status"] for c in found["checks"] if c["check"] != "speed"} == dict.fromkeys(
        [c["check"] for c in found["checks"] if c["check"] != "speed"], "ok"
    )


@pytest.mark.parametrize("name", MISTAKES)
def test_a_planted_mistake_is_found_by_its_check(name, tmp_path):
    text, check, words = mistaken(name)
    findings = check_retriever(write(tmp_path, text))
    failed = {finding.check: finding.text for finding in findings if finding.status == "FAILED"}
    assert next(iter(failed), None) == check, failed
    assert re.search(words, failed[check])


def test_choosing_by_something_else_than_its_score_is_noted(tmp_path):
    text = POPULAR.replace(
        "best_ads(self.score(requests, corpus),", "best_ads(-self.score(requests, corpus),"
    )
    findings = {finding.check: finding.status for finding in check_retriever(write(tmp_path, text))}
    assert findings["order"] == "note" and "FAILED" not in findings.values()


def test_the_groups_of_a_scenario_are_what_it_sees(tmp_path, capsys):
    own = write(tmp_path, POPULAR.replace('"G1"', '"Z"'))
    file = tmp_path / "z.yaml"
    file.write_text(
        "name: z\nworld: {groups: {Z: {}}, conversion: {anti_correlated_group: null}}\n"
        "cascade: {retrieval: {group: Z}, ranking: {model: truth}, pre_ranking: {model: random}}\n"
        "arms: {a: {}}\n"
    )
    assert main(["check-retriever", own]) == 1
    assert main(["check-retriever", own, "--scenario", str(file)]) == 0


def test_what_names_no_custom_class_is_refused(tmp_path, capsys):
    with refused("similarity", "built in"):
        check_retriever("similarity")
    with pytest.raises(UserError, match="expected a class"):
        check_retriever(3)
    assert main(["check-retriever", str(tmp_path / "none.py:Popular")]) == 2
    assert "no file" in capsys.readouterr().err
