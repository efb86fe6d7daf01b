"""Pages of a log that have fewer slots than others, reserves of their own, and prices per impression."""

import numpy as np
import pytest

from cascade_sim.auction import run_auction, to_micros
from cascade_sim.counterfactual.whatif import what_if_study
from cascade_sim.diagnostics.reopen import reopen
from cascade_sim.logs.store.format import About, Rule
from worlds.logged_market import made_market

N, ADS = 60, 5
SLOTS = np.tile([1, 2, 3], N // 3)
RESERVES = np.tile([0.0, 0.4, 0.8, 0.2], N // 4)


def bids_and_pctrs():
    generator = np.random.Generator(np.random.PCG64(3))
    return generator.uniform(0.1, 2.0, (N, ADS)), generator.uniform(0.01, 0.5, (N, ADS))


def small_market(folder, charging="click", pricing="gsp"):
    """Auctions as they were held request by request, the log of which is replayed."""
    bid, pctr = bids_and_pctrs()
    slot, price = np.full((N, ADS), -1, np.int16), np.full((N, ADS), -1)
    for r in range(N):
        quality = pctr[r] if charging == "click" else np.ones(ADS)
        page = run_auction(bid[r], quality, slots=int(SLOTS[r]), reserve_cpc=RESERVES[r], pricing=pricing,
                           slot_effects=[1.0, 0.8, 0.6])  # fmt: skip
        for k, column in enumerate(page.winners):
            if column >= 0:
                slot[r, column] = k
                price[r, column] = to_micros(page.cpc[k], bid[r, column])
    click = np.where(slot >= 0, (np.arange(N * ADS).reshape(N, ADS) % 3 == 0), -1)
    requests = {
        "time": np.arange(N) * 1.0,
        "slots": SLOTS,
        "reserve": RESERVES,
        "first": np.arange(N + 1) * ADS,
    }
    candidates = {
        "ad": np.tile(np.arange(ADS, dtype=np.int32), N),
        "bid": bid.ravel(),
        "pctr": pctr.ravel(),
        "slot": slot.ravel(),
        "price_micros": price.ravel(),
        "click": click.ravel().astype(np.int8),
    }
    about = About("small", "2026-11-02T00:00:00+00:00", rule=Rule(pricing, 1.0), charging=charging)

    def effects(scenario):
        scenario["world"]["replay"]["slot_effects"] = [1.0, 0.8, 0.6]

    return made_market(folder, requests, candidates, about, changes=effects), slot, price


@pytest.mark.parametrize("pricing", ["gsp", "first", "vcg"])
def test_each_page_has_its_own_slots_and_reserve(tmp_path, pricing):
    market, slot, price = small_market(tmp_path / "m", pricing=pricing)
    opened = reopen(market)
    block = opened.sim.arrivals.block("evaluate", 0, N)
    decision = opened.sim.serve(block, opened.arm())
    for r in range(N):
        shown = {int(s): (a, int(price[r, a])) for a, s in enumerate(slot[r]) if s >= 0}
        ads, cpc = decision.win_set[r], decision.cpc_micros[r]
        assert {k: (int(a), int(cpc[k])) for k, a in enumerate(ads) if a >= 0} == shown


def test_a_reserve_for_all_takes_the_place_of_each_request_s(tmp_path):
    market, _, _ = small_market(tmp_path / "m")
    answer = what_if_study(market, ["auction.reserve_cpc=0.5"])
    assert answer["replay"]["replayed"]["page_match_rate"] == 1.0
    assert (
        answer["current"]["metrics"]["fill_rate"]["value"]
        > answer["points"][0]["metrics"]["fill_rate"]["value"]
    )
    bid, pctr = bids_and_pctrs()
    shown = sum(
        int((run_auction(bid[r], pctr[r], slots=int(SLOTS[r]), reserve_cpc=0.5).winners >= 0).sum())
        for r in range(N)
    )
    assert answer["points"][0]["metrics"]["impressions_per_request"]["value"] == pytest.approx(shown / N)


def test_impressions_are_charged_where_the_log_charges_them_and_the_bid_alone_decides(tmp_path):
    market, slot, price = small_market(tmp_path / "m", charging="impression")
    answer = what_if_study(market, ["auction.reserve_cpc=0.5"])
    assert answer["replay"]["replayed"] == {"page_match_rate": 1.0, "price_match_rate": 1.0}
    earned = answer["current"]["metrics"]["revenue_per_request"]["value"]
    assert earned == pytest.approx(price[slot >= 0].sum() / 1e6 / N)
    assert answer["current"]["metrics"]["expected_revenue_per_request"]["value"] == pytest.approx(earned)
    assert "cpc_error_vs_imputation" not in answer["current"]["metrics"]
