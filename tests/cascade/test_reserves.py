"""Who is turned away: by the auction, and before it where a stage can know the verdict."""

import numpy as np
import pytest

from cascade_sim.cascade.serve import Scores, admitted, serve
from worlds.cascades import BID, PCTR, Bids, Table, arm, one, platform
from worlds.tiny_market import make_block


def test_an_ad_below_the_cpc_reserve_is_not_shown_and_takes_no_place_in_ranking():
    """Where pre-ranking knows the bid that the reserve is compared with."""
    seats = {"pre": Table(PCTR), "rank": Table(PCTR), "pre_bid": "opt", "size": 3}
    found = one(range(6), Bids(BID), **seats, reserve_cpc=1.0)
    assert found.competitive_set.tolist() == [[0, 1, 2]]  # 3 ties with 1 and 2 but bids 0.5
    assert found.win_set.tolist() == [[0, 1]]
    high = one(range(6), Bids(BID), **seats, reserve_cpc=3.5)
    assert high.win_set.tolist() == [[2, 5]] and high.cpc_micros.tolist() == [[3_500_000, 3_500_000]]
    none = one(range(6), Bids(BID), **seats, reserve_cpc=10.0)
    assert none.win_set.tolist() == [[-1, -1]]


INIT, OPT = [0.9, 1.2, 1.1, 0.8, 0.7, 0.6], [1.5, 0.5, 0.6, 1.4, 0.9, 0.8]


@pytest.mark.parametrize(
    ("pre_bid", "rank_bid", "competitive", "won"),
    [
        # By init-bid * pCTR the best are 1 .12, 2 .11 and 0 .09; who passes the reserve is not known.
        ("init", "opt", [0, 1, 2], [0, -1]),
        # The reserve is compared with the opt-bid: 0 .15 and 3 .14 pass, 4 .09 is the best of the rest.
        ("opt", "opt", [0, 3, 4], [0, 3]),
        ("init", "init", [0, 1, 2], [1, 2]),
        ("none", "opt", [0, 1, 2], [0, -1]),
    ],
)
def test_pre_ranking_bars_only_by_the_bid_that_the_auction_looks_at(pre_bid, rank_bid, competitive, won):
    even = Table(np.full(6, 0.1))
    found = one(
        range(6),
        Bids(INIT, OPT),
        pre=even,
        rank=even,
        pre_bid=pre_bid,
        rank_bid=rank_bid,
        size=3,
        reserve_cpc=1.0,
    )
    assert found.competitive_set.tolist() == [competitive] and found.win_set.tolist() == [won]


def test_an_init_bid_below_the_reserve_does_not_bar_an_ad_whose_opt_bid_passes():
    even = Table(np.full(6, 0.1))
    bids = Bids([0.9, 0.8, 0.7, 0.3, 0.2, 2.0], [1.5, 1.4, 1.3, 0.3, 0.2, 0.5])
    found = one(range(6), bids, pre=even, rank=even, size=4, reserve_cpc=1.0)
    assert found.competitive_set.tolist() == [[0, 1, 2, 5]] and found.win_set.tolist() == [[0, 1]]
    assert found.passes[0].order[0] == pytest.approx([0.09, 0.08, 0.07, 0.03, 0.02, 0.2])


def test_barred_ads_come_after_all_others_in_their_own_order():
    bid = np.array([[0.5, 2.0, 0.9, 3.0, 0.1, 0.0]])
    pctr = np.array([[0.9, 0.001, 0.1, 0.0, 0.9, 0.9]])  # scores .45 .002 .09 0 .09 0
    own = arm(Table(PCTR), Table(PCTR), pre_bid="opt", reserve_cpc=1.0)
    found = admitted(Scores(pctr, bid, pctr), own.stages[0], own)[0]
    assert np.argsort(-found, kind="stable").tolist() == [1, 3, 0, 2, 4, 5]
    assert found[1] == 0.002 and found[3] == 0.0 and np.all(found[[0, 2, 4, 5]] < 0)
    assert found[5] == -np.inf and found[2] == pytest.approx(found[4])
    # Among the barred alone the better one still reaches ranking first.
    low = one(range(6), Bids(BID), pre=Table(PCTR), rank=Table(PCTR), pre_bid="opt", size=2, reserve_cpc=10.0)
    assert low.competitive_set.tolist() == [[0, 1]] and low.win_set.tolist() == [[-1, -1]]


def test_an_ad_below_the_score_floor_is_not_shown():
    found = one(range(6), Bids(BID), pre=Table(PCTR), rank=Table(PCTR), score_floor=0.25)
    assert found.win_set.tolist() == [[0, -1]] and found.cpc_micros.tolist() == [[2_500_000, 0]]


@pytest.mark.parametrize("link", ["sigmoid", "exp"])
def test_a_pre_ranker_other_than_the_ranker_is_not_held_against_the_floor(link):
    """Its scores are tiny, but the ads are eligible in the auction and must reach it in its order."""
    low = Table(np.array(PCTR) * 1e-6, link=link)
    found = one(range(6), Bids(BID), pre=low, rank=Table(PCTR), score_floor=0.25)
    assert found.win_set.tolist() == [[0, -1]] and np.all(found.passes[0].order > 0)
    low_first = Table([1e-9, 1, 1, 1, 1, 1], link=link)
    assert one(range(6), Bids(BID), pre=low_first, rank=Table(PCTR), score_floor=0.25).win_set[0, 0] == -1


def test_the_rankers_equal_knows_the_verdict_of_the_floor():
    """With the ranker in both seats nobody below the floor takes the place of one above it."""
    ranker = Table(PCTR)
    own = arm(ranker, ranker, pre_bid="opt", size=2, score_floor=0.1)
    found = serve(make_block([0]), own, platform(Bids(BID)))
    assert np.array_equal(found.passes[0].order[0] > 0, [True, True, True, True, False, False])
    cheaper = own.with_stage(0, bid="init")
    assert np.all(serve(make_block([0]), cheaper, platform(Bids(BID))).passes[0].order > 0)
