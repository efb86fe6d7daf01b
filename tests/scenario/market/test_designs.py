"""What a scenario may say about experiments on its market, and what it is told when it may not."""

import json

import pytest

from answers.told import refused
from cascade_sim.foundation.errors import ScenarioError
from cascade_sim.scenario.file import dump_scenario, load_scenario, scenario_data, scenario_hash
from cascade_sim.scenario.schema import control_arm
from worlds.design_market import ARMS, DAYS, design_scenario
from worlds.timed_market import MARKET, WORLD, timed_scenario


def load(tmp_path, designs, market=None, arms=None):
    data = {**WORLD, "arms": arms or ARMS, "market": {**MARKET, **DAYS, **(market or {}), "designs": designs}}
    file = tmp_path / "trial.yaml"
    file.write_text(json.dumps(data))
    return load_scenario(file)


def test_the_control_is_the_baseline_unless_another_arm_is_named(tmp_path):
    assert control_arm(load(tmp_path, {"treatment": "better"})) == "now"
    assert control_arm(load(tmp_path, {"treatment": "better", "control": "again"})) == "again"


@pytest.mark.parametrize(
    ("designs", "market", "text"),
    [
        ({"treatment": "bettr"}, {}, "'bettr'.*did you mean 'better'"),
        ({"treatment": "now"}, {}, "'now' is the control"),
        ({"treatment": "better", "control": "better"}, {}, "'better' is the control"),
        ({"treatment": "better", "kinds": ["user", "user"]}, {}, "each design runs once"),
        ({"treatment": "better", "kinds": ["city"]}, {}, "kinds.*city"),
        ({"treatment": "better", "switchback": 7000}, {}, "7000 does not divide a day"),
        ({"treatment": "better", "washout": 7200}, {}, "7200 leaves nothing of slots of 7200"),
        ({"treatment": "better", "pre_days": 2}, {}, "2 leave no day of 2 for the trial"),
        ({"treatment": "better", "share": 1.0}, {}, "share"),
        ({"treatment": "better", "tretment": "now"}, {}, "tretment"),
        ({"treatment": "better"}, {"compute": {}}, "arms on trial cannot share servers"),
    ],
)
def test_mistakes_are_named_before_any_work(tmp_path, designs, market, text):
    with pytest.raises(ScenarioError, match=f"(?s)market.*{text}"):
        load(tmp_path, designs, market)


def test_models_that_learn_cannot_be_on_trial_yet(tmp_path):
    with refused("models that learn", kind=ScenarioError):
        load(tmp_path, {"treatment": "better"}, {"training": {}})


def test_no_arm_may_be_called_like_a_design(tmp_path):
    arms = {**ARMS, "design-request": {}}
    with refused("arms.design-request", kind=ScenarioError):
        load(tmp_path, {"treatment": "better"}, arms=arms)


def test_a_market_without_designs_is_written_and_hashed_as_before_there_were_any():
    scenario = timed_scenario()
    assert "designs" not in scenario_data(scenario)["market"]
    assert scenario_hash(scenario) == "36e68b65d6d50127"


def test_designs_are_written_whole_and_load_back(tmp_path):
    scenario = design_scenario(pre_days=0, washout=60.0)
    file = tmp_path / "again.yaml"
    file.write_text(dump_scenario(scenario))
    assert load_scenario(file).market.designs == scenario.market.designs
    assert "washout: 60" in dump_scenario(scenario)
