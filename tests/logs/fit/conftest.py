"""A small log of another family, and the world fitted to it."""

from __future__ import annotations

import pytest

from cascade_sim.cli import main
from worlds.other_family import OtherFamily


@pytest.fixture(scope="session")
def place(tmp_path_factory):
    """A folder with market/ (1,600 requests in three days), world.yaml and its response."""
    folder = tmp_path_factory.mktemp("fitted")
    OtherFamily(requests=1600, days=3.0).store(folder / "market")
    assert main(["fit-world", str(folder / "market"), "--out", str(folder / "world.yaml"), "--quiet"]) == 0
    return folder
