"""A sweep over alpha through the phases of a study."""

import json

import pytest

from cascade_sim.analysis.report.sections.pareto import pareto_section
from cascade_sim.scenario.models import ModelSpec
from cascade_sim.study.objectives import MEASURES, family_of, setting_of
from cascade_sim.study.results import combine_seeds
from worlds.tiny_market import run_phases, tiny_scenario

NET = "kind: coaction, features: [user, context, quality, tier, G1, G4], hidden: 16, dims: 6, epochs: 1"
RANKERS = {
    "plain": (),
    "rcr-a": ("objective: rcr", "alpha: 0.1"),
    "rcr-b": ("objective: rcr",),
    "csm": ("objective: calibrated_softmax", "y0: 0.5"),
}
SWEPT = ["plain", "rcr-a", "rcr-b", "csm"]


def overrides(names):
    models = [f"models.{name}={{{', '.join((NET, *RANKERS[name]))}}}" for name in names]
    arms = [f"arms.{name}={{ranking: {{model: {name}}}}}" for name in names]
    return [*models, *arms]


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    folders = (tmp_path_factory.mktemp("sweep"), tmp_path_factory.mktemp("cache"))
    again = "arms.rcr-again={ranking: {model: rcr-a}, pre_ranking: {size: 10}}"
    return run_phases(tiny_scenario(*overrides(RANKERS), again), *folders)


def test_a_setting_is_the_one_given_or_the_objectives_own():
    assert setting_of(ModelSpec(objective="rcr", alpha=0.9)) == {"option": "alpha", "setting": 0.9}
    assert setting_of(ModelSpec(objective="jrc")) == {"option": "alpha", "setting": 0.5}
    assert setting_of(ModelSpec(objective="calibrated_softmax")) == {"option": "y0", "setting": 1.0}
    assert setting_of(ModelSpec()) == {"option": None, "setting": None}
    assert family_of(ModelSpec(objective="rcr", calibrator="platt")) == "rcr+platt"
    assert family_of(ModelSpec(objective="rcr", normalisation="mean")) == "rcr"  # its own
    divided = ModelSpec(objective="multi_objective", normalisation="mean", alpha=0.9, calibrator="platt")
    assert family_of(divided) == "multi_objective-mean+platt"
    assert setting_of(divided) == {"option": "alpha", "setting": 0.9}
    pairs = ModelSpec(objective="multi_objective", ranking="ranknet", normalisation="mean")
    assert family_of(pairs) == "multi_objective-ranknet-mean" and setting_of(pairs)["option"] == "alpha"
    joint = ModelSpec(objective="sbcr", calibrator="piecewise_linear", fit="joint")
    assert family_of(joint) == "sbcr+piecewise_linear-joint"


def test_every_ranker_is_a_point_once_but_the_one_whose_pages_are_looked_at(swept):
    points = swept.metrics["objectives"]["sweep"]["points"]
    assert list(points) == SWEPT  # neither "rank" of the baseline, nor rcr-a a second time
    assert points["rcr-a"] == {
        "model": "rcr-a", "objective": "rcr", "family": "rcr", "option": "alpha", "setting": 0.1,
    }  # fmt: skip
    assert points["rcr-b"]["setting"] == 0.5


def test_gaps_are_differences_of_the_measures_in_the_file(swept):
    models, gaps = swept.metrics["models"], swept.metrics["objectives"]["sweep"]["gaps"]
    assert [(one, other) for one in gaps for other in gaps[one]] == [
        (one, other) for i, one in enumerate(SWEPT) for other in SWEPT[i + 1 :]
    ]
    for measure in MEASURES:
        a, b = (models[name]["win_set"][measure] for name in ("plain", "csm"))
        found = gaps["plain"]["csm"][measure]
        assert found["value"] == pytest.approx(a["value"] - b["value"], abs=1e-12)
        assert found["low"] < found["high"]
    apart = models["plain"]["win_set"]["logloss"], models["rcr-b"]["win_set"]["logloss"]
    paired = gaps["plain"]["rcr-b"]["logloss"]
    assert paired["high"] - paired["low"] < min(entry["high"] - entry["low"] for entry in apart)


def test_a_family_plays_every_point_of_the_others(swept):
    wins = swept.metrics["objectives"]["sweep"]["wins"]
    models = swept.metrics["models"]
    order, scale = ({n: models[n]["win_set"][m]["value"] for n in SWEPT} for m in ("gauc", "logloss"))
    won = sum(order[a] >= order["csm"] and scale[a] <= scale["csm"] for a in ("rcr-a", "rcr-b"))
    assert wins["rcr"]["calibrated_softmax"]["games"] == 2 * 1
    assert wins["rcr"]["calibrated_softmax"]["won"] == wins["calibrated_softmax"]["rcr"]["lost"] == won


def test_worlds_combine_to_intervals_of_the_paired_gap(swept):
    """Values 0.1 and 0.3: mean 0.2, and 95 % t with one degree of freedom, 12.706 · 0.1."""
    worlds = [json.loads(json.dumps(swept.metrics)) for _ in range(2)]
    for seed, (world, value) in enumerate(zip(worlds, (0.1, 0.3), strict=True)):
        world["seed"] = seed
        world["objectives"]["sweep"]["gaps"]["plain"]["csm"]["gauc"]["value"] = value
        world["objectives"]["sweep"]["wins"]["rcr"]["pointwise"]["won"] = seed
    combined = combine_seeds(worlds)
    sweep = combined["objectives"]["sweep"]
    gap = sweep["gaps"]["plain"]["csm"]["gauc"]
    assert gap["value"] == pytest.approx(0.2) and gap["high"] == pytest.approx(0.2 + 12.706 * 0.1, abs=1e-3)
    assert sweep["points"] == swept.metrics["objectives"]["sweep"]["points"]
    assert sweep["wins"]["rcr"]["pointwise"]["won"] == 0.5
    assert pareto_section(combined) is not None


@pytest.mark.drill
def test_objectives_with_one_setting_each_are_no_sweep(tmp_path):
    names = ("plain", "rcr-a", "csm")
    found = run_phases(
        tiny_scenario(*overrides(names), "phases.log=1000"), tmp_path / "run", tmp_path / "cache"
    )
    assert set(found.metrics["objectives"]) == {"arms", "reliability"}  # what it was before there were sweeps
