"""Models of conversions in a scenario: what is refused, and that one without them stays what it was."""

from pathlib import Path

import pytest

from answers.told import tells
from cascade_sim.scenario.checks import check_scenario
from cascade_sim.scenario.data import scenario_data
from cascade_sim.scenario.messages import path_text
from cascade_sim.scenario.schema import Scenario, resolved_arms

LATE = {"conversion": {"delay": {}}}
PCVR = {"target": "conversion", "features": ["conversion"]}
STUDENT = {**PCVR, "recipe": "distill", "teacher": "pcvr"}


def paths(value, path=()):
    yield path
    for step, inner in value.items() if isinstance(value, dict) else ():
        yield from paths(inner, (*path, step))


def scenario_of(models=None, **sections):
    models = {"rank": {}, "logloss": {}, "pcvr": PCVR, **(models or {})}
    return {"name": "a", "models": models, "arms": {"now": {}, "new": {}}, **sections}


def problems(models=None, **sections):
    data = scenario_of(models, **sections)
    found = check_scenario(Scenario.model_validate(data), set(paths(data)), Path("."))
    return {path_text(problem.path): problem.text for problem in found}


def arm(**pre_ranking):
    return {"now": {}, "new": {"pre_ranking": pre_ranking}}


@pytest.mark.parametrize(
    "given",
    [
        {"bidding": {"pcvr": "pcvr"}},
        {"arms": {"now": {}, "new": {"bidding": {"pcvr": "pcvr"}}}},
        {"models": {"pre": STUDENT}, "arms": arm(bid="opt", pcvr="pre")},
        {"bidding": {"pcvr": "pcvr"}, "arms": arm(bid="opt", pcvr="known")},
        {"models": {"pcvr": {**PCVR, "delay_correction": "elapsed", "delay_window": 60.0}}, "world": LATE},
    ],
)
def test_sound_uses_have_no_problems(given):
    assert problems(**given) == {}


@pytest.mark.parametrize(
    ("given", "key", "words"),
    [
        ({"bidding": {"pcvr": "rank"}}, "bidding.pcvr", "predicts clicks"),
        ({"bidding": {"pcvr": "pcvrr"}}, "bidding.pcvr", "'pcvrr' 'pcvr'?"),
        ({"arms": arm(bid="opt", pcvr="rank")}, "arms.new.pre_ranking.pcvr", "predicts clicks"),
        ({"arms": arm(pcvr="pcvr")}, "arms.new.pre_ranking.pcvr", "bid init"),
        ({"arms": arm(model="pcvr")}, "arms.new.pre_ranking.model", "predicts conversions"),
        ({"cascade": {"ranking": {"model": "pcvr"}}}, "cascade.ranking.model", "predicts conversions"),
        ({"models": {"pre": {**STUDENT, "teacher": "rank"}}}, "models.pre.teacher", "make them agree"),
        (
            {"models": {"pre": {"recipe": "distill", "teacher": "pcvr"}}},
            "models.pre.teacher",
            "make them agree",
        ),
        ({"models": {"pre": {"recipe": "ltr", "teacher": "pcvr"}}}, "models.pre.teacher", "needs a ranker"),
        ({"models": {"pre": {**STUDENT, "recipe": "ltr"}}}, "models.pre.target", "order fused"),
        ({"models": {"pcvr": {**PCVR, "features": ["conversoin"]}}}, "models.pcvr.features[0]", "conversion"),
        ({"models": {"pcvr": {**PCVR, "objective": "ranknet"}}}, "models.pcvr.objective", "models of clicks"),
        ({"models": {"known": {}}}, "models.known", "is built in"),
        (
            {"models": {"rank": {"delay_correction": "wait"}}},
            "models.rank.delay_correction",
            "target conversion",
        ),
        (
            {"models": {"pcvr": {**PCVR, "delay_correction": "wait"}}},
            "models.pcvr.delay_correction",
            "at once",
        ),
        (
            {"models": {"pcvr": {**PCVR, "delay_correction": "wait"}}, "world": LATE},
            "models.pcvr.delay_correction",
            "needs a delay_window",
        ),
        (
            {"models": {"pcvr": {**PCVR, "delay_window": 9.0}}, "world": LATE},
            "models.pcvr.delay_window",
            "without a delay_correction",
        ),
        (  # 30,000 + 150,000 requests at 50 a second
            {"models": {"pcvr": {**PCVR, "delay_correction": "wait", "delay_window": 3600.0}}, "world": LATE},
            "models.pcvr.delay_window",
            "last about 3600 s",
        ),
        (
            {"world": {"conversion": {"delay": {"means": [5.0], "weights": [0.5, 0.5]}}}},
            "world.conversion.delay.weights",
            "2 weights for 1 means",
        ),
        (
            {"world": {"conversion": {"delay": {"means": [5.0], "weights": [0.5]}}}},
            "world.conversion.delay.weights",
            "must sum to 1",
        ),
    ],
)
def test_what_does_not_fit_is_refused_at_its_key(given, key, words):
    found = problems(**given)
    assert key in found and tells(found[key], *words.split()), found


def test_a_scenario_that_uses_none_of_it_is_written_as_before():
    data = scenario_data(Scenario.model_validate({"name": "a", "models": {"rank": {}}, "arms": {"now": {}}}))
    assert "pcvr" not in data["bidding"] and "pcvr" not in data["cascade"]["pre_ranking"]
    assert "delay" not in data["world"]["conversion"]
    assert not {"target", "delay_correction", "delay_window"} & set(data["models"]["rank"])


def test_a_scenario_that_uses_it_reads_back_equal():
    data = scenario_of(
        {"pre": STUDENT}, bidding={"pcvr": "pcvr"}, arms=arm(bid="opt", pcvr="pre"), world=LATE
    )
    scenario = Scenario.model_validate(data)
    assert Scenario.model_validate(scenario_data(scenario)) == scenario


def test_a_stage_takes_its_own_pcvr_and_else_that_of_the_bid_rule():
    data = scenario_of({"pre": STUDENT}, bidding={"pcvr": "pcvr"}, arms=arm(bid="opt", pcvr="pre"))
    arms = resolved_arms(Scenario.model_validate(data))
    assert arms["new"].pcvr_of(arms["new"].pre_ranking) == "pre" and arms["now"].pcvr_models == ("pcvr",)
    assert arms["new"].pcvr_models == ("pcvr", "pre")
    learned = {**data, "report": {"baseline": "new"}}
    ranker = resolved_arms(Scenario.model_validate(learned))["ranker"]
    assert ranker.pcvr_of(ranker.pre_ranking) == "pcvr"  # ranking's bid comes with ranking's pCVR


def test_a_model_of_conversions_sees_conversion_features_unless_told_otherwise():
    models = Scenario.model_validate(scenario_of({"bare": {"target": "conversion"}})).models
    assert "conversion" in models["bare"].features and "conversion" not in models["rank"].features
