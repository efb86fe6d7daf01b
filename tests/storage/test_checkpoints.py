"""States of a simulation on disk, and markets that were stopped and go on from them."""

import json
from pathlib import Path

import numpy as np
import pytest

from answers.told import refused
from cascade_sim.context import RunContext
from cascade_sim.market.study import run_market
from cascade_sim.storage.checkpoints import flat, load_state, nested, save_state
from cascade_sim.study.simulation import Simulation
from worlds.learning_market import run_arm
from worlds.timed_market import SCARCE, timed_scenario

# Everything that has state: sessions, fatigue, late clicks with holds, learning bidders, exploration.
EVERYTHING = {
    **SCARCE,
    "days": 0.03,
    "checkpoint": 400.0,
    "exploration": 0.1,
    "users": {"click_model": "cascade", "sessions": {"mean_pages": 3.0}, "fatigue": {"strength": 0.3}},
    "charging": {"click_delay": 30.0, "overspend": 0.05},
    "budgets": {"share": 0.9, "median": 8.0, "sigma": 1.0},
    "compute": {"deadline": 1500.0, "stages": {"ranking": {"per_candidate_us": 30_000.0}}},
}


class Stopped(Exception):
    pass


def lived(folder, workers=1, market=EVERYTHING):
    """The figures of an arm's market whose tables lie in `folder`."""
    sim = Simulation(timed_scenario(market), 1)
    return run_market(sim, "now", RunContext(folder, workers=workers))


def stop_after(monkeypatch, n_checkpoints, blocks_more):
    """The run dies `blocks_more` settled pieces after its n-th checkpoint."""
    from cascade_sim.market import study as market_study

    save, columns = market_study.save_state, market_study.market_columns
    count = {"checkpoints": 0, "blocks": 0}

    def counted_save(*arguments):
        save(*arguments)
        count["checkpoints"] += 1

    def counted_columns(*arguments):
        if count["checkpoints"] >= n_checkpoints:
            count["blocks"] += 1
            if count["blocks"] > blocks_more:
                raise Stopped
        return columns(*arguments)

    monkeypatch.setattr(market_study, "save_state", counted_save)
    monkeypatch.setattr(market_study, "market_columns", counted_columns)


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.glob("logs/**/*.parquet"))}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    return lived(folder), files(folder)


def test_the_market_of_these_tests_has_all_that_a_checkpoint_must_hold(undisturbed):
    figures, tables = undisturbed
    assert {name.split("/")[1] for name in tables} == {"market-now", "charges-now"}
    assert figures["clicks"] > 100 and figures["unbilled_clicks"] > 0 and figures["pending_clicks"] > 0


@pytest.mark.parametrize(
    ("n_checkpoints", "workers"),
    [(1, 1), (4, 2), *(pytest.param(n, 2 - n % 2, marks=pytest.mark.drill) for n in (2, 3, 5, 6))],
)
def test_a_market_stopped_after_any_checkpoint_goes_on_to_the_same_bytes(
    undisturbed, tmp_path, monkeypatch, n_checkpoints, workers
):
    with monkeypatch.context() as patch:
        stop_after(patch, n_checkpoints, blocks_more=n_checkpoints % 3)
        with pytest.raises(Stopped):
            lived(tmp_path, workers)
    state = load_state(tmp_path / "checkpoints" / "now.npz")
    assert state["clock"][0] == 60.0 * np.ceil(
        400 * n_checkpoints / 60
    )  # the first end of a window behind it
    figures = lived(tmp_path, workers=3 - workers)
    assert json.dumps(figures) == json.dumps(undisturbed[0])
    assert files(tmp_path) == undisturbed[1]


def test_a_market_stopped_twice_goes_on_too(undisturbed, tmp_path, monkeypatch):
    for n_checkpoints in (1, 2):
        with monkeypatch.context() as patch:
            stop_after(patch, n_checkpoints, blocks_more=1)
            with pytest.raises(Stopped):
                lived(tmp_path)
    assert lived(tmp_path) == undisturbed[0]
    assert files(tmp_path) == undisturbed[1]


@pytest.fixture(scope="module")
def undisturbed_learner(tmp_path_factory):
    """Models that are trained while the market runs, a student among them."""
    folder = tmp_path_factory.mktemp("learner")
    return run_arm(folder), files(folder)


@pytest.mark.drill
@pytest.mark.parametrize(("n_checkpoints", "workers"), [(1, 1), (2, 2), (4, 1)])
def test_a_market_that_learns_goes_on_to_the_same_bytes(
    undisturbed_learner, tmp_path, monkeypatch, n_checkpoints, workers
):
    """Before the first deployment (500 s), after it, and between the second and the third."""
    with monkeypatch.context() as patch:
        stop_after(patch, n_checkpoints, blocks_more=n_checkpoints % 3)
        with pytest.raises(Stopped):
            run_arm(tmp_path, workers)
    state = load_state(tmp_path / "checkpoints" / "taught.npz")["trainer"]
    assert state["clock"][0] == {1: 0, 2: 1, 4: 2}[n_checkpoints] and len(state["recent"]["ad"]) > 300
    figures = run_arm(tmp_path, workers=3 - workers)
    assert figures["learning"]["version"][-1] == 3
    assert json.dumps(figures) == json.dumps(undisturbed_learner[0])
    assert files(tmp_path) == undisturbed_learner[1]


def test_a_state_comes_back_as_it_was(tmp_path):
    state = {
        "a": np.arange(3), "b": {"c": np.float64(0.1), "d": {"e": np.zeros((0, 2))}, "none": {}}, "n": 7
    }  # fmt: skip
    save_state(tmp_path / "deep" / "x.npz", state)
    back = load_state(tmp_path / "deep" / "x.npz")
    assert back["a"].tolist() == [0, 1, 2] and back["b"]["c"] == 0.1 and back["n"] == 7
    assert back["b"]["d"]["e"].shape == (0, 2) and back["b"]["none"] == {}
    assert nested(flat(state)).keys() == state.keys()


def test_states_hold_no_objects_and_their_names_no_separator(tmp_path):
    with pytest.raises(ValueError, match="objects"):
        save_state(tmp_path / "x.npz", {"a": {"b": [None, 1]}})
    with pytest.raises(ValueError, match="a/b"):
        save_state(tmp_path / "x.npz", {"a/b": 1})
    assert not list(tmp_path.iterdir())


def test_a_damaged_state_is_refused_with_its_file(tmp_path):
    save_state(tmp_path / "x.npz", {"a": np.arange(100)})
    (tmp_path / "x.npz").write_bytes((tmp_path / "x.npz").read_bytes()[:-90])
    with refused("x.npz", "--resume"):
        load_state(tmp_path / "x.npz")
