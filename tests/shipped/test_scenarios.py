"""The shipped studies: every file loads, says its question on top, and its variants are sound."""

import pytest

from cascade_sim.scenario.file import load_scenario
from cascade_sim.study.sweeps import load_variants
from places import ROOT

FILES = sorted((ROOT / "scenarios").glob("*.yaml"))
VARIANTS = [file for file in FILES if "\nvariants:\n" in file.read_text()]
SCENARIOS = [file for file in FILES if file not in VARIANTS]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_study_begins_with_the_question_it_answers(file):
    first = file.read_text().split("\nname:")[0].split("\nscenario:")[0]
    assert first.startswith("#") and "?" in first


@pytest.mark.parametrize("file", SCENARIOS, ids=lambda file: file.stem)
def test_a_shipped_scenario_is_valid_and_named_after_its_file(file):
    assert load_scenario(file).name == file.stem


@pytest.mark.parametrize("file", VARIANTS, ids=lambda file: file.stem)
@pytest.mark.few(2)
def test_the_variants_of_a_study_are_valid_and_all_different(file):
    cells = load_variants(file)
    assert len({cell.scenario.model_dump_json() for cell in cells}) == len(cells) >= 5


def test_the_main_scenarios_share_one_world():
    ads, consistency = (
        load_scenario((ROOT / "scenarios") / f"{name}.yaml") for name in ("ads", "ranking_consistency")
    )
    assert ads.world == consistency.world
