"""Nets with embedding tables in their seats: ads once, requests by the block, and the scores of training."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from cascade_sim.cascade.scorers import (
    CoActionScorer,
    GatedScorer,
    InterTowersScorer,
    TorchScorer,
    TowersScorer,
)
from cascade_sim.models.nets.ids import id_tables
from cascade_sim.models.training import Tables, outputs
from cascade_sim.scenario.schema import ModelSpec
from cascade_sim.training.modules import build_module, make_scorer, served_scorer
from worlds.tiny_market import part_of

FEATURES = ("user", "context", "quality", "tier", "G1", "mismatch_pair")
IDS = ("user_id", "ad_id", "advertiser_id", "history")
KINDS = {
    "towers": TowersScorer,
    "coaction": CoActionScorer,
    "dcn": TorchScorer,
    "inttower": InterTowersScorer,
    "cold": GatedScorer,
}


@pytest.fixture(scope="module")
def world(sim):
    history = np.random.default_rng(0).integers(-1, sim.world.n_ads, (sim.world.n_users, 7))
    return replace(sim.world, history=history.astype(np.int32))


@pytest.fixture(scope="module")
def ids(sim, block):
    return sim.retriever(block.users, 40)


def trained(kind, view, **more):
    """A net whose tables are as far from 0 as training brings them."""
    spec = ModelSpec(kind=kind, features=view.names, hidden=8, dims=5, embedding=3, **more)
    module = build_module("m", spec, view, 4)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return spec, module.eval()


@pytest.mark.parametrize("seen", [IDS, ("ad_id",), ("user_id",), ("history",), ("advertiser_id", "history")])
@pytest.mark.parametrize("kind", KINDS)
def test_a_seat_scores_as_training_does(kind, seen, world, block, ids):
    view = world.view((*FEATURES, *seen))
    spec, module = trained(kind, view)
    scorer = make_scorer("m", "logloss", view, module)
    assert type(scorer) is KINDS[kind]
    with torch.no_grad():
        given = (torch.from_numpy(a) for a in (block.users, block.context, ids))
        expected = outputs(module, Tables(view, torch.device("cpu")), *given).numpy()
    found = scorer.logit(block, ids)
    assert found == pytest.approx(expected, abs=1e-5, rel=1e-5)
    with torch.no_grad():  # the ids count
        for rows in id_tables(module).parameters():
            rows.zero_()
    without = make_scorer("m", "logloss", view, module).logit(block, ids)
    assert np.abs(found - without).max() > 0.05


def test_the_net_of_a_seat_is_whole_and_its_calibrator_sees_features_alone(world):
    view = world.view((*FEATURES, *IDS))
    spec, module = trained("towers", view)
    scorer = served_scorer("m", spec, view, module)
    assert scorer.module is module and id_tables(scorer.module) is not None
    assert scorer.view is view and scorer.seen.ad_table.shape[1] == view.ad_width + 2 * 3


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "dcn"])
def test_a_part_of_a_block_is_scored_as_the_whole(kind, world, block, ids):
    view = world.view((*FEATURES, *IDS))
    scorer = make_scorer("m", "logloss", view, trained(kind, view)[1])
    half = slice(0, len(block) // 2)
    assert scorer.logit(part_of(block, half), ids[half]) == pytest.approx(
        scorer.logit(block, ids)[half], abs=1e-6
    )
