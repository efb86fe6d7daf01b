"""The section `what_if` of a scenario: read, checked with line and column, absent where there is none."""

import pytest

from answers.told import tells
from cascade_sim.foundation.errors import ScenarioError
from cascade_sim.scenario.file import dump_scenario, load_scenario, scenario_data, scenario_hash
from worlds.tiny_market import QUICK, tiny_scenario

TEXT = QUICK.read_text()


def problems(tmp_path, section):
    """What is said about quick.yaml with this section at its end."""
    file = tmp_path / "asked.yaml"
    file.write_text(TEXT + section)
    with pytest.raises(ScenarioError) as error:
        load_scenario(file)
    line = TEXT.count("\n") + 1
    return [text.replace(f"{file}:", "").replace(f"{line + 1}:", "+1:") for text in error.value.problems]


def test_questions_are_kept_and_come_back_from_the_resolved_file(tmp_path):
    file = tmp_path / "asked.yaml"
    file.write_text(
        TEXT + "what_if:\n  curve: ['auction.reserve_cpc=0.1,0.2']\n  few: [slots=2, squashing=0.9]\n"
    )
    scenario = load_scenario(file)
    assert scenario.what_if == {
        "curve": ("auction.reserve_cpc=0.1,0.2",),
        "few": ("slots=2", "squashing=0.9"),
    }
    again = tmp_path / "resolved.yaml"
    again.write_text(dump_scenario(scenario))
    assert load_scenario(again) == scenario


def test_a_scenario_without_questions_is_the_one_it_was():
    """Nothing of the section shows in its data, so its hash did not change when the section came to be."""
    scenario = tiny_scenario()
    assert "what_if" not in scenario_data(scenario)
    assert scenario_hash(scenario) != scenario_hash(tiny_scenario("what_if.one=[slots=2]"))


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ("a: [auction.reserve=1]", "auction.reserve=1: 'reserve' 'reserve_cpc'?"),
        ("a: [slots=2, world.ads=9]", "world.ads=9: world.ads"),
        ("a: [pre_ranking.size=3]", "pre_ranking.size=3: 3"),
        (
            "a: [auction.reserve_cpc=0.1, 0.2]",
            "0.2 quotes",
        ),
        ("a: [arms.ltr.slots=2]", "'logloss'"),
        ("a: []", "empty"),
        ("a: slots=2", "'slots=2' [slots=2]"),
        ("a b: [slots=2]", "letters, digits"),
    ],
)
def test_a_mistake_in_a_question_is_refused_with_its_line(tmp_path, section, said):
    (found,) = problems(tmp_path, f"what_if:\n  {section}\n")
    assert found.startswith("+1:") and tells(found, "what_if", *said.split())


def test_the_second_change_is_the_one_that_is_named(tmp_path):
    (found,) = problems(tmp_path, "what_if:\n  a: [slots=2, world.ads=9]\n")
    assert found.startswith("+1:16 what_if.a[1]: ")


def test_a_scenario_with_another_mistake_is_not_asked(tmp_path):
    text = TEXT.replace("baseline: logloss", "baseline: lgoloss") + "what_if:\n  a: [slots=2]\n"
    file = tmp_path / "asked.yaml"
    file.write_text(text)
    with pytest.raises(ScenarioError, match="unknown arm 'lgoloss'") as error:
        load_scenario(file)
    assert len(error.value.problems) == 1


def test_the_shipped_study_asks_about_a_tenth_less_and_more_inside_a_wide_range():
    from cascade_sim.scenario.overrides import parse_points

    scenario = load_scenario(QUICK.parent / "whatif_reserve.yaml")
    points = parse_points(scenario.what_if["reserve"], scenario, "deployed")
    values = [point[0].value for point in points]
    base = scenario.auction.reserve_cpc
    assert {base, round(0.9 * base, 9), round(1.1 * base, 9)} <= set(values) and values == sorted(values)
    assert min(values) == 0 and max(values) >= 2 * base
