"""The same scenario and seed give the same bytes, whoever computes them and how often.

Promised: any number of workers, of threads of the numerical libraries, and repetition. A block size is part
of the scenario: fused kernels and keyed draws do not feel it, torch's matrix products and the order of float
sums may, in the last digit.
"""

import hashlib
import os
import subprocess
import sys

import numpy as np
import pytest

from cascade_sim.cascade.fusion import Fusion
from cascade_sim.cascade.outcome import outcome
from cascade_sim.cascade.retrievers.similarity import Retrieval
from cascade_sim.cascade.serve import Stage
from cascade_sim.context import RunContext
from cascade_sim.storage.tables import read_table, tables
from cascade_sim.study.run import run_study
from cascade_sim.study.simulation import Simulation
from cascade_sim.world.world import build_world
from places import HANG
from worlds.cascades import decided, make_arm
from worlds.tiny_market import ROOT, part_of, tiny_scenario

SHORT = (
    *("phases.cold_start=200", "phases.log=300", "phases.shadow=130", "phases.evaluate=200"),
    *("traffic.block=64", "report.resamples=10", "report.detail_requests=70"),
)


def digests(folder):
    """Of every table's content, and of every model and metrics file."""
    found = {}
    for table in tables(folder):
        columns = read_table(folder, table)
        blob = b"".join(name.encode() + columns[name].tobytes() for name in sorted(columns))
        found[table] = hashlib.sha256(blob).hexdigest()
    for path in [*sorted((folder / "models").iterdir()), folder / "metrics.json", folder / "metrics.csv"]:
        found[path.name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


WORKERS = {"one": 1, "two": 2, "again": 1}


def study_in(folder, name):
    """A study that trains for itself, in a cache of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cascade_sim.study.run.write_report", lambda *_: None)  # the page is not under test
        patch.setenv("CASCADE_SIM_CACHE", str(folder / f"cache-{name}"))
        run_study(tiny_scenario(*SHORT), RunContext(folder / name, workers=WORKERS[name], device="cpu"))


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    study_in(folder, "one")
    return folder


@pytest.mark.parametrize("other", ["two", pytest.param("again", marks=pytest.mark.drill)])
def test_metrics_logs_and_models_are_byte_identical(runs, other):
    study_in(runs, other)
    assert (runs / "one" / "metrics.json").read_bytes() == (runs / other / "metrics.json").read_bytes()
    first, second = digests(runs / "one"), digests(runs / other)
    assert first == second
    assert {"cold_start", "log", "shadow", "evaluate-ltr", "service-ltr", "rank.safetensors"} <= set(first)


def test_a_run_from_the_cache_gives_the_same_bytes(runs, tmp_path, monkeypatch):
    monkeypatch.setenv("CASCADE_SIM_CACHE", str(runs / "cache-one"))
    monkeypatch.setattr("cascade_sim.study.run.write_report", lambda *_: None)
    monkeypatch.setattr("cascade_sim.training.fit.train", None)  # would fail if anything were trained
    run_study(tiny_scenario(*SHORT), RunContext(tmp_path / "cached", device="cpu"))
    assert digests(tmp_path / "cached") == digests(runs / "one")


def similarities():
    """Of a retrieval large enough for a matrix product to be shared between threads, and what it finds."""
    scenario = tiny_scenario("world.ads=3001", "world.groups.G1.dims=32")
    retrieval = Retrieval(build_world(scenario.world, 1), scenario.cascade.retrieval, 0.1)
    users = np.arange(scenario.world.users, dtype=np.int32)
    near = b"".join(retrieval.similarity(user).tobytes() for user in users)
    return near + retrieval(users, 60).tobytes()


ELSEWHERE = """
import sys
from pathlib import Path

import cascade_sim.study
from cascade_sim.context import RunContext
from house.test_determinism import SHORT, similarities
from worlds.tiny_market import tiny_scenario

out = Path(sys.argv[1])
(out / "retrieval").write_bytes(similarities())
cascade_sim.study.run.write_report = lambda *_: None
cascade_sim.study.run.run_study(tiny_scenario(*SHORT), RunContext(out / "run", device="cpu"))
"""


@pytest.mark.drill
def test_the_threads_of_the_numerical_libraries_change_nothing(runs, tmp_path):
    threads = "2" if os.environ["OMP_NUM_THREADS"] == "1" else "1"  # other than here
    own = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), threads)
    own |= {"CASCADE_SIM_CACHE": str(tmp_path / "cache"), "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}"}
    command = [sys.executable, "-c", ELSEWHERE, str(tmp_path)]
    done = subprocess.run(command, env={**os.environ, **own}, capture_output=True, text=True, timeout=HANG)
    assert done.returncode == 0, done.stderr
    here = similarities()
    assert len(here) == 150 * (3001 + 60) * 4
    assert (tmp_path / "retrieval").read_bytes() == here
    first, second = runs / "one", tmp_path / "run"
    assert (first / "metrics.json").read_bytes() == (second / "metrics.json").read_bytes()
    assert digests(first) == digests(second)


def test_another_seed_gives_another_world(runs):
    one = Simulation(tiny_scenario(*SHORT), 1)
    other = Simulation(tiny_scenario(*SHORT), 2)
    assert not np.any(one.world.init_bid == other.world.init_bid)


@pytest.mark.parametrize("seat", ["truth", "random", "constant"])
def test_seats_without_matrix_products_do_not_feel_the_size_of_blocks(seat):
    found = {}
    for size in (5, 64, 512):
        sim = Simulation(tiny_scenario(f"traffic.block={size}"), 1)
        stage = Stage(sim.scorers[seat], "init", Fusion())
        arm = make_arm(
            60, stage, 15, Stage(sim.scorers["truth"], "opt", Fusion()), 3, retriever=sim.retriever
        )
        parts = []

        def serve(block, sim=sim, arm=arm):
            decision = sim.serve(block, arm)
            happened = outcome(block, decision, sim.environment._truth, sim.world.slot_effects, sim.seed)
            columns = [values for values in vars(happened).values() if values is not None]
            return (*decided(decision).values(), *columns)

        sim.arrivals.run_phase(
            "evaluate", 300, serve, lambda block, result, parts=parts: parts.append(result)
        )
        found[size] = [np.concatenate(column).tobytes() for column in zip(*parts, strict=True)]
    assert found[5] == found[64] == found[512]


def test_trained_models_feel_the_size_of_blocks_in_the_last_digits_only(study):
    sim = study.sim
    block = sim.arrivals.block("evaluate", 0, 500)
    ids = sim.retriever(block.users, 60)
    for name in ("rank", "logloss", "ltr", "distill-pre"):
        whole = sim.scorers[name].predict(block, ids)
        alone = [sim.scorers[name].predict(part_of(block, [r]), ids[[r]])[0] for r in range(0, 128, 16)]
        assert whole[::16] == pytest.approx(np.array(alone), rel=1e-4)
