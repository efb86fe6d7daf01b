"""The estimate of memory: near what arrays take, and a refusal with the key to change."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from cascade_sim import draws, kernels
from cascade_sim.cascade import retrieval
from cascade_sim.cli import main
from cascade_sim.errors import UserError
from cascade_sim.phases.simulation import Simulation
from cascade_sim.scenario import memory
from cascade_sim.scenario.memory import (
    available_bytes,
    dominating,
    largest_that_fits,
    passing,
    peak_bytes,
    require_memory,
    sizes_of,
    staying,
)
from cascade_sim.training import data
from worlds.tiny_market import QUICK, tiny_scenario

FACTOR = 2.0  # between the estimate and what is measured
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
     ("world.users=30000", "world.ads=30000", "world.groups.G2.dims=64")],
)  # fmt: skip
@pytest.mark.parametrize("times", [1, pytest.param(4, marks=pytest.mark.drill)])
def test_what_a_world_keeps_is_as_estimated(overrides, times):
    scenario = tiny_scenario(*overrides)
    world = scenario.world.model_copy(
        update={"users": scenario.world.users * times, "ads": scenario.world.ads * times}
    )
    scenario = scenario.model_copy(update={"world": world})
    sim = Simulation(scenario, 1)
    seen = set()
    kept = sum(arrays_of(part, seen) for part in (sim.world, sim.truth, sim.platform))
    expected = staying(sizes_of(scenario))
    estimate = sum(expected[name] for name in ("features", "truth", "retrieval"))
    assert 1 / FACTOR < estimate / kept < FACTOR


def test_the_estimate_counts_with_the_sizes_that_the_engine_works_with():
    assert (memory.USERS_AT_ONCE, memory.DRAWN_AT_ONCE, memory.KEPT_IDS, memory.LEARNED) == (
        kernels.REQUESTS_AT_ONCE, draws.AT_ONCE, retrieval.KEPT_IDS, data.MOST
    )  # fmt: skip


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
    "size", ["users", "ads", "advertisers", "block", "retrieved", "log", "shadow", "workers"]
)
def test_more_of_anything_never_takes_less(size):
    sizes = sizes_of(tiny_scenario())
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
    with pytest.raises(UserError) as refused:
        require_memory(scenario, available=16 * GB)
    key = override.partition("=")[0]
    assert f"{key} (" in str(refused.value) and f"{fits:,} would fit" in str(refused.value)
    require_memory(scenario, available=peak_bytes(sizes))


@pytest.mark.parametrize("key", ["phases.log", "phases.shadow", "phases.evaluate"])
def test_requests_without_end_need_no_more_memory_than_very_many(key):
    many, more = (peak_bytes(sizes_of(tiny_scenario(f"{key}={n}"))) for n in (10**8, 9 * 10**8))
    assert many == more < 5 * GB


def test_where_no_value_of_the_key_fits_it_says_so():
    with pytest.raises(UserError, match="no value of it alone"):
        require_memory(tiny_scenario(), available=10**6)


def test_a_billion_ads_are_refused_before_a_folder_is_made(tmp_path, capsys):
    words = ["run", str(QUICK), "--set", "world.ads=1000000000", "--out", str(tmp_path / "run")]
    assert main(words) == 2
    assert "world.ads (1,000,000,000)" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_validate_tells_it(capsys):
    assert main(["validate", str(QUICK), "--set", "world.ads=1000000000"]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.split()[0] == "memory"]
    assert "TB at the peak" in line and "refused" in line


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
