"""What is planted in a log is found: the reason, on how many requests, with its value."""

from dataclasses import replace

import numpy as np
import pytest

from cascade_sim.auction import auction
from cascade_sim.logs.audit.study import audit
from worlds.logged_auctions import EFFECTS, cents, drawn, paged, stored

N = 800
GSP = {"pricing": "gsp", "squashing": 1.0, "reserve_cpc": 0.0}
SOME = np.arange(N) % 7 == 3


@pytest.fixture(scope="module")
def log():
    return drawn(1, requests=N)


@pytest.fixture(scope="module")
def plain(log):
    return paged(log)


def differing(log, other):
    """On how many requests two logs differ."""
    return int(((log.slot != other.slot) | (log.price != other.price)).any(axis=1).sum())


def reasons(folder, log, rule=GSP, **about):
    return {row["key"]: row for row in audit(stored(folder, log, rule, **about)).answer["reasons"]}


def only(found, key, requests):
    """The one reason that was found, which must be this on so many requests."""
    assert {name: row["requests"] for name, row in found.items()} == {key: requests}
    return found[key]


def test_a_hidden_reserve_is_found_with_its_value(log, plain, tmp_path):
    made = paged(log, reserve_cpc=0.62)
    row = only(reasons(tmp_path, made), "hidden_reserve", differing(plain, made))
    assert row["value"] == "0.62" and row["told"]["low"] <= 0.62 <= row["told"]["high"]
    assert row["examples"][0].startswith("req-") and len(row["examples"]) == 3


def test_reserves_that_differ_by_placement_are_told_by_placement(log, plain, tmp_path):
    made = paged(log, reserve_cpc=np.where(log.placement == 0, 0.6, 0.85))
    row = only(reasons(tmp_path, made), "hidden_reserve", differing(plain, made))
    assert row["value"] == "place-0 0.6, place-1 0.85"
    assert row["told"] == {"by_placement": {"place-0": 0.6, "place-1": 0.85}}


def test_the_reserve_of_one_placement_is_said_to_be_there(log, plain, tmp_path):
    made = paged(log, reserve_cpc=np.where(log.placement == 1, 0.7, 0.0))
    row = only(reasons(tmp_path, made), "hidden_reserve", differing(plain, made))
    assert row["where"].startswith(f"placement place-1: {row['requests']} of its ")


def test_a_reserve_that_a_first_price_does_not_show_is_read_off_who_was_passed_over(log, tmp_path):
    first = {"pricing": "first"}
    made = paged(log, **first, reserve_cpc=0.9)
    found = reasons(tmp_path, made, {**first, "squashing": 1.0})
    row = only(found, "hidden_reserve", differing(paged(log, **first), made))
    assert row["told"]["low"] <= 0.9 <= row["told"]["high"] < row["told"]["low"] + 0.01


def test_a_hidden_score_floor_is_no_hidden_reserve(log, plain, tmp_path):
    made = paged(log, score_floor=0.0185)
    row = only(reasons(tmp_path, made), "hidden_floor", differing(plain, made))
    assert float(row["value"]) == pytest.approx(0.0185, rel=1e-5)


def test_ads_below_a_least_pctr_are_found(log, plain, tmp_path):
    made = paged(log, bid=np.where(log.pctr >= 0.013, log.bid, 0.0))
    row = only(reasons(tmp_path, made), "hidden_filter", differing(plain, made))
    assert row["told"]["low"] <= 0.013 <= row["told"]["high"]


@pytest.mark.parametrize("pricing", ["gsp", "first"])
def test_a_boosted_advertiser_is_named_with_its_factor(pricing, log, tmp_path):
    boosts = np.ones(60)
    boosts[6:8] = 1.5  # of one advertiser
    made = paged(log, boosts=boosts, pricing=pricing)
    found = reasons(tmp_path, made, {"pricing": pricing, "squashing": 1.0})
    row = only(found, "boost", differing(paged(log, pricing=pricing), made))
    (boosted,) = row["told"]["boosted"]
    assert (boosted["kind"], boosted["name"]) == ("advertiser", "house-3")
    assert boosted["low"] <= 1.5 <= boosted["high"] and boosted["value"] == pytest.approx(1.5, abs=0.05)


def test_a_boost_of_one_ad_is_not_put_on_its_advertiser(log, tmp_path):
    boosts = np.ones(60)
    boosts[6], boosts[21] = 1.4, 0.7
    row = reasons(tmp_path, paged(log, boosts=boosts))["boost"]
    assert {(entry["name"], round(entry["value"], 4)) for entry in row["told"]["boosted"]} == {
        ("ad-6", 1.4),
        ("ad-21", 0.7),
    }


@pytest.mark.parametrize("how", ["up", "down", "nearest"])
def test_rounding_is_found_with_unit_and_way(how, log, plain, tmp_path):
    made = paged(log, rounded=cents(how))
    row = only(reasons(tmp_path, made), "rounding", differing(plain, made))
    assert (row["told"]["unit"], row["told"]["how"]) == (0.01, how)


def test_two_causes_at_once_are_told_as_two(log, tmp_path):
    found = reasons(tmp_path, paged(log, rounded=cents("up"), reserve_cpc=0.6))
    at_reserve = differing(paged(log, rounded=cents("up")), paged(log, rounded=cents("up"), reserve_cpc=0.6))
    assert found.keys() == {"rounding", "hidden_reserve"}
    assert found["rounding"]["requests"] == N
    assert found["hidden_reserve"]["requests"] == at_reserve > 50
    assert found["hidden_reserve"]["alone"] == 0


def test_a_step_above_the_runner_up_is_found(log, plain, tmp_path):
    made = paged(log, step=0.01)
    assert only(reasons(tmp_path, made), "increment", differing(plain, made))["value"] == "0.01"


def test_prices_that_are_all_a_share_of_the_rules_are_found(log, plain, tmp_path):
    made = paged(log, factor=0.85)
    assert only(reasons(tmp_path, made), "price_factor", differing(plain, made))["value"] == "0.85"


def test_another_rule_for_a_share_of_the_traffic_is_found(log, plain, tmp_path):
    made = plain.with_some(SOME, paged(log, pricing="first"))
    row = only(reasons(tmp_path, made), "other_rule", int(SOME.sum()))
    assert row["value"].startswith("first, ") and row["where"] == ""


def test_an_exponent_that_was_changed_one_day_is_told_with_the_time(log, plain, tmp_path):
    late = np.arange(N) >= 600
    made = plain.with_some(late, paged(log, squashing=0.6))
    row = only(reasons(tmp_path, made), "other_rule", differing(plain, made))
    assert row["value"] == "gsp, squashing 0.6"
    assert row["where"].startswith("2026-03-03T01:40:00+00:00 to ")


def test_equal_scores_in_each_others_place_are_ties(log, tmp_path):
    tied = replace(log, bid=np.round(log.bid, 1), pctr=np.full(log.pctr.shape, 0.02))
    backward = replace(tied, ad=tied.ad[:, ::-1], bid=tied.bid[:, ::-1])
    pages = paged(backward)
    made = replace(tied, slot=pages.slot[:, ::-1], price=pages.price[:, ::-1])
    only(reasons(tmp_path, made), "tie", differing(paged(tied), made))


def test_predictions_that_were_rounded_in_the_log_are_told_by_their_digits(log, tmp_path):
    made = replace(paged(log), pctr=np.round(log.pctr, 4))
    found = reasons(tmp_path, made)
    assert found["rounded_pctr"]["value"] == "4 decimals"
    assert found["rounded_pctr"]["requests"] > 0.99 * N


def test_a_price_above_the_bid_is_called_that(plain, tmp_path):
    hit = SOME[:, None] & (plain.slot == 1)
    price = np.where(hit, (plain.bid * 1e6).astype(np.int64) + 1000, plain.price)
    only(reasons(tmp_path, replace(plain, price=price)), "above_bid", int(SOME.sum()))


def test_pages_that_end_early_are_told(plain, tmp_path):
    hit = SOME[:, None] & (plain.slot == 2)
    made = replace(plain, slot=np.where(hit, -1, plain.slot), price=np.where(hit, -1, plain.price))
    only(reasons(tmp_path, made), "fewer_shown", int(SOME.sum()))


@pytest.mark.parametrize("pricing", ["gsp", "vcg"])
def test_a_loser_that_is_not_in_the_log_is_missed(pricing, log, tmp_path):
    made = paged(log, pricing=pricing)
    runner_up = auction(log.bid, log.pctr, slots=3).ranked[:, 3]
    hit = SOME[:, None] & (np.arange(log.ad.shape[1]) == runner_up[:, None])
    without = replace(made, bid=np.where(hit, 0.0, log.bid))
    rule = {"pricing": pricing, "squashing": 1.0, "slot_effects": EFFECTS}
    only(reasons(tmp_path, without, rule), "unlogged_bids", int(SOME.sum()))


def test_the_price_of_the_auction_before_is_a_lag(plain, tmp_path):
    price, before = plain.price.copy(), {}
    for row in range(N):
        for column in np.flatnonzero(plain.slot[row] >= 0):
            ad = int(plain.ad[row, column])
            if SOME[row] and before.get(ad, np.inf) <= plain.bid[row, column] * 1e6:
                price[row, column] = before[ad]
            before[ad] = int(plain.price[row, column])
    made = replace(plain, price=price)
    only(reasons(tmp_path, made), "lagging", differing(plain, made))


def test_a_page_that_was_drawn_is_not_held_against_the_auction(log, plain, tmp_path):
    reserve = 0.3
    own = paged(log, reserve_cpc=reserve)
    slot, price = own.slot.copy(), own.price.copy()
    slot[SOME], price[SOME] = -1, -1
    slot[SOME, :3] = [2, 0, 1]
    price[SOME, :3] = np.minimum(reserve, log.bid[SOME, :3]) * 1e6
    propensity = np.where(slot >= 0, np.where(SOME[:, None], 0.01, 0.9), np.nan)
    made = replace(own, slot=slot, price=price)
    rule, further = {**GSP, "reserve_cpc": reserve}, {"propensity": propensity}
    found = reasons(tmp_path, made, rule, further=further, is_randomised=True)
    only(found, "explored", differing(own, made))


def test_what_no_test_explains_is_called_unexplained(plain, tmp_path):
    hit = SOME[:, None] & (plain.slot == 1)
    places = np.arange(plain.price.size).reshape(plain.price.shape)
    odd = (plain.price * 0.83).astype(np.int64) - places % 997
    made = replace(plain, price=np.where(hit, odd, plain.price))
    row = only(reasons(tmp_path, made), "unexplained", int(SOME.sum()))
    assert row["examples"] == ["req-3", "req-10", "req-17"]


def test_the_commonest_reason_comes_first_and_what_is_unexplained_last(log, plain, tmp_path):
    made = plain.with_some(SOME, paged(log, pricing="first"))
    odd = np.arange(N) % 2 == 0
    price = np.where((odd & ~SOME)[:, None] & (made.slot == 0), made.price * 7 // 9 - 41, made.price)
    few = (np.arange(N) % 50 == 1)[:, None] & (made.slot == 0) & ~SOME[:, None]
    price = np.where(few, (made.bid * 1e6).astype(np.int64) + 7, price)
    rows = audit(stored(tmp_path, replace(made, price=price), GSP)).answer["reasons"]
    assert [row["key"] for row in rows] == ["other_rule", "above_bid", "unexplained"]
    assert rows[2]["requests"] > rows[0]["requests"] > rows[1]["requests"]


@pytest.mark.parametrize("declared", [{"rounding": 0.01, "rounding_how": "nearest"}, {}])
def test_rounded_predictions_are_no_other_rule_where_prices_are_rounded_too(declared, log, tmp_path):
    """Prices in cents leave room for exponents, boosts and factors that come near what the digits lack."""
    made = replace(paged(log, rounded=cents("nearest")), pctr=np.round(log.pctr, 4))
    store = stored(tmp_path, made, {"pricing": "gsp", "squashing": 1.0, **declared})
    found = {row["key"]: row for row in audit(store).answer["reasons"]}
    assert {"rounded_pctr"} <= found.keys() <= {"rounded_pctr", "rounding"}
    assert found["rounded_pctr"]["value"] == "4 decimals"
