"""Invariants of the auction, over drawn cases."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cascade_sim.auction import PRICINGS, auction, reprice, run_auction

MANY = settings(max_examples=400, deadline=None)
EXACT = {"rel": 1e-12, "abs": 0}

# Grids instead of arbitrary floats: ties are common, and distinct scores are far apart beside float rounding.
bids = st.integers(1, 40).map(lambda n: n / 8)
pctrs = st.integers(1, 32).map(lambda n: n / 64)
reserves = st.integers(0, 20).map(lambda n: n / 8)
floors = st.integers(0, 16).map(lambda n: n / 64)
squashings = st.sampled_from([0.0, 0.5, 1.0, 1.5])


@st.composite
def auctions(draw, min_candidates=1, max_candidates=9):
    """Bids [c], pCTRs [c], slot effects [slots] and the number of slots."""
    c = draw(st.integers(min_candidates, max_candidates))
    slots = draw(st.integers(1, 5))
    size = 2 * c + slots
    drawn = np.frombuffer(draw(st.binary(min_size=size, max_size=size)), np.uint8)  # quicker than lists
    bid, pctr = (drawn[:c] % 40 + 1) / 8, (drawn[c : 2 * c] % 32 + 1) / 64
    return bid, pctr, np.sort(drawn[2 * c :] % 8 + 1)[::-1] / 8, slots


def revenue(bid, pctr, effects, slots, **rules):
    """Expected revenue of one request: sum over slots of effect * pCTR * CPC."""
    winners, cpc = run_auction(bid, pctr, slots=slots, slot_effects=effects, **rules)
    shown = winners >= 0
    return float(np.sum(effects[:slots][shown] * np.asarray(pctr)[winners[shown]] * cpc[shown]))


def place_of(ad, winners):
    """Slot of an ad, infinity if it is not shown."""
    places = np.flatnonzero(winners == ad)
    return int(places[0]) if len(places) else math.inf


@MANY
@given(auctions(), st.sampled_from(PRICINGS), squashings, reserves, floors)
def test_reserve_at_most_cpc_at_most_bid(case, pricing, squashing, reserve_cpc, score_floor):
    bid, pctr, effects, slots = case
    squashing = 1.0 if pricing == "vcg" else squashing
    winners, cpc = run_auction(
        bid, pctr, slots=slots, pricing=pricing, squashing=squashing, reserve_cpc=reserve_cpc,
        score_floor=score_floor, slot_effects=effects,
    )  # fmt: skip
    shown = winners >= 0
    won_bid, quality = bid[winners[shown]], pctr[winners[shown]] ** squashing
    assert np.all(cpc[shown] <= won_bid)
    assert np.all(cpc[shown] >= reserve_cpc)
    assert np.all(cpc[shown] * quality >= score_floor * (1 - 1e-12))
    assert np.all(cpc[~shown] == 0)
    is_eligible = (bid >= reserve_cpc) & (bid * pctr**squashing >= score_floor)
    assert shown.sum() == min(slots, is_eligible.sum())


@MANY
@given(auctions(), squashings, reserves, floors, bids, st.data())
def test_a_higher_bid_never_worsens_the_place(case, squashing, reserve_cpc, score_floor, extra, data):
    bid, pctr, _, slots = case
    ad = data.draw(st.integers(0, len(bid) - 1))
    rules = {"squashing": squashing, "reserve_cpc": reserve_cpc, "score_floor": score_floor}
    raised = bid.copy()
    raised[ad] += extra
    before = place_of(ad, run_auction(bid, pctr, slots=slots, **rules).winners)
    after = place_of(ad, run_auction(raised, pctr, slots=slots, **rules).winners)
    assert after <= before


@MANY
@given(auctions(), squashings, reserves, floors)
def test_the_gsp_price_is_the_least_bid_that_keeps_the_slot(case, squashing, reserve_cpc, score_floor):
    bid, pctr, _, slots = case
    rules = {"slots": slots, "squashing": squashing, "reserve_cpc": reserve_cpc, "score_floor": score_floor}
    winners, cpc = run_auction(bid, pctr, **rules)
    for slot, (ad, price) in enumerate(zip(winners, cpc, strict=True)):
        if ad < 0:
            continue
        just_above, just_below = bid.copy(), bid.copy()
        just_above[ad] = min(bid[ad], price * (1 + 1e-9))
        just_below[ad] = price * (1 - 1e-9)
        if just_above[ad] > 0:
            assert place_of(ad, run_auction(just_above, pctr, **rules).winners) <= slot
        if price > 0:
            assert place_of(ad, run_auction(just_below, pctr, **rules).winners) > slot


@MANY
@given(auctions(), reserves, floors)
def test_gsp_charges_at_least_what_vcg_charges(case, reserve_cpc, score_floor):
    bid, pctr, effects, slots = case
    rules = {"slots": slots, "reserve_cpc": reserve_cpc, "score_floor": score_floor, "slot_effects": effects}
    gsp = run_auction(bid, pctr, pricing="gsp", **rules)
    vcg = run_auction(bid, pctr, pricing="vcg", **rules)
    assert gsp.winners.tolist() == vcg.winners.tolist()
    assert np.all(gsp.cpc >= vcg.cpc * (1 - 1e-12))


@MANY
@given(auctions(min_candidates=2))
def test_the_lowest_symmetric_equilibrium_of_gsp_earns_the_truthful_vcg_revenue(case):
    value, pctr, effects, slots = case
    order = np.lexsort((np.arange(len(value)), -value * pctr))
    value, pctr = value[order], pctr[order]
    score, x = value * pctr, np.append(effects, 0.0)
    equilibrium = score.copy()  # bids times pCTR; whoever misses the page, and the first, bid the value
    for k in range(min(slots, len(value) - 1), 0, -1):  # k: place of a bid that prices slot k - 1
        below = equilibrium[k + 1] if k + 1 < len(value) else 0.0
        equilibrium[k] = (score[k] * (x[k - 1] - x[k]) + below * x[k]) / x[k - 1]
    gsp = revenue(equilibrium / pctr, pctr, effects, slots)
    assert gsp == pytest.approx(revenue(value, pctr, effects, slots, pricing="vcg"), rel=1e-9)


@MANY
@given(auctions(), reserves)
def test_with_one_slot_gsp_and_vcg_are_the_second_price(case, reserve_cpc):
    bid, pctr, effects, _ = case
    score = np.sort((bid * pctr)[bid >= reserve_cpc])[::-1]
    gsp = run_auction(bid, pctr, slots=1, reserve_cpc=reserve_cpc)
    vcg = run_auction(bid, pctr, slots=1, reserve_cpc=reserve_cpc, pricing="vcg", slot_effects=effects)
    assert vcg.winners.tolist() == gsp.winners.tolist()
    assert vcg.cpc == pytest.approx(gsp.cpc, **EXACT)
    if len(score) == 0:
        assert gsp.winners.tolist() == [-1]
    else:
        second = score[1] if len(score) > 1 else 0.0
        assert gsp.cpc[0] == pytest.approx(max(second / pctr[gsp.winners[0]], reserve_cpc), **EXACT)


@MANY
@given(auctions(), bids, pctrs, reserves, floors, st.sampled_from(PRICINGS))
def test_one_bidder_more_never_lowers_revenue(case, new_bid, new_pctr, reserve_cpc, score_floor, pricing):
    bid, pctr, effects, slots = case
    rules = {"pricing": pricing}
    if pricing == "gsp":  # reserves that bound a finished vcg price can break this
        rules |= {"reserve_cpc": reserve_cpc, "score_floor": score_floor}
    before = revenue(bid, pctr, effects, slots, **rules)
    after = revenue(np.append(bid, new_bid), np.append(pctr, new_pctr), effects, slots, **rules)
    assert after >= before * (1 - 1e-12)


@MANY
@given(auctions(), st.sampled_from(PRICINGS), reserves, floors, st.randoms(use_true_random=False))
def test_the_order_in_which_ads_are_listed_does_not_matter(case, pricing, reserve_cpc, score_floor, random):
    bid, pctr, effects, slots = case
    rules = {"slots": slots, "pricing": pricing, "reserve_cpc": reserve_cpc, "score_floor": score_floor}
    ids = np.arange(len(bid))
    shuffle = np.array(random.sample(range(len(bid)), len(bid)))
    plain = run_auction(bid, pctr, ids=ids, slot_effects=effects, **rules)
    mixed = run_auction(bid[shuffle], pctr[shuffle], ids=ids[shuffle], slot_effects=effects, **rules)
    shown_ids = np.where(mixed.winners >= 0, shuffle[mixed.winners], -1)
    assert shown_ids.tolist() == plain.winners.tolist()
    assert mixed.cpc.tolist() == plain.cpc.tolist()


@MANY
@given(auctions(), st.sampled_from(PRICINGS), reserves, floors, st.sampled_from([0.25, 2.0, 1024.0]))
def test_the_currency_only_scales_the_prices(case, pricing, reserve_cpc, score_floor, rate):
    bid, pctr, effects, slots = case
    rules = {"slots": slots, "pricing": pricing, "slot_effects": effects}
    old = run_auction(bid, pctr, reserve_cpc=reserve_cpc, score_floor=score_floor, **rules)
    new = run_auction(
        bid * rate, pctr, reserve_cpc=reserve_cpc * rate, score_floor=score_floor * rate, **rules
    )
    assert new.winners.tolist() == old.winners.tolist()
    assert new.cpc.tolist() == (old.cpc * rate).tolist()


@MANY
@given(auctions(), st.sampled_from(PRICINGS), reserves, floors, st.sampled_from([0.125, 0.5, 2.0]))
def test_scaling_every_pctr_changes_nothing(case, pricing, reserve_cpc, score_floor, factor):
    bid, pctr, effects, slots = case
    rules = {"slots": slots, "pricing": pricing, "reserve_cpc": reserve_cpc, "slot_effects": effects}
    old = run_auction(bid, pctr, score_floor=score_floor, **rules)
    new = run_auction(bid, pctr * factor, score_floor=score_floor * factor, **rules)
    assert new.winners.tolist() == old.winners.tolist()
    assert new.cpc.tolist() == old.cpc.tolist()


@MANY
@given(auctions(min_candidates=3, max_candidates=12), st.sampled_from(PRICINGS), reserves, st.data())
def test_ads_below_the_runner_up_of_the_last_slot_change_nothing(case, pricing, reserve_cpc, data):
    bid, pctr, effects, slots = case
    rules = {"slots": slots, "pricing": pricing, "reserve_cpc": reserve_cpc, "slot_effects": effects}
    full = auction(bid, pctr, **rules)
    outside = np.setdiff1d(np.arange(len(bid)), full.ranked)
    if len(outside) == 0:
        return
    ids = np.arange(len(bid))
    ids[data.draw(st.sampled_from(outside.tolist()))] = -1
    fewer = auction(bid, pctr, ids=ids, **rules)
    assert fewer.ranked.tolist() == full.ranked.tolist()
    assert fewer.cpc.tolist() == full.cpc.tolist()


@MANY
@given(auctions(), st.sampled_from(PRICINGS), reserves, floors)
def test_repricing_with_the_same_qualities_gives_the_same_prices(case, pricing, reserve_cpc, score_floor):
    bid, pctr, effects, slots = case
    rules = {"slots": slots, "pricing": pricing, "reserve_cpc": reserve_cpc, "score_floor": score_floor}
    result = auction(bid, pctr, slot_effects=effects, **rules)
    listed_bid = np.where(result.ranked >= 0, bid[result.ranked], 0.0)
    again = reprice(listed_bid, pctr[result.ranked], slot_effects=effects, **rules)
    assert again.tolist() == result.cpc.tolist()
