"""Errors in steps of pre-ranking that are a list, and in pools of stages, point to what is wrong."""

import pytest

from answers.told import tells
from cascade_sim.foundation.errors import ScenarioError
from cascade_sim.scenario.file import load_scenario
from worlds.tiny_market import QUICK

STEPS = """\
name: steps
cascade:
  retrieval: {size: 200}
  pre_ranking:
    - {name: coarse, model: random, size: 150}
    - {name: middle, model: random, sise: 120}
    - model: random
      size: many
  ranking: {model: truth}
phases: {shadow: 0}
arms: {a: {}}
"""


def test_an_error_in_a_step_of_a_list_points_to_the_item(tmp_path):
    file = tmp_path / "steps.yaml"
    file.write_text(STEPS)
    with pytest.raises(ScenarioError) as refused:
        load_scenario(file)
    told = str(refused.value)
    column = STEPS.splitlines()[5].index("sise") + 1
    assert f"{file}:6:{column} cascade.pre_ranking.earlier.middle.sise" in told
    assert f"{file}:8:7 cascade.pre_ranking.size" in told


@pytest.mark.parametrize("text", ["rankin.servers=2", "rankin={servers: 2}"])
def test_a_pool_of_no_stage_by_an_option_is_refused_with_the_option_and_the_stages(text):
    sets = ["market={days: 0.1}", f"market.compute.stages.{text}"]
    with pytest.raises(ScenarioError) as refused:
        load_scenario(QUICK, sets)
    told = str(refused.value)
    assert f"--set market.compute.stages.{text}" in told
    assert tells(told, "'ranking'?", "retrieval, pre_ranking, ranking")
