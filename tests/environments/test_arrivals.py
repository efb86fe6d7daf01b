import threading

import numpy as np
import pytest
from scipy import stats

from cascade_sim.environments.arrivals import FIRST_REQUEST, Arrivals
from cascade_sim.scenario.schema import requests_by_phase
from cascade_sim.study.simulation import Simulation
from worlds.tiny_market import tiny_scenario


def market(sim, workers=1, **traffic):
    overrides = [f"traffic.{key}={value}" for key, value in traffic.items()]
    return Arrivals(sim.world, tiny_scenario(*overrides).traffic, workers)


def collected(one, phase="log", n=1000, serve=lambda block: len(block)):
    blocks, results = [], []

    def finish(block, result):
        blocks.append(block)
        results.append(result)

    one.run_phase(phase, n, serve, finish)
    return blocks, results


def joined(blocks, name):
    return np.concatenate([getattr(block, name) for block in blocks])


def test_every_request_arrives_once_and_in_order(sim):
    blocks, sizes = collected(market(sim, block=300))
    assert sizes == [300, 300, 300, 100]
    assert np.array_equal(joined(blocks, "requests"), FIRST_REQUEST["log"] + np.arange(1000))
    assert np.all(np.diff(joined(blocks, "times")) > 0)


def test_arrivals_are_poisson_with_the_asked_rate(sim):
    blocks, _ = collected(market(sim, requests_per_second=8.0, block=4096), n=20_000)
    times = joined(blocks, "times")
    assert times[-1] / 20_000 == pytest.approx(1 / 8, abs=4.5 / 8 / np.sqrt(20_000))
    gaps = np.diff(times)
    assert stats.kstest(gaps, "expon", args=(0, 1 / 8)).pvalue > 1e-4
    per_second = np.bincount(times.astype(int))[:-1]
    assert per_second.var() / per_second.mean() == pytest.approx(1, abs=0.15)
    assert abs(np.corrcoef(gaps[:-1], gaps[1:])[0, 1]) < 4.5 / np.sqrt(len(gaps))


def test_traffic_does_not_depend_on_the_size_of_blocks(sim):
    small, large = (collected(market(sim, block=size))[0] for size in (7, 512))
    for name in ("requests", "users", "context"):
        assert np.array_equal(joined(small, name), joined(large, name))
    assert joined(small, "times") == pytest.approx(joined(large, "times"), rel=1e-12)


def test_a_longer_phase_begins_like_a_shorter_one_and_phases_share_no_request(sim):
    short, long = (collected(market(sim, block=128), n=n)[0] for n in (300, 900))
    assert np.array_equal(joined(short, "users"), joined(long, "users")[:300])
    other = collected(market(sim, block=128), phase="evaluate", n=300)[0]
    assert not np.any(joined(other, "context") == joined(short, "context"))
    assert not set(joined(other, "requests")) & set(joined(long, "requests"))


def test_visits_follow_the_users_activity(sim):
    users = joined(collected(market(sim, block=4096), n=30_000)[0], "users")
    share = np.diff(sim.world.activity, prepend=0)
    assert stats.chisquare(np.bincount(users, minlength=150), 30_000 * share).pvalue > 1e-4


def test_time_goes_on_from_phase_to_phase(sim):
    one = market(sim, block=100)
    first, _ = collected(one, "cold_start", 250)
    second, _ = collected(one, "log", 250)
    assert one.env.now >= second[-1].times[-1] > second[0].times[0] > first[-1].times[-1]


def test_blocks_are_finished_in_order_by_any_number_of_workers(sim):
    late = threading.Event()

    def serve(block):
        """The first block waits until a later one is served."""
        if block.requests[0] == FIRST_REQUEST["log"]:
            late.wait(5)
        else:
            late.set()
        return int(block.requests[0])

    blocks, results = collected(market(sim, workers=2, block=50), serve=serve)
    assert late.is_set()
    assert (
        results == [FIRST_REQUEST["log"] + 50 * i for i in range(20)] == [int(b.requests[0]) for b in blocks]
    )


def test_no_requests_are_a_phase_too(sim):
    assert collected(market(sim), n=0) == ([], [])


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_while_serving_stops_the_phase(sim, workers):
    def serve(block):
        raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"):
        collected(market(sim, workers=workers), serve=serve)


def test_in_a_world_that_changes_a_block_has_the_time_of_the_study_whoever_asks_for_it():
    scenario = tiny_scenario("world.drift.per_day=0.1", "phases.log=700", "traffic.block=128")
    study, question = Simulation(scenario, 1).arrivals, Simulation(scenario, 1).arrivals
    lived = {}
    for phase, n in requests_by_phase(scenario).items():
        lived[phase] = collected(study, phase, n)[0]
    for phase in ("evaluate", "log", "shadow"):  # in any order
        n = requests_by_phase(scenario)[phase]
        for index in reversed(range(len(lived[phase]))):
            assert np.array_equal(question.block(phase, index, n).times, lived[phase][index].times)
    again = collected(question, "evaluate", 256)[0]
    assert np.array_equal(joined(again, "times"), joined(lived["evaluate"], "times")[:256])


def test_in_a_world_that_changes_phases_follow_each_other_as_in_one_that_does_not():
    def times(*overrides):
        scenario = tiny_scenario("phases.log=700", *overrides)
        one = Simulation(scenario, 1).arrivals
        phases = {**requests_by_phase(scenario), "off_policy": 300}
        return np.concatenate([joined(collected(one, *phase)[0], "times") for phase in phases.items()])

    assert np.array_equal(times(), times("world.churn.mean_lifetime_days=3"))
    assert np.all(np.diff(times()) > 0)


def test_where_nothing_changes_nobody_counts_the_requests_before(sim):
    assert not sim.world.is_timed
    assert sim.arrivals.block("evaluate", 1, 500).times[0] < 1.0
