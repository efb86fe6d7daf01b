"""Finished runs against each other: paired where they met the same requests, refused or marked where not."""

import copy
import json
import math
import shutil

import pytest

from answers.section_text import says
from answers.told import refused, tells
from cascade_sim import SEMANTICS
from cascade_sim.cli import main
from cascade_sim.diagnostics.compare import _unpaired, compare_runs
from cascade_sim.diagnostics.reopen import RATIOS
from cascade_sim.foundation.errors import UserError
from cascade_sim.storage.folder import json_text
from worlds.whatif_runs import measured_run, other_run

ENDS = ("value", "low", "high")


@pytest.fixture(scope="module")
def first(study, tmp_path_factory):
    return measured_run(study, tmp_path_factory.mktemp("runs") / "first")


@pytest.fixture(scope="module")
def other(study, first):
    """A run in which the arm logloss did what distill-pre does in the first."""
    metrics = copy.deepcopy(study.metrics)
    metrics["arms"]["logloss"] = metrics["arms"]["distill-pre"]
    path = other_run(first, first.parent / "other", "cascade.pre_ranking.model=distill-pre", metrics=metrics)
    shutil.rmtree(path / "logs" / "evaluate-logloss")
    shutil.copytree(path / "logs" / "evaluate-distill-pre", path / "logs" / "evaluate-logloss")
    return path


def change_manifest(path, **values):
    manifest = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json_text({**manifest, **values}))
    return path


def test_the_paired_difference_of_two_runs_is_the_study_s_own_between_the_two_arms(study, first, other):
    (comparison,) = compare_runs([first, other], "logloss")
    assert comparison["paired_by"] == "request" and comparison["notes"] == []
    assert comparison["scenario"] == [
        {"key": "cascade.pre_ranking.model", "old": "logloss", "new": "distill-pre"}
    ]
    table = comparison["arms"]["logloss"]
    own = study.metrics["arms"]["distill-pre"]
    for metric in set(RATIOS) & set(own):
        assert table[metric]["is_paired"]
        for part, before in (("after", own[metric]), ("lift", own[metric]["lift"])):
            assert [table[metric][part][k] for k in ENDS] == pytest.approx(
                [before[k] for k in ENDS], rel=1e-9
            )
        gap = table[metric]["difference"]["value"]
        assert gap == pytest.approx(table[metric]["after"]["value"] - table[metric]["before"]["value"])


def test_what_the_log_does_not_hold_is_unpaired_with_an_interval_as_of_two_independent_runs(
    study, first, other
):
    (comparison,) = compare_runs([first, other], "logloss")
    entry = comparison["arms"]["logloss"]["rcs"]
    a, b = study.metrics["arms"]["logloss"]["rcs"], study.metrics["arms"]["distill-pre"]["rcs"]
    half = math.hypot(a["high"] - a["low"], b["high"] - b["low"]) / 2
    assert not entry["is_paired"] and entry["difference"]["value"] == b["value"] - a["value"]
    assert entry["difference"]["high"] - entry["difference"]["value"] == pytest.approx(half)


def test_the_unpaired_lift_carries_the_noise_of_what_it_is_divided_by():
    """5 +- 1 against 2 +- 0.4: d(b / a) = db / a - b da / a^2, so half of sqrt(1^2 + (2.5 * 0.4)^2)."""
    before = {"value": 2.0, "low": 1.6, "high": 2.4}
    after = {"value": 5.0, "low": 4.0, "high": 6.0}
    lift = _unpaired({"rcs": before}, {"rcs": after})["rcs"]["lift"]
    assert lift["value"] == 1.5
    assert [lift["low"], lift["high"]] == pytest.approx([1.5 - math.sqrt(2) / 2, 1.5 + math.sqrt(2) / 2])


def test_an_untouched_arm_differs_by_exactly_nothing(first, other):
    (comparison,) = compare_runs([first, other], "ltr")
    for metric in RATIOS:
        assert comparison["arms"]["ltr"][metric]["difference"] == {"value": 0.0, "low": 0.0, "high": 0.0}


def test_runs_of_other_requests_are_refused_unless_that_is_wanted(first, tmp_path):
    far = other_run(first, tmp_path / "far", "seed=2", "world.users=151", "traffic.block=64")
    with pytest.raises(UserError) as error:
        compare_runs([first, far])
    for change in ("seed: 1 → 2", "world.users: 150 → 151", "traffic.block: 128 → 64"):
        assert change in str(error.value)
    assert "--unpaired" in str(error.value)
    (comparison,) = compare_runs([first, far], unpaired=True)
    assert comparison["paired_by"] == "none" and says(comparison["notes"][0], "not", "same requests")
    assert not any(entry["is_paired"] for entry in comparison["arms"]["logloss"].values())


def test_other_semantics_are_refused(first, tmp_path):
    old = change_manifest(other_run(first, tmp_path / "old"), semantics=1)
    with refused("semantics 1"):
        compare_runs([first, old], unpaired=True)


def test_another_version_of_the_code_is_noted(first, tmp_path):
    late = change_manifest(other_run(first, tmp_path / "late"), code="0123")
    (comparison,) = compare_runs([first, late], "ltr")
    (note,) = comparison["notes"]
    assert says(note, "version", "code")


def test_without_logs_it_says_so_and_what_it_still_does(first, tmp_path):
    bare = other_run(first, tmp_path / "bare")
    shutil.rmtree(bare / "logs")
    (comparison,) = compare_runs([first, bare], "ltr")
    assert comparison["paired_by"] == "none"
    assert (
        f"no log at {bare}/logs/evaluate-ltr" in comparison["notes"][0]
        and "metrics.json alone" in comparison["notes"][0]
    )
    assert comparison["arms"]["ltr"]["ctr"]["difference"]["value"] == 0.0
    assert comparison["arms"]["ltr"]["ctr"]["difference"]["high"] > 0.0  # as wide as of other requests


def test_a_longer_evaluation_is_compared_on_the_requests_that_both_served(first, tmp_path):
    longer = other_run(first, tmp_path / "longer", "phases.evaluate=1000")
    (comparison,) = compare_runs([first, longer], "ltr")
    (note,) = comparison["notes"]
    assert says(note, "phases.evaluate", "paired", "first 500 requests")


def test_arms_that_one_run_alone_has_are_named_and_others_refused(study, first, tmp_path):
    metrics = copy.deepcopy(study.metrics)
    metrics["arms"]["new"] = metrics["arms"].pop("ltr")
    changed = other_run(first, tmp_path / "changed", metrics=metrics)
    (comparison,) = compare_runs([first, changed])
    assert set(comparison["arms"]) == set(study.metrics["arms"]) - {"ltr"}
    assert [note.split(" alone has ")[1] for note in comparison["notes"]] == ["the arms ltr", "the arms new"]
    with refused("'ltr'"):
        compare_runs([first, changed], "ltr")


def several_worlds(study, path, shift):
    """A study over seeds 1 to 3 whose CTR is higher by `shift` plus a little for each world."""
    for seed in (1, 2, 3):
        metrics = {**study.metrics, "seed": seed, "arms": copy.deepcopy(study.metrics["arms"])}
        metrics["arms"]["logloss"]["ctr"]["value"] = 0.1 * seed + shift * (1 + 0.1 * seed)
        world = path / f"seed-{seed}"
        world.mkdir(parents=True)
        (world / "metrics.json").write_text(json_text(metrics))
        (world / "manifest.json").write_text(json_text({"semantics": SEMANTICS, "scenario_hash": "0"}))
    return path


def test_studies_over_several_worlds_are_paired_by_world(study, first, tmp_path):
    combined = {**study.metrics, "seeds": {"n": 3, "seeds": [1, 2, 3]}}
    before = several_worlds(study, other_run(first, tmp_path / "before", metrics=combined), 0.0)
    after = several_worlds(study, other_run(first, tmp_path / "after", metrics=combined), 0.01)
    (comparison,) = compare_runs([before, after], "logloss")
    gap = comparison["arms"]["logloss"]["ctr"]["difference"]
    assert comparison["paired_by"] == "world" and gap["value"] == pytest.approx(0.01 * 1.2)
    # t(2 degrees, 97.5 %) = 4.303; the gaps are .011, .012, .013: sd .001
    assert gap["high"] - gap["value"] == pytest.approx(4.303 * 0.001 / math.sqrt(3), rel=1e-3)
    with refused("3 worlds", "before/seed-1"):
        compare_runs([before, first])


@pytest.mark.parametrize(
    ("arms", "said"),
    [
        ({"ltr": 3}, "arms.ltr must be an object of metrics, found 3"),
        ({"ltr": {"ctr": 5}}, "arms.ltr.ctr must be an object with a number or null for value, low, high"),
        ({"ltr": {"ctr": {"value": "0.1"}}}, "arms.ltr.ctr must be an object with a number or null"),
    ],
)
def test_damaged_metrics_are_named(first, tmp_path, arms, said):
    path = other_run(first, tmp_path / "damaged", metrics={"arms": arms})
    with pytest.raises(UserError) as raised:
        compare_runs([first, path])
    assert str(raised.value).startswith(f"{path / 'metrics.json'}: {said}")


def test_one_run_is_nothing_to_compare(first):
    with refused("two runs"):
        compare_runs([first])


def test_the_command_prints_and_writes(first, other, tmp_path, capsys):
    assert (
        main(
            [
                "compare",
                str(first),
                str(other),
                str(first),
                "--arm",
                "logloss",
                "--out",
                str(tmp_path / "out"),
            ]
        )
        == 0
    )
    shown = capsys.readouterr().out
    assert tells(shown, "cascade.pre_ranking.model  logloss  distill-pre") and says(
        shown, "scenarios", "the same"
    )
    assert "RCS % (unpaired)" in shown and "paired by request" in shown
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "compare.json",
        "compare.csv",
        "compare.html",
    }
    assert len(json.loads((tmp_path / "out" / "compare.json").read_text())) == 2
    assert main(["compare", str(first), str(tmp_path / "nowhere")]) == 2
    assert "does not exist" in capsys.readouterr().err


def test_another_processor_or_package_is_told_and_no_error(first, tmp_path):
    here = {"packages": {"numpy": "2.4.6"}, "processor": {"model": "A"}}
    own = change_manifest(other_run(first, tmp_path / "own"), **here)
    same = change_manifest(other_run(first, tmp_path / "same"), **here)
    there = {"packages": {"numpy": "2.1.0"}, "processor": {"model": "B"}}
    far = change_manifest(other_run(first, tmp_path / "far"), **there)
    alike, apart = compare_runs([own, same, far])
    assert alike["notes"] == [] and len(apart["notes"]) == 2
    assert says(" ".join(apart["notes"]), "packages", "numpy 2.4.6", "2.1.0")
    assert any(says(note, "processor", "A", "B") for note in apart["notes"])


def shown(capsys, *words):
    assert main(["compare", *(str(word) for word in words)]) == 0
    return capsys.readouterr().out


def test_the_verdict_comes_first_identical_moved_or_not_comparable(first, other, tmp_path, capsys):
    same = shown(capsys, first, first).splitlines()
    assert says(same[1], "Identical") and len(same) < 18
    moved = shown(capsys, first, other, "--arm", "logloss").replace("\n", " ")
    (comparison,) = compare_runs([first, other], "logloss")
    lift = 100 * comparison["arms"]["logloss"]["expected_revenue_per_request"]["lift"]["value"]
    verdict = moved[: moved.index("Scenario")]
    assert says(verdict, "Revenue per request of logloss", f"−{abs(lift):.1f} %")
    far = other_run(first, tmp_path / "far", "seed=2", "world.users=151")
    apart = shown(capsys, first, far, "--unpaired").replace("\n", " ")
    assert says(apart[: apart.index("Scenario")], "Not comparable", "seed and world differ")


def test_what_one_run_alone_has_is_a_line_in_the_terminal_and_complete_in_the_files(
    study, first, tmp_path, capsys
):
    metrics = copy.deepcopy(study.metrics)
    for arm in metrics["arms"].values():
        arm["novel"] = {"value": 0.5, "low": 0.4, "high": 0.6}
        del arm["rcs"]
    wide = other_run(
        first, tmp_path / "wide", "market={days: 1}", metrics={**metrics, "market": {"arms": {}}}
    )
    text = shown(capsys, first, wide, "--out", tmp_path / "out")
    assert "market.bidders" not in text and "market.days" not in text
    table = [line.split() for line in text.splitlines() if line.strip().startswith("market ")]
    assert len(table) == 1 and table[0][:2] == ["market", "absent"] and table[0][-1] == "keys"
    lines = " ".join(text.split())
    words = lines.replace(" ", "")  # a long path is broken where the line ends
    assert f"Onlyin{first},arms" in words
    assert f"Onlyin{wide},arms" in words
    assert "rcs" in lines and "novel" in lines and says(lines, "Identical", "both runs have")
    assert says(lines, "alone has a market", "not compared")
    (comparison,) = json.loads((tmp_path / "out" / "compare.json").read_text())
    keys = [change["key"] for change in comparison["scenario"]]
    assert "market.days" in keys and len([key for key in keys if key.startswith("market.")]) > 20
    assert comparison["arms"]["ltr"]["novel"]["after"]["value"] == 0.5
    assert comparison["arms"]["ltr"]["novel"]["before"]["value"] is None
    assert comparison["arms"]["ltr"]["rcs"]["after"]["value"] is None
    assert "novel" in (tmp_path / "out" / "compare.csv").read_text()


def test_a_measure_that_the_worlds_of_one_study_lack_is_no_error(study, first, tmp_path):
    combined = {**copy.deepcopy(study.metrics), "seeds": {"n": 3, "seeds": [1, 2, 3]}}
    before = several_worlds(study, other_run(first, tmp_path / "before", metrics=combined), 0.0)
    combined["arms"]["logloss"]["novel"] = {"value": 0.5, "low": 0.4, "high": 0.6}
    after = several_worlds(study, other_run(first, tmp_path / "after", metrics=combined), 0.01)
    (comparison,) = compare_runs([before, after], "logloss")
    assert comparison["arms"]["logloss"]["novel"]["difference"]["value"] is None


def test_runs_without_an_arm_in_common_are_not_comparable(study, first, tmp_path, capsys):
    metrics = copy.deepcopy(study.metrics)
    metrics["arms"] = {"new": metrics["arms"]["ltr"]}
    changed = other_run(first, tmp_path / "changed", metrics=metrics)
    assert says(shown(capsys, first, changed), "Not comparable", "no arm in common")
