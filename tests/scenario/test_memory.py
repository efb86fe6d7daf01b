"""The estimate of memory: near what arrays take, and a refusal with the key to change."""

import ast
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from answers.told import refused, tells
from cascade_sim.cli import main
from cascade_sim.context import RunContext
from cascade_sim.foundation import limits
from cascade_sim.foundation.errors import UserError
from cascade_sim.foundation.progress import Progress
from cascade_sim.market.study import run_market
from cascade_sim.ope.log import write_logs
from cascade_sim.ope.study import run_off_policy
from cascade_sim.scenario import memory
from cascade_sim.scenario.memory import (
    available_bytes,
    dominating,
    largest_that_fits,
    market_bytes,
    passing,
    peak_bytes,
    require_memory,
    sizes_of,
    staying,
)
from cascade_sim.scenario.schema import resolved_arms
from cascade_sim.study.evaluate import Evaluation
from cascade_sim.study.results import collect
from cascade_sim.study.simulation import Simulation
from house.sources import MODULES, parse
from worlds.timed_market import SCARCE, timed_scenario
from worlds.tiny_market import QUICK, tiny_scenario

FACTOR = 2.0  # between the estimate and what is measured
WRITTEN = 5 * 10**6  # bytes that a table holds until it is written, whatever the sizes
UNTRAINED = (
    *("models={}", "cascade.ranking.model=truth", "cascade.pre_ranking.model=random", "arms={now: {}}"),
    *("phases.cold_start=0", "phases.log=0", "phases.shadow=0", "report.baseline=now"),
)
GB = 10**9


def arrays_of(value, seen):
    """Bytes of the arrays that an object holds, each counted once."""
    if isinstance(value, np.ndarray):
        owner = value if value.base is None or not isinstance(value.base, np.ndarray) else value.base
        if id(owner) in seen:
            return 0
        seen.add(id(owner))
        return owner.nbytes
    if isinstance(value, dict):
        return sum(arrays_of(inner, seen) for inner in value.values())
    return sum(arrays_of(inner, seen) for inner in vars(value).values()) if hasattr(value, "__dict__") else 0


@pytest.mark.parametrize(
    "overrides",
    [("world.users=300", "world.ads=60000"), ("world.users=60000", "world.ads=600"),
     ("world.users=30000", "world.ads=30000", "world.groups.G2.dims=64"),
     ("world.users=30000", "world.ads=30000", "world.intent.dims=16", "world.id_effects.dims=64",
      "world.churn={}", "world.drift={}", "world.history={length: 100, candidate_pool: 1}")],
)  # fmt: skip
@pytest.mark.parametrize("times", [1, pytest.param(4, marks=pytest.mark.drill)])
@pytest.mark.few(2)
def test_what_a_world_keeps_is_as_estimated(overrides, times):
    scenario = tiny_scenario(*overrides)
    world = scenario.world.model_copy(
        update={"users": scenario.world.users * times, "ads": scenario.world.ads * times}
    )
    scenario = scenario.model_copy(update={"world": world})
    sim = Simulation(scenario, 1)
    seen = set()
    kept = sum(arrays_of(part, seen) for part in (sim.world, sim.environment._truth, sim.platform))
    expected = staying(sizes_of(scenario))
    estimate = sum(expected[name] for name in ("features", "truth", "hidden", "retrieval"))
    assert 1 / FACTOR < estimate / kept < FACTOR


@pytest.mark.drill
def test_what_the_estimate_shares_with_the_engine_is_used_by_both():
    shared = {name for name in vars(limits) if name.isupper()}
    users = {name: {module for module, names in of_limits().items() if name in names} for name in shared}
    assert [name for name in shared if memory.__name__ not in users[name] or len(users[name]) < 2] == []


def of_limits():
    """Which names of `limits` each module imports; the checks of a scenario are not the engine."""
    return {
        module: {alias.name for alias in node.names}
        for module, path in MODULES.items()
        for node in ast.walk(parse(path))
        if isinstance(node, ast.ImportFrom) and node.module == limits.__name__
        if module == memory.__name__ or ".scenario." not in module
    }


def peak_of(work):
    """Bytes at the peak of a piece of work, beyond what there was before it."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "overrides",
    [("world.ads=2000", "world.advertisers=2000", "report.resamples=1000"),
     ("phases.evaluate=4096", "report.resamples=1000")],
)  # fmt: skip
@pytest.mark.few(1)
def test_the_peak_of_the_intervals_is_as_estimated(overrides, tmp_path):
    scenario = tiny_scenario(*UNTRAINED, *overrides)
    sim = Simulation(scenario, 1)
    with Progress(quiet=True) as progress:
        evaluation = Evaluation(sim, tmp_path, progress)
        evaluation.run()
    estimate = passing(replace(sizes_of(scenario), arms=len(evaluation.tallies)))["intervals"]
    assert 1 / FACTOR < estimate / peak_of(lambda: collect(evaluation)) < FACTOR


@pytest.mark.parametrize(
    "logs",
    ["{requests: 15000, randomise: {reserve_cpc: 0.3}}", "{slates: {requests: 15000, depth: 12}}"],
)
@pytest.mark.drill
def test_the_peak_of_answers_from_randomised_logs_is_as_estimated(logs, tmp_path):
    scenario = tiny_scenario(*UNTRAINED, "auction.reserve_cpc=0.1", f"off_policy={logs}")
    sim, name = Simulation(scenario, 1), scenario.report.baseline
    arm = sim.arm(name, resolved_arms(scenario)[name])
    with Progress(quiet=True) as progress:
        write_logs(sim, arm, tmp_path, progress)
        peak = peak_of(lambda: run_off_policy(sim, arm, tmp_path, progress))
    assert 1 / FACTOR < passing(sizes_of(scenario))["off-policy"] / peak < FACTOR


@pytest.mark.parametrize(
    ("changes", "world"),
    [({}, {"users": 50, "ads": 100_000, "advertisers": 50_000}),
     ({"charging": {"click_delay": 3600.0, "click_window": 86_400.0}}, {}),
     ({"training": {"interval": 17_280.0, "panel": 64}}, {})],
    ids=["many advertisers", "late clicks", "training"],
)  # fmt: skip
@pytest.mark.drill
def test_the_peak_of_a_market_is_as_estimated(changes, world, tmp_path):
    def lived(folder, days):
        scenario = timed_scenario({**SCARCE, **changes, "requests_per_second": 2.0, "days": days})
        scenario = scenario.model_copy(update={"world": scenario.world.model_copy(update=world)})
        sim = Simulation(scenario, 1)
        return scenario, peak_of(lambda: run_market(sim, "now", RunContext(folder)))

    lived(tmp_path / "compiled", 0.001)  # what is imported and compiled once does not count
    scenario, peak = lived(tmp_path / "lived", 0.02 if world else 0.2)
    assert 1 / FACTOR < (market_bytes(sizes_of(scenario)) + WRITTEN) / peak < FACTOR


def test_markets_in_processes_of_their_own_have_a_world_each():
    days = {"days": 1.0, "requests_per_second": 1.0}
    one, two, four = (peak_bytes(sizes_of(timed_scenario(days), workers)) for workers in (1, 2, 4))
    assert two > one + 2 * memory.BASE and four - two < memory.BASE  # it has two arms
    short = timed_scenario({**days, "days": 0.01})
    assert peak_bytes(sizes_of(short, 2)) < peak_bytes(sizes_of(short)) + memory.BASE


def test_a_market_that_is_far_too_large_is_refused_with_its_key():
    large = {"days": 30.0, "requests_per_second": 10_000.0, "designs": {"treatment": "opt"}}
    with pytest.raises(UserError, match=r"market.requests_per_second \(10,000.0\): \d+ would fit"):
        require_memory(timed_scenario(large), available=16 * GB)


@pytest.mark.parametrize("users", [1_000, 10**6, 10**8])
def test_what_is_kept_of_users_has_a_bound_and_no_gap(users):
    """The estimate never falls when users are added."""
    few, many = (
        staying(replace(sizes_of(tiny_scenario()), users=n, retrieved=500, retrievals=2))["retrieved"]
        for n in (users, 2 * users)
    )
    assert 0 < few <= many <= 4 * 1.25 * memory.KEPT_IDS


def test_building_a_world_takes_little_besides_what_it_keeps():
    Simulation(tiny_scenario(), 1)
    tracemalloc.start()
    try:
        sim = Simulation(tiny_scenario("world.ads=300000", "world.users=1000"), 1)
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sim.world.n_ads == 300_000 and peak < 1.5 * kept


@pytest.mark.parametrize("ads", [50_000, pytest.param(200_000, marks=pytest.mark.drill)])
def test_the_peak_of_building_a_world_is_as_estimated(ads):
    scenario = tiny_scenario(f"world.ads={ads}", "world.users=1000")
    Simulation(tiny_scenario(), 1)  # what is imported and compiled once does not count
    tracemalloc.start()
    try:
        Simulation(scenario, 1)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    expected = staying(sizes_of(scenario))
    kept = sum(expected[name] for name in ("features", "truth", "retrieval"))
    estimate = kept + passing(sizes_of(scenario))["building the world"]
    assert 1 / FACTOR < estimate / peak < FACTOR


@pytest.mark.parametrize(
    "size",
    [
        "users",
        "ads",
        "advertisers",
        "block",
        "retrieved",
        "log",
        "shadow",
        "workers",
        "resamples",
        "parameters",
    ],
)
def test_more_of_anything_never_takes_less(size):
    sizes = replace(sizes_of(tiny_scenario()), parameters=10_000)
    assert peak_bytes(replace(sizes, **{size: 1000 * getattr(sizes, size)})) > peak_bytes(sizes)


@pytest.mark.parametrize(
    ("override", "name"),
    [
        ("world.ads=1000000000", "ads"),
        ("world.users=2000000000", "users"),
    ],
)
def test_what_is_far_too_large_is_refused_with_its_key_and_what_would_fit(override, name):
    scenario = tiny_scenario(override)
    sizes = sizes_of(scenario)
    assert dominating(sizes) == name
    fits = largest_that_fits(sizes, name, 16 * GB)
    assert (
        peak_bytes(replace(sizes, **{name: fits})) <= 16 * GB < peak_bytes(replace(sizes, **{name: fits + 1}))
    )
    with pytest.raises(UserError) as raised:
        require_memory(scenario, available=16 * GB)
    key = override.partition("=")[0]
    assert f"{key} (" in str(raised.value) and f"{fits:,} would fit" in str(raised.value)
    require_memory(scenario, available=peak_bytes(sizes))


@pytest.mark.parametrize("key", ["phases.log", "phases.shadow", "phases.evaluate"])
def test_requests_without_end_need_no_more_memory_than_very_many(key):
    many, more = (peak_bytes(sizes_of(tiny_scenario(f"{key}={n}"))) for n in (10**8, 9 * 10**8))
    assert many == more < 5 * GB


def test_where_no_value_of_the_key_fits_it_says_so():
    with refused("no value"):
        require_memory(tiny_scenario(), available=10**6)


def test_a_billion_ads_are_refused_before_a_folder_is_made(tmp_path, capsys):
    words = ["run", str(QUICK), "--set", "world.ads=1000000000", "--out", str(tmp_path / "run")]
    assert main(words) == 2
    assert "world.ads (1,000,000,000)" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_validate_tells_it(capsys):
    assert main(["validate", str(QUICK), "--set", "world.ads=1000000000"]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.split()[0] == "memory"]
    assert tells(line, "TB", "refused")


def files(root, contents):
    for name, text in contents.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


MEMINFO = {"proc/meminfo": "MemTotal: 64000 kB\nMemAvailable:   32000 kB\n"}


def test_what_the_machine_has_left_is_available(tmp_path):
    assert available_bytes(files(tmp_path, MEMINFO)) == 32000 * 1024


@pytest.mark.parametrize("where", ["", "jobs/", "jobs/mine/"])
def test_a_limit_of_the_group_or_of_one_above_it_counts(where, tmp_path):
    group = f"sys/fs/cgroup/{where}"
    own = {
        "proc/self/cgroup": "0::/jobs/mine\n",
        f"{group}memory.max": "9000\n",
        f"{group}memory.current": "5000\n",
        f"{group}memory.stat": "anon 10\ninactive_file 700\n",
    }
    assert available_bytes(files(tmp_path, {**MEMINFO, **own})) == 4700


def test_the_older_form_of_groups_counts_and_no_limit_is_none(tmp_path):
    own = {
        "proc/self/cgroup": "3:cpu:/x\n2:memory:/docker/abc\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "8000\n",
        "sys/fs/cgroup/memory/memory.usage_in_bytes": "1000\n",
        "sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes": "max\n",
    }
    assert available_bytes(files(tmp_path, {**MEMINFO, **own})) == 7000


def test_where_nothing_is_known_nothing_is_refused(monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda: None)
    require_memory(tiny_scenario("world.ads=1000000000"))
