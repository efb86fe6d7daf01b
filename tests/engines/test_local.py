"""Work on this machine, as any engine does it: jobs by name, chunks in order."""

import os
import subprocess
import sys

import pytest

from answers.told import refused
from cascade_sim.engines import ENGINES, Chunk, Service, open_engine
from cascade_sim.foundation.errors import UserError
from cascade_sim.foundation.workers import Job
from places import HANG, ROOT
from worlds.pool_jobs import refuse, square


def served(workers, n=7, serve=lambda x: x * x):
    chunks = (Chunk(i, ("phase", i)) for i in range(n))
    with open_engine() as engine:
        return [(chunk.content, result) for chunk, result in engine.chunks(Service(serve), chunks, workers)]


def test_jobs_come_by_name_in_the_order_they_were_given():
    with open_engine("local") as engine:
        found = engine.jobs([Job(f"n={n}", square, (n,)) for n in (3, 2)], 2)
    assert [(name, value) for name, (value, _) in found.items()] == [("n=3", 9), ("n=2", 4)]


def test_an_error_of_a_job_keeps_its_words():
    with (
        open_engine() as engine,
        refused("No space left"),
    ):
        engine.jobs([Job("one", refuse, ((),))], 1)


@pytest.mark.parametrize("workers", [1, 3])
def test_chunks_come_in_order(workers):
    assert served(workers) == [(n, n * n) for n in range(7)]


@pytest.mark.parametrize("workers", [1, 2])
def test_no_more_chunks_are_made_than_the_threads_have_use_for(workers):
    made = []

    def chunks():
        for i in range(100):
            made.append(i)
            yield Chunk(i)

    with open_engine() as engine:
        results = engine.chunks(Service(lambda x: x), chunks(), workers)
        next(results)
        assert len(made) <= 2 * workers
        results.close()


PRODUCTS = """
import sys, torch
from cascade_sim.engines import Chunk, Service, open_engine
torch.set_num_threads(1)
rows, net = torch.randn(256, 40, generator=torch.Generator().manual_seed(1)), torch.nn.Linear(40, 16)
torch.nn.init.normal_(net.weight, generator=torch.Generator().manual_seed(2))
def product(n):
    with torch.no_grad():
        return net(rows[:n]).numpy().tobytes()
def served(workers):
    chunks = map(Chunk, range(1, 257))
    return [result for _, result in open_engine().chunks(Service(product), chunks, workers)]
print([n for n, (a, b) in enumerate(zip(served(1), served(2)), 1) if a != b])
"""


@pytest.mark.drill
def test_a_net_predicts_the_same_in_a_thread_as_in_the_main_one():
    """A product of 5 rows did not, where the libraries have several threads to share it between."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "2", "MKL_DYNAMIC": "false"}
    found = subprocess.run(
        [sys.executable, "-c", PRODUCTS], env=env, capture_output=True, text=True, check=True, timeout=HANG
    )
    assert found.stdout == "[]\n"


def test_an_engine_that_there_is_not_and_an_address_that_nobody_needs_are_refused():
    with refused("--engine:", "'rey'", "'ray'?"):
        open_engine("rey")
    with pytest.raises(UserError, match="^--address here:1: .*unless --engine ray"):
        open_engine("local", "here:1")


def test_who_has_no_ray_is_told_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with refused("--engine ray", "pip install 'cascade_sim[ray]'"):
        open_engine("ray").__enter__()
    assert {"local", "ray"} <= set(ENGINES)
