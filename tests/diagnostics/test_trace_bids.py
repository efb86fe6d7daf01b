"""The least bid that would have won: exact, and honest where no bid helps."""

from dataclasses import replace

import numpy as np
import pytest

from answers.section_text import says
from cascade_sim.auction import MICROS
from cascade_sim.cascade.serve import serve
from cascade_sim.diagnostics.reopen import reopen
from cascade_sim.diagnostics.trace import MOST, explain_ad, find_request, min_passing_bid
from worlds.traced_run import REQUEST, ads_by_fate, as_run_folder, with_bid


@pytest.fixture(scope="module")
def run(study, tmp_path_factory):
    return reopen(as_run_folder(study, tmp_path_factory.mktemp("runs") / "tiny"))


@pytest.fixture(scope="module")
def page(run):
    """A request with everything needed to ask about its ads."""
    request, arm = find_request(run.sim, REQUEST), run.arm()
    return request, arm, serve(request.block, arm, run.sim.platform)


@pytest.mark.parametrize("fate", ["pre_ranking", "ranking", None])
def test_the_least_bid_wins_and_a_micro_less_does_not(run, page, fate):
    request, arm, decision = page
    ad = ads_by_fate(run, page)[fate]
    bids = explain_ad(run.sim, request, arm, decision, ad)["bids"]

    def page_at(bid):
        return serve(request.block, arm, with_bid(run, ad, round(bid * MICROS)))

    def slots(bid):
        return page_at(bid).win_set[request.row].tolist()

    assert ad in slots(bids["cascade"])
    assert ad not in slots(bids["cascade"] - 1 / MICROS)
    assert slots(bids["cascade"]).index(ad) + 1 == bids["slot"]
    assert page_at(bids["cascade"]).cpc_micros[request.row, bids["slot"] - 1] == bids["cpc_micros"]
    assert bids["cascade"] == max(bids["pre_ranking"], bids["auction"])
    assert ad in page_at(bids["pre_ranking"]).competitive_set[request.row]
    assert ad not in page_at(bids["pre_ranking"] - 1 / MICROS).competitive_set[request.row]


def test_a_winner_needs_less_than_it_bids_and_a_loser_more(run, page):
    request, arm, decision = page
    for fate, ad in ads_by_fate(run, page).items():
        explained = explain_ad(run.sim, request, arm, decision, ad)
        if fate is None:
            assert explained["bids"]["cascade"] <= explained["init_bid"] + 1 / MICROS
        elif fate != "retrieval":
            assert explained["bids"]["cascade"] > explained["init_bid"]


def test_no_bid_helps_an_ad_that_was_not_retrieved(run, page):
    request, arm, decision = page
    bids = explain_ad(run.sim, request, arm, decision, ads_by_fate(run, page)["retrieval"])["bids"]
    assert bids["cascade"] is None
    assert says(bids["why_none"], "retrieval", "not look at bids")
    assert bids["auction"] > 0  # what it would have needed, had it come so far


def test_no_bid_helps_where_pre_ranking_ignores_bids(run, page):
    request = page[0]
    arm = run.arm("pctr_only")
    decision = serve(request.block, arm, run.sim.platform)
    ad = ads_by_fate(run, (request, arm, decision))["pre_ranking"]
    bids = explain_ad(run.sim, request, arm, decision, ad)["bids"]
    assert (bids["cascade"], bids["pre_ranking"]) == (None, None)
    assert says(bids["why_none"], "pre-ranking", "not look at bids")


class Blind:
    """The ranker, but sure that nobody clicks on one ad."""

    link = "sigmoid"

    def __init__(self, scorer, ad):
        self.name, self._scorer, self._ad = scorer.name, scorer, ad

    def predict(self, block, ids):
        return np.where(ids == self._ad, 0.0, self._scorer.predict(block, ids))


def test_no_bid_helps_an_ad_of_zero_pctr(run, page):
    request, arm, decision = page
    ad = ads_by_fate(run, page)["ranking"]
    blind = arm.with_stage(-1, scorer=Blind(arm.last.scorer, ad))
    explained = explain_ad(run.sim, request, blind, serve(request.block, blind, run.sim.platform), ad)
    assert (explained["dropped_by"], explained["bids"]["auction"], explained["bids"]["cascade"]) == (
        "ranking",
        None,
        None,
    )
    assert explained["stages"][2]["why"] == "its score is 0"
    assert says(explained["bids"]["why_none"], "score", "0")


def test_an_ad_below_the_reserve_must_bid_at_least_the_reserve(run, page):
    request, arm, decision = page
    ad = ads_by_fate(run, page)[None]
    opt_bid = float(decision.ranked_bid[request.row, 0])
    dear = replace(arm, reserve_cpc=2 * opt_bid)
    explained = explain_ad(run.sim, request, dear, serve(request.block, dear, run.sim.platform), ad)
    assert "below reserve_cpc" in explained["stages"][2]["why"]
    # The opt-bid is the init-bid times a factor that does not depend on it.
    assert explained["bids"]["auction"] == pytest.approx(2 * explained["init_bid"], abs=2 / MICROS)


@pytest.mark.parametrize("step", [1, 2, 17, 1_000_000, 123_456_789, MOST])
@pytest.mark.parametrize("guess", [0, 1, 999_999, 1_000_000, 1_000_001, 10**20])
def test_the_step_is_found_from_any_guess(step, guess):
    assert min_passing_bid(lambda bid: bid >= step, guess) == step


def test_a_good_guess_takes_few_questions_and_an_impossible_step_one():
    asked = []

    def passes(bid):
        asked.append(bid)
        return bid >= 831_207

    assert min_passing_bid(passes, 831_207) == 831_207
    assert asked == [MOST, 831_207, 831_206]
    asked.clear()
    assert min_passing_bid(lambda bid: asked.append(bid), 5) is None
    assert asked == [MOST]


def test_another_bid_is_a_copy(run):
    bids = run.sim.platform.bids
    before = bids.init_bid.copy()
    assert bids.with_bid(3, 7.5).init_bid[3] == 7.5
    assert np.array_equal(bids.init_bid, before)
