"""Reading and writing scenario files."""

import subprocess
import sys

import pytest

from answers.told import refused, tells
from cascade_sim.foundation.errors import ScenarioError
from cascade_sim.scenario.file import dump_scenario, load_scenario, scenario_hash
from cascade_sim.scenario.schema import Scenario
from places import ROOT

SCENARIOS = sorted(p for p in (ROOT / "scenarios").glob("*.yaml") if "\nvariants:\n" not in p.read_text())

MINIMAL = "name: small\nmodels: {rank: {kind: coaction}, logloss: {}}\narms: {now: {}}\n"


@pytest.fixture
def minimal(tmp_path):
    path = tmp_path / "small.yaml"
    path.write_text(MINIMAL)
    return path


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_every_scenario_that_comes_along_is_sound_and_starts_with_its_question(path):
    assert load_scenario(path).name == path.stem
    assert path.read_text().startswith("# ")


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
@pytest.mark.few(4)
def test_a_dumped_scenario_loads_back_equal_and_with_the_same_hash(path, tmp_path):
    scenario = load_scenario(path)
    copy = tmp_path / "scenario.yaml"
    copy.write_text(dump_scenario(scenario))
    assert load_scenario(copy) == scenario
    assert scenario_hash(load_scenario(copy)) == scenario_hash(scenario)


def test_a_dump_keeps_what_is_hard_to_write(tmp_path):
    text = MINIMAL + (
        "description: |\n  two lines: 'quoted'\n  # no comment\n"
        "world: {conversion: {anti_correlated_group: null}, base_logit: -5, pair_noise: 1e-9}\n"
        "bidding: {rule: none}\n"
        "fusions: {'1': {bid: 0.5}, 'null': {}}\n"
    )
    (tmp_path / "net.py").write_text("class Net:\n    def __init__(self, *widths, **options): ...\n")
    own = "{kind: 'net.py:Net', options: {a: [1, 2.5, null, true], b: {c: 'no'}}}"
    text = text.replace("logloss: {}", f"logloss: {own}")
    text = text.replace("now: {}", "now: {}, 'true': {pre_ranking: {bid: none, fusion: 'null'}, slots: 3}")
    path, copy = tmp_path / "odd.yaml", tmp_path / "copy.yaml"
    path.write_text(text)
    scenario = load_scenario(path)
    assert scenario.description.splitlines() == ["two lines: 'quoted'", "# no comment"]
    assert scenario.models["logloss"].options == {"a": [1, 2.5, None, True], "b": {"c": "no"}}
    copy.write_text(dump_scenario(scenario))
    assert load_scenario(copy) == scenario


def test_a_dump_spells_out_defaults_but_not_what_an_arm_inherits_or_a_recipe_ignores(minimal):
    text = dump_scenario(load_scenario(minimal))
    assert "baseline: now" in text
    assert "requests_per_second: 50.0" in text
    assert "now: {}" in text
    assert "teacher" not in text
    assert "chunks" not in text


def test_the_hash_follows_the_meaning_not_the_spelling(minimal, tmp_path):
    spelt = tmp_path / "other.yaml"
    spelt.write_text("# a comment\n" + MINIMAL + "seed: 1\nworld:\n  base_logit: -6\n")
    assert scenario_hash(load_scenario(spelt)) == scenario_hash(load_scenario(minimal))
    assert scenario_hash(load_scenario(minimal, ["seed=2"])) != scenario_hash(load_scenario(minimal))
    assert len(scenario_hash(load_scenario(minimal))) == 16


def test_a_seed_on_the_command_line_wins(minimal):
    assert load_scenario(minimal, ["seed=5"]).seed == 5
    assert load_scenario(minimal, ["seed=5"], seed=7).seed == 7
    with refused("--seed", -1, "0 to 2**63", kind=ScenarioError):
        load_scenario(minimal, seed=-1)


def test_a_contradiction_is_blamed_on_the_option_that_made_it(minimal):
    with pytest.raises(ScenarioError) as caught:
        load_scenario(minimal, ["cascade.slot=3", "cascade.pre_ranking.size=5"])
    first, second = caught.value.problems
    assert first.startswith("--set cascade.pre_ranking.size=5: ") and tells(first, 5, 6)
    assert second.startswith("--set cascade.slot=3: ") and tells(second, "'slot'", "'slots'?")


def test_a_model_file_is_looked_for_in_the_working_folder_then_beside_the_scenario(tmp_path, monkeypatch):
    study, work = tmp_path / "study", tmp_path / "work"
    study.mkdir()
    work.mkdir()
    path = study / "own.yaml"
    path.write_text(MINIMAL.replace("logloss: {}", 'logloss: {kind: "net.py:Net"}'))
    monkeypatch.chdir(work)
    with pytest.raises(ScenarioError, match=r"models\.logloss\.kind: no file 'net\.py'"):
        load_scenario(path)
    (study / "net.py").write_text("class Net: pass\n")
    assert load_scenario(path).models["logloss"].kind == "../study/net.py:Net"
    (work / "net.py").write_text("class Net: pass\n")
    assert load_scenario(path).models["logloss"].kind == "net.py:Net"


def test_a_byte_order_mark_and_windows_line_ends_do_no_harm(minimal):
    expected = load_scenario(minimal)
    minimal.write_bytes(b"\xef\xbb\xbf" + MINIMAL.replace("\n", "\r\n").encode())
    assert load_scenario(minimal) == expected


def test_an_equal_scenario_can_be_built_without_a_file(minimal):
    data = {"name": "small", "models": {"rank": {"kind": "coaction"}, "logloss": {}}, "arms": {"now": {}}}
    assert load_scenario(minimal) == Scenario.model_validate(data)


def test_loading_the_main_scenario_is_little_work():
    """Counted, not timed: about 70,000 calls, a few hundredths of a second."""
    calls = 0

    def count(frame, event, argument):
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        load_scenario(ROOT / "scenarios" / "ads.yaml")
    finally:
        sys.setprofile(None)
    assert 1000 < calls < 300_000


def test_loading_imports_none_of_the_heavy_libraries():
    code = (
        "import sys; from cascade_sim.scenario.file import load_scenario;"
        "load_scenario('scenarios/ads.yaml');"
        "heavy = ('numpy', 'torch', 'numba', 'pandas', 'matplotlib', 'pyarrow');"
        "print([m for m in heavy if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout == "[]\n"
