"""Other traffic of the same world, compared unpaired; and models that stay as they were."""

import numpy as np
import pytest

from cascade_sim.context import scratch_context
from cascade_sim.regression.baseline import read_baseline
from cascade_sim.regression.check import check_revenue
from cascade_sim.regression.serving import measure_scenario
from cascade_sim.regression.text import verdict_text
from cascade_sim.scenario.file import scenario_data
from cascade_sim.study.prepare import logging_scenario
from worlds.guarded_market import measure_plain
from worlds.tiny_market import tiny_scenario


def test_other_requests_of_the_same_world_are_compared_unpaired_and_need_not_be_as_many(file, home):
    other = measure_plain(home, "phases.evaluate=1024", stretch=3)
    verdict = check_revenue(read_baseline(file), other)
    assert not verdict.is_paired and verdict.passed
    assert all(finding.has_changed for finding in verdict.findings)
    assert "unpaired" in verdict_text(verdict)


def test_the_first_stretch_of_other_traffic_is_the_usual_one_and_later_ones_do_not_overlap(sim):
    from cascade_sim.regression.serving import OtherTraffic

    n = sim.scenario.phases.evaluate
    usual = sim.arrivals.block("evaluate", 0, n)
    first, second = (OtherTraffic(sim, 1, stretch) for stretch in (0, 1))
    np.testing.assert_array_equal(first.block("evaluate", 0, n).requests, usual.requests)
    np.testing.assert_array_equal(first.block("evaluate", 0, n).users, usual.users)
    size = sim.scenario.traffic.block
    blocks = -(-n // size)
    assert second.first_request("evaluate") == usual.requests[0] + blocks * size
    assert second.block("evaluate", 0, n).requests[0] == second.first_request("evaluate")
    assert len(second.block("evaluate", blocks - 1, n)) == n - (blocks - 1) * size
    np.testing.assert_array_equal(
        second.block("log", 1, n).requests, sim.arrivals.block("log", 1, n).requests
    )


SMALL = (
    *("phases.cold_start=150", "phases.log=150", "phases.shadow=60", "phases.evaluate=128"),
    *("report.resamples=5", "report.detail_requests=4"),
)
ONE_MODEL = "models={mine: {kind: towers, data: [log], epochs: 1}}"
LEARNING = (*SMALL, ONE_MODEL, "cascade.pre_ranking.model=mine", "cascade.ranking.model=truth")
ARMS = ("arms={now: {}, small: {pre_ranking: {size: 6}}}", "report.baseline=now")


def measured(scenario, **more):
    with scratch_context(device="cpu") as context:
        return measure_scenario(scenario, "here", context, **more)


def test_a_changed_cascade_is_measured_with_the_models_that_the_baseline_had():
    """As an arm of the baseline's own study would have been."""
    before = tiny_scenario(*LEARNING, *ARMS)
    after = tiny_scenario(*LEARNING, "cascade.pre_ranking.size=6", "arms={now: {}}", "report.baseline=now")
    small = measured(before).blocks.arms["small"]
    held = measured(after, logged_by=scenario_data(before))
    assert held.has_held_models and held.blocks.arms["now"].values == small.values
    retrained = measured(after)
    assert not retrained.has_held_models and retrained.blocks.arms["now"].values != small.values


def test_models_are_held_by_the_sections_that_write_the_log_and_nothing_else():
    before = tiny_scenario(*LEARNING, *ARMS)
    more = "models.mine.epochs=2"
    after = tiny_scenario(*LEARNING, *ARMS, "auction.reserve_cpc=0.5", "phases.log=160", more)
    teacher = logging_scenario(after, scenario_data(before))
    assert teacher.auction == before.auction and teacher.cascade == before.cascade
    assert teacher.models == after.models and teacher.phases == after.phases


@pytest.mark.parametrize(
    "changes",
    [
        (*LEARNING, *ARMS, "models.mine.epochs=2"),  # its log is the baseline's
        (*SMALL, *ARMS, "models={}", "cascade.pre_ranking.model=random", "cascade.ranking.model=truth"),
        (*LEARNING, *ARMS, ONE_MODEL.replace("mine", "ours"), "cascade.pre_ranking.model=ours"),
    ],
    ids=["nothing that writes the log", "nothing is trained", "the model is no more"],
)
def test_where_there_is_nothing_to_hold_the_scenario_writes_its_own_log(changes):
    before = tiny_scenario(*LEARNING, *ARMS)
    assert logging_scenario(tiny_scenario(*changes), scenario_data(before)) is None
