"""What theory says of the pricing rules, on a small version of the shipped study with true CTRs."""

import numpy as np
import pytest

from cascade_sim.cascade.serve import serve
from cascade_sim.market.run import MarketRun
from cascade_sim.scenario.file import load_scenario
from cascade_sim.scenario.schema import resolved_arms
from cascade_sim.study.simulation import Simulation
from places import SCENARIOS

FILE = SCENARIOS / "pricing_rules.yaml"
SMALL = (
    *("world.users=300", "world.ads=40", "world.advertisers=40"),
    *("cascade.retrieval.size=30", "cascade.pre_ranking.model=truth", "cascade.ranking.model=truth"),
    *("market.requests_per_second=0.5", "market.window=300", "market.budgets.median=400"),
)
N = 4000


def small(*more):
    scenario = load_scenario(FILE, overrides=[*SMALL, *more])
    return Simulation(scenario, scenario.seed)


@pytest.fixture(scope="module")
def sim():
    """With so few ads in an auction that a reserve may leave slots empty."""
    return small("cascade.pre_ranking.size=8")


@pytest.fixture(scope="module")
def pages(sim):
    """(win set, CPC in micro-units) of the same requests in every arm, at the bids of the start."""
    arms = resolved_arms(sim.scenario)
    block = sim.arrivals.block("evaluate", 0, N)
    found = {name: serve(block, sim.arm(name, arms[name]), sim.platform) for name in arms}
    return {name: (one.win_set, one.cpc_micros) for name, one in found.items()}


@pytest.fixture(scope="module")
def days():
    """The market day of three rules."""
    sim = small()
    arms = resolved_arms(sim.scenario)
    return {
        name: MarketRun(sim, sim.arm(name, arms[name]), sim.scenario.market).run().metrics()
        for name in ("gsp", "vcg", "first")
    }


def test_at_equal_bids_first_price_charges_most_and_vcg_least_in_every_slot(pages):
    for name in ("vcg", "first"):
        assert np.array_equal(pages["gsp"][0], pages[name][0])  # the rule prices; it does not order
    gsp, vcg, first = (pages[name][1] for name in ("gsp", "vcg", "first"))
    assert (first >= gsp).all() and (gsp >= vcg).all()
    assert (first > gsp).mean() > 0.9 and (gsp[:, :2] > vcg[:, :2]).mean() > 0.9
    assert np.array_equal(gsp[:, 2], vcg[:, 2])  # below the last slot nothing is left to lose


def test_reserves_raise_prices_and_leave_slots_empty(pages):
    shown = {name: (ads >= 0).sum() for name, (ads, _) in pages.items()}
    assert shown["reserve-high"] < shown["reserve-low"] <= shown["gsp"] > shown["score-floor"]
    mean = {name: cpc[ads >= 0].mean() for name, (ads, cpc) in pages.items()}
    assert mean["gsp"] < mean["reserve-low"] < mean["reserve-high"]
    for name, least in (("reserve-low", 500_000), ("reserve-high", 1_200_000)):
        ads, cpc = pages[name]
        assert (cpc[ads >= 0] >= least).all()


def test_squashing_moves_dearer_ads_up(sim, pages):
    def first_bid(name):
        return sim.world.init_bid[pages[name][0][:, 0]].mean()

    assert first_bid("gsp") < first_bid("squash-80") < first_bid("squash-50")


@pytest.mark.drill
def test_shading_bidders_shade_under_first_price_more_than_under_gsp_and_least_under_vcg(days):
    bid = {name: day["bidders"]["shading"]["last_multiplier"] for name, day in days.items()}
    assert bid["first"] < bid["gsp"] - 0.05 and bid["gsp"] < bid["vcg"] + 0.01 and bid["vcg"] > 0.85
    assert all(day["bidders"]["fixed"]["last_multiplier"] == 1.0 for day in days.values())


@pytest.mark.drill
def test_who_bids_the_value_and_pays_the_bid_keeps_nothing_and_vcg_leaves_most(days):
    kept = {name: day["bidders"]["fixed"] for name, day in days.items()}
    share = {name: kind["surplus"] / kind["click_value"] for name, kind in kept.items()}
    assert share["first"] == pytest.approx(0.0, abs=0.01) and share["first"] < share["gsp"] < share["vcg"]


@pytest.mark.drill
def test_the_advantage_of_first_price_shrinks_when_bidders_adapt(pages, days):
    fixed = pages["first"][1].sum() / pages["gsp"][1].sum() - 1
    adapted = days["first"]["revenue"] / days["gsp"]["revenue"] - 1
    assert adapted < fixed - 0.05
