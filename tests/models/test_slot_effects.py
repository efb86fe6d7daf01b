"""How often slots are looked at, learned with the net, from pages that say nothing of it."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from cascade_sim.models.objectives import make_objective
from cascade_sim.models.page_training import make_pages, slot_predictions, train_pages
from cascade_sim.models.slot_effects import SlotEffects
from cascade_sim.models.training import Impressions, TrainingPlan
from worlds.clicked_ads import ADS, LOGIT, USERS, VIEW, net

EFFECTS = np.array([1.0, 0.7, 0.75, 0.3])  # they need not fall


def pages(n, seed=1):
    """Better ads above, as a ranker that knows something shows them; what slots are worth is not told."""
    rng = np.random.default_rng(seed)
    users = np.repeat(rng.integers(0, USERS, n), 4)
    ads = rng.integers(0, ADS, 4 * n)
    order = np.lexsort((-LOGIT[users, ads] - rng.normal(0, 1, 4 * n), np.repeat(np.arange(n), 4)))
    users, ads = users[order], ads[order]
    chance = np.tile(EFFECTS, n) / (1 + np.exp(-LOGIT[users, ads]))
    click = (rng.random(4 * n) < chance).astype(np.float32)
    nothing = np.full(4 * n, np.nan, np.float32)
    shown = Impressions(users.astype(np.int32), 0 * click, ads.astype(np.int32), nothing, click)
    return make_pages(shown, np.repeat(np.arange(n), 4), 1 / (1 + np.exp(-LOGIT[users, ads])))


def estimated(name, data, epochs=3, batching=None):
    slots, module, objective = SlotEffects(4), net(), make_objective(name)
    if objective.n_heads > 1:
        torch.manual_seed(1)
        module = type(module)(VIEW.request_width, VIEW.ad_width, VIEW.pair_width, hidden=16, dims=6, heads=2)
    plan = TrainingPlan(epochs, batch=256, learning_rate=0.02)
    train_pages(module, VIEW, data, objective, plan, slots=slots, batching=batching)
    return module, slots.effects()


@pytest.mark.parametrize("name", ["pointwise", "softmax", "rcr", "jrc", "sbcr"])
def test_effects_are_learned_under_every_objective_that_compares_slots(name):
    batching = "samples" if name == "pointwise" else None
    effects = estimated(name, pages(3000), batching=batching)[1]
    assert effects[0] == 1 and effects == pytest.approx(EFFECTS, abs=0.12)
    assert abs(effects - EFFECTS).mean() < abs(SlotEffects(4).effects() - EFFECTS).mean() / 2


def test_a_score_with_scale_is_that_of_an_examined_slot():
    module, effects = estimated("pointwise", pages(3000), batching="samples")
    data = pages(2000, seed=2)
    shown = replace(data.shown, examination=np.ones(len(data.users), np.float32))
    _, expected = slot_predictions(module, VIEW, shown, make_objective("pointwise"))
    truth = 1 / (1 + np.exp(-LOGIT[shown.users, shown.ads]))
    assert expected.mean() == pytest.approx(truth.mean(), rel=0.06)
    _, in_slots = slot_predictions(module, VIEW, data.examined(effects).shown, make_objective("pointwise"))
    assert in_slots.mean() == pytest.approx(data.shown.click.mean(), rel=0.06)


def test_pages_longer_than_any_that_was_learned_from_take_the_last_effect():
    data = pages(2)
    assert data.slots.tolist() == [0, 1, 2, 3] * 2 and data.n_slots == 4
    told = data.examined(np.array([1.0, 0.5])).shown.examination
    assert told.tolist() == [1.0, 0.5, 0.5, 0.5] * 2
    assert len(SlotEffects(1).effects()) == 1
