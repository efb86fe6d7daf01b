"""A study under several settings: one run per (variant, seed), kept and reused."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from answers.told import refused, tells
from cascade_sim.commands.studies.variants import command
from cascade_sim.foundation.errors import ScenarioError
from cascade_sim.study import sweeps as variants
from worlds.pool_jobs import in_this_process
from worlds.tiny_market import QUICK, TINY

SHRINK = (
    *TINY,
    *("phases.cold_start=150", "phases.log=150", "phases.shadow=64", "phases.evaluate=128"),
    *("report.detail_requests=8", "report.resamples=5"),
)


def write(folder: Path, text: str) -> Path:
    file = folder / "study.yaml"
    file.write_text(text)
    return file


def test_each_variant_is_the_scenario_with_its_overrides(tmp_path):
    file = write(
        tmp_path,
        f"scenario: {QUICK}\ncommon: [phases.log=5000]\n"
        "variants:\n  as it is: []\n  wide: [world.bids.sigma=0.9]\n",
    )
    cells = variants.load_variants(file, ("phases.shadow=300",))
    assert [cell.settings for cell in cells] == [{}, {"world.bids.sigma": "0.9"}]
    found = {cell.name: cell.scenario for cell in cells}
    assert {s.phases.log for s in found.values()} == {5000}
    assert {s.phases.shadow for s in found.values()} == {300}
    assert found["as it is"].world.bids.sigma == 0.35
    assert found["wide"].world.bids.sigma == 0.9


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("variants: {a: []}", "scenario, variants"),
        (f"scenario: {QUICK}\nvariants: {{}}", "one"),
        (f"scenario: {QUICK}\nvariants: {{a: wide}}", "variants.a: key=value"),
        (f"scenario: {QUICK}\nvariants: {{a: [world.bidz.sigma=1]}}", "'bidz' 'bids'?"),
        (f"scenario: {QUICK}\nvariants: {{a: []}}\nseeds: 3", "scenario, variants"),
    ],
)
def test_a_variants_file_with_a_mistake_is_refused_before_any_work(tmp_path, text, said):
    with refused(*said.split()):
        variants.load_variants(write(tmp_path, text))


def test_a_mistake_is_told_with_file_line_variant_and_key(tmp_path):
    text = f"""scenario: {QUICK}
common:
  - phases.evaluate=400
  - report.resample=20
variants:
  as it is: []
  wide:
    - world.bids.sigma=0.9
    - cascade.slots=4
  odd: [world.bidz.sigma=1, auction.reserve_cpc=abc]
"""
    file = write(tmp_path, text)
    with pytest.raises(ScenarioError) as raised:
        variants.load_variants(file)
    places = [problem.split(": ")[:2] for problem in raised.value.problems]
    assert sorted(place[0] for place in places) == sorted(
        [
            f"{file}:4:5 common",
            f"{file}:9:7 variants.wide",
            f"{file}:10:9 variants.odd",
            f"{file}:10:29 variants.odd",
        ]
    )
    said = "\n".join(raised.value.problems)
    assert tells(said, "report.resample=20:", "'resample'", "'resamples'?")
    assert tells(said, "cascade.slots=4:", "3")
    assert "auction.reserve_cpc=abc: expected a number" in said and "--set" not in said


def test_an_override_of_the_command_line_is_told_as_one_and_a_broken_file_with_its_line(tmp_path):
    file = write(tmp_path, f"scenario: {QUICK}\nvariants: {{a: [], b: [cascade.slots=2]}}")
    with pytest.raises(ScenarioError, match=r"^--set cascade.slots=9: 9 slots but") as raised:
        variants.load_variants(file, ("cascade.slots=9",))
    assert len(raised.value.problems) == 1
    with pytest.raises(ScenarioError, match=r"study.yaml:3:1 "):
        variants.load_variants(write(tmp_path, f"scenario: {QUICK}\nvariants: {{a: []\n"))
    with refused("study.yaml:2:1 common:", "list", "'x=1'", kind=ScenarioError):
        variants.load_variants(write(tmp_path, f"scenario: {QUICK}\ncommon: x=1\nvariants: {{a: []}}"))
    with refused("study.yaml:2:1", "'common'?", kind=ScenarioError):
        variants.load_variants(write(tmp_path, f"scenario: {QUICK}\ncomon: []\nvariants: {{a: []}}"))


def test_a_missing_variants_file_is_named(tmp_path):
    with refused("nowhere.yaml"):
        variants.load_variants(tmp_path / "nowhere.yaml")
    write(tmp_path, "variants: {}")
    with refused("stuyd.yaml", "study.yaml'?"):
        variants.load_variants(tmp_path / "stuyd.yaml")


def test_a_shipped_variants_file_goes_by_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert variants.load_variants(Path("consistency_robustness"))[0].settings == {}


def test_names_that_would_share_a_folder_are_refused(tmp_path):
    text = f"scenario: {QUICK}\nvariants: {{wide bids: [], wide-bids: [world.bids.sigma=0.9]}}"
    with refused("variants.wide bids:", "punctuation"):
        variants.load_variants(write(tmp_path, text))


def test_finished_runs_are_reused_and_tables_have_a_row_per_variant(tmp_path, monkeypatch):
    monkeypatch.setenv("CASCADE_SIM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("cascade_sim.engines.local.run_jobs", in_this_process)
    file = write(tmp_path, f"scenario: {QUICK}\nvariants:\n  as it is: []\n  wide: [world.bids.sigma=0.9]\n")
    options = [str(file), "--seeds", "1", "--workers", "2", "--out", str(tmp_path / "out"), "--quiet"]
    options += [part for change in SHRINK for part in ("--set", change)]
    first = CliRunner().invoke(command, options)
    assert first.exit_code == 0, first.output
    assert "| as it is |" in first.output and "| wide |" in first.output
    stamps = {f: f.stat().st_mtime_ns for f in (tmp_path / "out").rglob("metrics.json")}
    assert len(stamps) == 2
    second = CliRunner().invoke(command, options)
    assert second.output == first.output
    assert {f: f.stat().st_mtime_ns for f in stamps} == stamps


def test_the_orders_of_a_variant_say_how_many_worlds_keep_each_neighbour():
    pairs = [{"first": "b", "second": "a", "kept": 2}, {"first": "a", "second": "c", "kept": 3}]
    order = {"order": ["b", "a", "c"], "pairs": pairs, "whole": 2, "worlds": 3}
    results = {"as it is": {"orders": {"rcs": order}}, "one world": {}}
    (row,) = variants.orders_kept(results, "rcs").splitlines()[2:]
    assert [cell.strip() for cell in row.strip("|").split("|")] == ["as it is", "b >(2) a >(3) c", "2 of 3"]
    assert variants.orders_kept(results, "expected_ctr") == ""
