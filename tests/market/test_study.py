"""The market phase of a study: its section of the metrics, and its tables on the disk."""

import json
from pathlib import Path

import numpy as np
import pytest

from answers.told import refused
from cascade_sim.context import RunContext
from cascade_sim.engines import open_engine
from cascade_sim.foundation.errors import UserError
from cascade_sim.market import study
from cascade_sim.market.study import run_markets
from cascade_sim.scenario import market
from cascade_sim.storage import user_code
from cascade_sim.storage.files import write_file
from cascade_sim.storage.lock import Lock, holder_of, written_for
from cascade_sim.storage.tables import read_table, tables
from cascade_sim.study.rebuild import Plan
from cascade_sim.study.run import run_world
from cascade_sim.study.simulation import Simulation
from worlds.pool_jobs import in_this_process
from worlds.timed_market import SCARCE, timed_scenario


def markets(folder, workers=1):
    scenario = timed_scenario(SCARCE)
    sim = Simulation(scenario, scenario.seed, workers)
    return sim, run_markets(sim, RunContext(folder, workers=workers))


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


@pytest.mark.parametrize(
    "engine", ["here", *(pytest.param(engine, marks=pytest.mark.drill) for engine in ("local", "ray"))]
)
def test_arms_that_are_jobs_leave_the_same_bytes_as_one_after_the_other(found, engine, tmp_path, monkeypatch):
    """With two workers and enough to do, every arm's market is a job, and lived in a process of its own."""
    folder, _, section = found
    if engine == "ray":
        pytest.importorskip("ray")
    monkeypatch.setattr(market, "WORTH_A_PROCESS", 1)
    done = []
    if engine == "here":

        def run_here(jobs, *arguments, **options):
            done.extend(job.name for job in jobs)
            return in_this_process(jobs, *arguments, **options)

        monkeypatch.setattr("cascade_sim.engines.local.run_jobs", run_here)
    else:
        monkeypatch.setattr(study, "live_market", None)  # of this process, which has others for it
    scenario = timed_scenario(SCARCE)
    with open_engine("local" if engine == "here" else engine) as opened:
        sim = Simulation(scenario, scenario.seed, 2, engine=opened)
        context = RunContext(tmp_path.absolute(), workers=2, engine=opened)
        again = run_markets(sim, context)
    assert json.dumps(again) == json.dumps(section) and "markets" in context.progress.seconds
    assert len(done) == (2 if engine == "here" else 0)
    for arm in ("now", "opt"):
        part = f"logs/market-{arm}/part-00000.parquet"
        assert (folder / part).read_bytes() == (tmp_path / part).read_bytes()


@pytest.mark.parametrize(
    ("arms", "workers", "requests", "jobs"), [(2, 2, 20_000, 2), (3, 2, 20_000, 2), (2, 8, 20_000, 2),
                                              (1, 8, 20_000, 0), (3, 1, 20_000, 0), (3, 2, 19_999, 0)]
)  # fmt: skip
def test_arms_are_jobs_where_several_have_enough_to_do_and_several_do_it(arms, workers, requests, jobs):
    spec = timed_scenario({"days": 1.0, "requests_per_second": requests / market.DAY}).market
    assert market.market_jobs(spec, arms, workers) == jobs
    assert market.market_jobs(None, arms, workers) == 0


def test_a_class_that_only_this_process_knows_keeps_the_markets_here(found, tmp_path, monkeypatch):
    monkeypatch.setattr(market, "WORTH_A_PROCESS", 1)
    monkeypatch.setattr(study, "has_registered", lambda scenario: True)
    monkeypatch.setattr(study, "market_job", None)
    _, again = markets(tmp_path, workers=2)
    assert json.dumps(again) == json.dumps(found[2])


def test_a_job_writes_no_more_when_its_run_has_lost_the_folder(tmp_path):
    scenario = timed_scenario({**SCARCE, "days": 0.005})
    sim = Simulation(scenario, scenario.seed)
    lock = Lock.take(tmp_path)
    holder = holder_of(tmp_path)
    lock.release()
    with refused("no process"):
        study.market_job(Plan.of(sim, tmp_path), "now", 1, holder)
    other = Lock.take(tmp_path)
    try:
        with (
            written_for(tmp_path, {**holder_of(tmp_path), "attempt": 7}),
            pytest.raises(UserError, match="has it now"),
        ):
            write_file(tmp_path / "a", b"")
        with written_for(tmp_path, holder_of(tmp_path)):
            write_file(tmp_path / "a", b"")
    finally:
        other.release()
    write_file(tmp_path / "b", b"")  # nobody is asked any more


def test_modules_that_came_in_with_a_job_are_late_code_of_the_run(monkeypatch):
    monkeypatch.setattr(user_code, "_loaded", {"helpers": (Path("helpers.py"), "07")})
    before = user_code.loaded()
    user_code.loaded_elsewhere({"helpers": ("elsewhere.py", "99"), "curves": ("curves.py", "9c")})
    assert user_code.late((), before) == {"curves": "9c"} and user_code.late(()) == {
        "helpers": "07",
        "curves": "9c",
    }
    assert user_code.loaded_since(before) == {"curves": ("curves.py", "9c")}
