"""True-value recall of deployed cascades on a panel, and what metrics.json says of it."""

from dataclasses import replace

import numpy as np
import pytest

from cascade_sim.analysis.metrics import ece, logloss
from cascade_sim.analysis.metrics.catalogue import ARM_MEASURES
from cascade_sim.cascade.fusion import Fusion
from cascade_sim.cascade.links import with_calibrator
from cascade_sim.cascade.outcome import outcome
from cascade_sim.cascade.serve import Stage, serve
from cascade_sim.market.panel import PANEL_COLUMNS, Panel, learning_sections
from cascade_sim.models.calibrators import Platt
from cascade_sim.phases.measure import Ruler
from cascade_sim.phases.results import combine_seeds
from cascade_sim.phases.simulation import Simulation
from cascade_sim.scenario.schema import resolved_arms
from cascade_sim.scenario.sections import Churn, Drift
from worlds.learning_market import learning_scenario, learning_sim
from worlds.timed_market import timed_scenario

N = 300


@pytest.fixture(scope="module")
def sim():
    return Simulation(timed_scenario(), 1)


@pytest.fixture(scope="module")
def arm(sim):
    """Random pre-ranking of 20 of 60 ads, then the truth."""
    return sim.arm("now", resolved_arms(sim.scenario)["now"])


def test_an_oracle_finds_and_shows_all_of_the_best_ads(sim, arm):
    known = replace(arm, pre_ranking=arm.ranking)
    found = Panel(sim, known, N).measure(known)
    assert (found["recall"] == 1).all() and (found["win_recall"] == 1).all()
    assert found["predicted"] == pytest.approx(found["true"])
    assert found["shown_predicted"] == pytest.approx(found["shown_true"])


def test_a_random_draw_finds_its_share_of_them(sim, arm):
    recall = Panel(sim, arm, N).measure(arm)["recall"]
    assert abs(recall.mean() - 20 / 60) < 4 * recall.std() / np.sqrt(N)
    assert set(np.round(3 * recall)) <= {0, 1, 2, 3}


def test_shown_ads_are_no_more_than_those_ranked(sim, arm):
    found = Panel(sim, arm, N).measure(arm)
    assert (found["win_recall"] <= found["recall"]).all() and found["win_recall"].mean() > 0.2


def test_recall_is_that_of_an_evaluation(sim, arm):
    found = Panel(sim, arm, 64).measure(arm)
    block = sim.arrivals.block("panel", 0, 64)
    ruler = Ruler(sim.platform, sim.truth, sim.seed, arm, np.ones(sim.world.n_ads, bool))
    decision = serve(block, arm, sim.platform)
    result = outcome(block, decision, sim.truth, sim.world.slot_effects, sim.seed)
    columns = ruler.columns(block, arm, decision, result, ruler.yardstick(block, arm), ruler.oracle(block))
    metric = ARM_MEASURES["true_value_recall"]
    assert columns[metric.bottom].all()
    assert np.array_equal(found["recall"], columns[metric.top])


def test_the_panel_is_the_same_for_every_arm_and_its_requests_are_no_others(sim, arm):
    blocks = [sim.arrivals.block("panel", i, N) for i in range(5)]
    ids = np.concatenate([block.requests for block in blocks])
    assert len(np.unique(ids)) == N and ids.min() > sim.arrivals.block("market", 0, 64).requests.max()
    other = replace(arm, name="other", pre_ranking_size=10)
    assert np.array_equal(
        Panel(sim, arm, N).measure(other)["recall"], Panel(sim, other, N).measure(other)["recall"]
    )


def test_in_a_world_that_changes_a_panel_is_held_against_the_truth_of_its_day(sim, arm):
    spec = sim.scenario.world.model_copy(update={"drift": Drift(per_day=0.3), "churn": Churn(life=2.0)})
    turned = Simulation(sim.scenario.model_copy(update={"world": spec}), sim.seed)
    own = turned.arm("now", resolved_arms(sim.scenario)["now"])
    known = replace(own, pre_ranking=own.ranking)  # the truth in both seats
    panel = Panel(turned, known, 64)
    found = [panel.measure(known, day * 86_400.0) for day in (0.0, 5.0, 0.0)]
    assert all((one["recall"] == 1).all() and (one["win_recall"] == 1).all() for one in found)
    assert np.array_equal(found[0]["true"], found[2]["true"])
    assert not np.any(found[0]["true"] == found[1]["true"])


def test_a_request_without_an_admitted_ad_has_no_recall(sim, arm):
    dear = replace(arm, reserve_cpc=1e6)
    found = Panel(sim, dear, 10).measure(dear)
    assert np.isnan(found["recall"]).all() and (found["shown_true"] == 0).all()


def raw(recall, revenue, exploration=0.0):
    """An arm's market section before intervals: a panel with this recall at each deployment."""
    ones = [1.0] * len(recall[0])
    panel = [{name: ones for name in PANEL_COLUMNS} | {"recall": values} for values in recall]
    learning = {
        "requests": len(ones), "every": 10.0, "exploration": exploration, "panel": panel,
        "time": [10.0 * i for i in range(len(recall))], "version": list(range(len(recall))),
    }  # fmt: skip
    return {"hours": {"revenue": revenue, "requests": [2] * len(revenue)}, "learning": learning}


BASE = raw([[0.0, 0.0, 0.5, 0.5], [0.25, 0.5, 0.75, 0.5]], [4.0] * 24 + [2.0] * 6)
OTHER = raw([[0.0, 0.0, 0.5, 0.5], [0.5, 0.75, 1.0, 0.75]], [3.0] * 24 + [3.0] * 6, 0.1)


def test_the_learning_section_has_a_recall_for_every_deployment_and_the_paired_difference_at_the_end():
    found = learning_sections({"base": BASE, "other": OTHER}, "base", 200, 1)
    assert [one["value"] for one in found["base"]["recall"]] == [0.25, 0.5]
    assert [one["value"] for one in found["other"]["recall"]] == [0.25, 0.6875 + 0.0625]
    assert found["base"]["recall"][1]["low"] < 0.5 < found["base"]["recall"][1]["high"]
    gap = found["other"]["difference"]["recall"]  # the same 0.25 on every request: nothing is left to chance
    assert gap == {"value": 0.25, "low": 0.25, "high": 0.25}
    assert [one["value"] for one in found["other"]["recall_difference"]] == [0.0, 0.25]
    assert "difference" not in found["base"] and "panel" not in found["base"]
    assert found["other"]["exploration"] == 0.1 and found["other"]["version"] == [0, 1]


def test_revenue_is_per_request_and_by_day_with_lifts():
    found = learning_sections({"base": BASE, "other": OTHER}, "base", 50, 1)["other"]
    assert [day["value"] for day in found["revenue_by_day"]] == [3.0 / 2, 3.0 / 2]
    assert [day["lift"]["value"] for day in found["revenue_by_day"]] == [3 / 4 - 1, 3 / 2 - 1]
    assert found["revenue_per_request"]["lift"]["value"] == pytest.approx(90 / (24 * 4 + 6 * 2) - 1)


def test_requests_without_a_best_ad_are_not_counted():
    base = raw([[None, 0.5, 0.5, 0.5]], [1.0])
    other = raw([[None, 1.0, 0.5, 0.5]], [1.0])
    found = learning_sections({"base": base, "other": other}, "base", 50, 1)
    assert found["other"]["recall"][0]["value"] == 2 / 3
    assert found["other"]["difference"]["recall"]["value"] == pytest.approx(2 / 3 - 1 / 2)


def test_worlds_are_combined_deployment_by_deployment():
    sections = [
        learning_sections({"base": BASE, "other": raw([[0.0] * 4, [level] * 4], [4.0] * 30)}, "base", 20, 1)
        for level in (0.6, 0.8)
    ]
    studies = [
        {"seed": i, "market": {"arms": {"other": {"learning": one["other"]}}}}
        for i, one in enumerate(sections)
    ]
    found = combine_seeds(studies)["market"]["arms"]["other"]["learning"]
    assert found["recall"][1]["value"] == pytest.approx(0.7) and found["recall"][1]["low"] < 0.6
    assert found["difference"]["recall"]["value"] == pytest.approx((0.1 + 0.3) / 2)
    assert found["revenue_by_day"][1]["lift"]["value"] == pytest.approx(4 / 2 - 1)
    assert found["time"] == [0.0, 10.0] and found["version"] == [0, 1]


def test_a_ranker_that_says_twice_the_truth_has_a_pcoc_of_two():
    sim = learning_sim(learning_scenario())

    class Double:
        name, link = "double", "sigmoid"

        def predict(self, block, ids):
            return 2.0 * sim.truth.ctr(block, ids)

    arm = sim.arm("now", resolved_arms(sim.scenario)["now"])
    arm = replace(arm, ranking=Stage(Double(), "opt", Fusion()))
    found = Panel(sim, arm, 64).measure(arm)
    assert found["predicted"].sum() / found["true"].sum() == pytest.approx(2)
    assert found["shown_predicted"].sum() / found["shown_true"].sum() == pytest.approx(2)


def test_the_level_is_that_of_the_raw_score_and_the_rest_of_the_prediction():
    """A calibrator changes predictions and not the score, which is that of the pages of the start."""
    sim = learning_sim(learning_scenario())
    arm = sim.arm("now", resolved_arms(sim.scenario)["now"])
    mapped = with_calibrator(arm.ranking.scorer, Platt(0.5, -2.0))
    block = sim.arrivals.block("panel", 0, 64)
    calibrated = replace(arm, ranking=replace(arm.ranking, scorer=mapped))
    decision = serve(block, calibrated, sim.platform)
    ids, pages = decision.pre_ranking_set, decision.win_set
    score = np.where(pages >= 0, arm.ranking.scorer.logit(block, pages), 0.0).astype(np.float64)
    p, y = mapped.predict(block, ids).astype(np.float64).ravel(), sim.truth.ctr(block, ids).ravel()
    found = Panel(sim, arm, 64).measure(calibrated)
    assert found["page_score"] == pytest.approx(score.sum(axis=1), rel=1e-5)
    assert (found["page_ads"] == (pages >= 0).sum(axis=1)).all()
    assert (found["candidates"] == ids.shape[1]).all()
    assert found["predicted"].sum() == pytest.approx(p.sum())
    assert found["logloss"].sum() / found["candidates"].sum() == pytest.approx(logloss(p, y).value[0])
    assert found["pooled_ece"] == pytest.approx(ece(p, y).value[0], abs=1e-9)
    assert found["pooled_auc"] == pytest.approx(_soft_auc(p, y), abs=1e-9)


def _soft_auc(p, y):
    """By its definition: pairs weigh y_i (1 - y_j), ties one half, nobody is paired with itself."""
    weight = y[:, None] * (1 - y[None, :])
    np.fill_diagonal(weight, 0)
    return (weight * ((p[:, None] > p) + 0.5 * (p[:, None] == p))).sum() / weight.sum()


def test_the_truth_in_the_ranking_seat_has_no_score_of_its_own(sim, arm):
    found = Panel(sim, arm, 20).measure(arm)
    assert np.isnan(found["page_score"]).all() and found["pooled_ece"] < 1e-6
