"""The section off_policy: what it refuses, and what it leaves alone."""

import pytest

from answers.told import refused
from cascade_sim.foundation.errors import ScenarioError
from cascade_sim.scenario.file import dump_scenario, load_scenario, scenario_data
from worlds.randomised_logs import SCENARIO, small_scenario
from worlds.tiny_market import QUICK, tiny_scenario


def test_the_shipped_scenario_is_right_and_survives_being_written():
    scenario = load_scenario(SCENARIO)
    assert scenario.off_policy.randomise.sigmas == {"reserve_cpc": 0.3, "squashing": 0.1}
    assert scenario_data(scenario)["off_policy"]["targets"]["cheaper"] == ["auction.reserve_cpc=0.52"]
    assert "far-cheaper" in dump_scenario(scenario)


def test_a_scenario_without_the_section_keeps_the_data_it_had():
    assert "off_policy" not in scenario_data(tiny_scenario())


@pytest.mark.parametrize(
    ("override", "text"),
    [
        ("auction.reserve_cpc=0", "off_policy.randomise.reserve_cpc: 0"),
        ("off_policy.randomise.squashing=0.3", "squashing 0 0.25"),
        ("auction.pricing=vcg", "off_policy.randomise.squashing: vcg 1"),
        ("off_policy.randomise={}", "names no parameter"),
        ("off_policy.slates.depth=3", "3 4"),
        ("off_policy.slates.depth=10", "10 9"),
        ("off_policy.slates=null", "set off_policy.slates"),
        ("off_policy.randomise={squashing: 0.1}", "set off_policy.randomise.reserve_cpc"),
        ("off_policy.targets.cheaper=[auction.reserve=1]", "did you mean 'auction.reserve_cpc'"),
        (
            "off_policy={estimand: jittered, randomise: {squashing: 0.1}, "
            "targets: {a: [auction.squashing=0.2]}}",
            "0 0.4",
        ),
        ("off_policy.targets.other-model=[ranking.model=loglos]", "'loglos' 'logloss'?"),
        ("off_policy.targets.cheaper=[]", "off_policy.targets.cheaper"),
        ("off_policy.slate={}", "did you mean"),
        ("off_policy.estimand=jitered", "jittered"),
    ],
)
def test_mistakes_are_refused_with_what_to_do(override, text):
    with refused(*text.split(), kind=ScenarioError):
        small_scenario(override)


def test_a_section_that_randomises_nothing_is_refused():
    with pytest.raises(ScenarioError, match="nothing is randomised"):
        load_scenario(QUICK, ["off_policy={requests: 100}"])
