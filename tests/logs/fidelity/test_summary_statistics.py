"""Moments of a market: known numbers come out, and noise of clicks is not taken for differences of ads."""

import numpy as np
import pytest
from scipy.stats import spearmanr

from cascade_sim.logs.fidelity import summary_statistics
from cascade_sim.logs.fidelity.sample import even_rows, take, visits_before
from worlds.other_family import OtherFamily

ALL = {one.name: one for one in summary_statistics.STATISTICS}


@pytest.fixture(scope="module")
def market():
    return OtherFamily(requests=2500, days=3.0)


@pytest.fixture(scope="module")
def sample(market, tmp_path_factory):
    return take(market.store(tmp_path_factory.mktemp("market")))


def value(sample, name, weight=None):
    return ALL[name].of(sample, np.ones(len(sample)) if weight is None else weight)


def test_levels_are_plain_counts(sample):
    shown = sample.is_shown
    clicks = sample.candidates["click"][shown] == 1
    assert value(sample, "ctr") == pytest.approx(clicks.mean())
    assert value(sample, "candidates") == pytest.approx(len(sample.request) / len(sample))
    assert value(sample, "price") == pytest.approx(sample.candidates["price_micros"][shown].mean() / 1e6)


def test_a_request_of_weight_two_counts_as_two(sample):
    twice = np.ones(len(sample))
    twice[:10] = 2
    rows = np.concatenate([np.flatnonzero(sample.request < 10), np.arange(len(sample.request))])
    bids = np.sort(np.log(sample.candidates["bid"][rows]))
    assert value(sample, "bid_spread", twice) == pytest.approx(bids.std())
    assert value(sample, "bid", twice) == pytest.approx(np.exp(bids[(len(bids) - 1) // 2]), rel=1e-9)


def test_the_tail_index_of_pareto_bids_is_found():
    index = 2.5
    rng = np.random.default_rng(4)
    logs = np.sort(rng.exponential(1 / index, 40_000))  # of Pareto numbers
    pretend = Pretend(logs)
    assert summary_statistics.tail_index(pretend, np.ones(1)) == pytest.approx(index, rel=0.1)


class Pretend:
    """A sample of bids alone, all of one request."""

    def __init__(self, logs):
        self.log_bids = logs, np.arange(len(logs))
        self.request = np.zeros(len(logs), int)


def test_ads_that_are_clicked_alike_have_no_spread(sample):
    rng = np.random.default_rng(3)
    draw = rng.random(len(sample.request)) < 0.1
    even = dict(sample.candidates, click=np.where(sample.is_shown, draw, -1))
    alike = take_with(sample, even)
    assert value(alike, "ctr_spread_ads") < 0.12 < 0.3 < value(sample, "ctr_spread_ads")


def take_with(sample, candidates):
    from dataclasses import replace

    return replace(sample, candidates=candidates, _codes={})


def test_rank_correlations_are_spearmans():
    rng = np.random.default_rng(1)
    x = rng.normal(size=400)
    columns = np.stack([x, np.round(x + rng.normal(size=400)), rng.integers(0, 3, 400)])
    found = summary_statistics.rank_correlations(columns, np.ones(400))
    assert found[0, 1] == pytest.approx(spearmanr(columns[0], columns[1])[0])
    assert found[1, 2] == pytest.approx(spearmanr(columns[1], columns[2])[0])


def test_weights_of_rank_correlations_are_copies_of_rows():
    rng = np.random.default_rng(2)
    columns, weight = rng.normal(size=(2, 60)).round(1), rng.integers(0, 4, 60).astype(float)
    copied = np.repeat(columns, weight.astype(int), axis=1)
    expected = spearmanr(copied[0], copied[1])[0]
    assert summary_statistics.rank_correlations(columns, weight)[0, 1] == pytest.approx(expected)


def test_a_market_does_not_differ_from_itself_and_does_from_one_with_dearer_bids(sample):
    same = summary_statistics.side_by_side(sample, sample, None, 30, 1)
    assert not any(row["differs"] for row in same)
    dearer = take_with(sample, dict(sample.candidates, bid=2 * sample.candidates["bid"]))
    rows = {row["name"]: row for row in summary_statistics.side_by_side(sample, dearer, None, 30, 1)}
    assert rows["bid"]["differs"] and rows["bid"]["gap"]["value"] == pytest.approx(1.0)
    assert not rows["bid_spread"]["differs"] and rows["bid"]["words"] == "bids are higher"


def test_visits_count_those_before_and_unknown_users_have_none():
    assert visits_before(np.array([5, 3, 5, -1, 5, 3, -1])).tolist() == [0, 0, 1, -1, 2, 1, -1]


def test_rows_of_a_long_log_are_stretches_over_all_of_it():
    rows = even_rows(100, 1_000_100, 2000)
    assert len(rows) == 2000 and rows[0] == 100 and rows[-1] == 1_000_099
    assert even_rows(0, 50, 2000).tolist() == list(range(50))
