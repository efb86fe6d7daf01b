from pathlib import Path

import pytest
from pydantic import ValidationError

from answers.told import tells
from cascade_sim.foundation.errors import ScenarioError
from cascade_sim.scenario.checks import check_scenario
from cascade_sim.scenario.file import dump_scenario, load_scenario, scenario_data
from cascade_sim.scenario.market import Compute, Pool, Sizes
from cascade_sim.scenario.messages import path_text
from cascade_sim.scenario.schema import Scenario, resolved_arms

BASE = {
    "name": "a",
    "models": {"rank": {}, "logloss": {}},
    "cascade": {"retrieval": {"size": 300}, "pre_ranking": {"size": 50}, "slots": 5},
}
SOUND = {"choices": [25, 50, 100, 200], "mean": 80.0}


def paths(value, path=()):
    yield path
    for step, inner in value.items() if isinstance(value, dict) else ():
        yield from paths(inner, (*path, step))


def problems(**arm):
    data = {**BASE, "arms": {"now": {}, "new": arm}}
    found = check_scenario(Scenario.model_validate(data), set(paths(data)), Path("."))
    return {path_text(problem.path): problem.text for problem in found}


def sizes(**changes):
    return {"pre_ranking": {"sizes": {**SOUND, **changes}}}


def test_every_part_of_compute_has_a_default():
    compute = Compute()
    assert compute.deadline == 100.0 and compute.stages.ranking.servers == 1
    alone = sum(
        pool.per_batch_ms + n * pool.per_candidate_us / 1e3
        for pool, n in (
            (compute.stages.retrieval, 500),
            (compute.stages.pre_ranking, 500),
            (compute.stages.ranking, 100),
        )
    )
    assert 20 < alone < compute.deadline  # a request alone is in time


@pytest.mark.parametrize(
    "pool", [{"servers": 0}, {"batch": 0}, {"per_batch_ms": -1.0}, {"per_candidate_us": -1.0}, {"cores": 2}]
)
def test_impossible_pools_are_refused(pool):
    with pytest.raises(ValidationError):
        Pool.model_validate(pool)


def test_sound_sizes_have_no_problems():
    assert problems(**sizes()) == {}


@pytest.mark.parametrize(
    ("arm", "key", "words"),
    [
        (sizes(mean=20.0), "sizes.mean", "20 25 200"),
        (sizes(mean=201.0), "sizes.mean", "201 25 200"),
        (sizes(choices=[50, 25, 200]), "sizes.choices", "[50"),
        (sizes(choices=[50, 50, 100]), "sizes.choices", "rise"),
        (sizes(choices=[5, 200]), "sizes.choices", "5 slots"),
        (sizes(choices=[25, 400]), "sizes.choices", "400 300"),
        ({"pre_ranking": {"size": 60, "sizes": SOUND}}, "size", "sizes"),
    ],
)  # fmt: skip
def test_sizes_that_contradict_are_told(arm, key, words):
    found = problems(**arm)
    assert list(found) == [f"arms.new.pre_ranking.{key}"] and tells(
        next(iter(found.values())), *words.split()
    )


def test_a_smaller_retrieval_is_blamed_where_the_arm_brings_it():
    found = problems(retrieval={"size": 150}, **sizes(choices=[25, 100, 200]))
    assert list(found) == ["arms.new.pre_ranking.sizes.choices"]
    assert tells(next(iter(found.values())), 200, 150)


def test_one_choice_is_no_choice():
    with pytest.raises(ValidationError):
        Sizes.model_validate({"choices": [50], "mean": 50.0})


def test_the_size_of_an_arm_with_sizes_is_the_largest_of_them():
    arms = resolved_arms(Scenario.model_validate({**BASE, "arms": {"now": {}, "new": sizes()}}))
    assert arms["new"].pre_ranking.size == 200 and arms["new"].sizes == Sizes(
        choices=(25, 50, 100, 200), mean=80
    )
    assert arms["now"].pre_ranking.size == 50 and arms["now"].sizes is None


def test_the_baseline_has_one_size():
    data = {**BASE, "arms": {"new": sizes(), "now": {}}}
    (found,) = check_scenario(Scenario.model_validate(data), set(paths(data)), Path("."))
    assert path_text(found.path) == "report.baseline" and tells(found.text, "'new'", "sizes")


def test_sizes_survive_being_written_and_read(tmp_path):
    scenario = Scenario.model_validate({**BASE, "arms": {"now": {}, "new": sizes()}})
    file = tmp_path / "a.yaml"
    file.write_text(dump_scenario(scenario))
    assert load_scenario(file) == scenario
    assert scenario_data(scenario)["arms"]["now"] == {}


def test_a_mistake_in_sizes_is_shown_with_its_place(tmp_path):
    file = tmp_path / "a.yaml"
    lines = (
        *("name: a", "cascade: {pre_ranking: {model: truth}, ranking: {model: truth}}", "arms:", "  new:"),
        *("    pre_ranking:", "      sizes: {choices: [25, fifty], maen: 30}"),
    )
    file.write_text("\n".join(lines))
    with pytest.raises(ScenarioError) as error:
        load_scenario(file)
    text = str(error.value)
    assert tells(text, "a.yaml:6:", "arms.new.pre_ranking.sizes.maen", "'mean'?")
    assert "arms.new.pre_ranking.sizes.choices[1]" in text and "an integer from 2" in text
