"""Invariants of the cascade, over drawn markets: sets within sets, and an oracle that makes no error."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cascade_sim.auction import PRICINGS, reprice, to_micros
from cascade_sim.cascade.fusion import Fusion
from cascade_sim.cascade.outcome import outcome
from cascade_sim.cascade.serve import Platform, Stage, serve
from cascade_sim.environments.evaluators.truth import TruthEvaluator
from cascade_sim.world.truth import GroundTruth
from effort import examples
from worlds.cascades import EFFECTS, Bids, Given, Table, make_arm, with_stage_of
from worlds.tiny_market import make_block

MANY = examples(750)
ADS, REQUESTS = 14, 8
SIZE = 4 * ADS + REQUESTS * ADS + 7


class TableTruth(GroundTruth):
    """A truth that says ctr[ad]."""

    def __init__(self, ctr):
        self.table = ctr

    def ctr(self, block, ids):
        return np.where(ids >= 0, self.table[ids], 0.0)

    ctr_without_noise = ctr

    def cvr(self, block, ids):
        return np.full(ids.shape, 0.5)


def drawn_market(drawn: bytes):
    """(block, arm, platform, truth): grids of values, so that ties abound and float32 is exact."""
    numbers = np.frombuffer(drawn, np.uint8)
    tables, rest = numbers[: 4 * ADS].reshape(4, ADS), numbers[4 * ADS :]
    kept, parameters = rest[: REQUESTS * ADS].reshape(REQUESTS, ADS) % 3 > 0, rest[REQUESTS * ADS :]
    bids = Bids(tables[0] % 20 / 8, tables[1] % 20 / 8)
    pre, rank = (Table(table % 16 / 32, name=name) for table, name in zip(tables[2:], "pr", strict=True))
    ids = np.full((REQUESTS, ADS), -1, np.int32)
    for row in range(REQUESTS):
        there = np.flatnonzero(kept[row])
        ids[row, : len(there)] = there
    slots = int(parameters[0] % 3) + 1
    arm = make_arm(
        ADS, Stage(pre, ("init", "opt", "none")[parameters[1] % 3], Fusion()),
        slots + 1 + int(parameters[2] % 8),
        Stage(rank, ("init", "opt")[parameters[3] % 2], Fusion()), slots, pricing=PRICINGS[parameters[4] % 3],
        reserve_cpc=float(parameters[5] % 6 / 8), score_floor=float(parameters[6] % 5 / 32),
        retriever=Given(lambda users, size: ids),
    )  # fmt: skip
    platform = Platform(bids, EFFECTS)
    return make_block(np.arange(REQUESTS)), arm, platform, TableTruth(rank.pctr)


markets = st.binary(min_size=SIZE, max_size=SIZE).map(drawn_market)


def ads(row):
    return [ad for ad in row.tolist() if ad >= 0]


@MANY
@given(markets)
def test_the_win_set_is_in_the_competitive_set_is_in_the_pre_ranking_set(market):
    block, arm, platform, _ = market
    found = serve(block, arm, platform)
    for row in range(REQUESTS):
        sets = [ads(s[row]) for s in (found.ranked_set, found.competitive_set, found.retrieved)]
        assert all(len(set(one)) == len(one) for one in sets)
        assert set(sets[0]) <= set(sets[1]) <= set(sets[2])
        assert len(sets[1]) == min(arm.most_auctioned, len(sets[2]))


@MANY
@given(markets)
def test_charges_have_a_click_and_are_between_reserve_and_bid(market):
    block, arm, platform, truth = market
    found = serve(block, arm, platform)
    result = outcome(block, found, truth, EFFECTS, seed=1)
    shown = found.win_set >= 0
    assert result.charges_micros.sum() == found.cpc_micros[result.clicks].sum()
    assert np.all(result.charges_micros[~result.clicks] == 0) and not result.clicks[~shown].any()
    assert np.all(found.cpc_micros <= 1e6 * found.ranked_bid[:, :-1])
    assert np.all(found.cpc_micros[shown] >= 1e6 * arm.reserve_cpc)


@examples(400)  # dearer: three cascades in each
@given(markets)
def test_a_cascade_that_knows_the_truth_is_consistent_and_charges_rightly(market):
    block, arm, platform, truth = market
    arm = with_stage_of(arm, 0, arm.last)  # the ranking seat's table is the truth
    owner = np.zeros(ADS, int)
    evaluator = TruthEvaluator(platform, truth, 1, arm, np.ones(ADS, bool), owner, 1)
    found = serve(block, arm, platform)
    result = outcome(block, found, truth, EFFECTS, seed=1)
    context = evaluator.context(block, np.zeros(len(block), int), 1)
    columns = evaluator.columns(context, arm, found, result)
    reached, counts = columns["ideal_reached"], columns["ideal_requests"]
    assert np.all(reached == counts)
    assert np.all((counts == 1.0) | ((counts == 0.0) & (found.win_set < 0).all(axis=1)))
    assert np.all(columns["cpc_error"] == 0.0)


@MANY
@given(markets)
def test_the_price_of_a_page_is_what_its_ranked_list_costs(market):
    block, arm, platform, _ = market
    found = serve(block, arm, platform)
    cpc = reprice(
        found.ranked_bid, found.ranked_quality, slots=arm.slots, pricing=arm.pricing,
        reserve_cpc=arm.reserve_cpc, score_floor=arm.score_floor, slot_effects=EFFECTS,
    )  # fmt: skip
    assert to_micros(cpc, found.ranked_bid[:, :-1]).tolist() == found.cpc_micros.tolist()
