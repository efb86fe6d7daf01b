"""A study whose models see ids and histories: every recipe, the same bytes again, and a question to it."""

import json

import numpy as np
import pytest

from cascade_sim.context import RunContext
from cascade_sim.diagnostics.reopen import reopen
from cascade_sim.diagnostics.trace import trace
from cascade_sim.models.nets.ids import id_tables
from cascade_sim.storage.tables import read_table
from cascade_sim.study.run import run_study
from cascade_sim.training.parallel import _state_of_view, _view
from house.test_determinism import SHORT, digests
from worlds.tiny_market import tiny_scenario

pytestmark = pytest.mark.drill

DENSE = "user, context, quality, tier, mismatch, G1"
IDS = (
    "world.id_effects={user: 0.3, ad: 0.5, advertiser: 0.3, weight: 0.5}",
    "world.history={length: 5, candidate_pool: 10}",
    f"models.rank.features=[{DENSE}, G4, mismatch_pair, user_id, ad_id, advertiser_id, history]",
    f"models.logloss.features=[{DENSE}, user_id, ad_id]",
    *("models.logloss.embedding=4", "models.logloss.calibrator=platt"),
    f"models.ltr.features=[{DENSE}, ad_id, history]",
    f"models.distill-pre.features=[{DENSE}, advertiser_id]",
    f"models.joint={{kind: dcn, objective: jrc, features: [{DENSE}, ad_id, history], hidden: 8, dims: 4}}",
    "arms.joint={ranking: {model: joint}}",
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The same study by one worker and by two, each with a cache of its own."""
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cascade_sim.study.run.write_report", lambda *_: None)  # the page is not under test
        for workers in (1, 2):
            patch.setenv("CASCADE_SIM_CACHE", str(folder / f"cache-{workers}"))
            scenario = tiny_scenario(*SHORT, *IDS)
            run_study(scenario, RunContext(folder / f"{workers}", workers=workers, device="cpu"))
    return folder


def test_the_study_is_the_same_whatever_the_workers(runs):
    assert digests(runs / "1") == digests(runs / "2")


def test_every_model_was_measured_and_has_its_tables(runs):
    run = reopen(runs / "1")
    arms = json.loads((runs / "1" / "metrics.json").read_text())["arms"]
    assert {"logloss", "ltr", "distill-pre", "joint"} <= set(arms)
    tables = {}
    for arm in ("logloss", "ltr", "distill-pre", "joint"):
        for stage in run.arm(arm).stages:
            tables[stage.scorer.name] = set(id_tables(stage.scorer.module).rows)
    assert tables == {
        "rank": {"user_id", "ad_id", "advertiser_id"}, "logloss": {"user_id", "ad_id"}, "ltr": {"ad_id"},
        "distill-pre": {"advertiser_id"}, "joint": {"ad_id"},
    }  # fmt: skip


def test_a_run_read_again_serves_the_page_that_it_served(runs):
    run = reopen(runs / "1")
    rows = read_table(run.path, "evaluate-logloss", ["request", "ad"])
    assert trace(run, int(rows["request"][-1]), ad=int(rows["ad"][-1]))["same_as_log"] is True


def test_a_view_with_ids_reaches_another_process_whole(runs):
    view = reopen(runs / "1").sim.view(("user", "ad_id", "advertiser_id", "history"))
    again = _view(_state_of_view(view))
    assert again.id_sizes == view.id_sizes and again.arrays().keys() == view.arrays().keys()
    for name, array in view.arrays().items():
        assert np.array_equal(again.arrays()[name], array)
