from dataclasses import replace

import numpy as np
import pytest

from cascade_sim.cascade.serve import Platform, passes, serve
from cascade_sim.scenario.schema import resolved_arms
from worlds.cascades import BID, PCTR, Bids, Given, Table, arm, decided, platform, with_stage_of
from worlds.tiny_market import make_block

SLOW = [0.02, 0.30, 0.06, 0.05, 0.25, 0.03]  # what pre-ranking believes; eCPM .06 .30 .24 .025 .05 .27
ORDER = np.array([3, 5, 0, 2, 4, 1], np.int32)  # nearest first
NONE, RETRIEVAL, PRE_RANKING, RANKING = -1, 0, 1, 2


INDEX = Given(np.arange(6, dtype=np.int32), best_first=ORDER)  # everyone retrieves all six ads


def served(served_by_stage, bids=BID, opt=None, link="sigmoid", **kind):
    block = make_block([0] * len(served_by_stage))
    one = arm(Table(SLOW, link), Table(PCTR), **kind).among(INDEX)
    return serve(block, one, platform(Bids(bids, opt)), np.array(served_by_stage, np.int8))


def same(one, other, rows=slice(None)):
    others = decided(other)
    return all(np.array_equal(values[rows], others[name][rows]) for name, values in decided(one).items())


@pytest.mark.parametrize("name", ["logloss", "ltr", "distill-pre", "random"])
def test_in_time_nothing_changes_by_one_bit(study, name):
    sim = study.sim
    one = sim.arm(name, resolved_arms(sim.scenario)[name])
    block = sim.arrivals.block("evaluate", 0, 500)
    before = serve(block, one, sim.platform)
    after = serve(block, one, sim.platform, np.full(len(block), RANKING, np.int8))
    others = decided(after)
    for name, values in decided(before).items():
        assert values.dtype == others[name].dtype and values.tobytes() == others[name].tobytes(), name


def test_late_requests_leave_those_in_time_alone(study):
    sim = study.sim
    one = sim.arm("logloss", resolved_arms(sim.scenario)["logloss"])
    block = sim.arrivals.block("evaluate", 0, 500)
    served_by_stage = np.array([2, 1, 0, -1] * (len(block) // 4), np.int8)
    before, after = serve(block, one, sim.platform), serve(block, one, sim.platform, served_by_stage)
    assert same(before, after, served_by_stage == RANKING)
    for stage in (PRE_RANKING, RETRIEVAL, NONE):
        rows = served_by_stage == stage
        assert not np.array_equal(before.ranked_set[rows], after.ranked_set[rows])


@pytest.mark.parametrize("pricing", ["gsp", "vcg", "first"])
def test_pre_ranking_answers_as_if_it_sat_in_the_ranking_seat(study, pricing):
    sim = study.sim
    one = replace(sim.arm("logloss", resolved_arms(sim.scenario)["logloss"]), pricing=pricing)
    block = sim.arrivals.block("evaluate", 0, 500)
    late = serve(block, one, sim.platform, np.full(len(block), PRE_RANKING, np.int8))
    alone = serve(block, with_stage_of(one, -1, one.stages[0]), sim.platform)
    assert same(late, alone)


def test_pre_ranking_prices_with_its_own_bids_and_qualities():
    found = served([PRE_RANKING, RANKING])
    assert found.ranked_set[0].tolist() == [1, 5, 2]  # .30, .27, .24
    assert found.cpc_micros[0].tolist() == [round(0.27 / 0.30 * 1e6), round(0.24 / 0.03 * 1e6)]
    assert found.ranked_pctr[0].tolist() == [0.30, 0.03, 0.06]
    assert found.ranked_set[1].tolist() == [0, 1, 2]  # .30, .20, .20 by ranking, of the four that passed


def test_a_stage_without_bids_is_given_the_init_bids_for_its_auction():
    found = served([PRE_RANKING], pre_bid="none", opt=[9.0] * 6)
    # Passed by prediction alone: 1, 4, 2, 3. Auctioned by prediction * init-bid: .30, .24, .05, .025.
    assert found.ranked_set[0].tolist() == [1, 2, 4]
    assert found.ranked_bid[0].tolist() == [1.0, 4.0, 0.2]


def test_a_model_without_probabilities_orders_and_prices_but_leaves_no_pctr():
    found = served([PRE_RANKING, RANKING], link="exp")
    assert found.ranked_set[0].tolist() == [1, 5, 2] and found.ranked_pctr[0].tolist() == [0, 0, 0]
    assert found.ranked_pctr[1].tolist() == [0.10, 0.20, 0.05]


@pytest.mark.parametrize("pricing", ["gsp", "vcg", "first"])
def test_retrieval_shows_the_nearest_ads_for_the_reserve(pricing):
    found = served([RETRIEVAL], pricing=pricing, reserve_cpc=0.15, score_floor=0.01)
    assert found.ranked_set[0].tolist() == ORDER[:3].tolist()
    assert found.cpc_micros[0].tolist() == [150_000, 150_000]
    assert found.ranked_bid[0].tolist() == [0.5, 9.0, 3.0] and found.ranked_quality[0].tolist() == [1, 1, 1]
    assert found.ranked_pctr[0].tolist() == [0, 0, 0]
    assert found.competitive_set[0].tolist() == sorted(ORDER[:4].tolist())  # size 4


def test_a_click_on_retrievals_page_is_free_without_a_reserve():
    assert served([RETRIEVAL]).cpc_micros[0].tolist() == [0, 0]


def test_retrieval_passes_over_ads_that_do_not_bid_or_bid_below_the_reserve():
    bids = [3.0, 1.0, 4.0, 0.0, 0.2, 9.0]
    assert served([RETRIEVAL], bids=bids).ranked_set[0].tolist() == [5, 0, 2]  # 3 bids nothing
    # Of the nearest four (3, 5, 0, 2), two bid at least 3.5, and nobody further away is asked.
    found = served([RETRIEVAL], bids=bids, reserve_cpc=3.5)
    assert found.ranked_set[0].tolist() == [5, 2, -1]
    assert found.cpc_micros[0].tolist() == [3_500_000, 3_500_000] and found.ranked_bid[0].tolist() == [
        9,
        4,
        0,
    ]


def test_without_an_answer_the_page_is_empty():
    found = served([NONE, RANKING], reserve_cpc=0.1)
    assert found.ranked_set[0].tolist() == [-1, -1, -1] and found.competitive_set[0].tolist() == [-1] * 4
    for values in (found.cpc_micros, found.ranked_bid, found.ranked_quality, found.ranked_pctr):
        assert not values[0].any()
    assert found.ranked_set[1].tolist() == [0, 1, 2]


def test_a_list_as_deep_as_the_competitive_set_holds_all_of_it():
    one = replace(arm(Table(SLOW), Table(PCTR)), slots=3).among(INDEX)
    long_page = Platform(Bids(BID), np.ones(3))
    found = serve(make_block([0]), one, long_page, np.array([RETRIEVAL], np.int8))
    assert found.ranked_set[0].tolist() == ORDER[:4].tolist()


def test_what_pre_ranking_hands_on_is_counted():
    one = arm(Table(SLOW), Table(PCTR)).among(INDEX)
    _, handed = passes(make_block([0, 0]), one, platform(Bids(BID)))
    assert handed.counts.tolist() == [4, 4]
