"""Locks of dead hosts: a lease, an attempt number, an old owner that writes no more. Time is a list here."""

import json
import os
import shutil
import socket
import threading

import pytest

from answers.told import refused, warned
from cascade_sim.foundation.errors import Notice, UserError
from cascade_sim.storage import files
from cascade_sim.storage import lock as locks
from cascade_sim.storage.files import guard, unguard, write_file
from cascade_sim.storage.folder import RunFolder
from cascade_sim.storage.lock import LOCK, Clock, Lock, holder_of, written_for

MANIFEST = {"semantics": 1, "scenario_hash": "a", "status": "running"}


class StoppedClock(Clock):
    """Waiting takes no time; who waits is written down, and may be told what happens meanwhile."""

    def __init__(self, meanwhile=lambda waited: None):
        self.waits, self.beats, self.meanwhile = [], [], meanwhile

    def wait(self, seconds):
        self.waits.append(seconds)
        self.meanwhile(len(self.waits))

    def every(self, seconds, do):
        self.beats.append((seconds, do))
        return lambda: None


@pytest.fixture
def on(monkeypatch):
    """From here on this process is on another host."""

    def move(host):
        monkeypatch.setattr(socket, "gethostname", lambda: host)

    return move


def left(folder):
    return json.loads((folder / LOCK).read_text())


def dead_lock(folder, on, clock=None):
    """The lock that a killed process of node1 leaves."""
    on("node1")
    lock = Lock.take(folder, clock=clock or StoppedClock())
    lock.leave()
    on("node2")


def test_the_holder_counts_its_beats_several_times_in_a_lease(tmp_path):
    clock = StoppedClock()
    lock = Lock.take(tmp_path, clock=clock)
    ((seconds, beat),) = clock.beats
    assert seconds == left(tmp_path)["lease"] / locks.BEATS and lock.attempt == 1
    assert beat() and beat() and left(tmp_path)["beat"] == 2
    lock.release()
    assert not beat() and not (tmp_path / LOCK).exists()


def test_the_lock_of_a_dead_host_is_taken_over_after_its_lease_with_a_word(tmp_path, on):
    dead_lock(tmp_path, on)
    clock = StoppedClock()
    with warned("node1", "30 s", "attempt 2", kind=Notice):
        lock = Lock.take(tmp_path, clock=clock)
    assert sum(clock.waits) >= left(tmp_path)["lease"]
    assert (left(tmp_path)["host"], left(tmp_path)["attempt"], lock.attempt) == ("node2", 2, 2)
    assert os.listdir(tmp_path) == [LOCK]
    lock.release()


def test_the_lock_of_another_host_that_beats_is_respected(tmp_path, on):
    """Its flock is not seen here, as where a file system does not share them."""
    dead_lock(tmp_path, on)

    def beat(waited):
        if waited == 3:
            (tmp_path / LOCK).write_text(json.dumps(left(tmp_path) | {"beat": 1}))

    clock = StoppedClock(beat)
    with pytest.warns(Notice, match="looking for 30 s"), pytest.raises(UserError, match="in use: .*on node1"):
        Lock.take(tmp_path, clock=clock)
    assert len(clock.waits) == 3 and left(tmp_path)["host"] == "node1"


def test_who_only_reads_does_not_wait_for_a_lease(tmp_path, on):
    dead_lock(tmp_path, on)
    clock = StoppedClock()
    with refused("node1", tmp_path / LOCK):
        Lock.take(tmp_path, waits=False, clock=clock)
    assert clock.waits == []


@pytest.mark.filterwarnings("ignore::cascade_sim.foundation.errors.Notice")
def test_an_old_holder_that_comes_back_writes_no_more(tmp_path, on, monkeypatch):
    monkeypatch.setattr(locks, "CLOCK", StoppedClock())
    on("node1")
    old = RunFolder.create(tmp_path)
    old.write_text("before.txt", "1")
    # node1 hangs; to node2 its flock is free, as if the file server had dropped it.
    monkeypatch.setattr("fcntl.flock", lambda handle, how: None)
    on("node2")
    new = Lock.take(tmp_path)
    on("node1")
    for write in (
        lambda: old.write_text("after.txt", "2"),
        lambda: write_file(tmp_path / "after.txt", b"2"),
        lambda: old.write_manifest({}),
    ):
        with refused("node2", "attempt 2"):
            write()
    assert not old._lock.beat()  # nor does it overwrite the new holder's beats
    old.release()
    assert left(tmp_path)["host"] == "node2"  # nor take its lock away
    assert sorted(os.listdir(tmp_path)) == [LOCK, "before.txt"]
    on("node2")
    write_file(tmp_path / "mine.txt", b"3")
    new.release()
    assert not (tmp_path / LOCK).exists()


class Paused:
    """A process of node1 that is paused before a rename while node2, which sees no flock, does something."""

    def __init__(self, monkeypatch, on, name, meanwhile):
        self.real, self.on, self.name, self.meanwhile = os.replace, on, name, meanwhile
        self.has_been = False
        monkeypatch.setattr(locks, "CLOCK", StoppedClock())
        monkeypatch.setattr("fcntl.flock", lambda handle, how: None)
        monkeypatch.setattr(os, "replace", self.replace)
        on("node1")

    def replace(self, old, new):
        if new.name == self.name and not self.has_been:
            self.has_been = True
            self.on("node2")
            own, files._guards[:] = list(files._guards), []  # each process has those of its own locks
            self.meanwhile()
            files._guards[:] = own
            self.on("node1")
        self.real(old, new)


@pytest.mark.filterwarnings("ignore::cascade_sim.foundation.errors.Notice")
@pytest.mark.parametrize("takes", [RunFolder.create, lambda folder: RunFolder.resume(folder, MANIFEST)])
def test_a_process_paused_between_its_last_look_and_the_rename_renames_nothing(
    tmp_path, on, monkeypatch, takes
):
    new = []

    def take_over():
        new.append(takes(tmp_path))
        new[0].write_json("metrics.json", {"of": 2})

    paused = Paused(monkeypatch, on, "metrics.json", take_over)
    old = RunFolder.create(tmp_path)
    old.write_manifest(MANIFEST)
    with refused("node2", "attempt 2"):
        old.write_json("metrics.json", {"of": 1})
    assert paused.has_been and json.loads((tmp_path / "metrics.json").read_text()) == {"of": 2}
    old.release()  # what it gave up is not the new one's
    assert left(tmp_path)["host"] == "node2" and (tmp_path / "metrics.json").exists()
    assert not list(tmp_path.rglob("*.tmp"))
    new[0].release()


@pytest.mark.filterwarnings("ignore::cascade_sim.foundation.errors.Notice")
def test_a_job_whose_owner_was_killed_renames_nothing_once_another_has_the_folder(tmp_path, on, monkeypatch):
    """It holds no lock itself: on a local disk, too, the next owner does not wait for it."""
    new = []
    paused = Paused(monkeypatch, on, "weights", lambda: new.append(RunFolder.resume(tmp_path, MANIFEST)))
    old = RunFolder.create(tmp_path)
    old.write_manifest(MANIFEST)
    (tmp_path / "checkpoints").mkdir()
    with written_for(tmp_path, holder_of(tmp_path)), refused(tmp_path, "node2"):
        old._lock.leave()
        write_file(tmp_path / "checkpoints" / "weights", b"")
    assert paused.has_been and os.listdir(tmp_path / "checkpoints") == []
    new[0].release()


@pytest.mark.filterwarnings("ignore::cascade_sim.foundation.errors.Notice")
def test_a_process_paused_before_it_takes_over_a_dead_host_is_refused(tmp_path, on, monkeypatch):
    new = []
    paused = Paused(monkeypatch, on, LOCK, lambda: new.append(RunFolder.create(tmp_path)))
    on("node0")
    Lock.take(tmp_path).leave()
    on("node1")
    with pytest.raises(UserError, match="in use: .*on node2"):
        RunFolder.create(tmp_path)
    assert paused.has_been and left(tmp_path)["host"] == "node2"
    new[0].release()
    assert os.listdir(tmp_path) == []


def test_two_hosts_of_one_name_that_do_not_see_each_others_locks_do_not_both_write(tmp_path, on, monkeypatch):
    """Containers are often called alike: each takes the other's lock for that of a killed process here."""
    monkeypatch.setattr("fcntl.flock", lambda handle, how: None)
    monkeypatch.setattr(locks, "CLOCK", StoppedClock())
    on("localhost")
    old = RunFolder.create(tmp_path)
    unguard(old._lock.require_held)  # here both are one process
    new = RunFolder.create(tmp_path)
    new.write_text("a.txt", "new")
    guard(tmp_path, old._lock.require_held)
    with refused(tmp_path, "attempt 2"):
        old.write_text("a.txt", "")
    assert not old._lock.beat()
    old.release()
    assert (tmp_path / "a.txt").read_text() == "new"
    assert left(tmp_path)["attempt"] == 2
    new.release()


@pytest.mark.filterwarnings("ignore::cascade_sim.foundation.errors.Notice")
def test_an_old_holder_removes_nothing_of_the_new_ones(tmp_path, on, monkeypatch):
    Paused(monkeypatch, on, "", lambda: None)
    old = RunFolder.create(tmp_path)
    old.write_manifest(MANIFEST)
    on("node2")
    new = RunFolder.resume(tmp_path, MANIFEST)
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "previous").mkdir()
    on("node1")
    for remove in (old.remove_checkpoints, old.remove_logs):
        with pytest.raises(UserError, match="writes no more"):
            remove()
    old.release()
    assert sorted(os.listdir(tmp_path)) == [LOCK, "checkpoints", "manifest.json", "previous"]
    new.release()


@pytest.mark.filterwarnings("ignore::cascade_sim.foundation.errors.Notice")
def test_of_two_that_outlive_a_host_at_once_one_is_refused(tmp_path, on):
    dead_lock(tmp_path, on)

    def other_was_later(waited):
        if waited == 2 * locks.BEATS + 1:  # our new file is in place; theirs comes upon it
            theirs = tmp_path / "theirs"
            theirs.write_text(json.dumps(left(tmp_path) | {"host": "node3"}))
            os.replace(theirs, tmp_path / LOCK)

    with pytest.raises(UserError, match="in use: .*on node3"):
        Lock.take(tmp_path, clock=StoppedClock(other_was_later))
    assert left(tmp_path)["host"] == "node3"


def test_a_lock_that_is_gone_is_nobodys_to_write_under(tmp_path):
    with RunFolder.create(tmp_path) as run:
        (tmp_path / LOCK).unlink()
        with refused(tmp_path, "lock"):
            run.write_text("a.txt", "")


def test_a_folder_that_is_removed_under_a_run_says_so(tmp_path):
    folder = tmp_path / "run"
    with RunFolder.create(folder) as run:
        shutil.rmtree(folder)
        with refused(folder, "removed"):
            write_file(folder / "a.txt", b"")
    assert not run._lock.is_held


@pytest.mark.parametrize("text", ["soon", "0", "-3", "1e9", "nan"])
def test_a_lease_that_is_no_time_is_refused(tmp_path, monkeypatch, text):
    monkeypatch.setenv("CASCADE_SIM_LEASE", text)
    with pytest.raises(UserError, match=f"CASCADE_SIM_LEASE={text}: expected seconds"):
        Lock.take(tmp_path)


def test_the_real_clock_repeats_until_it_is_told_to_stop():
    calls = iter([True, True, False])
    done = []

    def do():
        again = next(calls)
        if not again:
            done.append(1)
        return again

    stop = locks.Clock().every(0.0, do)
    while done == []:
        for thread in threading.enumerate():
            if thread.name == "lease":
                thread.join(0.01)
    stop()
    assert done == [1]
