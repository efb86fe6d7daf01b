"""Uniform draws from the corpus: different ads, alike likely, there when asked for, keyed by request."""

import numpy as np
import pytest

from cascade_sim.cascade import corpus_sample
from cascade_sim.cascade.corpus_sample import uniform_ads

REQUESTS = 5_000_000_000 + np.arange(4000)
TIMES = np.linspace(0, 1e6, len(REQUESTS))


class Odd:
    """Ads with odd ids are there in the second half of the time, the others always."""

    share = 0.75

    def is_available(self, ads, times):
        return (ads >= 0) & ((ads % 2 == 0) | (times > 5e5))


class Few:
    """Of any corpus three ads are there, which nobody is told."""

    share = 1.0

    def is_available(self, ads, times):
        return (ads >= 0) & (ads < 3) & (times >= 0)


def drawn(size, n_ads, requests=REQUESTS, seed=1, lives=None, times=TIMES):
    return uniform_ads(requests, size, n_ads, seed, "a test", times[: len(requests)], lives)


@pytest.mark.parametrize(("size", "n_ads"), [(6, 100), (6, 12), (12, 12), (1, 100)])
def test_every_ad_is_as_likely_in_every_place_and_no_row_has_one_twice(size, n_ads):
    found = drawn(size, n_ads)
    assert found.shape == (len(REQUESTS), size) and found.dtype == np.int32
    ranked = np.sort(found, axis=1)
    assert (ranked[:, 1:] != ranked[:, :-1]).all() and ranked.min() >= 0 and ranked.max() < n_ads
    for place in (0, size - 1):
        counts, p = np.bincount(found[:, place], minlength=n_ads), 1 / n_ads
        assert abs(counts - len(found) * p).max() < 5 * np.sqrt(len(found) * p * (1 - p))


@pytest.mark.parametrize(("size", "n_ads"), [(6, 100), (6, 16)])
def test_only_ads_that_are_there_are_drawn_and_those_alike(size, n_ads):
    found = drawn(size, n_ads, lives=Odd())
    early = TIMES <= 5e5
    assert (found[early] % 2 == 0).all() and found.min() >= 0
    counts, p = np.bincount(found[~early].ravel(), minlength=n_ads), size / n_ads
    assert abs(counts - (~early).sum() * p).max() < 5 * np.sqrt((~early).sum() * p * (1 - p))


@pytest.mark.parametrize("n_ads", [40, 6])
def test_rows_end_in_padding_where_fewer_are_there_than_asked_for(n_ads):
    found = drawn(5, n_ads, REQUESTS[:50], lives=Few())
    assert (np.sort(found[:, :3], axis=1) == [0, 1, 2]).all() and (found[:, 3:] == -1).all()
    assert (drawn(5, 3, REQUESTS[:50])[:, 3:] == -1).all()


@pytest.mark.parametrize(("size", "n_ads"), [(20, 100), (20, 30)])
def test_a_request_is_given_the_same_ads_whoever_stands_beside_it(size, n_ads):
    whole = drawn(size, n_ads, lives=Odd())
    rows = np.array([7, 3000, 11])
    alone = uniform_ads(REQUESTS[rows], size, n_ads, 1, "a test", TIMES[rows], Odd())
    assert np.array_equal(whole[rows], alone)
    for seed, purpose in ((2, "a test"), (1, "another")):
        assert not np.array_equal(uniform_ads(REQUESTS, size, n_ads, seed, purpose), drawn(size, n_ads))


def test_few_draws_and_many_give_the_same_row(monkeypatch):
    """The row is the first different ads of one sequence, however much of it is looked at."""
    plain = drawn(20, 100)
    monkeypatch.setattr(corpus_sample, "_tries", lambda size, share: size)
    assert np.array_equal(drawn(20, 100), plain)


def test_nothing_may_be_asked_for():
    assert drawn(0, 10).shape == (len(REQUESTS), 0) and len(drawn(3, 100, REQUESTS[:0])) == 0
