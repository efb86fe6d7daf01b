"""The section market.training and arms that explore: what is refused, where, and with which advice."""

import pytest

from answers.told import tells
from cascade_sim.foundation.errors import ScenarioError
from cascade_sim.scenario.file import dump_scenario, load_scenario
from cascade_sim.scenario.schema import resolved_arms

TEXT = """name: learning
cascade: {pre_ranking: {model: pre}, ranking: {model: rank}}
models: {rank: {}, pre: {}}
arms: {now: {}, bold: {exploration: 0.1}}
market: {exploration: 0.02, training: {interval: 3600}}
"""


def loaded(folder, *changes):
    path = folder / "scenario.yaml"
    text = TEXT
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path.write_text(text)
    return load_scenario(path)


def refusal(folder, *changes):
    with pytest.raises(ScenarioError) as raised:
        loaded(folder, *changes)
    assert len(raised.value.problems) == 1
    return raised.value.problems[0]


def test_models_learn_from_the_last_deployment_on_unless_told_otherwise(tmp_path):
    training = loaded(tmp_path).market.training
    assert (training.interval, training.window, training.start_from, training.warm_start) == (
        3600.0, None, "study", True
    )  # fmt: skip
    assert loaded(tmp_path, (", training: {interval: 3600}", "")).market.training is None


def test_a_model_by_which_an_arm_retrieves_is_enough_to_train(tmp_path):
    stages = "cascade: {pre_ranking: {model: random}, ranking: {model: truth}}"
    other = (TEXT.splitlines()[1], stages)
    alone = ("now: {}, bold: {exploration: 0.1}", "now: {}")
    assert tells(str(refusal(tmp_path, other, alone)), "market.training", "random", "truth")
    learned = f"{stages[:-1]}, retrieval: {{model: pre}}}}"
    towers = ("rank: {}, pre: {}", "pre: {kind: towers, features: [user, quality, tier, G1]}")
    assert loaded(tmp_path, (other[0], learned), towers).market.training is not None


def test_an_arm_may_explore_more_than_the_market(tmp_path):
    arms = resolved_arms(loaded(tmp_path))
    assert arms["now"].exploration is None and arms["bold"].exploration == 0.1


def test_it_dumps_and_loads_as_it_is(tmp_path):
    scenario = loaded(tmp_path)
    path = tmp_path / "again.yaml"
    path.write_text(dump_scenario(scenario))
    assert load_scenario(path) == scenario


def test_an_arm_cannot_explore_without_a_market(tmp_path):
    problem = refusal(tmp_path, ("market: {exploration: 0.02, training: {interval: 3600}}\n", ""))
    assert tells(problem, "arms.bold.exploration", "market")
    assert problem.startswith(f"{tmp_path / 'scenario.yaml'}:4:")


def test_an_arm_without_models_has_nothing_to_train(tmp_path):
    change = ("bold: {", "bold: {pre_ranking: {model: random}, ranking: {model: truth}, ")
    assert tells(refusal(tmp_path, change), "'bold'", "random", "truth")


def test_one_model_is_enough(tmp_path):
    loaded(tmp_path, ("bold: {", "bold: {ranking: {model: truth}, "))


@pytest.mark.parametrize(
    "text", ["interval: 0", "epochs: 0", "start_from: scratch", "window: -1", "panel: 0", "burn_in: -1"]
)
def test_values_out_of_range_are_refused(tmp_path, text):
    assert "market.training." + text.partition(":")[0] in refusal(tmp_path, ("interval: 3600", text))


@pytest.mark.parametrize("share", ["1.1", "-0.1", ""])
def test_exploration_is_a_share(tmp_path, share):
    assert "arms.bold.exploration" in refusal(tmp_path, ("exploration: 0.1", f"exploration: {share}"))


def test_deployments_to_leave_out_are_written_only_where_they_are_told(tmp_path):
    assert "burn_in" not in dump_scenario(loaded(tmp_path))
    scenario = loaded(tmp_path, ("interval: 3600", "interval: 3600, burn_in: 7"))
    assert scenario.market.training.burn_in == 7 and "burn_in: 7" in dump_scenario(scenario)


def test_more_deployments_left_out_than_there_are_is_refused(tmp_path):
    """A day of 24 deployments: at least one must be left."""
    text = refusal(tmp_path, ("interval: 3600", "interval: 3600, burn_in: 24"))
    assert "market.training.burn_in" in text and "24" in text
    loaded(tmp_path, ("interval: 3600", "interval: 3600, burn_in: 23"))
