"""The same list under other qualities, and money in whole micro-units."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from answers.told import refused
from cascade_sim.auction import MICROS, floor_micros, reprice, to_micros
from effort import examples

MANY = examples(2000)


def test_repricing_keeps_the_order_and_caps_each_price_at_its_bid():
    cpc = reprice([[2.0, 3.0, 1.0]], [[0.1, 0.2, 0.5]], slots=2)
    assert cpc.tolist() == [[2.0, pytest.approx(1.0 * 0.5 / 0.2)]]  # 3 * 0.2 / 0.1 = 6 would exceed the bid


def test_a_uniform_error_of_the_qualities_leaves_gsp_prices_alone():
    bid, quality = [3.0, 2.0, 1.0], np.array([0.5, 0.5, 0.25])
    assert reprice(bid, quality * 0.5, slots=2).tolist() == reprice(bid, quality, slots=2).tolist()


def test_repricing_lists_without_a_runner_up_or_shorter_than_the_slots():
    assert reprice([2.0, 0.0, 0.0], [0.5, 0.5, 0.5], slots=2, reserve_cpc=0.5).tolist() == [0.5, 0.0]
    assert reprice([2.0], [0.5], slots=3, score_floor=0.5).tolist() == [0.5 / 0.5, 0.0, 0.0]
    assert reprice(np.zeros((2, 0)), np.zeros((2, 0)), slots=1).tolist() == [[0.0], [0.0]]
    assert reprice([2.0, 1.0, 0.5], [0.5, 0.5, 0.5], slots=1).tolist() == [1.0]


def test_an_ad_whose_quality_turns_out_to_be_zero_pays_its_bid_or_the_reserve():
    assert reprice([2.0, 1.0], [0.0, 0.5], slots=2).tolist() == [2.0, 0.0]
    assert reprice([2.0, 1.0], [0.0, 0.0], slots=2, reserve_cpc=0.5).tolist() == [0.5, 0.5]
    assert reprice([2.0], [0.0], slots=1, score_floor=0.1).tolist() == [2.0]


def test_repricing_names_what_it_refuses():
    with refused("request 1", "candidate 0", "quality", "nan", kind=ValueError):
        reprice([[1.0], [1.0]], [[0.5], [np.nan]], slots=1)
    with refused("request 0", "candidate 1", "bid 1.0", "padding", kind=ValueError):
        reprice([0.0, 1.0], [0.5, 0.5], slots=1)


# Money


def test_micro_units_round_to_the_nearest_with_halves_up():
    assert to_micros([0.0, 1.0, 0.0000004, 0.0000005, 0.0000015, 2.5e-6]).tolist() == [0, MICROS, 0, 1, 2, 3]
    assert to_micros(0.4999999999999999e-6).item() == 0


def test_a_charge_is_never_above_the_bid_in_whole_micro_units():
    assert to_micros([1.0000007], [1.0000008]).tolist() == [MICROS]  # the nearest would be one above the bid
    assert to_micros([1.0000007], [1.000001]).tolist() == [MICROS + 1]


@MANY
@given(st.integers(0, 10**12))
def test_amounts_of_six_decimals_are_kept_exactly(micros):
    assert floor_micros(micros / MICROS).item() == to_micros(micros / MICROS).item() == micros
    assert floor_micros((micros + 0.5) / MICROS).item() == micros


@MANY
@given(st.floats(0, 1e6), st.floats(0, 1e6), st.floats(0, 1))
def test_integer_charges_stay_between_reserve_and_bid(one, other, between):
    reserve, bid = min(one, other), max(one, other)
    cpc = min(max(reserve + (bid - reserve) * between, reserve), bid)
    charge = to_micros(cpc, bid)
    assert floor_micros(reserve) <= charge <= floor_micros(bid)
    assert charge <= bid * MICROS * (1 + 1e-15)


@pytest.mark.parametrize("bad", [np.nan, -1.0, np.inf, 1e13])
def test_money_beyond_64_bits_is_refused(bad):
    with refused("money", 0, kind=ValueError):
        to_micros([1.0, bad])
