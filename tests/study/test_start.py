"""Models of one world start alike, whatever their name or recipe, unless `training_seed` differs."""

import pytest
import torch

from cascade_sim.models.nets.coaction import CoAction
from cascade_sim.models.nets.cold import GatedNet
from cascade_sim.models.nets.inttower import InterTowers
from cascade_sim.models.nets.towers import TwoTowers
from cascade_sim.models.objectives import make_objective
from cascade_sim.models.page_training import net_to_train, served_net
from worlds.clicked_ads import VIEW, net
from worlds.learned import learn

STILL = "features: [user, quality, G1], hidden: 8, dims: 4, epochs: 1, learning_rate: 1.0e-12"
OBJECTIVES = {
    "plain": "objective: pointwise", "again": "objective: pointwise", "paged": "batching: lists",
    "rcr": "objective: rcr", "softmax": "objective: softmax", "jrc": "objective: jrc",
    "tasks": "objective: multi_task", "student": "recipe: distill, teacher: rank",
}  # fmt: skip


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    """Models that have hardly moved from their first weights."""
    folder = tmp_path_factory.mktemp("started")
    sections = [f"models.{name}={{{how}, {STILL}}}" for name, how in OBJECTIVES.items()]
    sections += [f"models.reseeded={{training_seed: 1, {STILL}}}", "models.logloss.learning_rate=1.0e-12"]
    return learn(folder / "run", folder / "cache", *sections)


def moved(one, other):
    """The largest difference of weights; the output's bias starts at the base rate of what is learned."""
    pairs = zip(one.state_dict().items(), other.state_dict().values(), strict=True)
    return max((a - b).abs().max().item() for (name, a), b in pairs if name != "bias")


@pytest.mark.parametrize("name", OBJECTIVES)
def test_models_of_the_same_sizes_start_from_the_same_weights(started, name):
    assert moved(started.modules[name], started.modules["plain"]) < 1e-6


def test_another_training_seed_starts_elsewhere_and_so_does_a_first_deployment(started):
    assert moved(started.modules["reseeded"], started.modules["plain"]) > 0.1
    assert moved(started.modules["logloss (first)"], started.modules["logloss"]) > 0.1


def test_two_sections_alike_are_one_net_to_the_last_bit(started):
    one, two = (started.modules[name].state_dict() for name in ("plain", "again"))
    assert all(torch.equal(value, two[name]) for name, value in one.items())


@pytest.mark.parametrize("kind", [TwoTowers, CoAction, InterTowers, GatedNet])
@pytest.mark.parametrize("name", ["multi_task", "jrc"])
def test_heads_are_drawn_apart_and_serve_as_the_net_of_one_head_at_first(kind, name):
    objective, narrow = make_objective(name), net(kind)
    wide, same = (net_to_train(narrow, objective, seed=9) for _ in range(2))
    assert moved(served_net(wide, objective), narrow) < 1e-6
    assert all(torch.equal(value, same.state_dict()[key]) for key, value in wide.state_dict().items())
    users = torch.randn(50, VIEW.request_width, generator=torch.Generator().manual_seed(1))
    ads = torch.randn(50, 1, VIEW.ad_width, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        heads = wide(users, ads, torch.zeros(50, 1, VIEW.pair_width))[:, 0]
    weights = objective.score(torch.eye(2))
    served = heads @ weights
    rest = heads - torch.outer(served, weights) / weights.square().sum()
    assert rest.std() > 0.1  # more than the served score spread over the heads
    assert abs(torch.corrcoef(torch.stack([rest.sum(1), served]))[0, 1]) < 0.9
