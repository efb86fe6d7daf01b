"""Ranking and auction in one pass decide what `serve` decides without it, to the last bit."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from answers.told import refused
from cascade_sim.auction import to_micros
from cascade_sim.auction.kernels import whole_micros
from cascade_sim.cascade import serve as cascade
from cascade_sim.cascade.bids import BidRules
from cascade_sim.cascade.cache import BlockCache
from cascade_sim.cascade.fused import is_fused, ranked_fused
from cascade_sim.cascade.fusion import Fusion
from cascade_sim.cascade.request import RequestOverrides
from cascade_sim.cascade.scorers import ConstantScorer, TowersScorer
from cascade_sim.cascade.serve import Platform, Stage, retrieve, serve
from cascade_sim.models.features import FeatureView
from cascade_sim.models.nets.towers import TwoTowers
from worlds.cascades import Given, decided, make_arm
from worlds.tiny_market import make_block

EFFECTS = np.linspace(1.0, 0.2, 16)


def scorer(n_users, n_ads, dims=6, scale=1.0, seed=0):
    """A two-tower net with weights as drawn."""
    torch.manual_seed(seed)
    generator = np.random.default_rng(seed)
    users, ads = (generator.normal(size=(n, 5)).astype(np.float32) for n in (n_users, n_ads))
    view = FeatureView(("x",), users, ads, True, None, None, 0.0)
    net = TwoTowers(6, 5, 0, 8, dims)
    with torch.no_grad():
        for weights in net.parameters():
            weights *= scale
    return TowersScorer("net", view, "sigmoid", net)


def bid_rules(init_bid):
    """Rules that only init-bids are asked of."""
    rules = BidRules.__new__(BidRules)
    rules.init_bid = np.asarray(init_bid, np.float64)
    return rules


def platform(init_bid):
    return Platform(bid_rules(init_bid), EFFECTS)


def arm(seat, candidates, slots, bid="init", **auction):
    """Request r of users 0, 1, ... has the candidates of row r."""
    passing, n = Stage(ConstantScorer(), "init", Fusion()), candidates.shape[1]
    given = Given(lambda users, size: candidates[users])
    return make_arm(
        n, passing, n, Stage(seat, bid, Fusion()), slots, retriever=given, bid_rule="none", **auction
    )


def without(monkeypatch):
    """From here on nothing goes the shorter way."""
    monkeypatch.setattr(cascade, "is_fused", lambda *_: False)


def assert_same(found, wanted):
    assert len(decided(found)) == len(decided(wanted))
    for name, values in decided(wanted).items():
        own = decided(found)[name]
        assert own.dtype == values.dtype and own.tobytes() == values.tobytes(), name


@st.composite
def markets(draw):
    """Candidates with and without padding, all ads or some; bids of which some are 0 or alike."""
    generator = np.random.default_rng(draw(st.integers(0, 10_000)))
    n_ads, n_requests = draw(st.integers(1, 70)), draw(st.integers(1, 40))
    n = n_ads if draw(st.booleans()) else draw(st.integers(1, n_ads))
    ids = np.sort(np.argsort(generator.random((n_requests, n_ads)), 1)[:, :n], 1).astype(np.int32)
    if draw(st.booleans()):
        for row in ids:
            row[generator.integers(0, n + 1) :] = -1
    bid = np.exp(generator.normal(size=n_ads)).round(draw(st.sampled_from([0, 1, 6])))
    seat = scorer(
        n_requests, n_ads, draw(st.sampled_from([1, 6, 7, 14])),
        draw(st.sampled_from([0.0, 1.0, 5.0])), draw(st.integers(0, 100)),
    )  # fmt: skip
    auction = draw(
        st.sampled_from([
            {}, {"pricing": "vcg"}, {"pricing": "first"},
            {"pricing": "soft_floor", "parameters": {"soft_floor": 0.7}},
            {"reserve_cpc": 0.6}, {"pricing": "vcg", "reserve_cpc": 0.4, "score_floor": 0.2},
        ])
    )  # fmt: skip
    own = arm(seat, ids, draw(st.integers(1, 15)), draw(st.sampled_from(["init", "none", "opt"])), **auction)
    return make_block(range(n_requests)), own, platform(bid)


@given(markets())
def test_one_pass_decides_the_same_to_the_bit(market):
    block, own, place = market
    assert is_fused(*market)
    assert ranked_fused(block, retrieve(block, own, place), own, place) is not None
    found = serve(block, own, place)
    with pytest.MonkeyPatch.context() as patch:
        without(patch)
        assert_same(found, serve(block, own, place))


def test_where_everybody_meets_all_ads_nothing_changes(monkeypatch):
    seat, everybody = scorer(50, 40), np.broadcast_to(np.arange(40, dtype=np.int32), (50, 40))
    place = platform(np.linspace(0.5, 2, 40))
    everyone = Given(lambda users, size: everybody[: len(users)])
    block, own = make_block(range(50)), arm(seat, everybody, 3).among(everyone)
    found = serve(block, own, place)
    assert found.retrieved.strides[0] == 0  # it was never spread out
    without(monkeypatch)
    assert_same(found, serve(block, own, place))


def test_the_whole_way_of_a_scenario_is_the_same_without(monkeypatch):
    from cascade_sim.bench.end_to_end import ready
    from cascade_sim.bench.peers import MODES
    from cascade_sim.study.prepare import rows_to_log

    for mode in MODES.values():
        sim, own = ready(mode.scenario())
        block = sim.arrivals.block("bench", 0, 3000)
        assert is_fused(block, own, sim.platform)
        with monkeypatch.context() as patch:
            found = rows_to_log(sim, own, 0.1, block)
            without(patch)
            wanted = rows_to_log(sim, own, 0.1, block)
        for table, other in zip(found, wanted, strict=True):
            assert list(table) == list(other)
            for name, values in other.items():
                assert table[name].dtype == values.dtype and table[name].tobytes() == values.tobytes(), name


def test_who_wants_to_see_the_scores_goes_the_long_way():
    block, place, own = (
        make_block(range(3)),
        platform([1.0]),
        arm(scorer(3, 1), np.zeros((3, 1), np.int32), 1),
    )
    assert is_fused(block, own, place)
    parameters = RequestOverrides(reserve_cpc=np.ones(3))
    stage = own.last
    assert not is_fused(replace(block, memo=BlockCache()), own, place)
    assert not is_fused(replace(block, parameters=parameters), own, place)
    assert not is_fused(block, own.with_stage(-1, fusion=Fusion(pctr=0.5)), place)
    assert not is_fused(block, own.with_stage(-1, fusion=Fusion(pcvr=0.5)), place)
    assert not is_fused(block, replace(own.with_stage(-1, bid="opt"), bid_rule="ocpc"), place)
    assert not is_fused(block, own.with_stage(-1, scorer=ConstantScorer()), place)
    assert not is_fused(block, own, replace(place, bids=SimpleNamespace(init_bid=np.ones(1))))
    as_order = TowersScorer("net", stage.scorer.view, "exp", stage.scorer.module)
    assert not is_fused(block, own.with_stage(-1, scorer=as_order), place)


def test_what_is_no_number_is_refused_in_the_same_words(monkeypatch):
    seat = scorer(4, 6)
    seat.ad_code[3, 0] = np.nan
    ids = np.tile(np.array([1, 3, 5], np.int32), (4, 1))
    block, own = make_block(range(4)), arm(seat, ids, 1)
    for _ in range(2):
        with refused("arm 'a'", "ranking stage", "'net'", "nan", "ad 3"):
            serve(block, own, platform(np.ones(6)))
        without(monkeypatch)


@pytest.mark.parametrize("bid", [-1.0, np.nan, np.inf, 1e13])
def test_bids_that_no_auction_takes_are_refused_in_the_same_words(monkeypatch, bid):
    ids = np.tile(np.arange(6, dtype=np.int32), (4, 1))
    block, own = make_block(range(4)), arm(scorer(4, 6), ids, 6, pricing="first")
    place, said = platform([1.0, 1.0, bid, 1.0, 1.0, 1.0]), []
    for _ in range(2):
        with pytest.raises(ValueError) as raised:
            serve(block, own, place)
        said.append(str(raised.value))
        without(monkeypatch)
    assert said[0] == said[1]


@given(
    st.lists(st.tuples(st.floats(0, 9e12), st.floats(0, 9e12)), min_size=1),
    st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 10**9)), min_size=1),
)
def test_a_price_becomes_the_same_micro_units_one_by_one(amounts, micros):
    pairs = [*amounts, *((a / 1e6, b / 1e6) for a, b in micros), *((a / 2e6, a / 1e6) for a, _ in micros)]
    prices, bids = np.array(pairs).T
    found = [whole_micros(price, bid) for price, bid in pairs]
    assert found == to_micros(prices, bids).tolist()


def test_what_is_no_money_has_no_micro_units():
    for odd in (-1.0, np.nan, np.inf, 9.1e12):
        assert whole_micros(odd, 1.0) == whole_micros(1.0, odd) == -1
