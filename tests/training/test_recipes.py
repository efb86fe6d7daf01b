"""Recipes of lists in a study: built-in ones with options, and a custom class from its file to a stage."""

import numpy as np
import pytest
import torch

from answers.told import refused, tells
from cascade_sim.foundation.errors import UserError
from cascade_sim.market.dry_run import try_loss
from cascade_sim.models.recipes import RECIPES
from cascade_sim.training.modules import find_recipe
from worlds.learned import learn
from worlds.learning_market import learning_scenario, learning_sim, live_and_learn
from worlds.tiny_market import make_block, run_phases, tiny_scenario

CLASS = """
class Margin:
    '''Ads that ranking would choose lead the others by a margin of log eCPM.'''

    def __init__(self, k=3, margin=1.0):
        self.k, self.margin = k, margin

    def loss(self, scores, lists):
        import torch
        served = lists["log_bid"] + scores
        best = torch.zeros_like(served, dtype=torch.bool)
        best.scatter_(1, lists["log_score"].topk(self.k, dim=1).indices, True)
        gap = served.unsqueeze(2) - served.unsqueeze(1)
        return torch.relu(self.margin - gap)[best.unsqueeze(2) & ~best.unsqueeze(1)].mean()
"""
SECTION = "features: [user, quality, tier, G1], teacher: rank, sample: {set: pre_ranking, per_request: 20}"


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "own.py").write_text(CLASS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def model(recipe, name="ltr"):
    return f"models.{name}={{{recipe}, {SECTION}}}"


def test_a_class_of_the_users_trains_a_model_that_serves_its_link(own, tmp_path):
    told = (model("recipe: own.py:Margin, recipe_options: {k: 2}, validation: 0.3"), "phases.shadow=300")
    made = learn(tmp_path / "run", tmp_path / "cache", *told)
    line = made.lines["ltr"]["part_loss"]
    assert made.sim.scorers["ltr"].link == "exp" and line[-1] < line[0]
    as_odds = learn(tmp_path / "odds", tmp_path / "cache", model("recipe: own.py:Margin, link: sigmoid"))
    assert as_odds.sim.scorers["ltr"].link == "sigmoid"


def test_a_custom_loss_is_part_of_the_key_of_what_it_trains(own, tmp_path):
    def weights(folder, recipe="recipe: own.py:Margin"):
        return learn(tmp_path / folder, tmp_path / "cache", model(recipe)).modules["ltr"].state_dict()

    first, again = weights("first"), weights("again")
    assert all(torch.equal(first[name], again[name]) for name in first)
    other = weights("other", "recipe: own.py:Margin, recipe_options: {margin: 0.1}")
    assert any(not torch.equal(first[name], other[name]) for name in first)
    (own / "own.py").write_text(CLASS.replace("self.margin - gap", "2 * self.margin - gap"))
    edited = weights("edited")
    assert any(not torch.equal(first[name], edited[name]) for name in first)


def test_a_study_with_recipes_of_lists_measures_their_arms(tmp_path):
    recipes = {
        "wide": "recipe: infonce, recipe_options: {k: 3}",
        "sure": "recipe: listwise_distill, recipe_options: {target: ranking, weight: 0.5}",
    }
    overrides = [model(text, name) for name, text in recipes.items()]
    overrides += [f"arms.{name}={{pre_ranking: {{model: {name}}}}}" for name in recipes]
    made = run_phases(tiny_scenario(*overrides), tmp_path / "run", tmp_path / "cache")
    for name in recipes:
        assert 0 < made.metrics["arms"][name]["rcs"]["value"] <= 1
    assert made.sim.scorers["wide"].link == "exp" and made.sim.scorers["sure"].link == "sigmoid"
    predicted = made.sim.scorers["sure"].predict(make_block(range(20)), np.tile(np.arange(30), (20, 1)))
    assert ((predicted > 0) & (predicted < 1)).all()


def test_a_market_retrains_by_a_class_of_the_users(own):
    scenario = learning_scenario()
    told = {"recipe": "own.py:Margin", "recipe_options": {"k": 2}}
    pupil = scenario.models["pupil"].model_copy(update=told)
    scenario = scenario.model_copy(update={"models": {**scenario.models, "pupil": pupil}})
    run = live_and_learn(learning_sim(scenario), "taught")
    assert run.run.trainer.version == 3 and run.run.trainer.arm.stages[0].scorer.name == "pupil"


@pytest.mark.parametrize(
    ("recipe", "words"),
    [
        (
            "recipe: infonce, recipe_options: {kk: 3}",
            "recipe_options.kk: 'kk' 'k'?",
        ),
        ("recipe: infonce, recipe_options: {k: 2.5}", "recipe_options.k: integer 2.5"),
        ("recipe: infonce, recipe_options: {k: 0}", "recipe_options.k: 0"),
        ("recipe: infonce, recipe_options: {k: 20}", "sample.per_request"),
        ("recipe: infonce, recipe_options: {k: x}", "recipe_options.k: number 'x'"),
        ("recipe: dftopk, recipe_options: {temperature: 0}", "recipe_options.temperature: 0"),
        ("recipe: listwise, recipe_options: {target: clicks}", "teacher ranking 'clicks'"),
        ("recipe: distill, recipe_options: {k: 3}", "recipe distill options"),
        ("recipe: infonce, link: sigmoid", "infonce exp"),
        ("recipe: own.py:Margn", "'Margn' 'Margin'?"),
        ("recipe: own.py:Margin, recipe_options: {kk: 3}", "Margin 'kk' 'k'?"),
        ("recipe: infonse", "'infonse' 'infonce'?"),
    ],
)
def test_what_a_recipe_cannot_be_told_is_refused_before_any_work(own, recipe, words):
    with pytest.raises(UserError) as raised:
        tiny_scenario(model(recipe))
    assert tells(raised.value, "models.ltr", *words.split())


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("return scores.mean(dim=1)", "[] [3]"),
        ("return 1.0", "[] float"),
        ("return (scores * 0).sum().detach()", "gradient"),
        ("return (scores / 0).sum()", "finite"),
    ],
)
def test_a_loss_that_cannot_be_trained_by_is_found_on_a_toy(own, body, words):
    (own / "own.py").write_text(f"class Margin:\n    def loss(self, scores, lists):\n        {body}\n")
    spec = tiny_scenario(model("recipe: own.py:Margin")).models["ltr"]
    with refused(*words.split(), kind=ValueError):
        try_loss(find_recipe("ltr", spec, own))


def test_a_class_without_a_loss_and_one_that_fails_are_named(own):
    (own / "own.py").write_text("class Margin:\n    pass\n")
    spec = tiny_scenario(model("recipe: own.py:Margin")).models["ltr"]
    with refused("loss(scores, lists)"):
        find_recipe("ltr", spec, own)
    (own / "own.py").write_text(
        "class Margin:\n    def __init__(self):\n        raise KeyError('k')\n    loss = 1\n"
    )
    with pytest.raises(UserError):
        find_recipe("ltr", spec, own)


def test_built_in_recipes_pass_the_toy_as_well():
    for name, recipe in RECIPES.items():
        if recipe.has_teacher and not recipe.options and not recipe.learned:
            try_loss(recipe)
            assert recipe.link in ("exp", "sigmoid"), name
