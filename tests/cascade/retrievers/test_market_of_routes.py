"""A market whose cascade merges routes, one a custom class: what it serves, and what its table says."""

import numpy as np
import pytest

from cascade_sim.cascade.serve import Block
from checks.own_retrievers import POPULAR
from worlds.design_market import design_scenario, live_design
from worlds.timed_market import SCARCE, WORLD, live, same

POOL = {"per_batch_ms": 200.0, "per_candidate_us": 9000.0, "batch": 1}
BUSY = {"deadline": 2200.0, "stages": dict.fromkeys(("retrieval", "pre_ranking", "ranking"), POOL)}
BUSY_DAY = {**SCARCE, "compute": BUSY, "exploration": 0.1}
CUSTOM = {"kind": "popular.py:Popular", "size": 20}
CASCADE = {**WORLD["cascade"], "retrieval": {"routes": {"near": {"size": 40}, "popular": CUSTOM}}}
CHURN = {**WORLD["world"], "churn": {"available_share": 0.7, "mean_lifetime_days": 0.02}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("own")
    (made / "popular.py").write_text(POPULAR)
    return made


@pytest.fixture(scope="module")
def day(folder):
    return live(BUSY_DAY, cascade=CASCADE, world=CHURN, home=folder)


def brought(found, name):
    """Whether a route brings each shown ad, by asking it for that request alone."""
    route = next(one for one in found.run.server.arm.retrieval.retriever.routes if one.name == name)
    log, lives = found.log, found.sim.platform.lives
    block = Block(log["request"], log["user"], log["context"], log["time"])
    return (route.retriever.retrieve(block, route.size, lives) == log["ad"][:, None]).any(axis=1)


def test_its_table_says_which_routes_brought_an_ad_whoever_answered(day):
    log = day.log
    assert {0, 2} <= set(log["served_by_stage"].tolist()) and log["is_explored"].any()
    columns = {name: log[f"route.{name}"] for name in ("near", "popular")}
    for name, column in columns.items():
        assert np.array_equal(column, brought(day, name)) and 0.05 < column.mean() < 0.95
    assert (columns["near"] | columns["popular"]).all()
    assert day.sim.platform.lives.is_available(log["ad"], log["time"]).all()


def test_with_more_workers_it_writes_the_same_bytes(day, folder):
    same(live(BUSY_DAY, cascade=CASCADE, world=CHURN, home=folder, workers=2), day)


def test_of_two_arms_on_trial_each_names_its_own_routes(folder, monkeypatch):
    monkeypatch.chdir(folder)
    arms = {
        "now": {"slots": 2, "retrieval": {"routes": {"near": {"size": 40}, "popular": CUSTOM}}},
        "better": {"slots": 3, "retrieval": {**CUSTOM, "size": 50}},
    }
    run, settled = live_design(design_scenario(arms=arms, kinds=("request",)), "request")
    assert run.server.routes == ("near", "popular")
    treated = np.concatenate([run.server.assignment.is_treated(piece.block) for piece in settled])
    routes, ads = (np.concatenate([getattr(piece, name) for piece in settled]) for name in ("routes", "ads"))
    assert 0.1 < treated.mean() < 0.9 and not routes[treated].any()
    assert np.array_equal(routes[~treated].any(axis=2), ads[~treated] >= 0)
