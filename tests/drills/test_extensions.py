"""What a new objective or recipe takes: itself and one line of registration, here made in the test.

A new loss: see the end of tests/models/losses/test_properties.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from answers.told import refused
from cascade_sim.cascade.links import MappedScorer
from cascade_sim.models import losses
from cascade_sim.models.examination import slot_log_share
from cascade_sim.models.objectives import OBJECTIVES, Objective, Option
from cascade_sim.models.recipes import RECIPES, Recipe
from worlds.learned import learn
from worlds.learning_market import learning_scenario, learning_sim, live_and_learn
from worlds.tiny_market import make_block, run_phases, tiny_scenario


@dataclass(frozen=True)
class Cauchit(Objective):
    """Pairs and log loss of p = 1/2 + arctan(s)/π, with y0 as the weight of the pairs."""

    y0: float = 0.1
    name = "cauchit"
    link = "cauchit"
    tasks = ("binary",)
    slot_maps = (slot_log_share,)
    options = {"y0": Option(0.1, 0.0, 0.5)}

    def loss(self, outputs, labels, lists, *, dumped=None):
        p = self.predict(outputs)
        point = -(labels * torch.log(p) + (1 - labels) * torch.log1p(-p)).mean()
        return point + self.y0 * losses.ranknet(outputs[:, 0], labels, lists)

    def predict(self, outputs):
        return 0.5 + torch.atan(self.score(outputs)) / math.pi

    def probability(self, score):
        return 0.5 + np.arctan(score.astype(np.float64)) / np.pi

    def start_score(self, rate):
        return math.tan(math.pi * (rate - 0.5))


@pytest.fixture
def cauchit(monkeypatch):
    monkeypatch.setitem(OBJECTIVES, Cauchit.name, Cauchit)


def test_an_objective_is_one_class(cauchit, tmp_path):
    """It is named in a scenario with its option, trained by the recipe, served by its own link, measured."""
    given = ("models.rank.objective=cauchit", "models.rank.y0=0.2")
    made = run_phases(tiny_scenario(*given), tmp_path / "run", tmp_path / "cache")
    scorer, block = made.sim.scorers["rank"], make_block(range(20))
    assert isinstance(scorer, MappedScorer) and scorer.link == "cauchit"
    ids = made.sim.serve(block, made.evaluation.arms["logloss"]).competitive_set
    score = scorer.logit(block, ids)
    assert scorer.predict(block, ids) == pytest.approx(0.5 + np.arctan(score) / np.pi, rel=1e-5)
    # It has learned the level of the clicks on its own pages, which is far from its middle, 1/2.
    assert 0.5 < made.metrics["models"]["rank"]["win_set"]["pcoc"]["value"] < 2
    assert made.metrics["objectives"]["arms"]["logloss"]["objective"] == "cauchit"
    plain = learn(tmp_path / "plain", tmp_path / "cache")
    assert not torch.equal(made.preparation.modules["rank"].bias, plain.modules["rank"].bias)


def test_a_scenario_holds_an_objective_to_what_its_class_says(cauchit):
    with refused("models.rank.y0", "[0, 0.5]", 0.7):
        tiny_scenario("models.rank.objective=cauchit", "models.rank.y0=0.7")
    with refused("models.rank.alpha", "cauchit"):
        tiny_scenario("models.rank.objective=cauchit", "models.rank.alpha=0.5")
    with refused("models.rank.batching", "cauchit"):
        tiny_scenario("models.rank.objective=cauchit", "models.rank.batching=samples")


def absolute_distillation(logit, sample):
    return (logit - sample["teacher_logit"]).abs().mean()


@pytest.fixture
def distill_l1(monkeypatch):
    recipe = Recipe(absolute_distillation, ("teacher", "sample"), has_teacher=True)
    monkeypatch.setitem(RECIPES, "distill_l1", recipe)


def test_a_recipe_is_one_loss(distill_l1, tmp_path):
    made = learn(tmp_path / "run", tmp_path / "cache", "models.distill-pre.recipe=distill_l1")
    usual = learn(tmp_path / "usual", tmp_path / "cache")
    nets = [learned.modules["distill-pre"].state_dict() for learned in (made, usual)]
    assert any(not torch.equal(nets[0][key], nets[1][key]) for key in nets[0])
    block = make_block(range(20))
    ids = np.tile(np.arange(30), (20, 1))
    gaps = [
        np.abs(
            learned.sim.scorers["distill-pre"].logit(block, ids)
            - learned.sim.scorers["rank"].log_odds(block, ids)
        ).mean()
        for learned in (made, usual)
    ]
    assert gaps[0] < 1.5 * gaps[1]  # it imitates its teacher, too
    with refused("models.distill-pre.chunks", "distill_l1"):
        tiny_scenario("models.distill-pre.recipe=distill_l1", "models.distill-pre.chunks=3")
    with refused("models.distill-pre", "teacher", "distill_l1"):
        tiny_scenario("models.distill-pre={recipe: distill_l1}")


def test_a_market_retrains_by_a_recipe_of_ones_own(distill_l1):
    scenario = learning_scenario()
    pupil = scenario.models["pupil"].model_copy(update={"recipe": "distill_l1"})
    scenario = scenario.model_copy(update={"models": {**scenario.models, "pupil": pupil}})
    run = live_and_learn(learning_sim(scenario), "taught")
    assert run.run.trainer.version == 3 and run.run.trainer.arm.stages[0].scorer.name == "pupil"
