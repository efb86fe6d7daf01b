"""Uncertainty of a fit in intervals: no figure moves, intervals grow by the spread over replicates."""

from types import SimpleNamespace

import numpy as np
import pytest

from cascade_sim.environments.uncertainty.replicates import (
    SIDE,
    Page,
    directions,
    drawn,
    replicate_sums,
    with_replicates,
)


def test_directions_sum_to_nothing_and_are_at_right_angles():
    found = directions(500, 12)
    assert found.sum(axis=0) == pytest.approx(np.zeros(12), abs=1e-12)
    assert found.T @ found == pytest.approx(np.eye(12), abs=1e-12)


@pytest.fixture
def response():
    return SimpleNamespace(replicate_share=1.0, n_replicates=20)


def test_resampled_sums_spread_as_requests_and_replicates_do_together(response):
    from scipy.special import ndtri, stdtrit

    rng = np.random.default_rng(3)
    n, k = 4000, 20
    columns = {"revenue": rng.exponential(size=n), "requests": np.ones(n)}
    sums = np.column_stack([np.full(k, float(n)), columns["revenue"].sum() + rng.normal(0, 150, k)])
    made = with_replicates({"arm": columns}, {"arm": sums}, response)["arm"]
    assert made["revenue"].sum() == pytest.approx(columns["revenue"].sum(), rel=1e-12)
    drawn = rng.integers(0, n, (3000, n))
    spread = made["revenue"][drawn].sum(axis=1).std()
    wider = stdtrit(k - 1, SIDE) / ndtri(SIDE)
    expected = np.hypot(np.sqrt(n) * columns["revenue"].std(), wider * sums[:, 1].std(ddof=1))
    assert spread == pytest.approx(expected, rel=0.05)
    assert np.array_equal(made["requests"], columns["requests"])  # the same in every replicate


def test_columns_that_are_alike_stay_alike_to_the_bit(response):
    rng = np.random.default_rng(4)
    column, moved = rng.random(300), rng.normal(0, 9, 20)
    tables = {"arm": {"requests": np.ones(300), "a": column, "z": column.copy()}}
    sums = np.column_stack([moved, rng.normal(0, 9, 20), moved])  # by name: a, requests, z
    made = with_replicates(tables, {"arm": sums}, response)["arm"]
    assert np.array_equal(made["a"], made["z"]) and not np.array_equal(made["a"], column)


def test_what_is_learned_from_a_part_of_the_log_spreads_less_than_it_shows(response):
    rng = np.random.default_rng(5)
    tables = {"arm": {"requests": np.ones(300), "x": np.zeros(300)}}
    sums = np.column_stack([np.full(20, 300.0), rng.normal(0, 9, 20)])
    whole = with_replicates(tables, {"arm": sums}, response)["arm"]["x"]
    response.replicate_share = 0.25
    part = with_replicates(tables, {"arm": sums}, response)["arm"]["x"]
    assert part == pytest.approx(0.5 * whole)


def test_fewer_rows_than_replicates_are_left_as_they_are(response):
    tables = {"arm": {"requests": np.ones(10)}}
    assert with_replicates(tables, {"arm": np.zeros((20, 1))}, response)["arm"] is tables["arm"]


class HandMade:
    """Two replicates of a response to three requests: one as it is, one with better second slots."""

    def __init__(self, share=1.0):
        self.response = SimpleNamespace(
            n_replicates=2, n_requests=3, replicate_share=share,
            replicate_effects=np.array([[1.0, 0.5], [1.0, 0.8]]),
            whole={"count": np.array([[1, 0], [1, 2], [1, 1]], np.uint8)}.__getitem__,
        )  # fmt: skip

    def rows(self, requests):
        return np.asarray(requests) % 3

    def replicates(self, requests, ads):
        """The log-odds of ad 7 are higher by log 3 in the second."""
        moved = np.zeros((*ads.shape, 2))
        moved[ads == 7, 1] = np.log(3.0)
        return moved


@pytest.fixture
def page():
    """Of two requests; the second has one ad."""
    ads = np.array([[7, 4], [4, -1]])
    ctr = np.array([[0.25, 0.1], [0.2, 0.0]])
    expected = np.array([[0.25, 0.05], [0.2, 0.0]])
    return Page.of(HandMade(), np.array([0, 1]), ads, ctr, expected)


def test_clicks_move_with_odds_and_slots_and_not_where_nothing_is_shown(page):
    # odds of 1 to 3 become 1 to 1; the slot of 0.5 is one of 0.8
    assert page.clicks[:, :, 0] == pytest.approx(np.zeros((2, 2)))
    assert page.clicks[:, :, 1] == pytest.approx(np.array([[0.25, 0.03], [0.0, 0.0]]))


def test_what_is_paid_moves_with_clicks_or_not_at_all_if_impressions_are_charged(page):
    price, value = np.array([[2.0, 1.0], [3.0, 0.0]]), np.array([[4.0, 2.0], [5.0, 0.0]])
    moved = page.moved(price, value, "click")
    assert moved["expected_clicks"][:, 1] == pytest.approx([0.28, 0.0])
    assert moved["expected_revenue"][:, 1] == pytest.approx([2 * 0.25 + 0.03, 0.0])
    assert moved["welfare"][:, 1] == pytest.approx([4 * 0.25 + 2 * 0.03, 0.0])
    free = page.moved(price, value, "impression")
    assert free["revenue"].any() == free["welfare"].any() == False  # noqa: E712
    assert free["clicks"][0, 1] == pytest.approx(0.28)


def test_sums_in_a_replicate_count_requests_as_often_as_they_were_drawn():
    columns = {
        "requests": np.ones(3), "clicks": np.array([1.0, 0.0, 0.0]),
        "expected_clicks": np.array([0.3, 0.2, 0.1]), "revenue": np.array([5.0, 0.0, 0.0]),
        "expected_revenue": np.array([0.6, 0.4, 0.2]),
    }  # fmt: skip
    moved = {"clicks": np.array([[0, 0.1], [0, 0.2], [0, 0.0]])}
    many = 10**9  # so many requests that those of the log alone are uncertain
    sums = replicate_sums(HandMade(), np.arange(3), columns, moved, many)
    by_name = dict(zip(sorted(columns), sums.T, strict=True))
    assert by_name["requests"] == pytest.approx([3, 3])
    assert by_name["expected_clicks"] == pytest.approx([0.6, 2 * 0.2 + 0.1])
    assert by_name["clicks"] == pytest.approx(
        [0.6, 0.5 + 2 * 0.2]
    )  # the sampling noise of clicks is not the log's
    for name in ("revenue", "expected_revenue"):
        assert by_name[name] == pytest.approx([1.2, 2 * 0.4 + 0.2])


def test_counts_leave_to_the_rows_what_their_own_noise_is():
    few = drawn(HandMade(), np.arange(3), 3)
    assert few[:, 0] == pytest.approx([1, 1, 1])
    assert few[:, 1] == pytest.approx(1 + np.array([-1, 1, 0]) * np.sqrt(0.5))
    part = drawn(HandMade(share=0.5), np.arange(3), 10**9)
    assert part[:, 1] == pytest.approx([0, 4, 2], abs=1e-6)


def test_intervals_are_as_wide_as_the_estimate_spreads_over_logs():
    """Logs of 600 requests, evaluations of 900 drawn from them, a response that is known."""
    rng, n_log, n = np.random.default_rng(8), 600, 900
    errors, said = [], []
    for _ in range(300):
        worth = rng.exponential(size=n_log)  # what a request of the log brings; 1 in the mean of all logs
        row = rng.integers(0, n_log, n)
        made = HandMade()
        count = rng.poisson(1.0, (n_log, 40)).astype(np.uint8)
        made.response = SimpleNamespace(
            n_replicates=40, n_requests=n_log, replicate_share=1.0, whole={"count": count}.__getitem__
        )
        made.rows = lambda requests, row=row: row[requests]
        columns = {name: worth[row] for name in ("clicks", "expected_clicks", "revenue", "expected_revenue")}
        columns["requests"] = np.ones(n)
        sums = replicate_sums(made, np.arange(n), columns, {}, n)
        table = with_replicates({"arm": columns}, {"arm": sums}, made.response)["arm"]
        mean = columns["expected_revenue"].mean()
        added = (table["expected_revenue"] - mean * table["requests"]) / n
        errors.append(mean - 1.0)
        said.append(np.sqrt(np.sum(added**2)))
    # a little wider, as 40 replicates are few; 1.2 if the sampling noise of the evaluation counted twice
    assert 0.92 < np.mean(said) / np.std(errors) < 1.12
