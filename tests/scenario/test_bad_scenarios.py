"""Broken scenario files: each is refused at once, at the right place, with a word on what to do."""

import subprocess
import sys

import pytest

from answers.told import tells
from cascade_sim.foundation.errors import ScenarioError
from cascade_sim.scenario.file import load_scenario
from places import ROOT
from scenario.bad_cases import CASES, SOUND, SYNTAX


def broken(tmp_path, piece, replacement):
    """Writes the mutated file; returns its path and where the message must point, `file:line:column`."""
    assert piece in SOUND
    text = SOUND.replace(piece, replacement, 1)
    before, marker, _ = text.partition("@")
    path = tmp_path / "broken.yaml"
    path.write_text(text.replace("@", ""))
    column = len(before) - before.rfind("\n")
    return path, f"{path}:{before.count(chr(10)) + 1}:{column}" if marker else ""


def refusal(path):
    with pytest.raises(ScenarioError) as caught:
        load_scenario(path)
    return caught.value.problems


def test_the_sound_scenario_loads(tmp_path):
    path = tmp_path / "sound.yaml"
    path.write_text(SOUND)
    assert load_scenario(path).world.ads == 2000


@pytest.mark.parametrize("what", CASES)
def test_a_mistake_is_named_with_place_key_and_remedy(what, tmp_path):
    piece, replacement, key, remedy = CASES[what]
    path, spot = broken(tmp_path, piece, replacement)
    assert spot
    problems = refusal(path)
    match = [line for line in problems if f" {key}: " in line]
    assert len(match) == 1, problems
    assert match[0].startswith(f"{spot} {key}: ")
    assert tells(match[0].partition(f" {key}: ")[2], *remedy.split())


@pytest.mark.parametrize("what", [what for what in CASES if what != "students in a circle"])
def test_one_mistake_gives_one_line(what, tmp_path):
    piece, replacement, *_ = CASES[what]
    path, _ = broken(tmp_path, piece, replacement)
    assert len(refusal(path)) == 1


@pytest.mark.parametrize("what", SYNTAX)
def test_broken_yaml_is_named_with_its_place(what, tmp_path):
    piece, replacement, remedy = SYNTAX[what]
    path, spot = broken(tmp_path, piece, replacement)
    (line,) = refusal(path)
    assert line.startswith(f"{spot} ")
    assert tells(line.partition(f"{spot} ")[2], *remedy.split())


def test_a_default_that_does_not_fit_is_said_to_be_one(tmp_path):
    path, _ = broken(tmp_path, "    model: logloss\n", "")
    path.write_text(path.read_text().replace("  logloss:\n    kind", "  clicks:\n    kind"))
    (line,) = refusal(path)
    assert tells(line, "cascade.pre_ranking.model", "'logloss'")
    assert line.endswith("(the default)")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "1:1 empty"),
        (b"# nothing but a comment\n", "1:1 empty"),
        (b"- name: a\n- name: b\n", "1:1 mapping list"),
        (b"just words\n", "1:1 mapping value"),
        (b"name: sound\nseed: \xff\n", "2:7 byte 0xff is not UTF-8"),
        (b"name:\n" + b" [\n" * 3000, "nested too deeply"),
        (b"a: &a [*a]\n", "alias"),
    ],
)
def test_a_file_that_is_no_scenario_is_refused(content, words, tmp_path):
    path = tmp_path / "odd.yaml"
    path.write_bytes(content)
    problems = refusal(path)
    assert any(line.startswith(str(path)) and tells(line, *words.split()) for line in problems), problems


def test_a_file_that_is_not_there_is_refused_with_a_neighbour(tmp_path):
    (tmp_path / "sound.yaml").write_text(SOUND)
    (line,) = refusal(tmp_path / "suond.yaml")
    assert line.startswith(f"{tmp_path / 'suond.yaml'}: ") and tells(line, f"'{tmp_path / 'sound.yaml'}'?")


def test_a_folder_is_not_a_scenario(tmp_path):
    (line,) = refusal(tmp_path)
    assert line.startswith(f"{tmp_path}: ") and tells(line, "folder", ".yaml")


def test_all_mistakes_are_reported_at_once_in_the_order_of_the_file(tmp_path):
    text = SOUND.replace("  users: 400", "  usres: 400").replace("    median: 1.0", "    median: -1")
    text = text.replace("    size: 50", "    size: 5").replace("teacher: rank", "teacher: rnk")
    text = text.replace("seed: 1", "seed: 1\nseed: 1").replace("baseline: logloss", "baseline: lgoloss")
    path = tmp_path / "many.yaml"
    path.write_text(text)
    keys = ["seed", "world.usres", "world.bids.median", "cascade.pre_ranking.size", "models.ltr.teacher"]
    assert [line.split(" ")[1] for line in refusal(path)] == [f"{key}:" for key in [*keys, "report.baseline"]]


def test_what_only_follows_from_another_mistake_is_left_out(tmp_path):
    path, _ = broken(
        tmp_path, "  groups:\n    G1: {dims: 4, weight: 0.8}\n    G4", "  gruops:\n    A: {}\n    G4"
    )
    path.write_text(path.read_text().replace("[user, context, G1]", "[user, A]"))
    (line,) = refusal(path)
    assert tells(line, "'gruops'", "'groups'?")


def test_a_refusal_imports_nothing_heavy(tmp_path):
    path, _ = broken(tmp_path, "    size: 50", "    size: 5")
    code = (
        "import sys; from cascade_sim.cli import main; code = main(sys.argv[1:]);"
        "heavy = ('numpy', 'torch', 'numba', 'pandas', 'matplotlib', 'simpy');"
        "print(code, [m for m in heavy if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "run", str(path)], capture_output=True, text=True, cwd=ROOT
    )
    assert done.stdout == "2 []\n"
    assert done.stderr.startswith(f"error: {path}:22:5 cascade.pre_ranking.size: ")
    assert tells(done.stderr, 5, 6)
