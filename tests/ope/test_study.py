"""The section of metrics.json, and that estimates never see the truth."""

import json

import numpy as np
import pytest

from answers.told import refused
from cascade_sim.foundation.progress import Progress
from cascade_sim.ope.study import (
    add_true_slopes,
    add_truth,
    answers,
    read_logs,
    run_off_policy,
    slope_answers,
    with_references,
)
from cascade_sim.scenario.targets import CURRENT, parse_target
from cascade_sim.storage.folder import json_text
from cascade_sim.study.results import combine_seeds
from cascade_sim.study.simulation import Simulation
from worlds.randomised_logs import Unasked, logged, small_scenario


def asked(scenario, logs):
    return with_references(
        [parse_target(*one) for one in scenario.off_policy.targets.items()], logs, "launch"
    )


@pytest.fixture(scope="module")
def found():
    """Everything an estimate needs, with a truth that must not be asked."""
    world = logged()
    blind = Simulation(small_scenario(), world.sim.seed)
    blind.scorers, blind.environment._truth = world.sim.scorers, Unasked()
    logs = read_logs(blind, world.folder)
    targets = asked(world.scenario, logs)
    made = answers(blind, world.arm, logs, targets)
    slopes = slope_answers(blind, world.arm, logs.parameters)
    return logs, targets, made, slopes


def test_estimates_and_slopes_are_made_without_the_truth(found):
    _, _, made, slopes = found
    assert list(made)[0] == CURRENT and "pages as logged" in made and len(made) == 10
    assert set(slopes) == {"reserve_cpc", "squashing"}
    for one in made.values():
        assert set(one["rewards"]) == {"revenue", "clicks"}
        assert "truth" not in one["rewards"]["revenue"]


def test_the_truth_does_ask(found):
    world = logged()
    logs, targets, made, _ = found
    blind = Simulation(small_scenario(), world.sim.seed)
    blind.scorers, blind.environment._truth = world.sim.scorers, Unasked()
    with refused("the truth", kind=AssertionError):
        add_truth(made, blind, world.arm, logs, targets)


def test_answers_are_held_against_the_truth(found):
    world = logged()
    logs, targets, made, slopes = found
    add_truth(made, world.sim, world.arm, logs, targets)
    add_true_slopes(slopes, world.sim, world.arm, logs.parameters)
    for one in made.values():
        for answer in one["rewards"].values():
            truth = answer["truth"]["value"]
            for row in answer["estimators"].values():
                value, low, high = (row["estimate"][end] for end in ("value", "low", "high"))
                if row["no_estimate"]:
                    assert (value, low, row["covers"], row["error"]["value"]) == (None,) * 4
                else:
                    assert row["covers"] == float(low <= truth <= high)
                    assert row["error"]["value"] == pytest.approx(value - truth)
    assert made[CURRENT]["rewards"]["revenue"]["true_lift"]["value"] == 0
    cheaper, current = (made[name]["rewards"]["clicks"] for name in ("cheaper", CURRENT))
    ratio = cheaper["truth"]["value"] / current["truth"]["value"]
    assert cheaper["true_lift"]["value"] == pytest.approx(ratio - 1)
    far = made["far-cheaper"]["rewards"]["revenue"]["estimators"]
    assert all(row["no_estimate"] for name, row in far.items() if name != "direct_method")
    assert slopes["reserve_cpc"]["clicks"]["truth"]["value"] < 0


@pytest.mark.parametrize(
    ("without", "target", "log"),
    [
        ("off_policy.slates=null", "{a: [auction.squashing=0.95]}", "parameters"),
        ("off_policy.randomise=null", "{a: [slates.temperature=0.6]}", "slates"),
    ],
)
def test_either_log_may_be_absent(tmp_path, without, target, log):
    world = logged()
    few = (
        "off_policy.requests=100",
        "off_policy.slates.requests=100",
        without,
        f"off_policy.targets={target}",
    )
    sim = Simulation(small_scenario(*few), 1)
    sim.scorers = world.sim.scorers
    with Progress(quiet=True) as progress:
        section = run_off_policy(sim, world.arm, tmp_path, progress)
    assert {one["log"] for one in section["targets"].values()} == {log}
    assert section["order"] == list(section["targets"]) and section["order"][-1] == "a"
    assert ("parameters" in section) == bool(section["slopes"]) == (log == "parameters")


def test_worlds_combine_into_means_and_shares(tmp_path):
    scenario = small_scenario("off_policy.requests=600", "off_policy.slates.requests=300",
                              "off_policy.targets={cheaper: [auction.reserve_cpc=0.6]}")  # fmt: skip
    world = logged()
    studies = []
    for seed in (1, 2):
        sim = Simulation(scenario, seed)
        sim.scorers = world.sim.scorers
        with Progress(quiet=True) as progress:
            section = run_off_policy(sim, world.arm, tmp_path / str(seed), progress)
        studies.append({"seed": seed, "off_policy": json.loads(json_text(section))})
    combined = combine_seeds(studies)["off_policy"]
    rows = [one["off_policy"]["targets"]["cheaper"]["rewards"]["revenue"] for one in studies]
    made = combined["targets"]["cheaper"]["rewards"]["revenue"]
    assert made["truth"]["value"] == pytest.approx(np.mean([row["truth"]["value"] for row in rows]))
    shares = [row["estimators"]["local_dr"]["covers"] for row in rows]
    assert made["estimators"]["local_dr"]["covers"] == pytest.approx(np.mean(shares))
