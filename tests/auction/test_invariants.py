"""Invariants of the auction, over hundreds of drawn cases of many auctions each.

Derandomised: the cases are the same in every run. Ledger and cascade have theirs in test_ledger_invariants.py
and test_cascade_invariants.py.
"""

from typing import NamedTuple

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cascade_sim.auction import PRICINGS, auction, reprice, run_auction
from cascade_sim.auction.pricing import RULES
from effort import examples

MANY = examples(600)
ROWS = 16  # auctions of equal rules in a case
MAX_BIDDERS, MAX_SLOTS = 9, 5
NOT_SHOWN = 99
SQUASHINGS = (0.0, 0.5, 1.0, 1.5)


class Case(NamedTuple):
    """Auctions of equal rules.

    Grids instead of arbitrary floats: ties are common, and distinct scores are far apart beside rounding.
    """

    bid: np.ndarray  # [R, c] in eighths
    pctr: np.ndarray  # [R, c] in 64ths
    slots: int
    effects: np.ndarray  # [slots] in eighths
    pricing: str
    parameter: float  # of the pricing rule, if it has one: among the bids
    squashing: float
    reserve_cpc: float
    score_floor: float
    chosen: np.ndarray  # [R] a candidate
    amount: np.ndarray  # [R] a bid
    share: np.ndarray  # [R] a pCTR

    def rules(self, *names):
        """Keywords of run_auction: slots, and what is asked for; with the pricing, its parameters."""
        asked = {"slots": self.slots, **{name: getattr(self, name) for name in names}}
        own = RULES[self.pricing].parameters if "pricing" in names else ()
        return {**asked, **dict.fromkeys(own, self.parameter)}


def decoded(drawn: bytes) -> Case:
    """One draw of bytes for everything: much quicker than a draw for each number, and it shrinks as well."""
    numbers = np.frombuffer(drawn, np.uint8)
    head, rest = numbers[:6], numbers[6:]
    c, slots = int(head[0] % MAX_BIDDERS) + 1, int(head[1] % MAX_SLOTS) + 1
    table = rest[: 2 * ROWS * MAX_BIDDERS].reshape(2, ROWS, MAX_BIDDERS)[:, :, :c]
    per_row = rest[2 * ROWS * MAX_BIDDERS : -MAX_SLOTS].reshape(3, ROWS)
    pricing = PRICINGS[head[2] % len(PRICINGS)]
    return Case(
        bid=(table[0] % 40 + 1) / 8,
        pctr=(table[1] % 32 + 1) / 64,
        slots=slots,
        effects=np.sort(rest[-MAX_SLOTS:][:slots] % 8 + 1)[::-1] / 8,
        pricing=pricing,
        parameter=float(head[5] % 43 / 8),
        squashing=1.0 if pricing == "vcg" else SQUASHINGS[head[3] % 4],
        reserve_cpc=float(head[4] % 21 / 8),
        score_floor=float(head[5] % 17 / 64),
        chosen=(per_row[0] % c).astype(np.int64),
        amount=(per_row[1] % 40 + 1) / 8,
        share=(per_row[2] % 32 + 1) / 64,
    )


SIZE = 6 + 2 * ROWS * MAX_BIDDERS + 3 * ROWS + MAX_SLOTS
cases = st.binary(min_size=SIZE, max_size=SIZE).map(decoded)
BOTH_RESERVES = ("reserve_cpc", "score_floor")


def of_winners(table, winners):
    """Values of the winners in their slots; of an empty slot, of the first candidate.  [R, slots]"""
    return np.take_along_axis(table, np.maximum(winners, 0), 1)


def revenue(bid, pctr, effects, **rules):
    """Expected revenue of each request: sum over slots of effect * pCTR * CPC.  [R]"""
    winners, cpc = run_auction(bid, pctr, slot_effects=effects, **rules)
    return np.sum(np.where(winners >= 0, effects * of_winners(pctr, winners) * cpc, 0.0), axis=1)


def place_of(ad, winners):
    """Slot of an ad of each request, NOT_SHOWN if it has none.  [R]"""
    is_ad = winners == np.asarray(ad)[:, None]
    return np.where(is_ad.any(axis=1), np.argmax(is_ad, axis=1), NOT_SHOWN)


def with_bid(bid, ad, amount):
    changed = bid.copy()
    changed[np.arange(len(bid)), ad] = amount
    return changed


@MANY
@given(cases)
def test_reserve_at_most_cpc_at_most_bid(case):
    winners, cpc = run_auction(
        case.bid, case.pctr, slot_effects=case.effects,
        **case.rules("pricing", "squashing", *BOTH_RESERVES),
    )  # fmt: skip
    shown = winners >= 0
    quality = case.pctr**case.squashing
    assert np.all(cpc <= of_winners(case.bid, winners))
    assert np.all(cpc[shown] >= case.reserve_cpc)
    assert np.all((cpc * of_winners(quality, winners))[shown] >= case.score_floor * (1 - 1e-12))
    assert np.all(cpc[~shown] == 0)
    is_eligible = (case.bid >= case.reserve_cpc) & (case.bid * quality >= case.score_floor)
    assert shown.sum(axis=1).tolist() == np.minimum(case.slots, is_eligible.sum(axis=1)).tolist()


@MANY
@given(cases)
def test_a_higher_bid_never_worsens_the_place(case):
    rules = case.rules("squashing", *BOTH_RESERVES)
    now = case.bid[np.arange(ROWS), case.chosen]
    before = place_of(case.chosen, run_auction(case.bid, case.pctr, **rules).winners)
    raised = with_bid(case.bid, case.chosen, now + case.amount)
    assert np.all(place_of(case.chosen, run_auction(raised, case.pctr, **rules).winners) <= before)


@MANY
@given(cases)
def test_the_gsp_price_is_the_least_bid_that_keeps_the_slot(case):
    rules = case.rules("squashing", *BOTH_RESERVES)
    winners, cpc = run_auction(case.bid, case.pctr, **rules)
    for slot in range(case.slots):
        rows = np.flatnonzero(winners[:, slot] >= 0)
        if len(rows) == 0:
            continue
        bid, pctr, ad, price = case.bid[rows], case.pctr[rows], winners[rows, slot], cpc[rows, slot]
        own = bid[np.arange(len(rows)), ad]
        above = with_bid(bid, ad, np.minimum(own, np.maximum(price * (1 + 1e-9), 1e-9)))
        below = with_bid(bid, ad, price * (1 - 1e-9))  # a price of 0: no bid is lower, and 0 wins nothing
        assert np.all(place_of(ad, run_auction(above, pctr, **rules).winners) <= slot)
        assert np.all(place_of(ad, run_auction(below, pctr, **rules).winners) > slot)


@MANY
@given(cases)
def test_gsp_charges_at_least_what_vcg_charges(case):
    rules = {**case.rules(*BOTH_RESERVES), "slot_effects": case.effects}
    gsp = run_auction(case.bid, case.pctr, pricing="gsp", **rules)
    vcg = run_auction(case.bid, case.pctr, pricing="vcg", **rules)
    assert gsp.winners.tolist() == vcg.winners.tolist()
    assert np.all(gsp.cpc >= vcg.cpc * (1 - 1e-12))


@MANY
@given(cases)
def test_the_lowest_symmetric_equilibrium_of_gsp_earns_the_truthful_vcg_revenue(case):
    order = np.argsort(-case.bid * case.pctr, axis=1, kind="stable")
    value, pctr = (np.take_along_axis(table, order, 1) for table in (case.bid, case.pctr))
    score, x, c = value * pctr, np.append(case.effects, 0.0), value.shape[1]
    equilibrium = score.copy()  # bids times pCTR; whoever misses the page, and the first, bid the value
    for k in range(min(case.slots, c - 1), 0, -1):  # k: place of a bid that prices slot k - 1
        below = equilibrium[:, k + 1] if k + 1 < c else 0.0
        equilibrium[:, k] = (score[:, k] * (x[k - 1] - x[k]) + below * x[k]) / x[k - 1]
    gsp = revenue(equilibrium / pctr, pctr, case.effects, slots=case.slots)
    vcg = revenue(value, pctr, case.effects, slots=case.slots, pricing="vcg")
    assert np.all(np.abs(gsp - vcg) <= 1e-9 * vcg)


@MANY
@given(cases)
def test_with_one_slot_gsp_and_vcg_are_the_second_price(case):
    gsp = run_auction(case.bid, case.pctr, slots=1, reserve_cpc=case.reserve_cpc)
    vcg = run_auction(
        case.bid, case.pctr, slots=1, reserve_cpc=case.reserve_cpc, pricing="vcg", slot_effects=case.effects
    )
    assert vcg.winners.tolist() == gsp.winners.tolist()
    assert np.all(np.abs(vcg.cpc - gsp.cpc) <= 1e-12 * gsp.cpc)
    score = np.where(case.bid >= case.reserve_cpc, case.bid * case.pctr, 0.0)
    score = np.sort(np.column_stack([score, np.zeros(ROWS)]), axis=1)  # nobody stands behind the last
    shown, price = gsp.winners[:, 0] >= 0, gsp.cpc[:, 0]
    assert shown.tolist() == (score[:, -1] > 0).tolist()
    second = np.maximum(score[:, -2] / of_winners(case.pctr, gsp.winners)[:, 0], case.reserve_cpc)
    assert np.all(np.abs(price - second)[shown] <= 1e-12 * second[shown])


@MANY
@given(cases)
def test_one_bidder_more_never_lowers_revenue(case):
    rules = case.rules("pricing")
    if case.pricing in ("gsp", "vcg"):
        rules = case.rules("pricing", *BOTH_RESERVES)
    before = revenue(case.bid, case.pctr, case.effects, **rules)
    more = (np.column_stack([case.bid, case.amount]), np.column_stack([case.pctr, case.share]))
    assert np.all(revenue(*more, case.effects, **rules) >= before * (1 - 1e-12))


@MANY
@given(cases)
def test_the_order_in_which_ads_are_listed_does_not_matter(case):
    rules = {**case.rules("pricing", "squashing", *BOTH_RESERVES), "slot_effects": case.effects}
    c = case.bid.shape[1]
    seed = int(case.chosen @ (10 ** np.arange(ROWS)))
    shuffle = np.argsort(np.random.default_rng(seed).random((ROWS, c)), axis=1)
    plain = run_auction(case.bid, case.pctr, **rules)
    mixed = run_auction(
        np.take_along_axis(case.bid, shuffle, 1), np.take_along_axis(case.pctr, shuffle, 1), ids=shuffle,
        **rules,
    )  # fmt: skip
    assert (
        np.where(mixed.winners >= 0, of_winners(shuffle, mixed.winners), -1).tolist()
        == plain.winners.tolist()
    )
    assert mixed.cpc.tolist() == plain.cpc.tolist()


@MANY
@given(cases, st.sampled_from([0.25, 2.0, 1024.0]))
def test_the_currency_only_scales_the_prices(case, rate):
    rules = {**case.rules("pricing", "squashing", *BOTH_RESERVES), "slot_effects": case.effects}
    money = {name: rules[name] * rate for name in (*BOTH_RESERVES, *RULES[case.pricing].parameters)}
    old = run_auction(case.bid, case.pctr, **rules)
    new = run_auction(case.bid * rate, case.pctr, **{**rules, **money})
    assert new.winners.tolist() == old.winners.tolist()
    assert new.cpc.tolist() == (old.cpc * rate).tolist()


@MANY
@given(cases, st.sampled_from([0.125, 0.5, 2.0]))
def test_scaling_every_pctr_changes_nothing(case, factor):
    rules = {**case.rules("pricing", "reserve_cpc"), "slot_effects": case.effects}
    old = run_auction(case.bid, case.pctr, score_floor=case.score_floor, **rules)
    new = run_auction(case.bid, case.pctr * factor, score_floor=case.score_floor * factor, **rules)
    assert new.winners.tolist() == old.winners.tolist()
    assert new.cpc.tolist() == old.cpc.tolist()


@MANY
@given(cases)
def test_ads_below_the_runner_up_of_the_last_slot_change_nothing(case):
    rules = {**case.rules("pricing", *BOTH_RESERVES), "slot_effects": case.effects}
    full = auction(case.bid, case.pctr, **rules)
    ids = np.tile(np.arange(case.bid.shape[1]), (ROWS, 1))
    ids[~(ids[:, :, None] == full.ranked[:, None, :]).any(axis=2)] = -1
    fewer = auction(case.bid, case.pctr, ids=ids, **rules)
    assert fewer.ranked.tolist() == full.ranked.tolist()
    assert fewer.cpc.tolist() == full.cpc.tolist()


@MANY
@given(cases)
def test_repricing_with_the_same_qualities_gives_the_same_prices(case):
    rules = {**case.rules("pricing", *BOTH_RESERVES), "slot_effects": case.effects}
    result = auction(case.bid, case.pctr, **rules)
    listed = np.where(result.ranked >= 0, of_winners(case.bid, result.ranked), 0.0)
    assert reprice(listed, of_winners(case.pctr, result.ranked), **rules).tolist() == result.cpc.tolist()


def test_the_cases_reach_every_corner():
    """Ties, single bidders, fewer bidders than slots, all pricings and squashings, reserves that bar all."""
    rng = np.random.default_rng(1)
    drawn = [decoded(rng.bytes(SIZE)) for _ in range(500)]
    assert {case.pricing for case in drawn} == set(PRICINGS)
    assert {case.squashing for case in drawn} == set(SQUASHINGS)
    assert {case.bid.shape[1] for case in drawn} == set(range(1, MAX_BIDDERS + 1))
    assert any(case.bid.shape[1] < case.slots for case in drawn)
    assert any((case.bid < case.reserve_cpc).all(axis=1).any() for case in drawn)
    assert sum((np.diff(np.sort(case.bid * case.pctr, axis=1)) == 0).any() for case in drawn) > 50
