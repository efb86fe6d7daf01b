"""Randomised logs: what is in them, and that they can be served once more to the bit."""

import numpy as np
import pytest

from answers.told import refused
from cascade_sim.auction import MICROS
from cascade_sim.environments.arrivals import FIRST_REQUEST
from cascade_sim.foundation.progress import Progress
from cascade_sim.ope import log as module
from cascade_sim.ope.log import (
    PARAMETER_TABLES,
    SLATE_TABLES,
    parameter_log,
    parameter_tables,
    randomiser,
    read_parameter_log,
    read_slate_log,
    revenue_limit,
    serve_parameters,
    slate_log,
    slate_tables,
    write_logs,
)
from cascade_sim.ope.slates import log_odds, log_propensities
from cascade_sim.scenario.schema import resolved_arms
from cascade_sim.storage.tables import iterate_table, read_table
from cascade_sim.study.simulation import Simulation
from worlds.randomised_logs import Unasked, logged, small_scenario


@pytest.fixture(scope="module")
def parameters():
    return [read_table(logged().folder, name) for name in PARAMETER_TABLES]


@pytest.fixture(scope="module")
def pages():
    return [read_table(logged().folder, name) for name in SLATE_TABLES]


def test_each_request_has_its_parameters_and_their_noise(parameters):
    _, requests = parameters
    assert len(requests["request"]) == 1500 and requests["request"][0] == FIRST_REQUEST["off_policy"]
    assert requests["reserve_cpc"] == pytest.approx(0.7 * np.exp(0.3 * requests["reserve_cpc_z"]))
    assert requests["squashing"] == pytest.approx(1.0 + 0.1 * requests["squashing_z"])
    for parameter in ("reserve_cpc", "squashing"):
        z = requests[f"{parameter}_z"]
        assert abs(z.mean()) < 4 / np.sqrt(len(z)) and abs((z**2).mean() - 1) < 4 * np.sqrt(2 / len(z))


def test_no_click_costs_less_than_its_own_request_s_reserve(parameters):
    shown, requests = parameters
    reserve = requests["reserve_cpc"][np.searchsorted(requests["request"], shown["request"])]
    assert (shown["bid"] >= reserve).all()
    assert (shown["cpc_micros"] >= np.floor(reserve * MICROS)).all()
    assert (shown["cpc_micros"] < np.floor(0.7 * MICROS)).any()  # the arm's own reserve no longer holds


def test_the_log_is_served_once_more_to_the_bit(parameters):
    world = logged()
    shown, requests = parameters
    law = randomiser(world.scenario)
    served = []
    for i in range(-(-1500 // 256)):
        block = world.sim.arrivals.block("off_policy", i, 1500)
        noise = {k: requests[f"{k}_z"][i * 256 : (i + 1) * 256] for k in law.sigmas}
        decision, _ = serve_parameters(world.sim, block, world.arm, law, noise)
        row, slot = np.nonzero(decision.win_set >= 0)
        served.append((block.requests[row], decision.win_set[row, slot], decision.cpc_micros[row, slot]))
    for column, name in zip(zip(*served, strict=True), ("request", "ad", "cpc_micros"), strict=True):
        assert np.concatenate(column).tobytes() == shown[name].tobytes()


def test_two_workers_write_the_same_tables(tmp_path, parameters, pages):
    world = logged()
    sim = Simulation(small_scenario(), world.sim.seed, workers=2)
    sim.scorers = world.sim.scorers
    with Progress(quiet=True) as progress:
        write_logs(sim, world.arm, tmp_path, progress)
    for name, table in zip((*PARAMETER_TABLES, *SLATE_TABLES), (*parameters, *pages), strict=True):
        again = read_table(tmp_path, name)
        for column in set(table) - {"time"}:  # the other study's clock had run through training phases
            assert again[column].tobytes() == table[column].tobytes(), (name, column)
    with Progress(quiet=True) as progress:  # a run that goes on finds them done and leaves them alone
        write_logs(sim, world.arm, tmp_path, progress)
    assert len(read_table(tmp_path, "off-policy-requests")["request"]) == 1500


def test_slot_propensities_follow_from_the_logged_list(pages):
    shown, requests, candidates = pages
    n = len(requests["request"])
    score = np.zeros((n, 6))
    score[candidates["request"] - requests["request"][0], candidates["place"]] = candidates["score"]
    places = np.full((n, 3), -1)
    at = (shown["request"] - requests["request"][0], shown["slot"])
    places[at] = shown["place"]
    recomputed = np.exp(log_propensities(log_odds(score, 0.7), places))
    assert recomputed[at].tobytes() == shown["propensity"].tobytes()
    assert requests["page_propensity"] == pytest.approx(recomputed.prod(axis=1))


def test_a_shown_ad_is_the_one_at_its_place_of_the_list_at_the_list_price(pages):
    shown, requests, candidates = pages
    first = requests["request"][0]
    for name in ("ad", "cpc_micros", "bid", "pctr"):
        table = np.zeros((len(requests["request"]), 6), candidates[name].dtype)
        table[candidates["request"] - first, candidates["place"]] = candidates[name]
        assert (table[shown["request"] - first, shown["place"]] == shown[name]).all()


def test_all_places_of_the_list_are_shown_now_and_then(pages):
    assert set(pages[0]["place"].tolist()) == set(range(6))


def test_no_reward_exceeds_what_a_request_can_earn_at_most(parameters):
    shown, requests = parameters
    row = np.searchsorted(requests["request"], shown["request"])
    most = np.bincount(row, shown["cpc_micros"] / MICROS, len(requests["request"]))
    assert (most <= requests["revenue_limit"] + 1e-6).all()


def test_the_limit_is_the_sum_of_the_largest_bids():
    world = logged()
    block = world.sim.arrivals.block("off_policy", 0, 256).take(slice(0, 2))
    ids = np.array([[3, 5, 9, 11], [2, 4, -1, -1]], np.int32)
    bids = world.sim.platform.bids.init_bid
    limit = revenue_limit(world.sim, block, world.arm, ids)
    assert limit == pytest.approx([bids[[3, 5, 9, 11]].sum() - bids[[3, 5, 9, 11]].min(), bids[[2, 4]].sum()])


def test_rows_come_from_the_outcome_which_alone_asks_the_truth():
    world = logged()
    blind = Simulation(small_scenario(), world.sim.seed)
    blind.scorers, blind.environment._truth = world.sim.scorers, Unasked()
    block = world.sim.arrivals.block("off_policy", 0, 256)
    for tables in (parameter_tables, slate_tables):
        with refused("on_page", kind=AssertionError):
            tables(blind, block, world.arm)


def arrays_in(value):
    """All arrays of a log, by the path to them."""
    if isinstance(value, np.ndarray):
        return {"": value}
    inner = value if isinstance(value, dict) else vars(value)
    return {
        f"{name}.{path}": array for name, part in inner.items() for path, array in arrays_in(part).items()
    }


@pytest.mark.parametrize("rows", [7, 97, 10**6])
def test_a_log_is_the_same_in_whatever_portions_it_is_read(parameters, pages, monkeypatch, rows):
    world, read = logged(), []

    def in_portions(folder, table, columns, sizes):
        for batch in iterate_table(folder, table, columns, batch_rows=rows, sizes=sizes):
            read.append(len(batch["request"]))
            yield batch

    monkeypatch.setattr(module, "iterate_table", in_portions)
    slots = len(world.scenario.world.slot_effects)
    pairs = [
        (read_parameter_log(world.folder, world.scenario), parameter_log([parameters], slots)),
        (read_slate_log(world.folder, world.scenario), slate_log([pages], world.scenario)),
    ]
    for found, whole in pairs:
        found, whole = arrays_in(found), arrays_in(whole)
        assert found.keys() == whole.keys() and len(found) > 8
        assert all(np.array_equal(found[name], whole[name]) for name in whole)
    assert 0 < max(read) <= rows


@pytest.mark.parametrize("read", [read_parameter_log, read_slate_log])
def test_of_very_many_requests_a_sample_is_estimated_from(read, monkeypatch):
    world = logged()
    whole = read(world.folder, world.scenario)
    monkeypatch.setattr(module, "MAX_ESTIMATED", 500)
    sample = read(world.folder, world.scenario)
    assert not whole.visits.is_sample and sample.visits.is_sample
    share = 500 / len(whole)
    assert abs(len(sample) - 500) < 4 * np.sqrt(len(whole) * share * (1 - share))
    rows = np.searchsorted(whole.visits.requests, sample.visits.requests)
    for reward in whole.reward:
        assert np.array_equal(sample.reward[reward], whole.reward[reward][rows])
    assert np.array_equal(sample.visits.users, whole.visits.users[rows])


def test_logs_of_a_cascade_with_two_steps_are_written_and_read(tmp_path):
    """A first step that hands on all of its candidates changes no byte; one that drops some does."""
    known = ("models={}", "cascade.ranking.model=truth", "cascade.pre_ranking.model=random")
    asked = ("off_policy.targets={}", "off_policy.requests=300", "off_policy.slates.requests=300")
    step = "cascade.pre_ranking.earlier={coarse: {model: random, bid: none, size: SIZE}}"
    tables = []
    for steps in ((), (step.replace("SIZE", "24"),), (step.replace("SIZE", "12"),)):
        phases = ("phases.cold_start=0", "phases.log=0", "arms={production: {}}")
        scenario = small_scenario(*known, *asked, *phases, *steps)
        sim, folder = Simulation(scenario, scenario.seed), tmp_path / str(len(tables))
        folder.mkdir()
        with Progress(quiet=True) as progress:
            write_logs(sim, sim.arm("production", resolved_arms(scenario)["production"]), folder, progress)
        tables.append([read_table(folder, name) for name in (*PARAMETER_TABLES, *SLATE_TABLES)])
    three, whole, narrow = tables
    for one, other in zip(three, whole, strict=True):
        assert all(values.tobytes() == other[name].tobytes() for name, values in one.items())
    assert three[0]["ad"].tobytes() != narrow[0]["ad"].tobytes() and len(narrow[0]["ad"]) > 300
