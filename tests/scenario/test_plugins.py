"""Kinds of models: built in, in a file, in a module."""

import os
from pathlib import Path

import pytest

from answers.told import tells
from cascade_sim.scenario.plugins import (
    BIDDER_KINDS,
    check_reference,
    find_class,
    find_file,
    from_working_folder,
)

SOURCE = """
raise RuntimeError("a check must not run this")
from elsewhere import Imported
try:
    class Guarded: pass
except ImportError:
    Guarded = None
class Net:
    class Inner: pass
Alias = Net
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "net.py").write_text(SOURCE)
    (tmp_path / "package" / "sub").mkdir(parents=True)
    (tmp_path / "package" / "__init__.py").write_text("raise RuntimeError('a check must not run this')\n")
    (tmp_path / "package" / "net.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "kind",
    [
        "towers",
        "coaction",
        "net.py:Net",
        "net.py:Guarded",
        "net.py:Imported",
        "net.py:Alias",
        "./package/net.py:Net",
        "net:Net",
        "package.net:Net",
        "collections.abc:Mapping",
    ],
)
def test_a_class_that_is_there_is_found_without_running_its_file(kind, folder):
    assert check_reference(kind, folder) == ""


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("tower", "'tower' 'towers'? coaction"),
        ("net.py", "'net.py' net.py:ClassName"),
        ("net.py:", "'' class"),
        ("net.py:Inner", "'net.py' 'Inner' Net, Guarded"),
        ("net.py:Ned", "'Ned' 'Net'?"),
        (
            "nte.py:Net",
            "'nte.py' 'net.py'?",
        ),
        ("package.nets:Net", "no module 'package.nets'"),
        ("package.net.deeper:Net", "no module 'package.net.deeper'"),
        ("package/net:Net", ".py module"),
        ("package.net:Nett", "'package.net' 'Nett' 'Net'?"),
    ],
)
def test_what_is_wrong_with_a_kind_is_said(kind, words, folder):
    assert tells(check_reference(kind, folder), *words.split())


def test_a_file_that_is_not_python_is_refused_with_its_line(folder):
    (folder / "broken.py").write_text("x = 1\nclass Net(:\n")
    assert tells(check_reference("broken.py:Net", folder), "'broken.py'", "line 2")


def test_a_star_import_may_bring_any_class(folder):
    (folder / "star.py").write_text("from net import *\n")
    assert check_reference("star.py:Whatever", folder) == ""


def test_a_reference_beside_the_scenario_is_rewritten_for_the_working_folder(folder, monkeypatch):
    monkeypatch.chdir(folder / "package" / "sub")
    assert find_file("net.py:Net", folder) == folder / "net.py"
    assert from_working_folder("net.py:Net", folder) == "../../net.py:Net"
    assert from_working_folder("towers", folder) == "towers"
    assert from_working_folder("collections:Counter", folder) == "collections:Counter"
    assert find_file("nowhere.py:Net", Path("..")) is None


def test_of_two_edits_within_a_second_the_last_is_run(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.dont_write_bytecode", False)
    file = tmp_path / "own.py"
    for level in (1, 2):  # of one size
        file.write_text(f"class Own:\n    level = {level}\n")
        os.utime(file, (1_000_000_000, 1_000_000_000))
        assert find_class(BIDDER_KINDS, f"{file}:Own").level == level
