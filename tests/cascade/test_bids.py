import numpy as np
import pytest

from cascade_sim.cascade.bids import BidRules


@pytest.fixture(scope="module")
def rules(sim):
    return sim.platform.bids


@pytest.fixture(scope="module")
def ids(sim, block):
    return sim.retriever(block.users, 60)


def rho(rules, block, ids):
    return rules.pcvr(block, ids) / rules.mean_pcvr[ids]


def test_the_init_bid_is_the_advertisers_and_none_counts_every_ad_alike(rules, sim, block, ids):
    assert np.array_equal(rules.bid("init", block, ids, "ocpc", 0.4), sim.world.init_bid[ids])
    assert np.all(rules.bid("none", block, ids, "ocpc", 0.4) == 1.0)


@pytest.mark.parametrize("reach", [0.0, 0.1, 0.4, 0.9])
def test_the_opt_bid_stays_in_the_range_that_keeps_the_advertisers_return(rules, sim, block, ids, reach):
    bid, opt = sim.world.init_bid[ids], rules.bid("opt", block, ids, "ocpc", reach)
    worth = rho(rules, block, ids)
    above, slack = worth >= 1, 1 + 1e-6
    assert np.all(opt[above] >= bid[above] / slack)
    assert np.all(opt[above] <= bid[above] * np.minimum(1 + reach, worth[above]) * slack)
    assert np.all(opt[~above] <= bid[~above] * slack)
    assert np.all(opt[~above] >= bid[~above] * (1 - reach) / slack)
    assert above.any() and (~above).any()


def test_the_opt_bid_follows_the_value_of_the_click_between_its_bounds(rules, sim, block, ids):
    ratio = rules.bid("opt", block, ids, "ocpc", 0.4) / sim.world.init_bid[ids]
    assert ratio == pytest.approx(np.clip(rho(rules, block, ids), 0.6, 1.4), rel=1e-6)
    assert ratio.min() == pytest.approx(0.6) and ratio.max() == pytest.approx(1.4)


def test_without_a_rule_or_a_range_the_opt_bid_is_the_init_bid(rules, sim, block, ids):
    assert np.array_equal(rules.bid("opt", block, ids, "none", 0.4), sim.world.init_bid[ids])
    assert np.array_equal(rules.bid("opt", block, ids, "ocpc", 0.0), sim.world.init_bid[ids])


def test_padding_bids_nothing_of_any_kind(rules, block):
    ids = np.full((len(block), 3), -1, np.int32)
    for kind in ("init", "opt", "none"):
        assert not rules.bid(kind, block, ids, "ocpc", 0.4).any()
    assert not rules.pcvr(block, ids).any()


def test_the_mean_pcvr_of_an_ad_is_the_mean_over_users(sim, rules):
    from worlds.tiny_market import make_block

    everyone = make_block(np.arange(150))
    ids = np.tile(np.arange(600, dtype=np.int32), (150, 1))
    assert rules.pcvr(everyone, ids).mean(axis=0) == pytest.approx(rules.mean_pcvr, rel=1e-5)


def test_the_platforms_pcvr_is_close_to_the_truth_but_not_the_truth(sim, rules, block, ids):
    predicted, true = rules.pcvr(block, ids), sim.environment._truth.cvr(block, ids)
    assert 0.5 < np.corrcoef(predicted.ravel(), true.ravel())[0, 1] < 0.999


def test_an_error_free_pcvr_without_pair_noise_is_the_truth(block):
    from cascade_sim.world.truth import GroundTruth
    from cascade_sim.world.world import build_world
    from worlds.tiny_market import tiny_scenario

    spec = tiny_scenario("world.conversion.pcvr_error=0", "world.conversion.pair_noise=0").world
    world = build_world(spec, 1)
    ids = np.tile(np.arange(600, dtype=np.int32), (len(block), 1))
    exact = BidRules(world, spec.conversion).pcvr(block, ids)
    assert exact == pytest.approx(GroundTruth(world, spec).cvr(block, ids), rel=1e-5)


def test_another_bid_for_one_ad_leaves_the_rules_as_they_were(rules, sim, block, ids):
    other = rules.with_bid(int(ids[0, 0]), 9.0)
    assert other.bid("init", block, ids, "ocpc", 0.4)[0, 0] == 9.0
    assert np.array_equal(rules.bid("init", block, ids, "ocpc", 0.4), sim.world.init_bid[ids])


def test_a_target_cpa_bid_is_the_cost_per_conversion_times_the_pcvr(rules, sim, block, ids):
    opt = rules.bid("opt", block, ids, "target_cpa", 0.4)
    cost_per_conversion = sim.world.init_bid[ids] / rules.mean_pcvr[ids]
    assert opt == pytest.approx(cost_per_conversion * rules.pcvr(block, ids), rel=1e-6)
    ratio = opt / sim.world.init_bid[ids]
    assert ratio.min() < 0.6 and ratio.max() > 1.4


def test_means_are_computed_for_ads_that_bid_and_are_the_same_whoever_asks(sim, block, ids):
    conversion = sim.scenario.world.conversion
    asked, whole = BidRules(sim.world, conversion), BidRules(sim.world, conversion)
    everyone = whole.mean_pcvr.copy()
    assert np.isnan(asked.known._mean).all()
    bids = asked.with_bids(sim.world.init_bid).bid("opt", block, ids[:, :3], "ocpc", 0.4)
    known = np.unique(ids[:, :3])
    assert np.array_equal(np.flatnonzero(~np.isnan(asked.known._mean)), known) and len(known) < len(everyone)
    assert np.array_equal(bids, whole.bid("opt", block, ids[:, :3], "ocpc", 0.4))
    assert np.array_equal(asked.mean_pcvr, everyone)
