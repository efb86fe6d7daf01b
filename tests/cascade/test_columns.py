from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest

from cascade_sim.auction import reprice, to_micros
from cascade_sim.cascade.columns import impression_columns, request_columns
from cascade_sim.cascade.exploration import explore
from cascade_sim.cascade.fusion import Fusion
from cascade_sim.cascade.outcome import outcome
from cascade_sim.cascade.serve import Platform, Stage, serve
from cascade_sim.storage.tables import read_table, tables
from worlds.cascades import Bids, Given, Table, make_arm
from worlds.tiny_market import make_block, part_of, run_phases, tiny_scenario

SHORT = ("phases.cold_start=200", "phases.log=600", "phases.shadow=60", "phases.evaluate=150")
N, K, RATE = 4, 2, 0.6


@pytest.fixture(scope="module")
def reserved(tmp_path_factory):
    """A reserve that leaves many pages with empty slots, and some empty altogether."""
    scenario = tiny_scenario(*SHORT, "auction.reserve_cpc=1.9", "phases.exploration=0.1")
    return run_phases(scenario, tmp_path_factory.mktemp("reserved"), tmp_path_factory.mktemp("cache"))


@pytest.mark.parametrize(("phase", "n"), [("cold_start", 200), ("log", 600)])
def test_there_is_a_row_per_request_also_of_those_whose_page_stayed_empty(reserved, phase, n):
    log, requests = (read_table(reserved.folder, name) for name in (phase, f"{phase}-requests"))
    first = reserved.sim.arrivals.first_request(phase)
    assert np.array_equal(requests["request"], first + np.arange(n))
    shown = np.bincount(log["request"] - first, minlength=n)
    assert np.array_equal(requests["n_shown"], shown)
    if phase == "log":
        of_auction = shown[~requests["is_explored"]]
        assert (of_auction == 0).any() and (of_auction == 1).any() and (of_auction == 3).any()
    assert np.all(requests["n_candidates"] == 60)
    of_row = log["request"] - first
    for name in ("time", "user", "context", "is_explored"):
        assert np.array_equal(log[name], requests[name][of_row]), name


def test_only_the_phases_that_learn_from_their_log_have_a_table_of_requests(reserved):
    named = {table for table in tables(reserved.folder) if table.endswith("-requests")}
    assert named == {"cold_start-requests", "log-requests"}


@pytest.mark.parametrize("which", ["study", "reserved"])
def test_the_logged_prices_follow_from_the_logged_page_and_its_runner_up(which, request):
    """The runner-up is the ad that priced the last slot: nothing else is needed to charge the page again."""
    study = request.getfixturevalue(which)
    reserve = study.sim.scenario.auction.reserve_cpc
    log, requests = (read_table(study.folder, name) for name in ("log", "log-requests"))
    n = len(requests["request"])
    row, slot = log["request"] - requests["request"][0], log["slot"]
    bid, pctr, cpc = np.zeros((n, 4)), np.zeros((n, 4)), np.zeros((n, 3), np.int64)
    bid[row, slot], pctr[row, slot], cpc[row, slot] = log["bid"], log["pctr"], log["cpc_micros"]
    bid[:, 3], pctr[:, 3] = requests["runner_up_bid"], requests["runner_up_pctr"]
    own = ~requests["is_explored"]
    again = to_micros(reprice(bid[own], pctr[own], slots=3, reserve_cpc=reserve), bid[own, :3])
    assert np.array_equal(again, cpc[own])
    has_runner_up = requests["runner_up"] >= 0
    assert has_runner_up[own].any() and not has_runner_up[~own].any()
    assert np.array_equal(has_runner_up, requests["runner_up_bid"] > 0)
    assert np.all(requests["n_shown"][has_runner_up] == 3)
    # Without it the last slot would have been cheaper.
    bid[:, 3] = 0
    alone = to_micros(reprice(bid[own], pctr[own], slots=3, reserve_cpc=reserve), bid[own, :3])
    assert np.all(alone[:, :2] == again[:, :2]) and (alone[:, 2] < again[:, 2]).any()


def test_the_runner_up_is_the_best_of_those_that_were_ranked_and_not_shown(study):
    sim, arm = study.sim, study.evaluation.baseline
    block = sim.arrivals.block("log", 0, 3000)
    decision = sim.serve(block, arm)
    table = request_columns(block, explore(block, decision, arm, 0.0, sim.seed, sim.platform), 0.0)
    pctr = arm.last.scorer.predict(block, decision.competitive_set)
    bid = sim.platform.bids.bid("opt", block, decision.competitive_set, arm.bid_rule, arm.bid_range)
    for r in range(0, len(block), 9):
        order = np.lexsort((decision.competitive_set[r], -(bid[r] * pctr[r])))
        assert decision.competitive_set[r][order[:3]].tolist() == decision.win_set[r].tolist()
        assert table["runner_up"][r] == decision.competitive_set[r][order[3]]
        assert table["runner_up_bid"][r] == bid[r, order[3]]
        assert table["runner_up_pctr"][r] == np.float32(pctr[r, order[3]])


def served(requests, n=N, rate=RATE):
    """The same page for everyone: ads 0 and 1 of n; a share of pages explored."""
    seat = Stage(Table([0.4, 0.3, 0.2, 0.1]), "init", Fusion())
    ids = np.where(np.arange(N) < n, np.arange(N), -1).astype(np.int32)
    arm = make_arm(N, seat, N, seat, K, retriever=Given(ids))
    platform = Platform(Bids(np.ones(N)), np.ones(K))
    block = make_block(np.zeros(requests))
    explored = explore(block, serve(block, arm, platform), arm, rate, 1, platform)
    return explored.decision.win_set, request_columns(block, explored, rate)


def test_the_propensities_of_all_pages_sum_to_1_and_are_how_often_they_come():
    requests = 40_000
    page, table = served(requests)
    own = ~table["is_explored"]
    total = 0.0
    for wanted in permutations(range(N), K):
        here = np.all(page == wanted, axis=1)
        (probability,) = np.unique(table["page_propensity"][here])  # explored or not: the same page
        assert abs(here.sum() - requests * probability) < 4.5 * np.sqrt(
            requests * probability * (1 - probability)
        )
        total += probability
        assert probability == pytest.approx(RATE / 12 + (0.4 if wanted == (0, 1) else 0.0))  # 4 * 3 pages
    assert total == pytest.approx(1, abs=1e-12)
    assert np.all(table["page_propensity"][own] == pytest.approx(0.4 + RATE / 12))
    assert np.all(page[own] == [0, 1])


@pytest.mark.parametrize(("n", "pages"), [(4, 4 * 3), (3, 3 * 2), (2, 2), (1, 1), (0, 1)])
def test_an_explored_page_is_one_of_all_orders_of_its_candidates(n, pages):
    page, table = served(400, n=n, rate=1.0)
    assert len(np.unique(page, axis=0)) == pages
    assert np.all(table["page_propensity"] == pytest.approx(1 / pages))
    assert np.all(table["n_candidates"] == n) and np.all(table["n_shown"] == min(n, K))
    assert np.all(table["runner_up"] == -1)


def test_without_exploration_every_page_is_certain():
    page, table = served(50, rate=0.0)
    assert np.all(table["page_propensity"] == 1.0) and not table["is_explored"].any()
    assert np.all(table["runner_up"] == 2) and np.all(table["runner_up_pctr"] == np.float32(0.2))


def test_there_is_a_row_per_shown_ad_in_request_and_slot_order(study):
    sim, arm = study.sim, replace(study.evaluation.baseline, reserve_cpc=2.2)
    block = part_of(sim.arrivals.block("evaluate", 0, 500), slice(0, 60))
    explored = explore(block, sim.serve(block, arm), arm, 0.3, sim.seed, sim.platform)
    result = outcome(block, explored.decision, sim.environment._truth, sim.world.slot_effects, sim.seed)
    table = impression_columns(sim.world, block, explored, result)
    at = 0
    for r in range(60):
        for slot, ad in enumerate(explored.decision.win_set[r]):
            if ad < 0:
                continue
            row = {name: column[at].item() for name, column in table.items()}
            assert (row["request"], row["slot"], row["ad"]) == (block.requests[r], slot, ad)
            assert row["advertiser"] == sim.world.advertiser[ad] and row["init_bid"] == sim.world.init_bid[ad]
            assert row["bid"] == explored.decision.ranked_bid[r, slot]
            assert row["examination"] == pytest.approx(sim.world.slot_effects[slot])
            assert row["charge_micros"] == (row["cpc_micros"] if row["click"] else 0)
            assert row["is_explored"] == explored.is_explored[r]
            at += 1
    assert at == len(table["ad"]) < 60 * 3
