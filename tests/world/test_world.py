import numpy as np
import pytest

from cascade_sim.world.world import build_world
from worlds.tiny_market import tiny_scenario


@pytest.fixture(scope="module")
def world():
    spec = tiny_scenario("world.users=3000", "world.ads=8000", "world.advertisers=500").world
    return build_world(spec, seed=5)


def test_latents_are_standard_normal(world):
    for table in (world.user_features, world.ad_features):
        for name, value in table.items():
            if name == "bid":
                continue
            n = value.size
            assert abs(value.mean()) < 5 / np.sqrt(n), name
            assert value.std() == pytest.approx(1, abs=5 / np.sqrt(2 * n)), name


def test_features_have_the_rows_and_dimensions_of_the_scenario(world):
    assert world.user_features["G2"].shape == (3000, 2) and world.ad_features["G2"].shape == (8000, 2)
    assert world.user_features["G4"].shape == (3000, 4)
    assert world.ad_features["quality"].shape == (8000, 1)
    assert (world.n_users, world.n_ads) == (3000, 8000)


def test_the_models_bid_feature_is_the_log_of_the_init_bid(world):
    assert "bid" not in world.ad_features  # a model that saw it could make a higher bid hurt


def test_different_groups_and_sides_are_independent(world):
    u, a = world.user_features, world.ad_features
    for x, y in [(u["G1"], u["G3"]), (a["G1"], a["G3"]), (u["G1"], a["G1"][:3000])]:
        assert abs(np.corrcoef(x[:, 0], y[:, 0])[0, 1]) < 5 / np.sqrt(len(x))


def test_what_people_click_eagerly_they_buy_less_often():
    spec = tiny_scenario("world.users=400", "world.ads=1000", "world.conversion.anti_correlation=0.5").world
    world = build_world(spec, seed=5)
    clicks = world.user_features["G4"] @ world.ad_features["G4"].T
    buys = world.user_features["conversion"] @ world.ad_features["conversion"].T
    assert np.corrcoef(clicks.ravel(), buys.ravel())[0, 1] == pytest.approx(-0.5, abs=0.1)


def test_the_same_seed_builds_the_same_world_and_another_one_another():
    spec = tiny_scenario().world
    first, again, other = build_world(spec, 1), build_world(spec, 1), build_world(spec, 2)
    assert np.array_equal(first.init_bid, again.init_bid)
    assert np.array_equal(first.user_features["G1"], again.user_features["G1"])
    assert not np.any(first.init_bid == other.init_bid)


def test_a_larger_corpus_keeps_the_features_of_the_ads_it_had():
    small, large = (build_world(tiny_scenario(f"world.ads={n}").world, 1) for n in (600, 700))
    assert np.array_equal(small.init_bid, large.init_bid[:600])
    assert np.array_equal(small.ad_features["G1"], large.ad_features["G1"][:600])


def test_a_single_user_and_two_ads_make_a_world():
    overrides = ["world.users=1", "world.ads=2", "world.advertisers=1", "cascade.retrieval.size=2"]
    overrides += ["cascade.pre_ranking.size=2", "cascade.slots=1"]
    world = build_world(tiny_scenario(*overrides).world, 1)
    assert world.activity.tolist() == [1.0] and world.advertiser.tolist() == [0, 0]
    assert np.all(np.isfinite(world.popularity))
