"""Pages: what is on them, and each way in which an ad on a page is given its price."""

import numpy as np
import pytest

from cascade_sim.auction import PRICINGS
from cascade_sim.auction.pricing import RULES
from cascade_sim.cascade.page import (
    Page,
    Rules,
    at_reserve,
    auctioned,
    cpc_at_reserve,
    cpc_in_order,
    list_priced,
)
from worlds.cascades import BID, PCTR, Bids, Table, arm, one

IDS = np.array([[2, 5, 7, 9]], np.int32)
PCTRS = np.array([[0.10, 0.05, 0.12, 0.0]])
BIDS = np.array([[2.0, 3.0, 1.0, 8.0]])  # scores .20 .15 .12 and none


def rules(pricing="gsp", slots=2, **given):
    parameters = dict.fromkeys(RULES[pricing].parameters, 1.8)
    return Rules(slots, np.array([1.0, 0.5, 0.25])[:slots], pricing, parameters=parameters, **given)


def page(**given):
    return auctioned(IDS, PCTRS, BIDS, PCTRS, rules(**given))


@pytest.mark.parametrize(
    ("pricing", "micros"),
    [
        ("gsp", [1_500_000, 2_400_000]),
        ("vcg", [1_350_000, 2_400_000]),
        ("first", [2_000_000, 3_000_000]),
        ("soft_floor", [1_800_000, 2_400_000]),
    ],
)
def test_an_auctioned_page_holds_its_ads_and_the_runner_up(pricing, micros):
    made = page(pricing=pricing)
    assert made.ads.tolist() == [[2, 5, 7]]
    assert made.bid.tolist() == [[2.0, 3.0, 1.0]]
    assert made.pctr.tolist() == made.quality.tolist() == [[0.10, 0.05, 0.12]]
    assert made.cpc_micros.tolist() == [micros]


@pytest.mark.parametrize("pricing", PRICINGS)
def test_a_list_in_its_order_is_priced_as_the_auction_priced_it(pricing):
    rng = np.random.default_rng(2)
    bid, pctr = rng.lognormal(0, 0.6, (300, 6)), rng.beta(1, 10, (300, 6))
    ids = np.tile(np.arange(6, dtype=np.int32), (300, 1))
    own = rules(pricing, slots=3, reserve_cpc=0.4, score_floor=0.01)
    made = auctioned(ids, pctr, bid, pctr, own)
    np.testing.assert_array_equal(cpc_in_order(made.bid, made.quality, own), made.cpc_micros)


def test_an_empty_place_has_ad_minus_1_and_0_in_all_else():
    made = page(slots=3, reserve_cpc=1.5)
    assert made.ads.tolist() == [[2, 5, -1, -1]]
    for values in (made.pctr, made.bid, made.quality):
        assert values[0, 2:].tolist() == [0.0, 0.0]
    assert made.cpc_micros.tolist() == [[1_500_000, 1_500_000, 0]]


def test_ids_that_do_not_ascend_break_ties_when_they_are_looked_at():
    ids, same = np.array([[9, 4]], np.int32), np.array([[1.0, 1.0]])
    by_id = auctioned(ids, same, same, same, rules(slots=1), are_ids_sorted=False)
    by_column = auctioned(ids, same, same, same, rules(slots=1))
    assert by_id.ads.tolist() == [[4, 9]] and by_column.ads.tolist() == [[9, 4]]


def test_without_an_auction_a_click_costs_the_reserve_or_a_lower_bid():
    ads, bid = np.array([[3, 1, -1]], np.int32), np.array([[2.0, 0.3, 0.0]])
    made = at_reserve(ads, bid, bid, bid, 0.5)
    assert made.cpc_micros.tolist() == [[500_000, 300_000]]
    each = cpc_at_reserve(np.array([[2.0], [2.0]]), np.array([[0.5], [0.7]]))
    assert each.tolist() == [[500_000], [700_000]]


@pytest.mark.parametrize("pricing", PRICINGS)
def test_a_list_price_is_what_outbids_the_first_ad_beyond_the_list_whatever_the_rule(pricing):
    """The runner-up scores 0.12: 0.12 / 0.10 and 0.12 / 0.05."""
    made = list_priced(page(pricing=pricing), rules(pricing))
    assert made.cpc_micros.tolist() == [[1_200_000, 2_400_000]]
    assert made.ads.tolist() == [[2, 5, 7]]


def test_rows_are_taken_and_put_back():
    both = auctioned(*(np.repeat(table, 2, axis=0) for table in (IDS, PCTRS, BIDS, PCTRS)), rules())
    shown = np.array([[1, 0, -1]], np.int32)
    other = at_reserve(shown, *(np.array([[0.5, 0.25, 0.0]]) for _ in range(3)), 0.1)
    merged = both.with_rows(np.array([1]), other)
    assert isinstance(merged, Page) and merged.ads.tolist() == [[2, 5, 7], [1, 0, -1]]
    for name, values in vars(merged.take(slice(0, 1))).items():
        np.testing.assert_array_equal(values, getattr(both, name)[:1])
    np.testing.assert_array_equal(merged.cpc_micros[1:], other.cpc_micros)


def test_rules_become_the_keywords_of_the_auction():
    given = rules("soft_floor", reserve_cpc=0.2).keywords
    assert given["soft_floor"] == 1.8 and given["pricing"] == "soft_floor" and "parameters" not in given
    assert set(rules().keywords) == {
        *("slots", "slot_effects", "pricing", "reserve_cpc", "score_floor", "rounding"),
    }


def test_a_cascade_serves_an_arm_with_a_soft_floor():
    seats = {"pre": Table(PCTR), "rank": Table(PCTR)}
    plain = one(range(6), Bids(BID), **seats)
    floor = one(range(6), Bids(BID), **seats, pricing="soft_floor", parameters={"soft_floor": 2.5})
    assert floor.win_set.tolist() == plain.win_set.tolist()
    bid, gsp = plain.ranked_bid[:, :-1] * 1e6, plain.cpc_micros
    assert floor.cpc_micros.tolist() == np.minimum(bid, np.maximum(gsp, 2_500_000)).tolist()
    made = arm(**seats, pricing="soft_floor", parameters={"soft_floor": 2.5})
    assert made.rules(np.ones(3)).parameters == {"soft_floor": 2.5}
    others = [arm(**seats, pricing="soft_floor", parameters={"soft_floor": floor}) for floor in (2.5, 3.0)]
    assert {made: "same"}.get(others[0]) == "same" and others[1] != made
