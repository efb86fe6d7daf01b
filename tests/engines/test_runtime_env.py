"""What travels to other machines."""

import os
import subprocess
import sys

import pytest

from answers.told import refused
from cascade_sim.engines.runtime_env import pack
from cascade_sim.scenario.plugins import travelling_files
from cascade_sim.storage.code_version import source_digest
from places import HANG
from worlds.tiny_market import tiny_scenario

DIGEST = "from cascade_sim.storage.code_version import source_digest as d; print(d())"


@pytest.fixture
def here(tmp_path, monkeypatch):
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def test_the_package_arrives_as_the_code_that_it_is_here(tmp_path, here):
    trunk = tmp_path / "trunk"
    trunk.mkdir()
    package, _ = pack(trunk, [])
    assert package.name == "cascade_sim" and not list(package.rglob("__pycache__"))
    env = {**os.environ, "PYTHONPATH": str(package.parent), "PYTHONDONTWRITEBYTECODE": "1"}
    there = subprocess.run(
        [sys.executable, "-c", DIGEST],
        cwd=here,
        env=env,
        capture_output=True,
        text=True,
        check=True,
        timeout=HANG,
    )
    assert there.stdout.strip() == source_digest()


def test_of_the_working_folder_only_what_is_needed_travels(tmp_path, here):
    (here / "nets").mkdir()
    (here / "nets" / "mine.py").write_text("import helper\nclass Mine: pass\n")
    (here / "helper.py").write_text("")
    (here / "secrets.txt").write_text("")
    (here / "other.py").write_text("")
    scenario = tiny_scenario("models.rank.kind=nets/mine.py:Mine")
    trunk = tmp_path / "trunk"
    trunk.mkdir()
    _, work = pack(trunk, travelling_files(scenario, here))
    arrived = {file.relative_to(work).as_posix() for file in work.rglob("*") if file.is_file()}
    assert arrived == {"nets/mine.py", "helper.py"}


def test_a_file_from_outside_the_working_folder_is_refused_by_name(tmp_path, here):
    (tmp_path / "mine.py").write_text("")
    trunk = tmp_path / "trunk"
    trunk.mkdir()
    with refused("mine.py", "outside"):
        pack(trunk, [tmp_path / "mine.py"])
