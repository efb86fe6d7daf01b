"""What a newcomer is sent to exists, and the version stands in one place."""

import re
import tomllib

import pytest
from ruamel.yaml import YAML

from cascade_sim import __version__
from places import ROOT

PATH = re.compile(r"`((?:cascade_sim|agents|models|analysis|scenarios|docs|tests)/[\w/.-]+)`")


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/references.md", "docs/extend.md"])
def test_every_path_that_a_page_names_exists(page):
    named = PATH.findall((ROOT / page).read_text(encoding="utf-8"))
    assert named
    missing = [path for path in named if not (ROOT / path).exists()]
    assert not missing, f"{page} names {missing}"


def test_a_page_that_names_a_path_which_is_gone_is_found():
    assert PATH.findall("see `cascade_sim/gone.py`, not `gone.py`") == ["cascade_sim/gone.py"]


def test_the_build_takes_the_version_from_the_code_and_the_citation_agrees():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert "version" not in project["project"] and project["project"]["dynamic"] == ["version"]
    assert project["tool"]["setuptools"]["dynamic"]["version"]["attr"] == "cascade_sim.version.__version__"
    citation = YAML(typ="safe").load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == __version__


@pytest.mark.parametrize("file", [".github/workflows/ci.yml", ".gitlab-ci.yml"])
def test_the_workflows_call_what_has_to_pass(file):
    assert "bash .ci/run" in (ROOT / file).read_text(encoding="utf-8")
    YAML(typ="safe").load((ROOT / file).read_text(encoding="utf-8"))
