"""The market phase of a study: its section of the metrics, and its tables on the disk."""

import json

import numpy as np
import pytest

from cascade_sim.market.study import run_markets
from cascade_sim.phases.simulation import Simulation
from cascade_sim.progress import Progress
from cascade_sim.storage.tables import read_table, tables
from cascade_sim.study import run_world
from worlds.timed_market import SCARCE, timed_scenario


def markets(folder, workers=1):
    scenario = timed_scenario(SCARCE)
    sim = Simulation(scenario, scenario.seed, workers)
    with Progress(quiet=True) as progress:
        return sim, run_markets(sim, folder, progress, workers)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("market")
    return folder, *markets(folder)


def test_every_arm_of_the_scenario_has_its_market_and_its_table(found):
    folder, sim, section = found
    assert list(section["arms"]) == ["now", "opt"] == list(sim.scenario.arms)
    assert {"market-now", "market-opt"} == set(tables(folder))
    assert (section["days"], section["window"], section["update"]) == (0.02, 60.0, 180.0)
    assert section["arms"]["now"]["revenue"] != section["arms"]["opt"]["revenue"]
    assert section["arms"]["now"]["requests"] == section["arms"]["opt"]["requests"]


@pytest.mark.parametrize("arm", ["now", "opt"])
def test_the_table_adds_up_to_the_metrics_exactly(found, arm):
    folder, sim, section = found
    table, metrics = read_table(folder, f"market-{arm}"), section["arms"][arm]
    assert int(table["charge_micros"].sum()) / 1e6 == metrics["revenue"] > 0
    assert (
        sum(round(1e6 * kind["spend"]) for kind in metrics["bidders"].values())
        == table["charge_micros"].sum()
    )
    assert len(table["ad"]) == metrics["impressions"]
    assert (table["click"].sum(), table["conversion"].sum()) == (metrics["clicks"], metrics["conversions"])
    assert (table["charge_micros"][~table["click"]] == 0).all()
    assert not table["conversion"][~table["click"]].any()
    assert metrics["overspend"] == 0.0


@pytest.mark.parametrize("arm", ["now", "opt"])
def test_a_row_is_a_shown_ad_in_request_and_slot_order(found, arm):
    folder, sim, _ = found
    table = read_table(folder, f"market-{arm}")
    place = table["request"] * 10 + table["slot"]
    assert (np.diff(place) > 0).all() and set(table["slot"]) == {0, 1, 2}
    assert (table["advertiser"] == sim.world.advertiser[table["ad"]]).all()
    score = table["bid"] * table["quality"]
    next_slot = (np.diff(table["request"]) == 0).nonzero()[0]
    assert (score[next_slot] >= score[next_slot + 1]).all()
    assert (np.diff(table["time"]) >= 0).all()


def test_tables_are_the_same_bytes_for_one_and_two_workers(found, tmp_path):
    folder, _, section = found
    _, again = markets(tmp_path, workers=2)
    assert json.dumps(again) == json.dumps(section)
    for arm in ("now", "opt"):
        part = f"logs/market-{arm}/part-00000.parquet"
        assert (folder / part).read_bytes() == (tmp_path / part).read_bytes()


def test_the_metrics_of_a_study_with_a_market_are_the_same_bytes_when_repeated(tmp_path):
    for name in ("one", "two"):
        run_world(timed_scenario({**SCARCE, "days": 0.005}), tmp_path / name, "cpu")
    one, two = ((tmp_path / name / "metrics.json").read_bytes() for name in ("one", "two"))
    assert one == two and set(json.loads(one)["market"]["arms"]) == {"now", "opt"}


def test_a_study_without_a_market_has_no_such_section(tmp_path):
    scenario = timed_scenario().model_copy(update={"market": None})
    assert "market" not in run_world(scenario, tmp_path / "plain", "cpu")
