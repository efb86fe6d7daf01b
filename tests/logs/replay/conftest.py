"""The tiny study, and the market that its baseline arm would have logged."""

from __future__ import annotations

import pytest

from cascade_sim.diagnostics.reopen import ReopenedRun, reopen
from cascade_sim.study.simulation import Simulation
from worlds.logged_market import market_of

REQUESTS = 500


def with_effects(sim):
    """Declares the world's own slot effects, which vcg prices by."""
    return lambda scenario: scenario["world"]["replay"].update(slot_effects=sim.world.slot_effects.tolist())


@pytest.fixture(scope="session")
def market(study, tmp_path_factory):
    """A market of level pre_ranking."""
    folder = tmp_path_factory.mktemp("logged") / "market"
    return market_of(
        study.sim, study.evaluation.baseline, folder, REQUESTS, changes=with_effects(study.sim),
        extra=lambda block, ids: {"score.better": study.sim.environment._truth.ctr(block, ids)},
    )  # fmt: skip


@pytest.fixture(scope="session")
def bids_market(study, tmp_path_factory):
    """A market of level bids."""
    folder = tmp_path_factory.mktemp("logged") / "bids"
    return market_of(
        study.sim, study.evaluation.baseline, folder, REQUESTS, "bids", changes=with_effects(study.sim)
    )


@pytest.fixture(scope="session")
def replayed(market) -> ReopenedRun:
    return reopen(market)


@pytest.fixture(scope="session")
def sim(replayed) -> Simulation:
    return replayed.sim
