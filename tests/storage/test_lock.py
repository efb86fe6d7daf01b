"""The lock of a run folder: who holds it, who may take it over."""

import errno
import json
import os
import signal
import socket
import subprocess
import sys

import pytest

from answers.told import refused
from cascade_sim.foundation.errors import UserError
from cascade_sim.logs.store.store import new_folder
from cascade_sim.storage import folder as run_folder
from cascade_sim.storage.folder import LOCK, Lock, RunFolder, read_manifest

HOLD = """
import sys
from cascade_sim.storage.folder import RunFolder
run = RunFolder.create(sys.argv[1])
print(flush=True)
input()
"""


def lock_file(folder, **changes):
    owner = {
        "program": "cascade_sim",
        "pid": 1,
        "host": socket.gethostname(),
        "started": "2024-01-01T00:00:00",
    }
    (folder / LOCK).write_text(json.dumps(owner | changes))


def test_a_second_run_into_the_same_folder_is_refused_and_told_who_has_it(tmp_path):
    with RunFolder.create(tmp_path):
        with refused(os.getpid(), socket.gethostname()):
            RunFolder.create(tmp_path)
        assert (tmp_path / LOCK).exists()  # the refused one has not taken it away
    assert not (tmp_path / LOCK).exists()
    RunFolder.create(tmp_path).release()


def test_a_lock_of_another_process_holds_until_that_process_is_killed(tmp_path):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert holder.stdout.readline() == b"\n"
        with pytest.raises(UserError, match=f"process {holder.pid} on"):
            RunFolder.create(tmp_path)
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        assert json.loads((tmp_path / LOCK).read_text())["pid"] == holder.pid  # left behind
        with RunFolder.create(tmp_path):
            assert json.loads((tmp_path / LOCK).read_text())["pid"] == os.getpid()
    finally:
        holder.kill()
        holder.wait()
        holder.stdin.close()
        holder.stdout.close()


def test_a_run_killed_before_its_manifest_is_known_by_its_lock(tmp_path):
    lock_file(tmp_path)
    (tmp_path / "logs").mkdir()
    with RunFolder.create(tmp_path):
        assert os.listdir(tmp_path) == [LOCK]


def test_a_lock_file_of_another_program_does_not_make_a_folder_a_run(tmp_path):
    lock_file(tmp_path, program="other")
    (tmp_path / "logs").mkdir()
    with refused("not a run"):
        RunFolder.create(tmp_path)
    assert (tmp_path / "logs").exists()


def test_a_lock_of_another_host_is_respected(tmp_path):
    lock_file(tmp_path, host="elsewhere.example")
    with refused("elsewhere.example", tmp_path / LOCK):
        RunFolder.create(tmp_path)
    assert (tmp_path / LOCK).exists()


def test_an_empty_or_damaged_lock_file_is_taken_over(tmp_path):
    for content in ("", "{", '{"program": "casc', '{"program": "cascade_sim", "pid": ?'):
        (tmp_path / LOCK).write_text(content)
        with RunFolder.create(tmp_path):
            assert Lock.is_ours(tmp_path)


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_a_link_in_place_of_the_lock_does_not_empty_what_it_leads_to(link, tmp_path):
    victim, folder = tmp_path / "victim.txt", tmp_path / "run"
    victim.write_text("precious")
    folder.mkdir()
    link(victim, folder / LOCK)
    with pytest.raises(UserError, match=r"\.lock is "):
        RunFolder.create(folder)
    assert victim.read_text() == "precious"


def test_a_link_to_another_lock_is_no_lock_either(tmp_path):
    other, folder = tmp_path / "other", tmp_path / "run"
    other.mkdir()
    folder.mkdir()
    lock_file(other)
    os.link(other / LOCK, folder / LOCK)
    before = (other / LOCK).read_text()
    with pytest.raises(UserError, match="not a lock"):
        RunFolder.create(folder)
    assert (other / LOCK).read_text() == before


def test_a_pipe_in_place_of_the_lock_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / LOCK)
    with pytest.raises(UserError, match="not a lock"):
        RunFolder.create(tmp_path)


def test_a_file_of_somebody_else_in_place_of_the_lock_stays(tmp_path):
    (tmp_path / LOCK).write_text("my notes")
    with pytest.raises(UserError, match="not a lock"):
        RunFolder.create(tmp_path)
    assert (tmp_path / LOCK).read_text() == "my notes"


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_refused_with_what_to_do(tmp_path, monkeypatch, number):
    def no_locks(handle, how):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("fcntl.flock", no_locks)
    for take in (RunFolder.create, lambda folder: new_folder(folder / "store").__enter__()):
        with refused(tmp_path, "NFS"):
            take(tmp_path)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("end", [b"", bytes(40), b', "pid": 12' + bytes(60), b', "pid": 1, "ho"'])
def test_a_lock_that_a_power_cut_left_half_written_still_shows_a_run(tmp_path, end):
    (tmp_path / LOCK).write_bytes(b'{"program": "cascade_sim"' + end)
    (tmp_path / "logs").mkdir()
    with RunFolder.create(tmp_path):
        assert os.listdir(tmp_path) == [LOCK]


def test_a_lock_of_zeros_which_a_power_cut_leaves_is_an_empty_one(tmp_path):
    (tmp_path / LOCK).write_bytes(bytes(120))
    with RunFolder.create(tmp_path):
        assert Lock.is_ours(tmp_path)


def test_a_run_that_fails_gives_its_lock_back(tmp_path):
    with pytest.raises(RuntimeError), RunFolder.create(tmp_path):
        raise RuntimeError
    with RunFolder.create(tmp_path) as run:
        run.release()
        run.release()
        assert not (tmp_path / LOCK).exists()


def test_a_lock_removed_between_opening_and_locking_is_not_mistaken_for_one(tmp_path, monkeypatch):
    real_open, opened = os.open, []

    def open_then_lose(path, *args):
        handle = real_open(path, *args)
        if path == tmp_path / LOCK:
            opened.append(handle)
            if len(opened) == 1:
                os.unlink(path)  # the former owner releases just now
        return handle

    monkeypatch.setattr(os, "open", open_then_lose)
    lock = Lock.take(tmp_path)
    monkeypatch.undo()
    assert len(opened) == 2
    with pytest.raises(UserError, match="in use"):
        Lock.take(tmp_path)
    lock.release()


def test_who_comes_second_in_a_race_is_told_that_the_folder_is_in_use(tmp_path, monkeypatch):
    """The winner takes the folder of a finished run just between two looks of the other."""
    manifest = tmp_path / "manifest.json"
    manifest.write_text('{"semantics": 1, "scenario_hash": "abc"}')
    real, winners = run_folder._own_manifest, []

    def read_after_the_winner(folder):
        if not winners:
            winners.append(Lock.take(tmp_path))
            manifest.unlink()
        return real(folder)

    monkeypatch.setattr(run_folder, "_own_manifest", read_after_the_winner)
    (tmp_path / "logs").mkdir()
    with pytest.raises(UserError, match=f"in use: process {os.getpid()}"):
        RunFolder.create(tmp_path)
    winners[0].release()


def test_a_reader_of_a_folder_that_is_being_written_is_told_so(tmp_path):
    with RunFolder.create(tmp_path), refused(tmp_path, "a run"):
        read_manifest(tmp_path)


def test_a_lock_that_is_taken_over_is_never_seen_empty(tmp_path, monkeypatch):
    lock_file(tmp_path, more="x" * 100)
    real, seen = os.ftruncate, []

    def look_first(handle, size):
        seen.append((size, Lock.is_ours(tmp_path)))
        real(handle, size)

    monkeypatch.setattr(os, "ftruncate", look_first)
    Lock.take(tmp_path).release()
    assert [size > 0 for size, _ in seen] == [True]


def test_a_lock_that_does_not_fit_on_the_disk_is_refused_and_not_half_another_s(tmp_path, monkeypatch):
    """A short write over an earlier owner's text would read as that owner's attempt number."""
    lock_file(tmp_path, attempt=4)
    write = os.pwrite

    def short(handle, data, at):
        if at >= 49:
            raise OSError(errno.EFBIG, "File too large")
        return write(handle, data[: 49 - at], at)

    monkeypatch.setattr(os, "pwrite", short)
    with pytest.raises((OSError, UserError), match="File too large"):
        Lock.take(tmp_path)
    monkeypatch.undo()
    taken = Lock.take(tmp_path)
    assert taken.is_held
    taken.release()
