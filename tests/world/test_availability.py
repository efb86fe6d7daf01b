"""Ads that come and go."""

import numpy as np
import pytest

from cascade_sim.scenario.sections import Churn
from cascade_sim.world.availability import DAY, AdAvailability, ascending

ADS = 20_000
ALL = np.arange(ADS, dtype=np.int32)


@pytest.fixture(scope="module")
def lives():
    return AdAvailability(Churn(available_share=0.6, mean_lifetime_days=8.0), ADS, seed=3)


@pytest.mark.parametrize("day", [0.0, 0.5, 11.0, 400.0])
def test_at_any_time_the_share_of_the_corpus_is_there(lives, day):
    share = lives.is_available(ALL, np.float64(day * DAY)).mean()
    assert share == pytest.approx(0.6, abs=5 * np.sqrt(0.6 * 0.4 / ADS))


def test_lives_last_their_mean_and_rests_the_share_that_is_left(lives):
    hours = np.arange(0, 60 * 24) / 24 * DAY
    there = lives.is_available(ALL[:500, None], hours[None, :])
    came = (~there[:, :-1] & there[:, 1:]).sum()
    # Time there over the number of beginnings; the ends of the sixty days cut some lives.
    assert there.sum() / 24 / came == pytest.approx(8.0, rel=0.1)
    # Nobody comes back before half a life's rest, 0.4 / 0.6 * 8 / 2 days, is over.
    rests = [np.diff(np.flatnonzero(row)) for row in there]
    gaps = np.concatenate([gap[gap > 1] for gap in rests])
    assert gaps.min() >= 0.5 * 8.0 * 0.4 / 0.6 * 24 - 1


def test_the_longer_one_waits_the_more_ads_are_new(lives):
    first = lives.is_available(ALL, np.float64(0.0))
    new = [(lives.is_available(ALL, np.float64(day * DAY)) & ~first).mean() for day in (0.1, 1.0, 3.0)]
    # Of all ads 0.6 / 8 a day begin, as lives of the mean length would; shorter ones add a little.
    assert new[1] == pytest.approx(0.6 / 8, rel=0.15)
    assert new[0] < new[1] < new[2]


def test_the_corpus_of_a_request_is_the_ads_that_are_there(lives):
    times = np.array([0.0, 5.0, 30.0]) * DAY
    for row, time in zip(lives.corpus(times), times, strict=True):
        assert np.array_equal(row[row >= 0], np.flatnonzero(lives.is_available(ALL, time)))
        assert np.all(np.diff((row >= 0).astype(int)) <= 0)


def test_padding_is_never_there(lives):
    assert not lives.is_available(np.array([-1, -1]), np.float64(0.0)).any()
    assert ascending(np.array([[5, -1, 2]])).tolist() == [[2, 5, -1]]
