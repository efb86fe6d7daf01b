"""Pricing rules in scenarios: their names, their parameters, what arms inherit and what-ifs may turn."""

from pathlib import Path

import pytest

from answers.told import refused
from cascade_sim.auction.pricing import RULES, Parameter, Pricing
from cascade_sim.scenario import sections
from cascade_sim.scenario.data import scenario_data, scenario_hash
from cascade_sim.scenario.file import dump_scenario, load_scenario
from cascade_sim.scenario.overrides import Refused, apply_overrides, parse_points
from cascade_sim.scenario.schema import resolve_arm

PLAIN = "name: plain\ncascade: {pre_ranking: {model: truth}, ranking: {model: truth}}\n"
FLOOR = PLAIN + "auction: {pricing: soft_floor, soft_floor: 0.5}\n"


@pytest.fixture
def loaded(tmp_path):
    def load(text):
        file = tmp_path / "own.yaml"
        file.write_text(text)
        return load_scenario(file)

    return load


def auction_of(scenario, arm):
    return resolve_arm(scenario, scenario.arms[arm]).auction


def test_a_parameter_reaches_the_arm_and_comes_back_from_a_dump(loaded):
    scenario = loaded(FLOOR + "arms: {now: {}, dearer: {auction: {soft_floor: 0.9}}}\n")
    assert auction_of(scenario, "now").parameters == {"soft_floor": 0.5}
    assert auction_of(scenario, "dearer").parameters == {"soft_floor": 0.9}
    assert loaded(dump_scenario(scenario)) == scenario


def test_an_arm_with_another_rule_does_not_inherit_the_parameter(loaded):
    scenario = loaded(FLOOR + "arms: {now: {}, usual: {auction: {pricing: gsp}}}\n")
    assert auction_of(scenario, "usual").parameters == {}


def test_a_scenario_without_the_parameter_keeps_its_hash(loaded):
    scenario = loaded(PLAIN + "arms: {now: {}}\n")
    assert scenario_hash(scenario) == "df5d91d6b4c8b250"
    assert set(scenario_data(scenario)["auction"]) == {"pricing", "squashing", "reserve_cpc", "score_floor"}
    assert scenario_hash(loaded(FLOOR + "arms: {now: {}}\n")) != scenario_hash(scenario)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            PLAIN + "auction: {soft_floor: 0.5}\narms: {now: {}}\n",
            ":3: auction.soft_floor gsp",
        ),
        (
            PLAIN + "auction: {pricing: soft_floor}\narms: {now: {}}\n",
            ":3: auction.pricing: auction.soft_floor",
        ),
        (
            PLAIN + "arms: {now: {}, floor: {auction: {pricing: soft_floor}}}\n",
            "arms.floor.auction.pricing: soft_floor",
        ),
        (
            FLOOR + "arms: {now: {}, usual: {auction: {pricing: first, soft_floor: 1}}}\n",
            "arms.usual.auction.soft_floor first",
        ),
        (
            PLAIN + "auction: {pricing: soft_floor, soft_floor: -1}\narms: {now: {}}\n",
            "auction.soft_floor -1 0 1,000,000,000",
        ),
        (
            PLAIN + "auction: {pricing: softfloor}\narms: {now: {}}\n",
            "gsp, vcg, first, 'softfloor' 'soft_floor'?",
        ),
    ],
)
def test_what_does_not_fit_is_refused_where_it_stands(loaded, text, words):
    with refused(*words.split()):
        loaded(text)


def turned(scenario, *words):
    spec = resolve_arm(scenario, scenario.arms["now"])
    return [
        apply_overrides(scenario, spec, point, Path())[1].auction
        for point in parse_points(words, scenario, "now")
    ]


def test_a_what_if_turns_the_parameter_and_the_rule(loaded):
    scenario = loaded(FLOOR + "arms: {now: {}}\n")
    asked = turned(scenario, "auction.soft_floor=0.2,0.4")
    assert [auction.parameters for auction in asked] == [{"soft_floor": 0.2}, {"soft_floor": 0.4}]
    assert turned(scenario, "auction.pricing=gsp")[0].parameters == {}
    plain = loaded(PLAIN + "arms: {now: {}}\n")
    (both,) = turned(plain, "auction.pricing=soft_floor", "auction.soft_floor=0.3")
    assert both.pricing == "soft_floor" and both.parameters == {"soft_floor": 0.3}
    with refused("gsp", "only with soft_floor", kind=Refused):
        turned(plain, "auction.soft_floor=0.3")
    with pytest.raises(Refused, match="pricing soft_floor needs soft_floor"):
        turned(plain, "auction.pricing=soft_floor")


def test_a_rule_that_does_not_look_at_the_next_score_leaves_the_increment_behind(loaded):
    scenario = loaded(
        PLAIN + "auction: {increment: 0.01}\narms: {now: {}, own: {auction: {pricing: first}}}\n"
    )
    assert [auction_of(scenario, arm).increment for arm in ("now", "own")] == [0.01, 0.0]
    assert turned(scenario, "auction.pricing=vcg")[0].increment == 0.0
    assert turned(scenario, "auction.pricing=gsp")[0].increment == 0.01
    with refused("first", "increment 0", kind=Refused):
        turned(scenario, "auction.pricing=first", "auction.increment=0.02")


def test_a_registered_rule_is_named_and_held_to_what_it_needs(loaded, monkeypatch):
    monkeypatch.setitem(RULES, "own", Pricing(lambda slot: slot.externality, needs_squashing_1=True))
    text = PLAIN + "auction: {pricing: own}\narms: {now: {}"
    assert loaded(text + "}\n").auction.pricing == "own"
    with refused("own", 0.5, 1, "gsp"):
        loaded(text + ", flat: {auction: {squashing: 0.5}}}\n")
    noise = "}\noff_policy: {randomise: {squashing: 0.1}}\n"
    with refused("own", 1, "every request"):
        loaded(text + noise)


def test_a_parameter_has_the_upper_end_that_its_rule_declares(monkeypatch):
    monkeypatch.setitem(sections.PARAMETERS, "share", Parameter("share of the bid", high=1.0))
    section = sections.with_rule_parameters(sections.Section)
    assert section(share=1.0).share == 1.0 and section(soft_floor=7.0).soft_floor == 7.0
    with refused("share", "equal to 1", kind=ValueError):
        section(share=1.5)
