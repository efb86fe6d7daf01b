"""What targets really earn, by the simulator."""

import numpy as np
import pytest

from cascade_sim.ope.estimates import STEP, parameter_truth, slate_truth, true_slopes
from cascade_sim.ope.log import read_parameter_log, read_slate_log
from cascade_sim.scenario.targets import Target
from worlds.randomised_logs import logged


@pytest.fixture(scope="module")
def logs():
    world = logged()
    return read_parameter_log(world.folder, world.scenario), read_slate_log(world.folder, world.scenario)


def test_the_logging_policy_s_truth_is_the_mean_of_its_log_but_for_noise(logs):
    world = logged()
    for log, truth in (
        (logs[0], parameter_truth(world.sim, world.arm, logs[0], Target("same", estimand="jittered"))),
        (logs[1], slate_truth(world.sim, world.arm, logs[1], Target("same", is_pages=True))),
    ):
        for reward in ("revenue", "clicks"):
            seen = log.reward[reward].reshape(len(log), -1).sum(axis=1)
            apart = seen - truth[reward]
            assert abs(apart.mean()) < 4 * apart.std() / np.sqrt(len(apart))
            assert truth[reward].std() < seen.std()  # no sampling noise of clicks in it


def test_the_truth_of_pages_is_that_of_drawn_ones_on_average(logs):
    from cascade_sim.auction import MICROS
    from cascade_sim.ope.slates import draw_places, log_odds

    world, log = logged(), logs[1]
    exact = slate_truth(world.sim, world.arm, log, Target("same", is_pages=True))["revenue"][:256]
    block = world.sim.arrivals.block("slates", 0, 1200)
    gain = (
        world.sim.environment._truth.ctr(block, log.listed.ads[:256]) * log.listed.cpc_micros[:256] / MICROS
    )
    logit = log_odds(log.listed.score[:256], 0.7)
    total = np.zeros(256)
    for seed in range(200):
        places = draw_places(block.requests, log.listed.ads[:256], logit, 3, seed)
        shown = np.where(places >= 0, np.take_along_axis(gain, np.maximum(places, 0), 1), 0.0)
        total += (shown * log.slot_effects).sum(axis=1)
    assert (total / 200).mean() == pytest.approx(exact.mean(), rel=0.005)


def test_slopes_are_central_differences(logs):
    world, log = logged(), logs[0]
    slope = true_slopes(world.sim, world.arm, log)["reserve_cpc"]["clicks"]
    ends = [
        parameter_truth(
            world.sim,
            world.arm,
            log,
            Target("end", {"reserve_cpc": 0.7 * np.exp(side * STEP)}, estimand="jittered"),
        )
        for side in (1, -1)
    ]
    up, down = (end["clicks"].mean() for end in ends)
    assert slope == pytest.approx((up - down) / (2 * STEP))
    assert slope < 0  # a higher reserve leaves slots empty
