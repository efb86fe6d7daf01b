"""Every auction of a log is re-run as it was: under each rule, in any blocks, to the micro-unit."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cascade_sim.auction.reference import reference_auction, squashed
from cascade_sim.cascade.page import Rules, auctioned
from cascade_sim.logs.audit.replay import blocks, listed, load, match_pages, replay
from cascade_sim.logs.audit.rule import Rounding, Rule
from cascade_sim.logs.audit.study import audit
from effort import examples
from worlds.logged_auctions import EFFECTS, cents, drawn, paged, stored

DECLARED = {
    "gsp": ({}, {"pricing": "gsp"}),
    "second is gsp": ({}, {"pricing": "second"}),
    "first": ({"pricing": "first"}, {"pricing": "first"}),
    "vcg": ({"pricing": "vcg"}, {"pricing": "vcg", "slot_effects": EFFECTS}),
    "soft floor": (
        {"pricing": "soft_floor", "soft_floor": 0.9},
        {"pricing": "soft_floor", "soft_floor": 0.9},
    ),
    "squashed": ({"squashing": 0.37}, {"pricing": "gsp", "squashing": 0.37}),
    "bids only": ({"squashing": 0.0}, {"pricing": "gsp", "squashing": 0.0}),
    "reserve": ({"reserve_cpc": 0.8}, {"pricing": "gsp", "reserve_cpc": 0.8}),
    "score floor": ({"score_floor": 0.02}, {"pricing": "gsp", "score_floor": 0.02}),
    **{
        f"cents {how}": (
            {"rounded": cents(how)},
            {"pricing": "gsp", "rounding": 0.01, "rounding_how": how},
        )
        for how in ("up", "down", "nearest")
    },
}


@pytest.mark.parametrize("name", DECLARED)
@pytest.mark.parametrize("single", [False, True], ids=["double", "single"])
@pytest.mark.few(6)
def test_a_log_of_our_own_auction_comes_out_whole(name, single, tmp_path):
    made, declared = DECLARED[name]
    log = paged(drawn(3, requests=300, single=single), **made)
    answer = audit(stored(tmp_path, log, {"squashing": 1.0, **declared})).answer
    tally = answer["tally"]
    assert tally["pages_matched"] == tally["requests"] == 300
    assert tally["winners_matched"] == tally["shown"] > 500
    assert tally["prices_matched"] == tally["prices"] == tally["shown"]
    assert answer["reasons"] == []


def test_a_reserve_of_each_request_is_the_one_that_counts(tmp_path):
    log = drawn(4, requests=200)
    reserve = np.where(np.arange(200) % 3 == 0, 0.7, 0.2)
    store = stored(tmp_path, paged(log, reserve_cpc=reserve), {"pricing": "gsp"}, reserve=reserve)
    assert audit(store).answer["tally"]["pages_matched"] == 200


def test_pages_of_different_lengths_are_priced_by_their_own_length(tmp_path):
    log = drawn(5, requests=200)
    short = np.arange(200) % 2 == 0
    whole = paged(log, pricing="vcg").with_some(short, paged(replace(log, slots=1), pricing="vcg"))
    declared = {"pricing": "vcg", "slot_effects": EFFECTS}
    store = stored(tmp_path, whole, declared, slots=np.where(short, 1, 3))
    assert audit(store).answer["tally"]["pages_matched"] == 200


def test_bids_per_impression_rank_by_themselves(tmp_path):
    log = paged(drawn(6, requests=200), squashing=0.0)
    store = stored(tmp_path, log, {"pricing": "gsp"}, charging="impression")
    answer = audit(store).answer
    assert answer["tally"]["pages_matched"] == 200 and answer["rule"]["squashing"] == 0


@pytest.mark.parametrize("cells", [1, 17, 400, 1 << 20])
def test_blocks_hold_every_request_once_whatever_their_size(cells, tmp_path):
    store = stored(tmp_path, paged(drawn(7, requests=60)), {"pricing": "gsp"})
    rows = np.concatenate([block.rows for block in blocks(store, cells=cells)])
    pages = np.concatenate([replay(block, Rule()).micros for block in blocks(store, cells=cells)])
    assert rows.tolist() == list(range(60))
    assert np.array_equal(pages, replay(load(store, np.arange(60)), Rule()).micros)


def test_the_price_is_that_of_the_pages_of_the_cascade(tmp_path):
    log = drawn(8, requests=150)
    auctions = load(stored(tmp_path, paged(log), None), np.arange(150))
    rules = Rules(3, np.asarray(EFFECTS), reserve_cpc=0.5)
    page = auctioned(log.ad, log.pctr, log.bid, log.pctr, rules)
    played = replay(auctions, Rule(reserve_cpc=0.5, slot_effects=EFFECTS))
    assert np.array_equal(played.ads, page.ads[:, :-1])
    assert np.array_equal(played.micros, page.cpc_micros)


RULES = st.fixed_dictionaries(
    {
        "pricing": st.sampled_from(["gsp", "first", "vcg"]),
        "squashing": st.sampled_from([0.0, 0.5, 0.8, 1.0]),
        "reserve_cpc": st.sampled_from([0.0, 0.6, 1.1]),
        "score_floor": st.sampled_from([0.0, 0.02]),
    }
)


@examples(30)
@given(rule=RULES, seed=st.integers(0, 10_000), slots=st.integers(1, 4), candidates=st.integers(1, 6))
def test_it_is_the_auction_that_plain_python_holds(rule, seed, slots, candidates, tmp_path_factory):
    if rule["pricing"] == "vcg":
        rule = {**rule, "squashing": 1.0}
    log = paged(drawn(seed, requests=12, candidates=candidates, slots=slots, ads=12))
    auctions = load(stored(tmp_path_factory.mktemp("log"), log), np.arange(12))
    played = replay(auctions, Rule(**rule, slot_effects=EFFECTS))
    for row in range(12):
        quality = [squashed(pctr, rule["squashing"]) for pctr in log.pctr[row].tolist()]
        winners, prices = reference_auction(
            log.bid[row].tolist(), quality, slots=slots, pricing=rule["pricing"],
            reserve_cpc=rule["reserve_cpc"], score_floor=rule["score_floor"], effects=EFFECTS[:slots],
            ids=log.ad[row].tolist(),
        )  # fmt: skip
        assert played.column[row].tolist() == [-1 if column is None else column for column in winners]
        for micros, price in zip(played.micros[row].tolist(), prices, strict=True):
            assert abs(micros - (0 if price is None else float(price) * 1e6)) <= 0.501


def test_pages_in_their_logged_order_have_the_prices_of_the_auction(tmp_path):
    auctions = load(stored(tmp_path, paged(drawn(9, requests=100), reserve_cpc=0.7)), np.arange(100))
    rule = Rule(reserve_cpc=0.7)
    assert np.array_equal(listed(auctions, rule).micros, replay(auctions, rule).micros)
    assert match_pages(auctions, listed(auctions, rule), rule).is_page.all()


def test_where_only_winners_are_logged_the_last_price_of_a_full_page_is_open(tmp_path):
    store = stored(tmp_path, paged(drawn(10, requests=100)), {"pricing": "gsp"}, is_winners_only=True)
    tally = audit(store).answer["tally"]
    assert (tally["shown"], tally["prices"], tally["prices_matched"]) == (300, 200, 200)
    assert tally["prices_undetermined"] == 100 and tally["pages_matched"] == 100


def test_a_request_without_candidates_is_an_empty_page(tmp_path):
    log = paged(drawn(11, requests=40))
    nobody = replace(log, bid=np.where(np.arange(40)[:, None] == 7, 0.0, log.bid))
    nobody = paged(nobody)
    assert (nobody.slot[7] == -1).all()
    assert audit(stored(tmp_path, nobody, {"pricing": "gsp"})).answer["tally"]["pages_matched"] == 40


@pytest.mark.parametrize(
    ("how", "cpc", "expected"),
    [("up", 0.1201, 130_000), ("up", 0.12, 120_000), ("down", 0.1299, 120_000), ("nearest", 0.125, 130_000)],
)
def test_prices_are_rounded_to_cents_as_a_person_would(how, cpc, expected):
    assert Rounding(10_000, how).micros(np.array([cpc]), np.array([1.0])).tolist() == [expected]


def test_no_rounding_lifts_a_price_above_the_bid():
    assert Rounding(10_000, "up").micros(np.array([0.1201]), np.array([0.1234])).tolist() == [123_400]
