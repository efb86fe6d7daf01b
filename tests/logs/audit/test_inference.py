"""The rule of a log that declares none: found with its parameters, or said not to be known."""

from dataclasses import replace

import numpy as np
import pytest

from answers.told import tells
from cascade_sim.logs.audit.study import audit
from worlds.logged_auctions import cents, drawn, paged, stored

N = 600


def inferred(folder, log, rule=None, **about):
    return audit(stored(folder, log, rule, **about), infer=True).answer


def best(answer):
    return answer["inference"]["rules"][0]


def notes(answer):
    return " ".join(answer["notes"])


FOUND = {
    "gsp": ({}, {"pricing": "gsp", "squashing": 1.0}),
    "gsp squashed": ({"squashing": 0.5}, {"pricing": "gsp", "squashing": 0.5}),
    "gsp at 0.73 with a reserve": (
        {"squashing": 0.73, "reserve_cpc": 0.6},
        {"pricing": "gsp", "squashing": 0.73, "least": 0.6},
    ),
    "first": ({"pricing": "first"}, {"pricing": "first"}),
    "vcg": ({"pricing": "vcg"}, {"pricing": "vcg", "slot_effects": [1.0, 0.75, 0.55]}),
    "vcg with a reserve": (
        {"pricing": "vcg", "reserve_cpc": 0.7},
        {"pricing": "vcg", "slot_effects": [1.0, 0.75, 0.55], "least": 0.7},
    ),
    "soft floor": (
        {"pricing": "soft_floor", "soft_floor": 0.9},
        {"pricing": "soft_floor", "soft_floor": 0.9},
    ),
    "score floor": ({"score_floor": 0.018}, {"pricing": "gsp", "score_floor": 0.018}),
    "step": ({"step": 0.01}, {"pricing": "gsp", "increment": 0.01}),
    "cents up": (
        {"squashing": 0.5, "rounded": cents("up"), "reserve_cpc": 0.6},
        {"pricing": "gsp", "squashing": 0.5, "least": 0.6, "rounding": {"unit": 0.01, "how": "up"}},
    ),
    "cents down": (
        {"rounded": cents("down")},
        {"pricing": "gsp", "squashing": 1.0, "rounding": {"unit": 0.01, "how": "down"}},
    ),
}


@pytest.mark.parametrize("name", FOUND)
@pytest.mark.few(4)
def test_the_rule_is_found_with_its_parameters(name, tmp_path):
    made, expected = FOUND[name]
    answer = inferred(tmp_path, paged(drawn(21, requests=N), **made))
    found = best(answer)
    values = {**found["values"], "least": (found["values"].get("reserve_by_placement") or [None])[0]}
    for key, value in expected.items():
        assert values[key] == (pytest.approx(value, rel=1e-4) if isinstance(value, float) else value), key
    assert answer["inference"]["is_identified"] and not answer["is_declared"]
    assert (found["winners"], found["prices"], found["pages"]) == (1, 1, 1)
    assert answer["tally"]["pages_matched"] == N


@pytest.mark.parametrize("exponent", [0.0, 0.31, 0.5, 0.86, 1.0, 1.4])
@pytest.mark.parametrize("pricing", ["gsp", "first"])
@pytest.mark.few(3)
def test_the_interval_of_the_exponent_holds_it(exponent, pricing, tmp_path):
    log = paged(drawn(22, requests=N), pricing=pricing, squashing=exponent)
    told = best(inferred(tmp_path, log))["told"]["squashing"]
    assert told["low"] - 1e-9 <= exponent <= told["high"] + 1e-9
    # Prices tell it far better than the order alone.
    assert told["high"] - told["low"] < {"gsp": 1e-5, "first": 0.02}[pricing]


def test_a_reserve_has_the_interval_that_its_rounding_leaves(tmp_path):
    answer = inferred(tmp_path, paged(drawn(23, requests=N), reserve_cpc=0.655, rounded=cents("up")))
    told = best(answer)["told"]["hidden_reserve"]
    assert 0.65 <= told["low"] <= 0.655 <= told["high"] <= 0.66


def test_reserves_of_placements_are_found_each(tmp_path):
    log = drawn(24, requests=N)
    answer = inferred(tmp_path, paged(log, reserve_cpc=np.where(log.placement == 0, 0.6, 0.8)))
    assert best(answer)["values"]["reserve_by_placement"][:2] == [0.6, 0.8]
    assert answer["tally"]["pages_matched"] == N


def test_a_reserve_is_found_that_no_placement_shows_often_enough_alone(tmp_path):
    log = paged(drawn(35, requests=N, placements=40), reserve_cpc=0.6)
    assert set(best(inferred(tmp_path, log))["values"]["reserve_by_placement"]) == {0.6}


def test_wrong_prices_in_the_log_do_not_lead_it_astray(tmp_path):
    from dataclasses import replace

    log = paged(drawn(25, requests=N), squashing=0.5, reserve_cpc=0.6)
    rng = np.random.default_rng(1)
    hit = (log.slot >= 0) & (rng.random(log.slot.shape) < 0.1)
    price = np.where(hit, (log.price * rng.uniform(0.5, 1, log.price.shape)).astype(np.int64), log.price)
    answer = inferred(tmp_path, replace(log, price=price))
    values = best(answer)["values"]
    assert (values["pricing"], values["squashing"]) == ("gsp", 0.5)
    assert values["reserve_by_placement"][0] == 0.6
    right = 1 - hit.sum() / (log.slot >= 0).sum()
    assert answer["tally"]["prices_matched"] / answer["tally"]["prices"] == pytest.approx(right, abs=1e-3)


def test_cents_are_seen_through_wrong_prices(tmp_path):
    from dataclasses import replace

    log = paged(drawn(36, requests=N), rounded=cents("down"), reserve_cpc=0.7)
    rng = np.random.default_rng(2)
    hit = (log.slot >= 0) & (rng.random(log.slot.shape) < 0.1)
    price = np.where(hit, (log.price * rng.uniform(0.5, 1, log.price.shape)).astype(np.int64), log.price)
    found = best(inferred(tmp_path, replace(log, price=price)))["values"]
    assert (found["pricing"], found["squashing"]) == ("gsp", 1.0)
    assert found["rounding"] == {"unit": 0.01, "how": "down"} and found["reserve_by_placement"][0] == 0.7


def test_the_shares_are_of_requests_that_did_not_choose(tmp_path):
    found = inferred(tmp_path, paged(drawn(26, requests=N)))["inference"]
    assert found["fitted_to"] + found["held_out"] == N and 200 < found["held_out"] < 400


def test_a_declared_rule_is_held_against_the_one_that_is_found(tmp_path):
    answer = inferred(tmp_path, paged(drawn(27, requests=N), pricing="first"), {"pricing": "gsp"})
    (declared,) = [row for row in answer["inference"]["rules"] if row["is_declared"]]
    assert answer["declared_text"] == declared["rule"] == "gsp, squashing 1"
    assert declared["prices"] < 0.05 < best(answer)["prices"] == 1
    assert best(answer)["values"]["pricing"] == "first"


def test_one_slot_cannot_tell_gsp_from_vcg(tmp_path):
    answer = inferred(tmp_path, paged(drawn(28, requests=N, slots=1)))
    assert not answer["inference"]["is_identified"]
    assert tells(notes(answer), "gsp and vcg", "one slot")


def test_winners_alone_cannot_tell_first_from_second_price(tmp_path):
    answer = inferred(tmp_path, paged(drawn(29, requests=N, slots=1)), is_winners_only=True)
    assert not answer["inference"]["is_identified"]
    assert tells(notes(answer), "gsp and first")
    assert tells(notes(answer), "no runner-up")
    assert answer["tally"]["prices"] == 0 and tells(notes(answer), "exponent")


def test_one_bidder_each_does_not_tell_the_exponent(tmp_path):
    log = drawn(30, requests=N, candidates=1, slots=1)
    answer = inferred(tmp_path, paged(log, reserve_cpc=0.6))
    assert tells(notes(answer), "exponent")
    assert best(answer)["values"]["reserve_by_placement"][0] == 0.6


def test_without_predictions_the_exponent_is_unknown(tmp_path):
    answer = inferred(tmp_path, paged(drawn(31, requests=N), squashing=0.0), without_pctr=True)
    assert any(tells(note, "pCTRs", "exponent") for note in answer["notes"])
    assert answer["tally"]["pages_matched"] == N


def test_without_prices_no_rule_is_decided(tmp_path):
    from dataclasses import replace

    log = paged(drawn(32, requests=N), squashing=0.5)
    answer = inferred(tmp_path, replace(log, price=np.full(log.price.shape, -1)))
    assert not answer["inference"]["is_identified"] and tells(notes(answer), "no prices")
    assert best(answer)["values"]["squashing"] == pytest.approx(0.5, abs=0.01)  # which the order tells


def test_a_reserve_that_no_price_shows_is_bounded(tmp_path):
    answer = inferred(tmp_path, paged(drawn(33, requests=N), pricing="first"))
    bound = best(answer)["told"]["reserve"]
    assert bound["value"] is None and bound["low"] == 0 < bound["high"] < 0.6
    assert tells(notes(answer), "reserve")


def test_a_handful_of_requests_is_not_too_few_to_try(tmp_path):
    answer = inferred(tmp_path, paged(drawn(34, requests=2)))
    assert answer["tally"]["requests"] == 2


@pytest.mark.parametrize("exponent", [1.0, 0.8])
def test_rounded_predictions_do_not_move_the_exponent(exponent, tmp_path):
    log = drawn(7, requests=800)
    made = replace(paged(log, squashing=exponent), pctr=np.round(log.pctr, 3))
    answer = audit(stored(tmp_path, made), infer=True).answer
    assert answer["rule"]["squashing"] == exponent
    assert [row["key"] for row in answer["reasons"]] == ["rounded_pctr"]
