"""The schema, its defaults, and arms merged into the deployed cascade."""

import pytest
from pydantic import ValidationError

from cascade_sim.scenario.schema import AUTOMATIC_ARMS, Scenario, resolved_arms
from cascade_sim.scenario.sections import Section

SMALLEST = {"name": "small", "arms": {"now": {}}}


def scenario(**sections):
    return Scenario.model_validate({**SMALLEST, **sections})


def test_a_name_and_an_arm_are_enough_and_everything_else_has_a_default():
    built = scenario()
    assert (built.world.ads, built.cascade.retrieval.size, built.cascade.pre_ranking.size) == (
        20000,
        500,
        100,
    )
    assert built.world.slot_effects == (1.0, 0.85, 0.74, 0.66, 0.6)
    assert list(built.world.groups) == ["G1", "G2", "G3", "G4"]


@pytest.mark.parametrize("absent", ["name", "arms"])
def test_a_scenario_without_name_or_arms_is_no_scenario(absent):
    with pytest.raises(ValidationError, match="Field required"):
        Scenario.model_validate({key: value for key, value in SMALLEST.items() if key != absent})


def test_the_first_arm_is_the_baseline_unless_one_is_named():
    arms = {"a": {}, "b": {}}
    assert scenario(arms=arms).report.baseline == "a"
    assert scenario(arms=arms, report={"baseline": "b"}).report.baseline == "b"


def test_a_model_without_features_sees_every_group_but_neither_bid_nor_pair_feature():
    built = scenario(world={"groups": {"A": {}, "B": {}}}, models={"m": {}, "n": {"features": ["A"]}})
    assert built.models["m"].features == ("user", "context", "quality", "tier", "mismatch", "A", "B")
    assert built.models["n"].features == ("A",)


@pytest.mark.parametrize(
    "sections",
    [
        {"seed": "3"},
        {"seed": True},
        {"seed": 1.0},
        {"world": {"base_logit": "-6"}},
        {"world": {"base_logit": False}},
        {"world": {"base_logit": float("nan")}},
        {"world": {"base_logit": float("-inf")}},
        {"models": {"m": {"options": {"x": float("inf")}}}},
        {"world": {"slot_effects": "1.0"}},
        {"world": {"slot_effects": []}},
        {"arms": {"now": {"slots": None}}},
    ],
)
def test_text_truth_values_and_infinities_are_not_numbers(sections):
    with pytest.raises(ValidationError):
        scenario(**sections)


def test_a_whole_number_may_stand_for_a_fraction():
    logit = scenario(world={"base_logit": -5}).world.base_logit
    assert (logit, type(logit)) == (-5.0, float)


def test_a_scenario_cannot_be_changed_after_reading():
    with pytest.raises(ValidationError, match="frozen"):
        scenario().seed = 2


def test_an_arm_changes_what_it_names_and_inherits_the_rest():
    built = scenario(
        cascade={"slots": 4, "pre_ranking": {"size": 90}},
        auction={"reserve_cpc": 0.1},
        arms={
            "now": {},
            "new": {
                "retrieval": {"size": 300},
                "pre_ranking": {"model": "ltr"},
                "ranking": {"bid": "init"},
                "slots": 3,
                "auction": {"pricing": "first"},
                "bidding": {"range": 0.0},
            },
        },
    )
    now, new = resolved_arms(built)["now"], resolved_arms(built)["new"]
    assert (now.retrieval_size, now.slots, now.auction.pricing, now.bidding.range) == (500, 4, "gsp", 0.4)
    assert (new.retrieval_size, new.slots, new.auction.pricing, new.bidding.range) == (300, 3, "first", 0.0)
    assert (now.pre_ranking.model, now.pre_ranking.size) == ("logloss", 90)
    assert (new.pre_ranking.model, new.pre_ranking.size) == ("ltr", 90)
    assert (new.ranking.model, new.ranking.bid) == ("rank", "init")
    assert new.auction.reserve_cpc == now.auction.reserve_cpc == 0.1


def test_automatic_arms_are_the_baseline_with_another_pre_ranking():
    built = scenario(
        fusions={"cautious": {"bid": 0.5}},
        arms={
            "other": {"slots": 2},
            "base": {
                "slots": 3,
                "pre_ranking": {"model": "ltr", "size": 40, "fusion": "cautious"},
                "ranking": {"fusion": "cautious"},
            },
        },
        report={"baseline": "base"},
    )
    arms = resolved_arms(built)
    assert list(arms) == ["other", "base", *AUTOMATIC_ARMS]
    seats = {name: arms[name].pre_ranking for name in AUTOMATIC_ARMS}
    assert {name: (seat.model, seat.bid, seat.fusion) for name, seat in seats.items()} == {
        "random": ("random", "none", "ecpm"),
        "bid_only": ("constant", "init", "ecpm"),
        "pctr_only": ("ltr", "none", "ecpm"),
        "ranker": ("rank", "opt", "cautious"),
    }
    assert {seat.size for seat in seats.values()} == {40}
    for name in AUTOMATIC_ARMS:
        assert arms[name].model_copy(update={"pre_ranking": arms["base"].pre_ranking}) == arms["base"]


def test_bid_only_needs_a_bid_even_if_the_baseline_uses_none():
    arms = resolved_arms(scenario(arms={"now": {"pre_ranking": {"bid": "none"}}}))
    assert arms["bid_only"].pre_ranking.bid == "init"


def test_every_key_is_described_in_a_sentence():
    def fields(section):
        for name, field in section.model_fields.items():
            yield f"{section.__name__}.{name}", field.description

    def sections(base):
        for section in base.__subclasses__():
            yield section
            yield from sections(section)

    described = {key: text for s in sections(Section) if s.__name__ != "ArmSpec" for key, text in fields(s)}
    assert len(described) > 80
    assert [key for key, text in described.items() if not (text or "").endswith(".")] == []
