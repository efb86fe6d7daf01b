"""A small log of another family, and the world fitted to it."""

from __future__ import annotations

import pytest

from cascade_sim.cli import main
from effort import built_once
from worlds.other_family import OtherFamily

REPLICATES = 8  # the fewest that may be asked for: each takes as long as half the fit


@pytest.fixture(scope="session")
def place(tmp_path_factory):
    """A folder with market/ (1,600 requests in three days), world.yaml and its response."""

    def build(folder):
        market, world = folder / "market", folder / "world.yaml"
        OtherFamily(requests=1600, days=3.0).store(market)
        fit = ["fit-world", str(market), "--replicates", str(REPLICATES), "--out", str(world), "--quiet"]
        assert main(fit) == 0

    return built_once("fitted", build, tmp_path_factory)
