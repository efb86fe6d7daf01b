"""Files that appear whole or not at all."""

import os

import pytest

from cascade_sim.errors import UserError
from cascade_sim.storage import files as atomic_files
from cascade_sim.storage.files import storage_errors, temporary, write_file


def test_a_file_is_written_or_replaced(tmp_path):
    path = tmp_path / "a.txt"
    for content in (b"one", b"two", b""):
        write_file(path, content)
        assert path.read_bytes() == content
    assert os.listdir(tmp_path) == ["a.txt"]


def test_content_reaches_the_disk_before_the_name_and_the_name_before_the_return(tmp_path, monkeypatch):
    steps = []
    monkeypatch.setattr(atomic_files, "_flush", lambda path: steps.append(f"flush {path.name}"))
    monkeypatch.setattr(os, "replace", lambda old, new: steps.append(f"rename {new.name}"))
    path = tmp_path / "a.txt"
    write_file(path, b"x")
    assert steps == [f"flush {temporary(path).name}", "rename a.txt", f"flush {tmp_path.name}"]


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
    with pytest.raises(UserError, match=r"cannot write .*gone/a\.txt: No such file or directory"):
        write_file(tmp_path / "gone" / "a.txt", b"")
    with pytest.raises(UserError, match="cannot write x: only words"), storage_errors("x"):
        raise OSError("only words")
