"""Files that appear whole or not at all."""

import os

import pytest

from answers.told import refused
from cascade_sim.foundation.errors import UserError
from cascade_sim.storage import files as atomic_files
from cascade_sim.storage.files import folder_inside, storage_errors, temporary, write_file
from cascade_sim.storage.folder import RunFolder


def test_a_file_is_written_or_replaced(tmp_path):
    path = tmp_path / "a.txt"
    for content in (b"one", b"two", b""):
        write_file(path, content)
        assert path.read_bytes() == content
    assert os.listdir(tmp_path) == ["a.txt"]


def test_content_reaches_the_disk_before_the_name_and_the_name_before_the_return(tmp_path, monkeypatch):
    steps = []
    monkeypatch.setattr(atomic_files, "flush", lambda path: steps.append(f"flush {path.name}"))
    monkeypatch.setattr(os, "replace", lambda old, new: steps.append(f"rename {new.name}"))
    path = tmp_path / "a.txt"
    write_file(path, b"x")
    (temp,) = os.listdir(tmp_path)
    assert steps == [f"flush {temp}", "rename a.txt", f"flush {tmp_path.name}"]


def test_the_names_of_new_folders_reach_the_disk_too(tmp_path, monkeypatch):
    real, flushed = os.fsync, []

    def fsync(handle):
        flushed.append(os.path.relpath(os.readlink(f"/proc/self/fd/{handle}"), tmp_path))
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    with RunFolder.create(tmp_path / "a" / "run") as run:
        assert flushed == [".", "a", "a/run/.lock", "a/run", "a/run"]  # the lock; what was cleared
        flushed.clear()
        run.write_text("logs/log/part", "")
        assert [name for name in flushed if not name.endswith(".tmp")] == [
            "a/run",
            "a/run/logs",
            "a/run/logs/log",
        ]


def test_a_temporary_file_is_new_and_of_a_name_that_cannot_be_planted(tmp_path):
    path, victim = tmp_path / "a.txt", tmp_path / "victim"
    victim.write_text("precious")
    for name in (f".a.txt.{os.getpid()}.tmp", ".a.txt.tmp"):  # what could be guessed
        (tmp_path / name).symlink_to(victim)
    write_file(path, b"new")
    assert (victim.read_text(), path.read_text()) == ("precious", "new")
    first, second = temporary(path), temporary(path)
    assert first != second and first.read_bytes() == second.read_bytes() == b""
    assert first.stat().st_mode == path.stat().st_mode  # as any file of whoever writes it


def test_a_temporary_name_that_is_taken_is_not_written_to(tmp_path, monkeypatch):
    path, victim = tmp_path / "a.txt", tmp_path / "victim"
    victim.write_text("precious")
    monkeypatch.setattr(atomic_files.secrets, "token_hex", lambda n: "guessed")
    (tmp_path / f".a.txt.{os.getpid()}.guessed.tmp").symlink_to(victim)
    with pytest.raises(UserError, match="cannot write"):
        write_file(path, b"new")
    assert victim.read_text() == "precious" and not path.exists()


def test_a_link_in_place_of_a_file_is_replaced_and_not_followed(tmp_path):
    path, victim = tmp_path / "a.txt", tmp_path / "victim"
    victim.write_text("precious")
    path.symlink_to(victim)
    write_file(path, b"new")
    assert victim.read_text() == "precious" and not path.is_symlink()


def test_a_link_in_place_of_a_folder_is_refused(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "figures").symlink_to(tmp_path / "elsewhere")
    with refused("figures", "link"):
        folder_inside(tmp_path / "run", "figures", "more")
    assert os.listdir(tmp_path / "elsewhere") == []
    assert folder_inside(tmp_path / "run", "logs", "table").is_dir()


def test_an_interruption_leaves_the_old_file_and_no_rest(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    write_file(path, b"old")

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_file(path, b"new")
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["a.txt"]


def test_an_error_of_the_storage_names_the_file_and_the_reason(tmp_path):
    with refused(tmp_path / "gone" / "a.txt", tmp_path / "gone", "not there"):
        write_file(tmp_path / "gone" / "a.txt", b"")
    with refused("x", "only words"), storage_errors("x"):
        raise OSError("only words")
