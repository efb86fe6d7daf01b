import numpy as np
import pytest

from cascade_sim.foundation import random as draws
from cascade_sim.market.compute import ServerPools, stage_candidates
from cascade_sim.scenario.market import Compute
from oracles.queues import in_a_row

STAGES = ("retrieval", "pre_ranking", "ranking")
FREE = {"servers": 1, "per_batch_ms": 0.0, "per_candidate_us": 0.0, "batch": 1}


def spec(deadline=1e6, jitter=0.0, **stages):
    """Stages that are not given take no time."""
    pools = {name: {**FREE, **stages.get(name, {})} for name in STAGES}
    return Compute.model_validate({"deadline": deadline, "jitter": jitter, "stages": pools})


def passed(compute, times, candidates=None, seed=1):
    times = np.asarray(times, float)
    candidates = np.ones((len(times), 3)) if candidates is None else np.asarray(candidates)
    return ServerPools(compute, STAGES, seed).serve(np.arange(len(times)), times, candidates)


def poisson(rate, n, seed=0):
    return np.cumsum(np.random.default_rng(seed).exponential(1 / rate, n))


def busy(jitter=0.3, deadline=60.0, batch=3, load=1.6, n=4000):
    """Three pools near their limits, and requests of three sizes for them."""
    compute = spec(
        deadline,
        jitter,
        retrieval={"servers": 2, "per_batch_ms": 3.0, "per_candidate_us": 10.0, "batch": batch},
        pre_ranking={"servers": 3, "per_batch_ms": 2.0, "per_candidate_us": 50.0, "batch": batch},
        ranking={"servers": 4, "per_batch_ms": 4.0, "per_candidate_us": 200.0, "batch": batch},
    )
    times = poisson(200 * load, n)
    sizes = np.random.default_rng(1).choice([20, 50, 80], n)
    return compute, times, stage_candidates((150, 150), sizes)


def test_an_idle_server_takes_a_request_at_once():
    found = passed(spec(ranking={"per_batch_ms": 8.0}), 0.010 * np.arange(50))  # one every 10 ms
    assert np.all(found.wait == 0) and np.all(found.served_by_stage == 2)
    assert found.latency == pytest.approx(np.full(50, 8.0)) and found.service[:, 2] == pytest.approx(8.0)


def test_a_request_passes_the_stages_one_after_the_other():
    compute = spec(
        retrieval={"per_batch_ms": 1.0, "per_candidate_us": 2.0},
        pre_ranking={"per_batch_ms": 3.0, "per_candidate_us": 10.0},
        ranking={"per_batch_ms": 5.0, "per_candidate_us": 100.0},
    )
    found = passed(compute, [7.0], stage_candidates((500, 500), np.array([40])))
    assert found.service[0] == pytest.approx([1 + 500 * 0.002, 3 + 500 * 0.010, 5 + 40 * 0.100])
    assert found.latency[0] == pytest.approx(2 + 8 + 9)


@pytest.mark.parametrize("load", [0.5, 0.8])
def test_the_mean_wait_with_poisson_arrivals_and_fixed_service_is_that_of_theory(load):
    n = 200_000
    found = passed(spec(retrieval={"per_batch_ms": 10.0}), poisson(load / 0.010, n))
    blocks = found.wait[:, 0].reshape(100, -1).mean(axis=1)
    error = blocks.std(ddof=1) / np.sqrt(len(blocks))
    assert abs(blocks.mean() - load * 10.0 / (2 * (1 - load))) < 4 * error  # M/D/1: rho * s / (2 (1 - rho))


def test_the_jitter_leaves_mean_service_times_as_they_are():
    found = passed(spec(jitter=0.5, ranking={"per_batch_ms": 8.0}), 0.1 * np.arange(100_000))
    service = found.service[:, 2]
    assert service.mean() == pytest.approx(8.0, rel=4 * service.std() / 8.0 / np.sqrt(len(service)))
    assert np.log(service).std() == pytest.approx(0.5, rel=0.02)


def test_a_free_server_takes_those_who_wait_together_and_hands_each_on_when_it_is_done():
    compute = spec(ranking={"per_batch_ms": 10.0, "per_candidate_us": 1000.0, "batch": 2})
    found = passed(compute, [0.0, 0.001, 0.002, 0.003])
    # 0 alone: done at 11. 1 and 2 start at 11 and cost 10 + 1 + 1: done at 22 and 23. 3 is alone again.
    assert found.latency == pytest.approx([11, 22 - 1, 23 - 2, 34 - 3])
    assert found.service[:, 2] == pytest.approx([11, 11, 1, 11])  # the first of a batch pays what it costs
    assert found.wait[:, 2] == pytest.approx([0, 11 - 1, 22 - 2, 23 - 3])


def test_a_batch_takes_nobody_who_comes_after_its_start():
    compute = spec(ranking={"per_batch_ms": 10.0, "batch": 9})
    found = passed(compute, [0.0, 0.004, 0.012])
    assert found.latency == pytest.approx([10, 20 - 4, 30 - 12])


def test_waiting_requests_do_not_share_a_batch_while_another_server_is_idle():
    compute = spec(ranking={"servers": 2, "per_batch_ms": 10.0, "batch": 9})
    assert passed(compute, [0.0, 0.0, 0.001]).latency == pytest.approx([10, 10, 19])


def test_a_request_out_of_time_is_left_out_at_no_cost_and_one_under_way_costs_its_time():
    compute = spec(25.0, ranking={"per_batch_ms": 20.0})
    found = passed(compute, [0.0, 0.001, 0.010, 0.050])
    # 0: 0-20. 1: would be 20-40, and its deadline is 26. 2: 40 is after 35. 3: the server is idle again.
    assert found.served_by_stage.tolist() == [2, 1, 1, 2]
    assert found.latency == pytest.approx([20, 25, 25, 20])
    assert found.service[:, 2] == pytest.approx([20, 20, 0, 20])
    assert found.wait[:, 2] == pytest.approx([0, 19, 25, 0])
    assert found.reached.tolist() == [3, 3, 3, 3]


@pytest.mark.parametrize(("slow", "answered"), [("retrieval", -1), ("pre_ranking", 0), ("ranking", 1)])
def test_the_stage_before_the_slow_one_answers(slow, answered):
    found = passed(spec(5.0, **{slow: {"per_batch_ms": 6.0}}), [0.0])
    assert found.served_by_stage.tolist() == [answered] and found.latency.tolist() == [5.0]
    assert found.reached.tolist() == [answered + 2]
    assert found.service[0].sum() == pytest.approx(6.0)


def test_an_answer_just_at_the_deadline_is_in_time():
    assert passed(spec(8.0, ranking={"per_batch_ms": 8.0}), [0.0]).served_by_stage.tolist() == [2]


@pytest.mark.parametrize(("servers", "batch"), [(1, 1), (1, 4), (3, 1), (4, 3)])
@pytest.mark.parametrize("deadline", [1e6, 40.0])
def test_a_pool_agrees_with_a_simulation_batch_by_batch(servers, batch, deadline):
    n, jitter = 3000, 0.4
    pool = {"servers": servers, "per_batch_ms": 8.0, "per_candidate_us": 100.0, "batch": batch}
    compute = spec(deadline, jitter, retrieval=pool)
    times = poisson((1.8 if batch > 1 else 0.95) * servers / 0.010, n)
    candidates = stage_candidates((1, 1), np.ones(n, int))
    candidates[:, 0] = np.random.default_rng(2).integers(1, 40, n)
    found = passed(compute, times, candidates)
    noise = np.exp(jitter * draws.normal(1, "service retrieval", np.arange(n)) - jitter**2 / 2)
    stage = (1e-4 * candidates[:, 0], 8e-3, noise, servers, batch)
    met = in_a_row(times.tolist(), deadline / 1e3, [stage])[0]
    left_out = np.array([one.is_left_out for one in met])
    assert np.array_equal(found.service[:, 0] == 0, left_out)
    start, end = (np.array([getattr(one, name) for one in met]) for name in ("start", "end"))
    assert found.wait[~left_out, 0] == pytest.approx(1e3 * (start - times)[~left_out], abs=1e-6)
    assert found.service[:, 0] == pytest.approx(1e3 * (end - start), abs=1e-6)
    assert left_out.any() == (deadline < 100)


def test_stages_in_a_row_agree_with_the_simulation_where_nobody_overtakes():
    compute, times, candidates = busy(jitter=0.0, batch=1, load=1.3)
    candidates[:, 2] = 60  # equal and constant service times keep requests in order in every pool
    found = passed(compute, times, candidates)
    stages = [
        (candidates[:, 0] * 1e-5, 3e-3, np.ones(len(times)), 2, 1),
        (candidates[:, 1] * 5e-5, 2e-3, np.ones(len(times)), 3, 1),
        (candidates[:, 2] * 2e-4, 4e-3, np.ones(len(times)), 4, 1),
    ]
    met = in_a_row(times.tolist(), 0.060, stages)
    done = np.array(
        [sum(one is not None and not one.is_left_out for one in row) for row in zip(*met, strict=True)]
    )
    assert np.array_equal((found.service > 0).sum(axis=1), done)
    assert (done < 3).any() and (found.served_by_stage == 2).any()


def test_overtaking_costs_little_against_first_come_first_served_in_every_pool():
    compute, times, candidates = busy(jitter=0.3, batch=1, load=0.9, deadline=1e6, n=20_000)
    found = passed(compute, times, candidates)
    noise = [np.exp(0.3 * draws.normal(1, f"service {s}", np.arange(len(times))) - 0.045) for s in STAGES]
    costs = ((1e-5, 3e-3, 2), (5e-5, 2e-3, 3), (2e-4, 4e-3, 4))
    stages = [
        (candidates[:, s] * each, setup, noise[s], servers, 1)
        for s, (each, setup, servers) in enumerate(costs)
    ]
    last = in_a_row(times.tolist(), 1e3, stages)[2]
    mean = 1e3 * np.mean([one.end for one in last] - times)
    assert mean <= found.latency.mean() < 1.03 * mean


@pytest.mark.parametrize("jitter", [0.0, 0.5])
def test_cutting_the_stream_anywhere_changes_no_bit(jitter):
    compute, times, candidates = busy(jitter)
    whole = passed(compute, times, candidates)
    assert 0.02 < np.mean(whole.served_by_stage < 2) < 0.98
    for seed in range(5):
        cuts = np.sort(np.random.default_rng(seed).integers(0, len(times) + 1, 40))
        edges = [0, *cuts, len(times)]
        pools, parts = ServerPools(compute, STAGES, 1), []
        for start, stop in zip(edges, edges[1:], strict=False):
            state = pools.state()  # every cut is a checkpoint too
            pools = ServerPools(compute, STAGES, 1)
            pools.restore(state)
            rows = np.arange(start, stop)
            parts.append(pools.serve(rows, times[rows], candidates[rows]))
        for name, value in vars(whole).items():
            assert np.concatenate([getattr(part, name) for part in parts]).tobytes() == value.tobytes(), name


def test_the_fate_of_a_request_does_not_depend_on_those_who_come_later():
    compute, times, candidates = busy()
    whole, half = passed(compute, times, candidates), passed(compute, times[:2000], candidates[:2000])
    assert all(np.array_equal(value, getattr(whole, name)[:2000]) for name, value in vars(half).items())


def test_servers_are_never_busier_than_there_are_servers():
    compute, times, candidates = busy(load=6.0)
    found = passed(compute, times, candidates)
    span = times[-1] - times[0] + 0.060 + 0.2  # the last may start at its deadline and take its time
    for stage, name in enumerate(STAGES):
        spent, most = found.service[:, stage].sum() / 1e3, getattr(compute.stages, name).servers * span
        assert 0.0 < spent <= most
    assert found.service[:, 0].sum() / 1e3 > 0.95 * 2 * (times[-1] - times[0])  # and none idles in a rush


def test_requests_start_in_the_order_they_came():
    compute, times, candidates = busy(deadline=1e6, batch=1)
    wait = passed(compute, times, candidates).wait[:, 0]
    assert np.all(np.diff(times + wait / 1e3) >= -1e-9) and wait.max() > 0


def test_an_answer_comes_between_arrival_and_deadline_and_is_made_of_waits_and_work():
    compute, times, candidates = busy()
    found = passed(compute, times, candidates)
    in_time = found.served_by_stage == 2
    assert np.all((found.latency >= 0) & (found.latency <= 60.0 + 1e-6))
    assert found.latency[~in_time].tolist() == [60.0] * int((~in_time).sum())
    whole = (found.wait + found.service).sum(axis=1)
    assert found.latency[in_time] == pytest.approx(whole[in_time], abs=1e-6)


def test_the_noise_belongs_to_the_request():
    compute = spec(jitter=0.5, ranking={"per_batch_ms": 1.0})
    pools = ServerPools(compute, STAGES, 1)
    one = pools.serve(np.array([7, 8]), np.array([0.0, 1.0]), np.ones((2, 3)))
    other = ServerPools(compute, STAGES, 1).serve(np.array([8]), np.array([5.0]), np.ones((1, 3)))
    assert one.service[1].tolist() == other.service[0].tolist() != one.service[0].tolist()


def test_requests_out_of_order_are_refused():
    pools = ServerPools(spec(), STAGES, 1)
    pools.serve(np.array([0]), np.array([2.0]), np.ones((1, 3)))
    with pytest.raises(ValueError, match="order of arrival"):
        pools.serve(np.array([1]), np.array([1.0]), np.ones((1, 3)))


def test_a_state_of_other_pools_is_refused():
    with pytest.raises(ValueError, match="these pools need"):
        ServerPools(spec(), STAGES, 1).restore(ServerPools(spec(ranking={"servers": 2}), STAGES, 1).state())
