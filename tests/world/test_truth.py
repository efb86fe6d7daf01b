import numpy as np
import pytest

from cascade_sim.foundation import random as draws
from cascade_sim.foundation.kernels import dot_scores, hinge_scores
from cascade_sim.world.truth import GroundTruth
from worlds.tiny_market import tiny_scenario


def logit_by_hand(world, spec, block, r, ad):
    """The formula of the truth, term by term, in float64."""
    u = {k: v[block.users[r]].astype(np.float64) for k, v in world.user_features.items()}
    a = {k: v[ad].astype(np.float64) for k, v in world.ad_features.items()}
    e = spec.effects
    logit = spec.base_logit + e.quality * a["quality"][0] + e.tier * a["tier"][0]
    logit += e.user * u["user"][0] + e.context * block.context[r]
    for name, group in spec.groups.items():
        logit += group.weight * (u[name] @ a[name]) / np.sqrt(group.dims)
    mismatch = (u["mismatch"] @ a["mismatch"]) / np.sqrt(spec.mismatch.dims)
    logit += spec.mismatch.weight * max(0.0, mismatch - spec.mismatch.threshold)
    return logit + spec.pair_noise * draws.normal(world.seed, "ctr noise", block.users[r], ad)[0]


def test_the_true_ctr_is_the_sum_of_its_effects(sim, block):
    ads = np.arange(0, 600, 7, dtype=np.int32)
    ids = np.tile(ads, (len(block), 1))
    ctr = sim.environment._truth.ctr(block, ids)
    spec = sim.scenario.world
    for r in range(0, len(block), 17):
        expected = [1 / (1 + np.exp(-logit_by_hand(sim.world, spec, block, r, ad))) for ad in ads]
        assert ctr[r] == pytest.approx(expected, rel=2e-5)


def test_the_true_cvr_is_the_affinity_of_the_conversion_features(sim, block):
    spec = sim.scenario.world.conversion
    ids = np.tile(np.arange(40, dtype=np.int32), (len(block), 1))
    u, a = sim.world.user_features["conversion"], sim.world.ad_features["conversion"]
    logit = spec.base_logit + spec.weight * (u[block.users] @ a[:40].T) / np.sqrt(spec.dims)
    logit = logit + spec.pair_noise * draws.normal(sim.seed, "cvr noise", block.users[:, None], ids)
    assert sim.environment._truth.cvr(block, ids) == pytest.approx(1 / (1 + np.exp(-logit)), rel=2e-5)


def test_padding_is_never_clicked_nor_bought(sim, block):
    ids = np.full((len(block), 2), -1, np.int32)
    ids[:, 0] = 3
    assert np.all(sim.environment._truth.ctr(block, ids)[:, 1] == 0) and np.all(
        sim.environment._truth.cvr(block, ids)[:, 1] == 0
    )
    assert np.all(sim.environment._truth.ctr(block, ids)[:, 0] > 0)


def test_the_noise_belongs_to_user_and_ad_and_stays_between_requests(sim, block):
    ids = np.tile(np.arange(50, dtype=np.int32), (len(block), 1))
    logit = np.log(sim.environment._truth.ctr(block, ids) / (1 - sim.environment._truth.ctr(block, ids)))
    same = np.argmax(np.bincount(block.users))
    rows = np.flatnonzero(block.users == same)[:2]
    shift = sim.scenario.world.effects.context * (block.context[rows[1]] - block.context[rows[0]])
    assert len(rows) == 2
    assert logit[rows[1]] - logit[rows[0]] == pytest.approx(np.full(50, shift), abs=1e-4)


def test_without_pair_noise_the_features_tell_everything(block):
    scenario = tiny_scenario("world.pair_noise=0")
    from cascade_sim.world.world import build_world

    world = build_world(scenario.world, scenario.seed)
    truth = GroundTruth(world, scenario.world)
    ids = np.tile(np.arange(50, dtype=np.int32), (len(block), 1))
    assert np.array_equal(truth.ctr(block, ids), truth.ctr_without_noise(block, ids))


def test_the_value_of_a_pair_does_not_depend_on_its_company(sim, block):
    ids = np.tile(np.arange(600, dtype=np.int32), (len(block), 1))
    whole = sim.environment._truth.ctr(block, ids)
    from worlds.tiny_market import part_of

    few = sim.environment._truth.ctr(part_of(block, slice(11, 12)), np.array([[599, 0, 77]], np.int32))
    assert np.array_equal(few[0], whole[11, [599, 0, 77]])


def test_the_logit_of_features_is_that_of_its_products_to_the_bit(sim, block):
    truth, spec = sim.environment._truth, sim.scenario.world
    ids = np.tile(np.array([-1, 0, 5, 599], np.int32), (len(block), 1))
    logit = dot_scores(truth._user_code[block.users], truth._ad_code, ids).astype(np.float64)
    logit += spec.effects.context * block.context[:, None]
    users, ads = truth._mismatch_user[block.users], truth._mismatch_ad
    logit = logit + spec.mismatch.weight * hinge_scores(users, ads, ids, spec.mismatch.threshold)
    assert np.array_equal(truth._lasting(block.users, block.context, ids), logit)
