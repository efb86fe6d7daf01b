"""`whatif` on the command line: what it prints, writes and refuses."""

import csv
import json
import re
import shutil

import pytest

from answers.section_text import says
from answers.told import tells
from cascade_sim.cli import main
from cascade_sim.counterfactual.whatif import answer_name
from cascade_sim.scenario.overrides import parse_points
from cascade_sim.storage.folder import json_text
from worlds.whatif_runs import measured_run


@pytest.fixture(scope="module")
def folder(study, tmp_path_factory):
    return measured_run(study, tmp_path_factory.mktemp("runs") / "tiny")


def test_one_change_is_printed_with_intervals_and_written_in_every_form(study, folder, capsys):
    assert main(["whatif", str(folder), "--set", "auction.reserve_cpc=0.8", "--quiet"]) == 0
    shown = capsys.readouterr().out
    assert says(shown.splitlines()[0], "Reserve 0.8", "revenue per request")
    assert says(shown, "arm logloss", "seed 1", "500 requests")
    assert re.search(r"Revenue per request, expected +\d\.\d+ ±\S+ +\d\.\d+ ±\S+ +[+−]\S+ ±", shown)
    flowing = " ".join(shown.split())
    assert "Guardrails: impressions" in flowing and "reduce the variance" in flowing
    assert says(shown, "bids: advertisers do not react") and "budgets: unlimited" in shown
    out = folder / "whatif" / "reserve_cpc-0.8"
    assert {path.name for path in out.iterdir()} == {
        f"whatif.{k}" for k in ("json", "csv", "html", "svg", "png")
    }
    answer = json.loads((out / "whatif.json").read_text())
    assert answer["points"][0]["settings"] == {"auction.reserve_cpc": 0.8}
    rows = {row["metric"]: row for row in csv.DictReader((out / "whatif.csv").open())}
    own = study.metrics["arms"]["logloss"]["rpm"]
    assert [float(rows["rpm"][k]) for k in ("current", "current_low", "current_high")] == [
        own[k] for k in ("value", "low", "high")
    ]
    assert float(rows["rpm"]["difference"]) == float(rows["rpm"]["variant"]) - float(rows["rpm"]["current"])
    assert (out / "whatif.png").read_bytes().startswith(b"\x89PNG")
    page = (out / "whatif.html").read_text()
    assert "<svg" in page and "Held fixed" in page and "auction.reserve_cpc = 0.8" in page


def test_several_values_are_a_curve_into_a_folder_of_one_s_own(folder, tmp_path, capsys):
    out = tmp_path / "new" / "curve"
    words = ["--set", "reserve_cpc=0,0.6,0.9", "--arm", "ltr", "--requests", "1", "--out", str(out)]
    assert main(["whatif", str(folder), *words]) == 0
    shown = capsys.readouterr().out
    assert tells(shown, "0 (current)", "arm ltr", "128 requests")
    rows = list(csv.DictReader((out / "whatif.csv").open()))
    assert {row["setting"] for row in rows} == {
        f"auction.reserve_cpc = {value}" for value in ("0", "0.6", "0.9")
    }


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--set", "auction.reserve=1"],
            "--set auction.reserve=1: unknown key 'reserve' in auction; did",
        ),
        (
            ["--set", "slots=2", "--set", "world.ads=9"],
            "--set world.ads=9: world.ads cannot be changed",
        ),
        (["--set", "pre_ranking.size=3"], "--set pre_ranking.size=3: 3 leaves no runner-up to price"),
        (["--set", "slots=2", "--arm", "lrt"], "{file}: --arm: unknown arm 'lrt'; did you mean 'ltr'?"),
        ([], "Missing option '--set'"),
    ],
)
def test_a_mistake_is_refused(folder, capsys, words, said):
    assert main(["whatif", str(folder), *words]) == 2
    assert said.format(file=folder / "scenario.yaml") in capsys.readouterr().err


def test_a_place_that_cannot_be_written_to_is_refused_first(folder, tmp_path, capsys):
    (tmp_path / "file").write_text("mine")
    assert main(["whatif", str(folder), "--set", "slots=2", "--out", str(tmp_path / "file")]) == 2
    assert tells(capsys.readouterr().err, tmp_path / "file", "folder")
    assert main(["whatif", str(tmp_path), "--set", "slots=2"]) == 2
    assert tells(capsys.readouterr().err, tmp_path, "not a run")


def test_a_run_that_measured_something_else_is_noticed(study, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("cascade_sim.counterfactual.whatif.write_answer", lambda *_: [])
    folder = measured_run(study, tmp_path / "run")
    metrics = json.loads((folder / "metrics.json").read_text())
    metrics["arms"]["logloss"]["rcs"]["value"] += 1e-15
    (folder / "metrics.json").write_text(json_text(metrics))
    assert main(["whatif", str(folder), "--set", "slots=2", "--quiet"]) == 1
    assert "measured rcs" in capsys.readouterr().err


def test_the_folder_s_name_says_what_was_asked(study):
    def name(*texts, arm=None, requests=None):
        return answer_name(parse_points(texts, study.sim.scenario, "logloss"), arm, requests)

    assert name("auction.reserve_cpc=0.2") == "reserve_cpc-0.2"
    assert name("slots=1,2", "pricing=vcg", arm="ltr") == "slots-1_2-pricing-vcg-ltr"
    assert name("reserve_cpc=0,1,2,3,4,5").startswith("reserve_cpc-0_to-5-")
    assert name("slots=2", requests=64) == "slots-2-first-64"
    assert "/" not in name("fusions.a={pctr: 0.5}", "ranking.fusion=a")


def test_no_two_questions_share_a_folder(study):
    asked = [
        *(["pre_ranking.size=9"], ["retrieval.size=9"]),  # the same end of another parameter
        *(["reserve_cpc=0,1,2,3,5"], ["reserve_cpc=0,1,2,4,5"]),  # values that the name leaves out
        *(["fusions.a={pctr: 0.5}"], ["fusions.a={pctr- 0.5: 1}"]),  # signs that it cannot hold
        *(["slots=1", f"fusions.{'a' * 80}=1"], ["slots=1", f"fusions.{'a' * 81}=1"]),  # too long
    ]
    names = [answer_name(parse_points(words, study.sim.scenario, "logloss"), None) for words in asked]
    assert len(set(names)) == len(names)


def test_a_curve_fits_the_terminal(folder, tmp_path, capsys, monkeypatch):
    words = ["--set", "reserve_cpc=0.6,0.9", "--requests", "1", "--quiet", "--out", str(tmp_path)]
    for columns, has_all in (("80", False), ("160", True)):
        monkeypatch.setenv("COLUMNS", columns)
        assert main(["whatif", str(folder), *words]) == 0
        shown = capsys.readouterr().out
        table = shown.split("What if auction.reserve_cpc")[1].split("Guardrails: ")[0]
        assert widest(shown, tmp_path) <= int(columns)
        assert ("realised ×" in table, says(shown, "More columns", "whatif.html")) == (has_all, not has_all)


def test_one_change_fits_the_terminal_and_keeps_its_lifts(folder, tmp_path, capsys, monkeypatch):
    words = ["--set", "reserve_cpc=0.8", "--quiet", "--out", str(tmp_path)]
    for columns, has_all in (("80", False), ("100", True)):
        monkeypatch.setenv("COLUMNS", columns)
        assert main(["whatif", str(folder), *words]) == 0
        shown = capsys.readouterr().out
        assert widest(shown, tmp_path) <= int(columns)
        heads = next(line.split() for line in shown.splitlines() if line.split()[:1] == ["measure"])
        assert {"current", "variant", "lift"} < set(heads) and ("difference" in heads) == has_all
        assert says(shown, "More columns", "whatif.html") == (not has_all)


def widest(shown, out):
    """The widest line but for the files written, whose paths are not cut."""
    return max(len(line.rstrip()) for line in shown.splitlines() if not line.startswith(str(out)))


def test_an_answer_is_not_written_through_a_link(folder, tmp_path, capsys):
    run, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    shutil.copytree(folder, run, ignore=shutil.ignore_patterns("whatif"))
    elsewhere.mkdir()
    (run / "whatif").symlink_to(elsewhere)
    assert main(["whatif", str(run), "--set", "auction.reserve_cpc=0.8", "--quiet"]) == 2
    assert tells(capsys.readouterr().err, "whatif", "link") and list(elsewhere.iterdir()) == []


def test_a_report_replaces_nothing_but_a_report(folder, tmp_path, capsys):
    notes, page = tmp_path / "notes.txt", tmp_path / "report.html"
    notes.write_text("precious")
    assert main(["report", str(folder), "--out", str(notes)]) == 2
    assert tells(capsys.readouterr().err, "notes.txt", "no report")
    assert notes.read_text() == "precious"
    page.write_text('<!doctype html>\n<meta name="generator" content="cascade_sim">')
    assert main(["report", str(folder), "--out", str(page)]) == 0
    assert 'name="generator" content="cascade_sim"' in page.read_text()[:4096]
    assert main(["report", str(folder), "--out", str(page)]) == 0
