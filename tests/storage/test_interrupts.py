"""Ctrl-C at every moment of a run folder's life: no half-written file stays, nor a lock, and it can be used.

But for a lock which alone shows that what is half cleared was a run.
"""

import contextlib
import os
import signal
import sys
from pathlib import Path

import pytest

from cascade_sim.foundation import cleanup
from cascade_sim.foundation.signals import check_interrupt, stoppable
from cascade_sim.logs.store.store import new_folder
from cascade_sim.storage import files, lock
from cascade_sim.storage.files import write_file
from cascade_sim.storage.folder import LOCK, RunFolder

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals differ")

OURS = (str(Path(files.__file__).parent), contextlib.__file__, cleanup.__file__)
MANIFEST = {"semantics": 1, "scenario_hash": "a", "status": "running"}


class NoBeats(lock.Clock):
    def every(self, seconds, do):
        return lambda: None


@pytest.fixture(autouse=True)
def as_in_a_shell(monkeypatch):
    monkeypatch.setattr(lock, "CLOCK", NoBeats())
    monkeypatch.setattr(os, "fsync", lambda handle: None)  # what takes the time
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class Moments:
    """Counts where Python looks for signals: at the call of a function, after that of one written in C."""

    def __init__(self, at=0):
        self.count, self.at = 0, at

    def __call__(self, frame, event, argument):
        if event in ("call", "c_return") and frame.f_code.co_filename.startswith(OURS):
            self.count += 1
            if self.count == self.at:
                sys.setprofile(None)
                os.kill(os.getpid(), signal.SIGINT)


def moments(act, at=0):
    """Do it with an interrupt at this moment; how many there are."""
    watch = Moments(at)
    with contextlib.suppress(KeyboardInterrupt), stoppable():
        try:
            sys.setprofile(watch)
            act()
        finally:
            sys.setprofile(None)
        check_interrupt()
    return watch.count


def left_behind(folder):
    return [path for path in folder.rglob("*") if path.name == LOCK or path.name.endswith(".tmp")]


def write(folder):
    with RunFolder.create(folder, manifest={**MANIFEST, "scenario_hash": "b"}) as run:
        run.write_manifest(MANIFEST)


def stopped(folder):
    write(folder)
    (folder / "logs").mkdir()


def finished(folder):
    with RunFolder.create(folder) as run:
        run.write_manifest(MANIFEST)
        run.write_json("metrics.json", {})
        run.finish(MANIFEST)


@pytest.mark.drill
@pytest.mark.parametrize("before", [lambda folder: None, stopped, finished])
def test_a_folder_that_is_taken_and_given_back(before, tmp_path):
    def case(at):
        folder = tmp_path / str(at)
        before(folder)
        return folder, moments(lambda: write(folder), at)

    case(-1)  # what is imported on the way
    _, n = case(0)
    assert n > 100
    for at in range(1, n + 1):
        folder, _ = case(at)
        names = set(os.listdir(folder)) if folder.exists() else set()
        is_half_cleared = bool(names - {LOCK}) and not names & {
            "manifest.json",
            "previous",
            ".previous.moving",
        }
        assert (at, left_behind(folder)) == (at, [folder / LOCK] if is_half_cleared else [])
        RunFolder.create(folder).release()  # still a run, or empty


def test_a_file_that_is_written(tmp_path):
    def act():
        write_file(tmp_path / "a.txt", b"new")

    n = moments(act)
    assert n > 20
    for at in range(1, n + 1):
        (tmp_path / "a.txt").write_bytes(b"old")
        moments(act, at)
        assert os.listdir(tmp_path) == ["a.txt"]
        assert (tmp_path / "a.txt").read_bytes() in (b"old", b"new")


def test_a_hidden_folder_that_is_handed_over(tmp_path):
    def act():
        with new_folder(tmp_path / "a") as hidden:
            (hidden / "b").touch()

    for at in range(1, moments(act) + 1):
        if (tmp_path / "a").exists():
            (tmp_path / "a" / "b").unlink()
            (tmp_path / "a").rmdir()
        moments(act, at)
        assert left_behind(tmp_path) == []


def test_an_interrupt_before_a_lock_is_signed_leaves_none_beside_another_run(tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    finished(tmp_path)
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(os, "pwrite", interrupted)
        write(tmp_path)
    assert left_behind(tmp_path) == []


def test_an_interrupt_before_a_lock_is_signed_leaves_the_one_that_shows_a_killed_run(tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    (tmp_path / "logs").mkdir()
    held = lock.Lock.take(tmp_path)
    held.leave()
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(os, "pwrite", interrupted)
        write(tmp_path)
    assert lock.Lock.is_ours(tmp_path)
    write(tmp_path)


def test_a_run_that_is_put_back_is_whole_after_a_kill_in_between(tmp_path, monkeypatch):
    """It was set aside for a run of which nothing came; the next one finds all of it, in one place."""

    class Killed(BaseException):
        pass

    def replace(old, new):
        if moved:
            raise Killed
        moved.append(new)
        real(old, new)

    real, moved = os.replace, []
    finished(tmp_path)
    names = {"manifest.json", "metrics.json"}
    run = RunFolder.create(tmp_path)
    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(os, "replace", replace)
        run.release()
    run._lock.leave()
    assert moved and not names <= set(os.listdir(tmp_path))
    with RunFolder.create(tmp_path) as run:
        assert set(os.listdir(tmp_path / "previous")) == names
        run.write_manifest(MANIFEST)
