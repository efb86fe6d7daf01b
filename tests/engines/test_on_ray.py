"""Work with Ray on this machine: the same answers, the same words, and nobody else is let in."""

import os
import socket
from pathlib import Path

import numpy as np
import pytest

from answers.told import refused

pytest.importorskip("ray", reason="Ray is not installed: pip install 'cascade_sim[ray]'")

from cascade_sim.engines import Chunk, Service, open_engine  # noqa: E402
from cascade_sim.engines import on_ray as ray_engine  # noqa: E402
from cascade_sim.foundation.errors import ScenarioError, UserError  # noqa: E402
from cascade_sim.foundation.workers import TRIES, Job, JobError  # noqa: E402
from worlds.pool_jobs import chunk_server, die, raise_odd, refuse, square, unsendable  # noqa: E402

pytestmark = pytest.mark.drill


LISTENING = set()  # before Ray was started


@pytest.fixture(scope="module")
def engine():
    LISTENING.update(listening())
    with open_engine("ray") as opened:
        yield opened


def tries(folder, name):
    return len((folder / name).read_text().split())


def test_results_come_by_name_in_the_order_of_the_jobs(engine):
    heard = []
    found = engine.jobs([Job(f"n={n}", square, (n,)) for n in (3, 2, 1)], 2, on_done=heard.append)
    assert [(name, value) for name, (value, _) in found.items()] == [("n=3", 9), ("n=2", 4), ("n=1", 1)]
    assert sorted(heard) == sorted(found) and os.getpid() not in {pid for _, pid in found.values()}


def test_a_job_whose_worker_is_killed_is_tried_again(engine, tmp_path):
    jobs = [Job("a", die, (tmp_path, "a", 2)), Job("b", die, (tmp_path, "b", 0))]
    assert engine.jobs(jobs, 2) == {"a": "a", "b": "b"}
    assert [tries(tmp_path, name) for name in "ab"] == [3, 1]


def test_a_job_that_always_kills_its_worker_is_named_after_three_tries(engine, tmp_path):
    jobs = [Job("world seed-3", die, (tmp_path, "x", 9)), Job("b", die, (tmp_path, "b", 0))]
    with refused("world seed-3", "other one", "go on so"):
        engine.jobs(jobs, 2, go_on="go on so")
    assert tries(tmp_path, "x") == TRIES


@pytest.mark.parametrize(
    ("job", "kind", "text"),
    [
        (Job("one", refuse, ((),)), UserError, "cannot write here: No space left on device"),
        (Job("one", refuse, (("no a", "no b"),)), ScenarioError, "no a\nno b"),
        (Job("one", raise_odd), JobError, "one: Odd: salt and pepper"),
    ],
)
def test_errors_keep_their_words(engine, job, kind, text):
    # Wording: the error's own words come through as they are.
    with pytest.raises(kind) as caught:
        engine.jobs([job], 2)
    assert str(caught.value) == text and type(caught.value) is kind


def test_an_answer_that_cannot_be_sent_is_a_defect_of_the_job(engine):
    with pytest.raises(JobError, match="^one: .*"):
        engine.jobs([Job("one", unsendable, (True,))], 1)


def served(engine, elsewhere, n=9, per_task=2):
    service = Service(lambda content: None, elsewhere, per_task)
    return list(engine.chunks(service, (Chunk(None, ("log", i)) for i in range(n)), 2))


def test_chunks_come_in_order_as_arrays_that_may_be_written_to(engine, tmp_path):
    found = served(engine, Job("phase log", chunk_server, (tmp_path, 0)))
    assert [chunk.spec[1] for chunk, _ in found] == list(range(9))
    for i, (_, array) in enumerate(found):
        assert np.array_equal(array, np.full(50_000, i)) and array.flags.writeable


def test_a_chunk_whose_worker_dies_is_served_again_and_one_that_always_kills_is_named(engine, tmp_path):
    found = served(engine, Job("phase log", chunk_server, (tmp_path, 1)))
    assert [int(array[0]) for _, array in found] == list(range(9))
    with refused("phase log", "chunks 4 to 5"):
        served(engine, Job("phase log", chunk_server, (tmp_path / "always", 99)))


def listening():
    """(address, port) that something of this machine listens on, as the kernel has them."""
    lines = [
        line for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]
    ]
    return {tuple(row[1].split(":")) for row in map(str.split, lines) if row[3] == "0A"}


def test_ray_listens_on_the_loopback_alone_with_a_token_and_reports_nothing(engine):
    new = listening() - LISTENING
    assert new and {address for address, _ in new} <= {"0100007F", "0000000000000000FFFF00000100007F"}
    assert os.environ["RAY_AUTH_MODE"] == "token" and len(os.environ["RAY_AUTH_TOKEN"]) >= 32
    assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"


def test_machines_that_do_not_see_the_folder_or_have_other_packages_are_named(tmp_path):
    kind, own = ray_engine._look([])
    ray_engine._check_machines((kind, own), {"node-2": own}, [])
    unseen = {**own, "unseen": [str(tmp_path / "mark")]}
    with pytest.raises(UserError, match=r"^machine node-2 does not see .*--out"):
        ray_engine._check_machines((kind, own), {"node-2": unseen}, [])
    other = {**own, "packages": {**own["packages"], "numpy": "0.1"}}
    with pytest.raises(UserError, match=r"^machine node-2: .*numpy"):
        ray_engine._check_machines((kind, own), {"node-2": other}, [])
    with pytest.raises(UserError, match="^machine node-2 runs another version"):
        ray_engine._check_machines((kind, own), {"node-2": {**own, "code": "0"}}, [])
    assert own["host"] == socket.gethostname()
