"""A small log of another family, and the world fitted to it."""

from __future__ import annotations

import pytest

from cascade_sim.cli import main
from effort import built_once
from worlds.other_family import OtherFamily


@pytest.fixture(scope="session")
def place(tmp_path_factory):
    """A folder with market/ (1,600 requests in three days), world.yaml and its response."""

    def build(folder):
        market, world = folder / "market", folder / "world.yaml"
        OtherFamily(requests=1600, days=3.0).store(market)
        assert main(["fit-world", str(market), "--out", str(world), "--quiet"]) == 0

    return built_once("fitted", build, tmp_path_factory)
