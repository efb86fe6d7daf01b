from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from cascade_sim.auction import floor_micros
from cascade_sim.cascade.exploration import Corpus, explore, random_page
from cascade_sim.cascade.fusion import Fusion
from cascade_sim.cascade.page import Page
from cascade_sim.cascade.scorers import RandomScorer
from cascade_sim.cascade.serve import Platform, Stage
from cascade_sim.foundation import random as draws
from cascade_sim.world.availability import AdAvailability
from worlds.cascades import Bids, Table, make_arm, make_decision
from worlds.tiny_market import make_block

R, N, K = 40_000, 6, 2
BID = np.array([0.5, 1.0, 2.0, 0.1, 3.0, 0.7])
OPT = 1.25 * BID
PCTR = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
PLATFORM = Platform(Bids(BID, OPT), np.ones(K))  # retrieval is over before anyone explores


def arm(reserve=0.0, slots=K, ranker=None):
    seat = Stage(ranker or Table(PCTR), "opt", Fusion(pctr=1.0, pcvr=1.0))
    return make_arm(N, seat, N, seat, slots, reserve_cpc=reserve)


def decision(ids, page, runner_up=3, slots=K):
    """A cascade that shows the same page, at a CPC of 0.25, to everyone."""
    shape = (len(ids), slots + 1)
    ranked = np.tile(np.array([*page, runner_up], np.int32), (len(ids), 1))
    page = Page(
        ranked, np.full(shape, 0.3), np.full(shape, 1.0), np.full(shape, 0.3),
        np.full((len(ids), slots), 250_000),
    )  # fmt: skip
    return make_decision(ids, page)


def explored(rate, n=N, reserve=0.0, page=(4, 1), requests=R, ranker=None):
    ids = np.tile(np.arange(N, dtype=np.int32), (requests, 1))
    ids[:, n:] = -1
    return explore(
        make_block(np.zeros(requests)), decision(ids, page), arm(reserve, ranker=ranker), rate, 1, PLATFORM
    )


def test_rate_0_changes_nothing_and_its_propensity_is_1():
    found = explored(0.0, requests=100)
    assert np.all(found.decision.win_set == [4, 1]) and np.all(found.decision.cpc_micros == 250_000)
    assert not found.is_explored.any() and np.all(found.propensity == 1.0)


def test_rate_1_replaces_every_page_by_distinct_ads_of_the_pre_ranking_set():
    page = explored(1.0).decision.win_set
    assert np.all(page[:, 0] != page[:, 1]) and page.min() == 0 and page.max() == N - 1


@pytest.mark.parametrize("rate", [0.3, 1.0])
def test_the_logged_propensity_is_how_often_an_ad_comes_into_its_slot(rate):
    found = explored(rate)
    page = found.decision.win_set
    for slot, deployed in enumerate((4, 1)):
        for ad in range(N):
            here = page[:, slot] == ad
            expected = (1 - rate) * (ad == deployed) + rate / N
            assert np.all(found.propensity[here, slot] == pytest.approx(expected))
            assert abs(here.sum() - R * expected) < 4.5 * np.sqrt(R * expected * (1 - expected))


def test_weighting_by_the_propensity_makes_the_log_unbiased():
    """Estimate what showing ad 0 in slot 1 brings, from a log that shows it seldom."""
    rate = 0.4
    found = explored(rate)
    value = 1.0 + np.arange(N)
    target = 0
    shown = found.decision.win_set[:, 0]
    weighted = np.where(shown == target, value[shown] / found.propensity[:, 0], 0.0)
    assert weighted.mean() == pytest.approx(1.0, abs=4.5 * weighted.std() / np.sqrt(R))
    # The sum over all ads in the slot: each is worth its value once.
    everything = value[shown] / found.propensity[:, 0]
    assert everything.mean() == pytest.approx(value.sum(), abs=4.5 * everything.std() / np.sqrt(R))
    assert abs(value[shown].mean() * N - value.sum()) > 1  # unweighted, the log would mislead


def test_with_fewer_ads_than_slots_the_rest_of_the_page_stays_empty():
    found = explored(1.0, n=1, requests=50)
    assert np.all(found.decision.win_set == [0, -1])
    assert np.all(found.propensity == [1.0, 0.0]) and np.all(found.decision.cpc_micros[:, 1] == 0)
    nothing = explored(1.0, n=0, requests=50)
    assert np.all(nothing.decision.win_set == -1) and not nothing.propensity.any()
    assert not nothing.decision.cpc_micros.any()


def test_an_explored_click_costs_the_reserve_but_never_more_than_the_bid():
    found = explored(1.0, reserve=0.6)
    page, cpc = found.decision.win_set, found.decision.cpc_micros
    assert np.array_equal(cpc, np.minimum(600_000, floor_micros(OPT))[page])
    assert cpc.min() == 125_000 and cpc.max() == 600_000


def test_an_explored_ad_has_the_rankers_pctr_and_bid_and_no_runner_up():
    found = explored(0.5, requests=1000)
    one, own = found.decision, found.is_explored
    page = one.win_set[own]
    assert np.array_equal(one.ranked_pctr[own, :-1], PCTR[page])
    assert np.array_equal(one.ranked_bid[own, :-1], OPT[page])
    assert one.ranked_quality[own, :-1] == pytest.approx(0.5 * PCTR[page])  # pCVR is 0.5 for everyone
    for table, empty in (
        (one.ranked_set, -1),
        (one.ranked_pctr, 0),
        (one.ranked_bid, 0),
        (one.ranked_quality, 0),
    ):
        assert np.all(table[own, -1] == empty)
    assert np.all(one.ranked_pctr[~own] == 0.3) and np.all(one.ranked_set[~own, -1] == 3)
    assert 400 < own.sum() < 600


def test_a_ranking_seat_without_probabilities_claims_none_for_explored_ads():
    found = explored(1.0, n=1, requests=50, ranker=RandomScorer(1)).decision
    assert np.all(np.isnan(found.ranked_pctr[:, 0])) and np.all(found.ranked_pctr[:, 1:] == 0)
    assert np.all(found.ranked_bid == [OPT[0], 0, 0])


def test_exploration_leaves_the_cascades_own_decision_untouched():
    ids = np.tile(np.arange(N, dtype=np.int32), (50, 1))
    own = decision(ids, (4, 1))
    explore(make_block(np.zeros(50)), own, arm(), 1.0, 1, PLATFORM)
    assert np.all(own.win_set == [4, 1]) and np.all(own.cpc_micros == 250_000)
    assert np.all(own.ranked_pctr == 0.3)


def test_whether_a_page_is_explored_does_not_depend_on_its_block():
    ids = np.tile(np.arange(N, dtype=np.int32), (20, 1))
    whole = explore(make_block(np.zeros(20)), decision(ids, (4, 1)), arm(), 0.5, 1, PLATFORM)
    for r in range(20):
        one = explore(make_block([0], first_request=r), decision(ids[:1], (4, 1)), arm(), 0.5, 1, PLATFORM)
        assert np.array_equal(one.decision.win_set[0], whole.decision.win_set[r])


@pytest.mark.parametrize("slots", [1, 3, 8])
def test_a_random_page_is_the_head_of_the_candidates_sorted_by_draw(slots):
    rng = np.random.default_rng(slots)
    ids = np.sort(rng.integers(0, 900, (60, 6)), axis=1).astype(np.int32)
    ids[rng.random(ids.shape) < 0.3] = -1
    requests = np.arange(60)
    draw = draws.uniform(5, "explored page", requests[:, None], ids)
    order = np.argsort(np.where(ids >= 0, draw, 2.0), axis=1, kind="stable")[:, :slots]
    expected = np.full((60, slots + 1), -1)
    expected[:, : order.shape[1]] = np.take_along_axis(ids, order, 1)
    assert np.array_equal(random_page(requests, ids, slots, 5), expected)


@pytest.mark.parametrize("share", [None, 0.4])
def test_pages_of_the_whole_corpus_have_ads_that_were_not_retrieved_and_exact_propensities(share):
    lives = (
        None
        if share is None
        else AdAvailability(SimpleNamespace(available_share=share, mean_lifetime_days=1.0), N, 1)
    )
    requests = 4000
    ids = np.full((requests, 2), -1, np.int32)
    block = make_block(np.zeros(requests))
    block = replace(block, times=np.linspace(0.0, 3e6, requests))
    there = np.ones((requests, N), bool)
    if lives is not None:
        there = lives.is_available(np.arange(N)[None, :], block.times[:, None])
        kept = there[:, 4]  # all that retrieval brought; what it brings is there
        block, there, ids = block.take(kept), there[kept], ids[kept]
    ids[:, 0], requests = 4, len(ids)
    found = explore(block, decision(ids, (4, -1)), arm(), 0.5, 1, PLATFORM, Corpus(N, lives))
    page = found.decision.win_set
    assert np.array_equal(found.n_pool, there.sum(axis=1))
    assert np.all((page == 4) | (page < 0) | np.take_along_axis(there, np.maximum(page, 0), 1))
    for slot, deployed in enumerate((4, -1)):
        for ad in range(N):
            chance = 0.5 * (ad == deployed) + 0.5 * there[:, ad] / there.sum(axis=1)
            hits, expected = (page[:, slot] == ad).sum(), chance.sum()
            assert abs(hits - expected) < 4.5 * np.sqrt((chance * (1 - chance)).sum()) + 1e-9
            own = page[:, slot] == ad
            assert np.allclose(found.propensity[own, slot], chance[own])
