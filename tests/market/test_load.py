import json

import numpy as np
import pytest

from cascade_sim.market.compute import EDGES, ComputeTally, RequestTiming, ServerPools, stage_candidates
from cascade_sim.scenario.market import Compute

STAGES = ("retrieval", "pre_ranking", "ranking")
SPEC = Compute.model_validate({
    "deadline": 50.0,
    "jitter": 0.3,
    "stages": {
        "retrieval": {"servers": 2, "per_batch_ms": 2.0, "per_candidate_us": 5.0},
        "pre_ranking": {"servers": 2, "per_batch_ms": 2.0, "per_candidate_us": 10.0},
        "ranking": {"servers": 3, "per_batch_ms": 3.0, "per_candidate_us": 200.0},
    },
})  # fmt: skip


def passage(served_by_stage, latency, reached, wait, service):
    return RequestTiming(
        np.array(served_by_stage, np.int8), np.array(latency, float), np.array(reached, np.int8),
        np.array(wait, float), np.array(service, float),
    )  # fmt: skip


def two_hours():
    """Two requests in the first hour, one in time; one in the half hour that follows."""
    tally = ComputeTally(SPEC, STAGES, 5400.0)
    found = passage(
        [2, 1, -1], [30.0, 50.0, 50.0], [3, 3, 1],
        [[0, 0, 4], [0, 2, 8], [50, 0, 0]], [[3, 5, 20], [3, 5, 12], [0, 0, 0]],
    )  # fmt: skip
    tally.add(np.array([10.0, 20.0, 4000.0]), stage_candidates((100, 100), np.array([40, 60, 80])), found)
    return tally.metrics(revenue=0.6)


def test_answers_are_counted_by_the_stage_that_gave_them():
    found = two_hours()
    third = pytest.approx(1 / 3)
    assert found["answered"] == {"ranking": third, "pre_ranking": third, "retrieval": 0.0, "none": third}
    assert found["late"] == pytest.approx(2 / 3)


def test_compute_is_counted_by_stage_and_against_revenue():
    found = two_hours()
    assert found["server_ms_per_request"] == pytest.approx((6 + 10 + 32) / 3)
    assert found["revenue_per_server_second"] == pytest.approx(0.6 / 0.048)
    ranking = found["stages"]["ranking"]
    assert ranking["server_ms_per_request"] == pytest.approx(32 / 3)
    assert ranking["utilisation"] == pytest.approx(0.032 / (3 * 5400))


def test_waits_are_means_over_those_who_came_to_the_stage():
    found = two_hours()["stages"]
    assert [found[s]["wait"] for s in ("retrieval", "pre_ranking", "ranking")] == pytest.approx(
        [50 / 3, 1, 6]
    )


def test_the_mean_size_is_that_of_requests_which_came_to_ranking():
    assert two_hours()["mean_size"] == (40 + 60) / 2


def test_hours_hold_requests_late_ones_and_load_of_the_time_there_is():
    hours = two_hours()["hours"]
    assert hours["requests"] == [2, 1] and hours["late"] == [0.5, 1.0]
    assert hours["utilisation"]["ranking"] == pytest.approx([0.032 / (3 * 3600), 0.0])
    assert hours["utilisation"]["pre_ranking"] == pytest.approx([0.010 / (2 * 3600), 0.0])


def test_a_half_hour_is_measured_as_half_an_hour():
    tally = ComputeTally(SPEC, STAGES, 1800.0)
    one = passage([2], [30.0], [3], [[0, 0, 0]], [[1, 1, 18]])
    tally.add(np.array([5.0]), stage_candidates((100, 100), np.array([40])), one)
    assert tally.metrics(0.0)["hours"]["utilisation"]["ranking"] == pytest.approx([0.018 / (3 * 1800)])


def stream(n=5000, rate=150.0, deadline_met=True):
    rng = np.random.default_rng(0)
    times = np.cumsum(rng.exponential(1 / rate, n))
    candidates = stage_candidates((300, 300), rng.choice([25, 50, 100], n))
    return times, candidates, ServerPools(SPEC, STAGES, 1).serve(np.arange(n), times, candidates)


def test_quantiles_are_those_of_the_latencies_to_the_width_of_a_bin():
    times, candidates, found = stream(rate=100.0)
    tally = ComputeTally(SPEC, STAGES, 3600.0)
    tally.add(times, candidates, found)
    latency = tally.metrics(0.0)["latency"]
    width = EDGES[1] / EDGES[0]
    for q in (50, 90, 99):
        exact = np.quantile(found.latency, q / 100)
        assert exact / width <= latency[f"p{q}"] <= exact * width
    assert latency["mean"] == pytest.approx(found.latency.mean())
    assert sum(latency["counts"]) == len(times) and len(latency["counts"]) == len(latency["edges"]) + 1


def test_a_quantile_among_the_late_is_the_deadline():
    tally = ComputeTally(SPEC, STAGES, 3600.0)
    rows = [[0, 0, 0]] * 10
    tally.add(
        np.arange(10.0), stage_candidates((9, 9), np.full(10, 6)),
        passage([2] * 8 + [1] * 2, [10.0] * 8 + [50.0] * 2, [3] * 10, rows, rows),
    )  # fmt: skip
    latency = tally.metrics(0.0)["latency"]
    assert latency["p50"] == pytest.approx(10.0, rel=0.06) and latency["p90"] == latency["p99"] == 50.0


@pytest.mark.parametrize("piece", [1, 7, 512])
def test_sums_do_not_depend_on_how_requests_are_cut_and_survive_a_checkpoint(piece):
    times, candidates, found = stream(1500)
    whole = ComputeTally(SPEC, STAGES, 7200.0)
    whole.add(times, candidates, found)
    tally = ComputeTally(SPEC, STAGES, 7200.0)
    for start in range(0, len(times), piece):
        rows = slice(start, start + piece)
        tally.add(times[rows], candidates[rows], found.take(rows))
        again = ComputeTally(SPEC, STAGES, 7200.0)
        again.restore(tally.state())
        tally = again
    assert json.dumps(tally.metrics(3.0)) == json.dumps(whole.metrics(3.0))
    assert 0 < whole.metrics(3.0)["late"] < 1


def test_without_requests_there_is_nothing_to_divide():
    found = json.loads(json.dumps(ComputeTally(SPEC, STAGES, 3600.0).metrics(0.0), allow_nan=False))
    assert found["latency"]["p50"] is None and found["late"] is None and found["hours"]["late"] == [None]
    assert found["revenue_per_server_second"] is None and found["stages"]["ranking"]["utilisation"] == 0.0
