"""Keys that contradict each other: which of them is blamed."""

from pathlib import Path

import pytest

from answers.told import tells
from cascade_sim.scenario.checks import check_scenario
from cascade_sim.scenario.messages import path_text
from cascade_sim.scenario.schema import Scenario, World

BASE = {
    "name": "a",
    "models": {"rank": {}, "logloss": {}},
    "cascade": {"pre_ranking": {"size": 50}, "slots": 5},
    "arms": {"now": {}, "new": {}},
}


def paths(value, path=()):
    yield path
    for step, inner in value.items() if isinstance(value, dict) else ():
        yield from paths(inner, (*path, step))


def problems(**sections):
    data = {**BASE, **sections}
    found = check_scenario(Scenario.model_validate(data), set(paths(data)), Path("."))
    return {path_text(problem.path): problem.text for problem in found}


def test_a_sound_scenario_has_no_problems():
    assert problems() == {}


def test_a_conflict_in_the_deployed_cascade_is_told_once_not_for_every_arm():
    assert list(problems(cascade={"pre_ranking": {"size": 5}})) == ["cascade.pre_ranking.size"]


def test_the_key_that_was_written_is_blamed_rather_than_a_default():
    assert list(problems(cascade={"retrieval": {"size": 60}})) == ["cascade.retrieval.size"]
    assert list(problems(world={"ads": 400, "advertisers": 40})) == ["world.ads"]
    assert list(problems(world={"slot_effects": [1.0, 0.5]}, cascade={})) == ["world.slot_effects"]


def test_a_history_needs_ads_that_the_model_sees():
    def blamed(*features):
        models = {"rank": {"features": [*features, "history"]}, "logloss": {}}
        return problems(world={"history": {}}, models=models)

    assert blamed("user", "ad_id") == blamed("G1") == blamed("quality") == {}
    (text,) = blamed("user", "user_id", "context").values()
    assert tells(text, "ad_id")


@pytest.mark.parametrize(
    ("change", "blamed"),
    [
        ({"pre_ranking": {"size": 5}}, "arms.new.pre_ranking.size"),
        ({"retrieval": {"size": 20}}, "arms.new.retrieval.size"),
        ({"retrieval": {"size": 30000}}, "arms.new.retrieval.size"),
        ({"retrieval": {"size": 20}, "pre_ranking": {"size": 30}}, "arms.new.pre_ranking.size"),
        ({"slots": 6}, "arms.new.slots"),
        ({"auction": {"pricing": "vcg", "squashing": 0.5}}, "arms.new.auction.squashing"),
        ({"ranking": {"model": "rnk"}}, "arms.new.ranking.model"),
        ({"ranking": {"fusion": "sum"}}, "arms.new.ranking.fusion"),
    ],
)
def test_a_conflict_that_an_arm_brings_about_is_blamed_on_its_own_key(change, blamed):
    assert list(problems(arms={"now": {}, "new": change})) == [blamed]


def test_an_arm_with_many_slots_needs_a_larger_competitive_set():
    effects = {"slot_effects": [1.0] * 60}
    assert problems(world=effects, arms={"new": {"slots": 49}}) == {}
    found = problems(world=effects, arms={"new": {"slots": 50}})
    assert list(found) == ["arms.new.slots"] and tells(found["arms.new.slots"], 50, 49)


def test_vcg_in_an_arm_meets_the_squashing_of_the_deployed_auction():
    found = problems(auction={"squashing": 0.5}, arms={"now": {}, "new": {"auction": {"pricing": "vcg"}}})
    assert list(found) == ["arms.new.auction.pricing"]
    assert tells(found["arms.new.auction.pricing"], "vcg", 0.5, 1, "gsp")


def test_built_in_seats_need_no_model():
    seats = {"pre_ranking": {"model": "truth"}, "ranking": {"model": "truth"}}
    assert problems(models={}, cascade=seats, arms={"now": {"pre_ranking": {"model": "random"}}}) == {}


def test_a_fusion_is_known_once_it_is_defined():
    arms = {"now": {"pre_ranking": {"fusion": "soft"}}}
    assert problems(arms=arms, fusions={"soft": {"bid": 0.5}}) == {}
    assert "known: ecpm" in problems(arms=arms)["arms.now.pre_ranking.fusion"]


@pytest.mark.parametrize(
    ("key", "value", "recipe"),
    [
        ("data", ["log"], "distill"),
        ("sample", {}, "logloss"),
        ("chunks", 5, "distill"),
        ("teacher", "rank", "logloss"),
    ],
)
def test_a_key_that_the_recipe_does_not_use_is_refused(key, value, recipe):
    teacher = {} if recipe == "logloss" else {"teacher": "rank"}
    spec = {"recipe": recipe, **teacher, key: value}
    found = problems(models={**BASE["models"], "m": spec})
    assert list(found) == [f"models.m.{key}"]
    assert tells(found[f"models.m.{key}"], recipe)


def test_a_model_may_learn_from_either_phase_if_one_has_requests():
    assert problems(phases={"cold_start": 0}) == {}
    assert set(problems(phases={"cold_start": 0, "log": 0})) == {"models.rank.data", "models.logloss.data"}


@pytest.mark.parametrize(
    ("world", "key", "words"),
    [
        ({"intent": {"group": "G9"}}, "world.intent.group", "G9"),
        ({"intent": {"group": "G2", "dims": 3}}, "world.intent.dims", "G2 3 2"),
        ({"seasonality": {"groups": {"H1": 0.5}}}, "world.seasonality.groups.H1", "H1"),
        ({"bids": {"tail": 2.0}}, "world.bids.tail", "2 0.35 2.28"),
        ({"bids": {"tail": 2.0, "sigma": 0.0}}, "world.bids.tail", "sigma"),
        ({"churn": {"available_share": 0.02}}, "world.churn.available_share", "400 500"),
    ],
)
def test_options_of_a_world_that_do_not_fit_it_are_named(world, key, words):
    (found,) = problems(world=world).items()
    assert found[0] == key and tells(found[1], *words.split())


def test_options_of_a_world_that_fit_it_are_no_problem():
    world = {
        "intent": {"group": "G2", "dims": 2, "common_shift_sd": 0.5},
        "seasonality": {"groups": {"G1": 0.5}},
        "bids": {"tail": 2.3},
        "churn": {"available_share": 0.03},
    }
    assert problems(world=world) == {}


def test_a_tail_of_budgets_needs_their_spread():
    found = problems(market={"budgets": {"tail": 1.1, "sigma": 0.5}})
    assert list(found) == ["market.budgets.tail"] and "1.6" in found["market.budgets.tail"]


def test_a_scenario_without_options_of_a_world_is_written_as_before_there_were_any():
    plain = Scenario.model_validate({**BASE, "market": {"budgets": {}}}).model_dump(mode="json")
    assert not {"intent", "id_effects", "drift", "seasonality", "churn", "history"} & set(plain["world"])
    assert "tail" not in plain["world"]["bids"] and "tail" not in plain["market"]["budgets"]
    rich = Scenario.model_validate({**BASE, "world": {"id_effects": {}, "bids": {"tail": 5.0}}})
    written = rich.model_dump(mode="json")
    assert written["world"]["id_effects"]["weight"] == 0.0 and written["world"]["bids"]["tail"] == 5.0
    assert World.model_validate(written["world"]) == rich.world
