"""Kills, races and full disks, a few times each; tests/drills/survival.py does it in earnest."""

import random
import shutil
import time

import pytest

from answers.told import tells
from worlds.stoppable_runs import Server, contents, differences, is_whole, steps_of
from worlds.tiny_market import QUICK

pytestmark = pytest.mark.drill

# A world of a second: one net, two arms beside those that are always there, and no figures.
CHANGES = (
    *("world.users=60", "world.ads=150", "world.advertisers=15", "world.base_logit=-2.0"),
    *("cascade.retrieval.size=20", "cascade.pre_ranking={model: random, size: 6}", "cascade.slots=2"),
    *("traffic.block=64", "phases.cold_start=128", "phases.log=128", "phases.shadow=0", "phases.evaluate=64"),
    *("report.resamples=5", "report.detail_requests=4", "report.baseline=now"),
    "models={rank: {kind: coaction, features: [user, quality, G1], hidden: 8, dims: 4, epochs: 1}}",
    "arms={now: {}, first: {auction: {pricing: first}}}",
)
COMMAND = ("run", str(QUICK), *(part for change in CHANGES for part in ("--set", change)))
OPTIONS = ("--workers", "1", "--device", "cpu", "--quiet")
FULL = "No space left on device"


class Runs:
    """Runs of this world, each into a folder of its own."""

    def __init__(self, folder, server):
        self.folder, self.server = folder, server
        out, started = folder / "whole", time.monotonic()
        code, said = self.run(out, below=str(out))
        assert code == 0, said
        self.lasts, self.whole, self.steps = time.monotonic() - started, contents(out), steps_of(said)

    def run(self, out, *words, **options):
        log = out.with_suffix(".log")
        return self.server.run(*COMMAND, *words, "--out", str(out), *OPTIONS, log=log, draw=False, **options)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("survival")
    with Server(folder / "cache") as server:
        yield Runs(folder, server)


def test_a_run_killed_at_any_moment_goes_on_to_the_same_bytes(runs, tmp_path):
    rng = random.Random(1)
    for i in range(3):
        out = tmp_path / f"out-{i}"
        moment = (i + rng.random()) / 3 * runs.lasts
        words = (*COMMAND, "--out", str(out), *OPTIONS)
        runs.server.kill_after(moment, *words, log=tmp_path / "log", draw=False, cache=str(out) + "-cache")
        assert is_whole(out / "manifest.json")
        code, said = runs.run(out, "--resume")
        assert code == 0, said
        assert differences(contents(out), runs.whole) == []


def test_of_two_runs_that_race_for_a_folder_exactly_one_wins(runs, tmp_path):
    for i in range(5):
        out, at = tmp_path / f"out-{i}", time.time() + 0.02
        words, logs = (*COMMAND, "--out", str(out), *OPTIONS), [tmp_path / "a.log", tmp_path / "b.log"]
        meet = tmp_path / f"meet-{i}"
        meet.mkdir()
        pids = [runs.server.start(*words, log=log, at=at, draw=False, meet=str(meet)) for log in logs]
        codes = [runs.server.wait(pid) for pid in pids]
        said = "".join(log.read_text() for log in logs)
        assert sorted(codes) == [0, 2], said
        assert said.count("is in use: ") == 1 and "Traceback" not in said
        assert differences(contents(out), runs.whole) == []


def test_a_disk_that_is_full_at_any_step_is_told_and_loses_nothing(runs, tmp_path):
    out, whole = tmp_path / "out", tmp_path / "whole"

    def fails(n):
        code, said = runs.run(out, *(["--resume"] if n < 9 else []), below=str(out), fail=n)
        assert code == 2, f"step {n}: {said}"
        assert f"error: cannot write {out}" in said and FULL in said and "Traceback" not in said, said
        assert is_whole(out / "manifest.json"), f"step {n}"
        assert not list(out.rglob("*.tmp")), f"step {n}"

    for n in [1, 2, 3, 5, 8, *(runs.steps * k // 7 for k in range(1, 7))]:
        fails(n)
    shutil.copytree(out, whole)
    fails(steps_of(runs.run(whole, below=str(whole))[1]))  # the last, with what the failed ones left
    code, said = runs.run(out, "--resume")
    assert code == 0, said
    assert differences(contents(out), runs.whole) == []


def test_a_file_cut_off_by_a_crash_is_noticed_or_made_again(runs, tmp_path):
    """What is not whole never has its name; what lost its end later is named, and made again."""
    out = tmp_path / "out"
    assert runs.run(out, below=str(out), fail=runs.steps * 2 // 3)[0] == 2
    (out / ".metrics.json.99.tmp").write_text('{"half": ')
    part = out / "logs" / "log" / "part-00000.parquet"
    part.write_bytes(part.read_bytes()[:-100])
    code, said = runs.run(out, "--resume")
    assert code == 0 and f"{part} is damaged: " in said and tells(said, "log", "again"), said
    assert differences(contents(out), runs.whole) == []
