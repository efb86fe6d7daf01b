"""Pages drawn from the head of the ranking order: probabilities, prices and expected gains."""

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest

from cascade_sim.auction import MICROS
from cascade_sim.cascade.serve import serve
from cascade_sim.ope import slates
from worlds.cascades import with_stage_of
from worlds.randomised_logs import logged

SCORES = np.array([[0.9, 0.5, 0.4, 0.2, 0.1]])
SLOTS = 3


def pages(n=5, slots=SLOTS):
    return list(permutations(range(n), slots))


def probability(logit, page):
    return float(np.exp(slates.log_propensities(logit, np.array([page])).sum()))


def test_probabilities_of_all_pages_sum_to_one():
    for temperature in (0.1, 0.5, 3.0):
        logit = slates.log_odds(SCORES, temperature)
        assert sum(probability(logit, page) for page in pages()) == pytest.approx(1.0, abs=1e-12)


def test_each_choice_is_by_the_odds_of_the_ads_left():
    found = np.exp(slates.log_propensities(slates.log_odds(SCORES, 1.0), np.array([[1, 0, 4]])))[0]
    assert found == pytest.approx([0.5 / 2.1, 0.9 / 1.6, 0.1 / 0.7])
    squared = np.exp(slates.log_propensities(slates.log_odds(SCORES, 0.5), np.array([[1]])))[0, 0]
    assert squared == pytest.approx(0.25 / (0.81 + 0.25 + 0.16 + 0.04 + 0.01))


def test_drawn_pages_come_as_often_as_they_should():
    from scipy.stats import chi2

    logit = slates.log_odds(SCORES[:, :4], 0.7)
    n = 60_000
    places = slates.draw_places(
        np.arange(n), np.tile(np.arange(4, dtype=np.int32), (n, 1)), np.repeat(logit, n, axis=0), 2, seed=9
    )
    known = pages(4, 2)
    count = np.array([(places == page).all(axis=1).sum() for page in known])
    expected = n * np.array([probability(logit, page) for page in known])
    assert ((count - expected) ** 2 / expected).sum() < chi2.ppf(0.999, len(known) - 1)


def test_marginals_are_sums_over_pages():
    logit = slates.log_odds(SCORES, 0.6)
    drawn = (2, 0, 1)
    found = slates.slot_marginals(logit, np.array([drawn]))[0]
    for k, ad in enumerate(drawn):
        total = sum(probability(logit, page) for page in pages() if page[k] == ad)
        assert found[k] == pytest.approx(total)


def test_values_of_pages_are_sums_over_pages():
    logit, effects = slates.log_odds(SCORES, 0.6), np.array([1.0, 0.7, 0.4])
    gain = np.array([[0.3, 0.1, 0.5, 0.2, 0.9]])
    drawn = (2, 0, 1)

    def worth(page, first):
        return sum(effects[k] * gain[0, page[k]] for k in range(first, SLOTS))

    of_slot, of_rest = slates.page_values(logit, gain, effects, np.array([drawn]))
    for k in range(SLOTS):
        for given, found in ((drawn[:k], of_rest[0, k]), (drawn[: k + 1], of_slot[0, k])):
            fitting = [page for page in pages() if page[: len(given)] == given]
            weights = np.array([probability(logit, page) for page in fitting])
            expected = (weights * [worth(page, k) for page in fitting]).sum() / weights.sum()
            assert found == pytest.approx(expected)


def test_a_list_shorter_than_the_page_leaves_slots_empty_with_ratio_one():
    logit = slates.log_odds(np.array([[0.4, 0.1, 0.0, 0.0]]), 0.5)
    places = slates.draw_places(np.array([7]), np.array([[5, 6, -1, -1]], np.int32), logit, 3, seed=1)
    assert sorted(places[0, :2].tolist()) == [0, 1] and places[0, 2] == -1
    assert np.exp(slates.log_propensities(logit, places))[0, 1:].tolist() == [1.0, 1.0]
    assert slates.slot_marginals(logit, places)[0, 2] == 1.0
    of_slot, of_rest = slates.page_values(logit, np.ones((1, 4)), np.array([1.0, 0.5, 0.25]), places)
    assert (of_slot[0, 2], of_rest[0, 2]) == (0.0, 0.0)
    assert of_rest[0, 0] == pytest.approx(1.0 + 0.5)


def test_what_a_target_never_draws_has_probability_zero_also_when_it_has_nothing_left():
    """Two of the three logged ads score 0 under the target: it stops after one, where the log went on."""
    odds = slates.log_odds(np.array([[0.0, 0.3, 0.0]]), 0.5)
    page = np.array([[1, 0, 2]])
    assert np.exp(slates.log_propensities(odds, page)).tolist() == [[1.0, 0.0, 0.0]]
    nothing = slates.log_odds(np.zeros((1, 3)), 0.5)
    assert np.exp(slates.log_propensities(nothing, page)).tolist() == [[0.0, 0.0, 0.0]]


def test_an_empty_list_shows_nothing():
    logit = slates.log_odds(np.zeros((1, 3)), 0.5)
    assert slates.draw_places(np.array([1]), np.full((1, 3), -1, np.int32), logit, 2, 1).tolist() == [
        [-1, -1]
    ]


def test_cold_draws_are_the_ranking_order():
    logit = slates.log_odds(np.tile(SCORES, (500, 1)), 0.002)
    ads = np.tile(np.arange(5, dtype=np.int32), (500, 1))
    places = slates.draw_places(np.arange(500), ads, logit, SLOTS, seed=2)
    assert (places == [0, 1, 2]).all()


@pytest.fixture(scope="module")
def listed():
    world = logged()
    block = world.sim.arrivals.block("slates", 0, 256)
    made, served = slates.list_of(block, world.arm, world.sim.platform, 6)
    return world, block, made, served


def test_the_list_is_the_head_of_the_ranking_order(listed):
    world, block, made, _ = listed
    shown = serve(block, world.arm, world.sim.platform)
    assert made.ads[:, : world.arm.slots].tolist() == shown.win_set.tolist()
    assert (np.diff(made.score, axis=1) <= 0).all()


def test_the_list_price_is_the_least_bid_that_stays_on_the_list(listed):
    world, block, _, _ = listed
    platform = world.sim.platform
    arm = with_stage_of(world.arm, 0, world.arm.last)  # so that no ad falls out before the auction
    looked_at = 0
    for row in (0, 3, 17, 40):
        one = block.take(slice(row, row + 1))
        made, _ = slates.list_of(one, arm, platform, 6)
        for place in range(6):
            ad, price = int(made.ads[0, place]), int(made.cpc_micros[0, place])
            if ad < 0:
                continue
            for bid, is_enough in ((price + 1, True), (price - 2, False)):
                other = replace(platform, bids=platform.bids.with_bid(ad, bid / MICROS))
                again, _ = slates.list_of(one, arm, other, 6)
                assert (ad in again.ads[0].tolist()) == is_enough
                looked_at += 1
    assert looked_at >= 20


def test_prices_lie_between_reserve_and_bid_and_do_not_depend_on_the_draw(listed):
    world, _, made, served = listed
    there = made.is_there
    assert (made.cpc_micros[there] >= np.floor(world.arm.reserve_cpc * MICROS)).all()
    assert (made.cpc_micros[there] <= made.bid[there] * MICROS + 1).all()
    places = np.tile([4, 1, 0], (len(made.ads), 1))
    page = slates.drawn_decision(served, made, places)
    full = there[:, :5].all(axis=1)
    assert (page.cpc_micros[full, 0] == made.cpc_micros[full, 4]).all()
    assert (page.win_set[full] == made.ads[full][:, [4, 1, 0]]).all()
