"""Exact examples, edge cases and refusals of the auction."""

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from answers.told import refused
from cascade_sim.auction import auction, run_auction

EXACT = {"rel": 1e-12, "abs": 0}


def revenue(bid, pctr, effects, slots, **rules):
    """Expected revenue of one request: sum over slots of effect * pCTR * CPC."""
    winners, cpc = run_auction(bid, pctr, slots=slots, slot_effects=effects, **rules)
    shown = winners >= 0
    return float(np.sum(effects[:slots][shown] * np.asarray(pctr)[winners[shown]] * cpc[shown]))


# Exact examples


def test_two_slots_of_200_and_100_clicks_at_truthful_bids():
    effects = np.array([200.0, 100.0])
    values, one = np.array([10.0, 4.0, 2.0]), np.ones(3)
    assert revenue(values, one, effects, 2) == pytest.approx(200 * 4 + 100 * 2, **EXACT)
    assert revenue(values, one, effects, 2, pricing="vcg") == pytest.approx(600 + 200, **EXACT)
    assert revenue(values, one, effects, 2, pricing="first") == pytest.approx(200 * 10 + 100 * 4, **EXACT)


def test_the_lowest_envy_free_bids_earn_in_gsp_what_truthful_bids_earn_in_vcg():
    assert revenue([10, 3, 2], np.ones(3), np.array([200.0, 100.0]), 2) == pytest.approx(800, **EXACT)


@pytest.mark.parametrize(
    ("rules", "winners", "cpc"),
    [
        ({"squashing": 1.0}, [1, 0], [1.00, 0.40]),
        ({"squashing": 0.0}, [0, 1], [1.50, 1.00]),
        ({"squashing": 0.5}, [1, 0], [math.sqrt(2), math.sqrt(0.4)]),
        ({"reserve_cpc": 1.2}, [1, 0], [1.20, 1.20]),
        ({"score_floor": 0.06}, [1, 0], [1.00, 1.20]),
    ],
)
def test_quality_squashing_and_the_two_reserves(rules, winners, cpc):
    result = run_auction([2, 1.5, 1], [0.05, 0.10, 0.02], slots=2, **rules)
    assert result.winners.tolist() == winners
    assert result.cpc == pytest.approx(cpc, **EXACT)


def test_the_first_loser_prices_the_last_slot():
    winners, cpc = run_auction([300, 100, 100], [0.1, 0.2, 0.1], slots=2)
    assert winners.tolist() == [0, 1]
    assert cpc == pytest.approx([20 / 0.1, 10 / 0.2], **EXACT)


# Edge cases


def test_no_candidates_leave_every_slot_empty():
    for shape in [(0,), (3, 0), (0, 4)]:
        winners, cpc = run_auction(np.zeros(shape), np.zeros(shape), slots=2)
        assert winners.shape == cpc.shape == (*shape[:-1], 2)
        assert np.all(winners == -1) and np.all(cpc == 0)


def test_fewer_candidates_than_slots_leave_the_last_slots_empty_and_the_last_ad_at_the_reserve():
    winners, cpc = run_auction([1.0, 3.0], [0.5, 0.5], slots=4, reserve_cpc=0.25)
    assert winners.tolist() == [1, 0, -1, -1]
    assert cpc.tolist() == [1.0, 0.25, 0.0, 0.0]


def test_ties_go_to_the_smaller_column_or_the_smaller_id():
    same = [1.0, 1.0, 1.0]
    assert run_auction(same, same, slots=2).winners.tolist() == [0, 1]
    assert run_auction(same, same, slots=2, ids=[30, 10, 20]).winners.tolist() == [1, 2]
    assert auction(same, same, slots=1, ids=[30, 20, 10]).ranked.tolist() == [2, 1]
    assert run_auction(same, same, slots=2).cpc.tolist() == [1.0, 1.0]  # the twin's score is the price


def test_an_ad_without_pctr_is_not_eligible_even_in_bid_order():
    for squashing in (0.0, 0.5, 1.0):
        winners, cpc = run_auction([9.0, 1.0], [0.0, 0.5], slots=2, squashing=squashing)
        assert winners.tolist() == [1, -1] and cpc.tolist() == [0.0, 0.0]


def test_an_ad_below_the_reserve_neither_wins_nor_prices():
    winners, cpc = run_auction([2.0, 0.9], [0.1, 0.9], slots=2, reserve_cpc=1.0)
    assert winners.tolist() == [0, -1] and cpc.tolist() == [1.0, 0.0]
    exactly = run_auction([1.0], [0.1], slots=1, reserve_cpc=1.0)
    assert exactly.winners.tolist() == [0] and exactly.cpc.tolist() == [1.0]


def test_when_nobody_is_eligible_nothing_is_shown():
    winners, cpc = run_auction([[0.0, 1.0, 1.0]], [[0.5, 0.0, 0.01]], slots=2, score_floor=0.1)
    assert winners.tolist() == [[-1, -1]] and cpc.tolist() == [[0.0, 0.0]]


def test_padding_columns_never_win_whatever_they_hold():
    for squashing in (0.5, 1.0):
        winners, _ = run_auction([[9.0, 1.0, -4.0]], [[np.nan, 0.5, np.inf]], slots=2, squashing=squashing,
                                 ids=[[-1, 7, -1]])  # fmt: skip
        assert winners.tolist() == [[1, -1]]


def test_each_request_of_a_block_is_priced_as_if_it_were_alone():
    rng = np.random.default_rng(3)
    bid, pctr = rng.lognormal(size=(50, 20)), rng.beta(1, 20, (50, 20))
    together = run_auction(bid, pctr, slots=4, reserve_cpc=0.5)
    for row in range(50):
        alone = run_auction(bid[row], pctr[row], slots=4, reserve_cpc=0.5)
        assert together.winners[row].tolist() == alone.winners.tolist()
        assert together.cpc[row].tolist() == alone.cpc.tolist()


def test_vcg_without_slot_effects_asks_the_same_score_of_every_slot():
    winners, cpc = run_auction([4.0, 3.0, 2.0], [0.5, 0.5, 0.25], slots=2, pricing="vcg")
    assert winners.tolist() == [0, 1] and cpc.tolist() == [0.5 / 0.5, 0.5 / 0.5]


def test_the_reserves_take_part_in_a_vcg_price_as_a_bidder_for_every_slot():
    rules = {"slots": 2, "pricing": "vcg", "slot_effects": [1.0, 0.5]}
    free = run_auction([4.0, 2.0], [0.5, 0.5], **rules)
    assert free.cpc.tolist() == [(1.0 - 0.5) * 1.0 / 0.5, 0.0]
    assert run_auction([4.0, 2.0], [0.5, 0.5], reserve_cpc=1.5, **rules).cpc.tolist() == [1.0 + 0.75, 1.5]
    assert run_auction([4.0, 2.0], [0.5, 0.5], score_floor=0.25, **rules).cpc.tolist() == [1.25, 0.25 / 0.5]


def test_inputs_may_be_frozen_strided_or_of_single_precision_and_stay_as_they_are():
    rng = np.random.default_rng(4)
    bid, pctr = rng.integers(1, 9, (6, 8)) / 4, rng.integers(1, 9, (6, 8)) / 16
    plain = run_auction(bid, pctr, slots=2)
    frozen = bid.copy()
    frozen.flags.writeable = False
    for other in (frozen, np.asfortranarray(bid), bid.astype(np.float32), bid.tolist()):
        again = run_auction(other, pctr.astype(np.float32), slots=2)
        assert again.winners.tolist() == plain.winners.tolist() and again.cpc.tolist() == plain.cpc.tolist()
    assert np.array_equal(frozen, bid)


# Refused input


@pytest.mark.parametrize("bad", [np.nan, -0.5, np.inf, -np.inf])
@pytest.mark.parametrize("squashing", [0.0, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("where", ["bid", "pctr"])
def test_bad_numbers_are_refused_with_request_and_candidate_named(where, bad, squashing):
    tables = {"bid": np.ones((4, 3)), "pctr": np.full((4, 3), 0.5)}
    tables[where][2, 1] = bad
    with pytest.raises(ValueError, match=rf"request 2, candidate 1: {where} is {bad}"):
        run_auction(**tables, slots=1, squashing=squashing)


def test_an_infinite_bid_on_an_ad_without_pctr_is_refused_too():
    with refused("request 0", "candidate 1", "bid", "inf", kind=ValueError):
        run_auction([1.0, np.inf], [0.5, 0.0], slots=1)


def test_a_score_too_large_for_a_float_is_refused():
    with refused("candidate 0", "bid 1e+200", "quality 1e+200", kind=ValueError):
        auction([1e200], [1e200], slots=1)


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ({"slots": 0}, "slots is 0"),
        ({"slots": 1, "pricing": "gps"}, "'gps'; gsp, vcg, first"),
        ({"slots": 1, "pricing": "vcg", "squashing": 0.5}, "vcg 1, 0.5"),
        ({"slots": 1, "squashing": -1.0}, "squashing -1.0"),
        ({"slots": 1, "squashing": np.nan}, "squashing is nan"),
        ({"slots": 2, "slot_effects": [1.0]}, "2"),
        ({"slots": 2, "slot_effects": [0.5, 1.0]}, "never increase"),
        ({"slots": 2, "slot_effects": [1.0, 0.0]}, "positive"),
        ({"slots": 1, "slot_effects": [np.nan]}, "finite"),
        ({"slots": 1, "reserve_cpc": -1.0}, "reserve_cpc -1.0"),
        ({"slots": 1, "score_floor": np.inf}, "score_floor is inf"),
        ({"slots": 1, "ids": [1]}, "bid ids shape"),
    ],
)
def test_bad_rules_are_refused(rules, message):
    with refused(*message.split(), kind=ValueError):
        run_auction([1.0, 2.0], [0.5, 0.5], **rules)


BIDS, PCTRS = [1.0, 2.0], [0.5, 0.25]
NO_INPUT = {
    "nothing": ((None, None, {}), "bid is None"),
    "no pctr": ((BIDS, None, {}), "pctr is None"),
    "an empty place": (([1.0, None], PCTRS, {}), "bid holds None"),
    "text": ((["1.0", "a"], PCTRS, {}), "bid holds '1.0'"),
    "text for a table": (("12", PCTRS, {}), "bid must be"),
    "complex": ((BIDS, [0.5 + 0j, 0.25], {}), r"pctr holds \(0.5\+0j\)"),
    "truth values": (([True, False], PCTRS, {}), "bid holds True"),
    "dates": ((np.array(["2024-01-01", "2024-01-02"], "M8[D]"), PCTRS, {}), "bid holds datetime"),
    "ragged rows": (([[1.0, 2.0], [1.0]], PCTRS, {}), "bid is no table: its rows differ in length"),
    "more than certain": ((BIDS, [0.5, 1.25], {}), "request 0, candidate 1: pctr is 1.25"),
    "a row for a table": ((BIDS, [PCTRS], {}), r"bid and pctr differ in shape: \(2,\) and \(1, 2\)"),
    "ids of another shape": ((BIDS, PCTRS, {"ids": [[0, 1]]}), "bid and ids differ in shape"),
    "parts of an id": ((BIDS, PCTRS, {"ids": [0.9, 0.1]}), "request 0, candidate 0: ids is 0.9"),
    "an id that is none": ((BIDS, PCTRS, {"ids": [1.0, np.nan]}), "candidate 1: ids is nan"),
    "an id beyond 64 bits": ((BIDS, PCTRS, {"ids": np.array([1, 2**63], np.uint64)}), "candidate 1: ids is"),
    "names": ((BIDS, PCTRS, {"ids": ["a", "b"]}), "ids holds 'a'"),
    "parts of a slot": ((BIDS, PCTRS, {"slots": 1.5}), "slots is 1.5; it must be an integer"),
    "slots in words": ((BIDS, PCTRS, {"slots": "1"}), "slots is '1'"),
    "no slots": ((BIDS, PCTRS, {"slots": None}), "slots is None"),
    "a negative slot": ((BIDS, PCTRS, {"slots": -1}), "slots is -1"),
    "a truth value of slots": ((BIDS, PCTRS, {"slots": True}), "slots is True"),
    "a reserve in words": ((BIDS, PCTRS, {"reserve_cpc": "0.5"}), "reserve_cpc is '0.5'"),
    "a reserve that is none": ((BIDS, PCTRS, {"reserve_cpc": None}), "reserve_cpc is None"),
    "a complex reserve": ((BIDS, PCTRS, {"reserve_cpc": 1j}), "reserve_cpc is 1j"),
    "two reserves": ((BIDS, PCTRS, {"reserve_cpc": [0.1, 0.2]}), "reserve_cpc has shape"),
    "reserves in words": ((BIDS, PCTRS, {"reserve_cpc": ["0.5"]}), "reserve_cpc holds '0.5'"),
    "a floor in words": ((BIDS, PCTRS, {"score_floor": "x"}), "score_floor is 'x'"),
    "squashing in words": ((BIDS, PCTRS, {"squashing": "half"}), "squashing is 'half'"),
    "effects in words": ((BIDS, PCTRS, {"slot_effects": ["1"]}), "slot_effects holds '1'"),
    "a table of effects": ((BIDS, PCTRS, {"slot_effects": [[1.0]]}), "slot_effects must be a list"),
    "pricing by number": ((BIDS, PCTRS, {"pricing": 1}), "unknown pricing 1"),
    "pricings": ((BIDS, PCTRS, {"pricing": ["gsp"]}), r"unknown pricing \['gsp'\]"),
    "a soft floor in words": (
        (BIDS, PCTRS, {"pricing": "soft_floor", "soft_floor": "1"}),
        "soft_floor is '1'",
    ),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", NO_INPUT)
def test_what_is_no_input_is_refused_by_name(name):
    (bid, pctr, rules), message = NO_INPUT[name]
    with pytest.raises(ValueError, match=message):
        run_auction(bid, pctr, **{"slots": 1, **rules})


@pytest.mark.parametrize("kind", [np.int8, np.int32, np.int64, np.uint8, np.uint64])
def test_whole_numbers_of_every_kind_are_taken(kind):
    plain = run_auction([1.0, 2.0, 3.0], [*PCTRS, 0.1], slots=2, ids=[2, 1, 0], reserve_cpc=1.0)
    bid, ids = np.array([1, 2, 3], kind), np.array([2, 1, 0], kind)
    again = run_auction(bid, [*PCTRS, 0.1], slots=kind(2), ids=ids, reserve_cpc=kind(1))
    assert again.winners.tolist() == plain.winners.tolist() and again.cpc.tolist() == plain.cpc.tolist()


def test_fractions_decimals_single_precision_and_whole_ids_in_floats_are_numbers():
    plain = run_auction(BIDS, PCTRS, slots=1, ids=[1, 0], reserve_cpc=0.5)
    for number in (Fraction, Decimal, np.float32):
        given = [[number(value) for value in values] for values in (BIDS, PCTRS)]
        again = run_auction(*given, slots=1, ids=[1.0, 0.0], reserve_cpc=number(0.5))
        assert again.winners.tolist() == plain.winners.tolist() and again.cpc.tolist() == plain.cpc.tolist()


def test_padding_may_hold_anything_that_is_a_number():
    page = run_auction([1.0, np.nan], [0.5, 7.0], slots=1, ids=[3, -1])
    assert page.winners.tolist() == [0]


def test_qualities_of_the_fused_auction_may_be_above_one():
    assert auction([1.0, 1.0], [2.0, 1.5], slots=1).cpc.tolist() == [0.75]


def test_tables_of_other_shapes_are_refused():
    for squashing in (0.5, 1.0):
        with refused("bid", "pctr", "shape", kind=ValueError):
            run_auction([1.0, 2.0], [0.5], slots=1, squashing=squashing)
    with refused("bid", "[requests, candidates]", kind=ValueError):
        run_auction(1.0, 0.5, slots=1)
