"""The tiny study as a run on a page, beside a folder that is none, and the market it would have logged."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient

from cascade_sim.live.access import door_of
from cascade_sim.live.server import Live
from cascade_sim.live.session import Session
from worlds.logged_market import market_of
from worlds.whatif_runs import measured_run

HOST = "http://127.0.0.1"
TOKEN = "a-long-secret-that-nobody-guesses"


@pytest.fixture(scope="session")
def folder(study, tmp_path_factory):
    return measured_run(study, tmp_path_factory.mktemp("live") / "tiny")


@pytest.fixture(scope="session")
def session(folder):
    return Session(folder)


@pytest.fixture(scope="session")
def market(study, tmp_path_factory):
    """An imported log of level pre_ranking."""
    return market_of(study.sim, study.evaluation.baseline, tmp_path_factory.mktemp("live") / "market", 500)


@pytest.fixture(scope="session")
def client(folder, market, tmp_path_factory):
    """A page with the run, a folder that is no run, and the market."""
    broken = tmp_path_factory.mktemp("live") / "broken"
    broken.mkdir()
    (broken / "manifest.json").write_text("{")
    live = Live([folder, broken, market])
    door = door_of("127.0.0.1", 80, TOKEN)
    with TestClient(live.app(door), HOST, raise_server_exceptions=False) as client:
        client.cookies.set(door.cookie_name, door.cookie)
        yield client
