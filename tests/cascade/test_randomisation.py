"""Parameters of single requests: their law, their weights, and serving with them."""

from dataclasses import replace

import numpy as np
import pytest

from cascade_sim.auction import auction, reprice
from cascade_sim.cascade.fusion import Fusion
from cascade_sim.cascade.randomisation import ParameterRandomiser, RequestOverrides, with_parameters
from cascade_sim.cascade.serve import serve
from worlds.randomised_logs import logged

LAW = ParameterRandomiser({"reserve_cpc": 0.5, "squashing": 0.8}, {"reserve_cpc": 0.3, "squashing": 0.1})


def test_a_reserve_is_log_normal_around_its_centre_and_squashing_normal():
    noise = {"reserve_cpc": np.array([0.0, 1.0, -2.0]), "squashing": np.array([0.0, 1.0, -9.0])}
    values = LAW.values(noise)
    assert values["reserve_cpc"] == pytest.approx([0.5, 0.5 * np.exp(0.3), 0.5 * np.exp(-0.6)])
    assert values["squashing"] == pytest.approx([0.8, 0.9, 0.0])  # 0.8 - 0.9 would be negative


def test_noise_belongs_to_the_request_and_the_parameter():
    requests = np.arange(1000)
    noise = LAW.noise(1, requests)
    assert noise["reserve_cpc"][500:].tolist() == LAW.noise(1, requests[500:])["reserve_cpc"].tolist()
    assert abs(np.corrcoef(noise["reserve_cpc"], noise["squashing"])[0, 1]) < 0.1


def test_a_weight_is_the_ratio_of_two_normal_densities():
    z = np.array([-1.0, 0.0, 2.0])
    noise = {"reserve_cpc": z, "squashing": np.zeros(3)}
    d = np.log(0.6 / 0.5) / 0.3  # how far the target lies from the centre, in sigmas
    expected = np.exp(-((z - d) ** 2) / 2) / np.exp(-(z**2) / 2)
    assert LAW.weights(noise, {"reserve_cpc": 0.6}) == pytest.approx(expected)
    assert LAW.weights(noise, {}) == pytest.approx(np.ones(3))


def test_weights_of_drawn_parameters_average_to_one():
    noise = LAW.noise(3, np.arange(200_000))
    weights = LAW.weights(noise, {"reserve_cpc": 0.6, "squashing": 0.75})
    assert weights.mean() == pytest.approx(1.0, abs=4 * weights.std() / np.sqrt(len(weights)))


def test_weights_move_the_mean_of_a_parameter_to_the_target_s():
    noise = LAW.noise(4, np.arange(200_000))
    weights = LAW.weights(noise, {"squashing": 0.75})
    assert (weights * LAW.values(noise)["squashing"]).mean() == pytest.approx(0.75, abs=0.003)


def test_an_auction_with_a_reserve_of_each_request_is_that_many_auctions():
    rng = np.random.default_rng(5)
    bid, quality = rng.uniform(0.1, 2, (40, 7)), rng.uniform(0.01, 0.3, (40, 7))
    reserves = rng.uniform(0, 1.5, 40)
    together = auction(bid, quality, slots=3, reserve_cpc=reserves)
    repriced = reprice(bid[:, :4], quality[:, :4], slots=3, reserve_cpc=reserves)
    for r in range(40):
        alone = auction(bid[r], quality[r], slots=3, reserve_cpc=float(reserves[r]))
        assert together.ranked[r].tolist() == alone.ranked.tolist()
        assert together.cpc[r].tolist() == alone.cpc.tolist()
        one = reprice(bid[r, :4], quality[r, :4], slots=3, reserve_cpc=float(reserves[r]))
        assert repriced[r].tolist() == one.tolist()


@pytest.mark.parametrize(
    ("reserves", "fault"),
    [([0.1, -0.2], "reserve_cpc is -0.2"), ([0.1, np.nan], "nan"), ([0.1] * 3, "shape \\(3,\\)")],
)
def test_a_reserve_that_is_none_is_refused(reserves, fault):
    with pytest.raises(ValueError, match=fault):
        auction(np.ones((2, 3)), np.ones((2, 3)), slots=1, reserve_cpc=np.array(reserves))


def decisions_alike(a, b):
    names = ("competitive_set", "ranked_set", "ranked_bid", "ranked_quality", "cpc_micros")
    return all(np.array_equal(getattr(a, name), getattr(b, name)) for name in names)


def test_serving_with_a_parameter_of_each_request_is_serving_each_with_that_arm():
    world = logged()
    block = world.sim.arrivals.block("evaluate", 0, 256).take(slice(0, 24))
    reserve = np.linspace(0.2, 1.6, 24)
    squashing = np.linspace(0.5, 1.4, 24)
    served = serve(
        with_parameters(block, {"reserve_cpc": reserve, "squashing": squashing}, 1.0),
        world.arm,
        world.sim.platform,
    )
    for r in range(24):
        fusion = Fusion(pctr=float(squashing[r]))
        arm = world.arm.with_stage(0, fusion=fusion).with_stage(-1, fusion=fusion)
        arm = replace(arm, reserve_cpc=float(reserve[r]))
        alone = serve(block.take(slice(r, r + 1)), arm, world.sim.platform)
        assert served.ranked_set[r].tolist() == alone.ranked_set[0].tolist()
        assert np.abs(served.cpc_micros[r] - alone.cpc_micros[0]).max() <= 1


def test_the_same_reserve_for_all_requests_gives_the_same_bytes_as_the_arm_s():
    world = logged()
    block = world.sim.arrivals.block("evaluate", 0, 256)
    same = with_parameters(block, {"reserve_cpc": np.full(len(block), world.arm.reserve_cpc)}, 1.0)
    assert decisions_alike(
        serve(block, world.arm, world.sim.platform), serve(same, world.arm, world.sim.platform)
    )


def test_a_pre_ranking_stage_with_the_auction_s_bid_knows_each_request_s_reserve():
    world = logged()
    arm = world.arm.with_stage(0, bid=world.arm.last.bid)
    block = world.sim.arrivals.block("evaluate", 0, 256).take(slice(0, 32))
    reserve = np.where(np.arange(32) % 2 == 0, 1e-9, 5.0)
    served = serve(with_parameters(block, {"reserve_cpc": reserve}, 1.0), arm, world.sim.platform)
    bids = world.sim.platform.bids.bid(arm.last.bid, block, served.retrieved, arm.bid_rule, arm.bid_range)
    assert ((served.passes[0].order < 0) == (bids < reserve[:, None])).all()
    assert (served.win_set[1::2] >= 0).sum() < (served.win_set[::2] >= 0).sum()


def test_requests_taken_from_a_block_keep_their_parameters():
    parameters = RequestOverrides(np.array([1.0, 2.0, 3.0]), None)
    assert parameters.take([2, 0]).reserve_cpc.tolist() == [3.0, 1.0]
    assert parameters.take([2, 0]).squashing_ratio is None


def test_late_answers_know_no_parameters_of_single_requests():
    world = logged()
    block = with_parameters(world.sim.arrivals.block("evaluate", 0, 256), {"reserve_cpc": np.ones(256)}, 1.0)
    with pytest.raises(ValueError, match="out of time"):
        serve(block, world.arm, world.sim.platform, np.full(256, 2, np.int8))
