"""The doubt of a fit in intervals: no figure moves, and intervals grow by the spread over replicates."""

from types import SimpleNamespace

import numpy as np
import pytest

from cascade_sim.phases.doubt import SIDE, directions, with_doubt


def test_directions_sum_to_nothing_and_are_at_right_angles():
    found = directions(500, 12)
    assert found.sum(axis=0) == pytest.approx(np.zeros(12), abs=1e-12)
    assert found.T @ found == pytest.approx(np.eye(12), abs=1e-12)


@pytest.fixture
def sim():
    response = SimpleNamespace(replicate_share=1.0, n_replicates=20)
    return SimpleNamespace(fitted=SimpleNamespace(response=response))


def test_resampled_sums_spread_as_requests_and_replicates_do_together(sim):
    from scipy.special import ndtri, stdtrit

    rng = np.random.default_rng(3)
    n, k = 4000, 20
    columns = {"revenue": rng.exponential(size=n), "requests": np.ones(n)}
    sums = np.column_stack([np.full(k, float(n)), columns["revenue"].sum() + rng.normal(0, 150, k)])
    made = with_doubt({"arm": columns}, {"arm": sums}, sim, None)["arm"]
    assert made["revenue"].sum() == pytest.approx(columns["revenue"].sum(), rel=1e-12)
    drawn = rng.integers(0, n, (3000, n))
    spread = made["revenue"][drawn].sum(axis=1).std()
    wider = stdtrit(k - 1, SIDE) / ndtri(SIDE)
    expected = np.hypot(np.sqrt(n) * columns["revenue"].std(), wider * sums[:, 1].std(ddof=1))
    assert spread == pytest.approx(expected, rel=0.05)
    assert np.array_equal(made["requests"], columns["requests"])  # the same in every replicate


def test_columns_that_are_alike_stay_alike_to_the_bit(sim):
    rng = np.random.default_rng(4)
    column, moved = rng.random(300), rng.normal(0, 9, 20)
    tables = {"arm": {"requests": np.ones(300), "a": column, "z": column.copy()}}
    sums = np.column_stack([moved, rng.normal(0, 9, 20), moved])  # by name: a, requests, z
    made = with_doubt(tables, {"arm": sums}, sim, None)["arm"]
    assert np.array_equal(made["a"], made["z"]) and not np.array_equal(made["a"], column)


def test_what_is_learned_from_a_part_of_the_log_spreads_less_than_it_shows(sim):
    rng = np.random.default_rng(5)
    tables = {"arm": {"requests": np.ones(300), "x": np.zeros(300)}}
    sums = np.column_stack([np.full(20, 300.0), rng.normal(0, 9, 20)])
    whole = with_doubt(tables, {"arm": sums}, sim, None)["arm"]["x"]
    sim.fitted.response.replicate_share = 0.25
    part = with_doubt(tables, {"arm": sums}, sim, None)["arm"]["x"]
    assert part == pytest.approx(0.5 * whole)


def test_fewer_rows_than_replicates_are_left_as_they_are(sim):
    tables = {"arm": {"requests": np.ones(10)}}
    assert with_doubt(tables, {"arm": np.zeros((20, 1))}, sim, None)["arm"] is tables["arm"]
