"""Ads that users clicked before the study."""

import numpy as np
import pytest

from cascade_sim.foundation import random as draws
from cascade_sim.world.truth import GroundTruth
from cascade_sim.world.world import build_world
from worlds.tiny_market import tiny_scenario


def made(*overrides, seed=1):
    spec = tiny_scenario("world.users=500", "world.ads=900", *overrides).world
    return build_world(spec, seed), spec


def test_a_history_holds_ads_of_the_corpus_for_every_user():
    world, _ = made("world.history={length: 12, candidate_pool: 20}")
    assert world.history.shape == (500, 12) and world.history.dtype == np.int32
    assert world.history.min() >= 0 and world.history.max() < 900
    assert made()[0].history is None


def test_of_two_ads_one_is_chosen_by_the_odds_of_its_logit():
    world, spec = made("world.history={length: 200, candidate_pool: 2}")
    users = np.arange(500)
    keys = (users[:, None, None], np.arange(200)[None, :, None], np.arange(2)[None, None, :])
    seen = (draws.uniform(1, "history ad", *keys) * 900).astype(np.int32)
    logit = GroundTruth(world, spec).lasting_logit(users, seen.reshape(500, -1)).reshape(seen.shape)
    chance = 1 / (1 + np.exp(logit[:, :, 1] - logit[:, :, 0]))
    is_first = (world.history == seen[:, :, 0]) & (seen[:, :, 0] != seen[:, :, 1])
    chance = np.where(seen[:, :, 0] != seen[:, :, 1], chance, 0.0)
    z = (is_first.sum() - chance.sum()) / np.sqrt((chance * (1 - chance)).sum())
    assert abs(z) < 4


def test_with_one_choice_a_history_is_chance_and_with_more_it_tells_tastes():
    def mean_logit(choices):
        world, spec = made(f"world.history={{length: 20, candidate_pool: {choices}}}")
        return GroundTruth(world, spec).lasting_logit(np.arange(500), world.history).mean()

    world, spec = made()
    ids = np.tile(np.arange(900, dtype=np.int32), (500, 1))
    logit = GroundTruth(world, spec).lasting_logit(np.arange(500), ids)
    assert mean_logit(1) == pytest.approx(logit.mean(), abs=4 * logit.std() / np.sqrt(10_000))
    assert mean_logit(50) > mean_logit(5) + 0.5 > mean_logit(1) + 1.0


def test_a_history_tells_what_dense_features_do_not_show():
    world, spec = made("world.history={length: 20, candidate_pool: 30}", "world.id_effects.weight=1.5")
    dims = np.arange(4)[None, :]
    user = draws.normal(1, "user.id vector", np.arange(500)[:, None], dims)
    ad = draws.normal(1, "ad.id vector", np.arange(900)[:, None], dims)
    own = np.mean(np.sum(user[:, None, :] * ad[world.history], axis=2))
    others = np.mean(np.sum(user[::-1][:, None, :] * ad[world.history], axis=2))
    assert own > 1.0 and abs(others) < 0.3


def test_a_history_is_the_same_for_the_same_seed_and_whatever_the_other_users():
    first, again = (made("world.history.length=5")[0].history for _ in range(2))
    other = made("world.history.length=5", seed=2)[0].history
    more = made("world.history.length=5", "world.users=600")[0].history
    assert np.array_equal(first, again) and np.mean(first == other) < 0.05
    assert np.array_equal(first, more[:500])
