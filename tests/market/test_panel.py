"""True-value recall of deployed cascades on a panel, and what metrics.json says of it."""

from dataclasses import replace

import numpy as np
import pytest

from cascade_sim.analysis.metrics import ece, logloss
from cascade_sim.analysis.metrics.catalogue import ARM_MEASURES
from cascade_sim.analysis.statistics.bootstrap import ratio_intervals
from cascade_sim.cascade.fusion import Fusion
from cascade_sim.cascade.links import with_calibrator
from cascade_sim.cascade.outcome import outcome
from cascade_sim.cascade.serve import Stage, serve, shadow
from cascade_sim.market.panel import PANEL_COLUMNS, PANEL_RATIOS, Panel, learning_sections
from cascade_sim.models.calibrators import Platt
from cascade_sim.scenario.schema import resolved_arms
from cascade_sim.scenario.sections import Churn, Drift
from cascade_sim.study.results import combine_seeds
from cascade_sim.study.simulation import Simulation
from worlds.cascades import with_stage_of
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
    known = with_stage_of(arm, 0, arm.last)
    found = Panel(sim, known, N).measure(known)
    assert (found["recall"] == 1).all() and (found["win_recall"] == 1).all()
    assert found["predicted"] == pytest.approx(found["true"])
    assert found["shown_predicted"] == pytest.approx(found["shown_true"])


def test_a_random_draw_finds_its_share_of_them(sim, arm):
    recall = Panel(sim, arm, N).measure(arm)["recall"]
    assert abs(recall.mean() - 20 / 60) < 4 * recall.std() / np.sqrt(N)
    assert set(np.round(3 * recall)) <= {0, 1, 2, 3}


def test_the_consistency_of_a_deployment_is_that_of_an_evaluation(sim, arm):
    """The ranker's own choice from all candidates, whether it is right or wrong."""
    wrong = arm.with_stage(-1, scorer=sim.scorers["random"])
    for deployed in (arm, wrong):
        found = Panel(sim, arm, 64).measure(deployed)
        block = sim.arrivals.block("panel", 0, 64)
        ideal = serve(block, shadow(deployed), sim.platform).win_set
        reached = serve(block, deployed, sim.platform).competitive_set
        shares = [len({*k} & {*c}) / len(k) for k, c in zip(ideal.tolist(), reached.tolist(), strict=True)]
        assert found["rcs"] == pytest.approx(shares)
    same = with_stage_of(wrong, 0, wrong.last)
    found = Panel(sim, arm, 64).measure(same)
    assert (found["rcs"] == 1).all() and found["recall"].mean() < 0.6  # consistent, and wrong


def test_shown_ads_are_no_more_than_those_ranked(sim, arm):
    found = Panel(sim, arm, N).measure(arm)
    assert (found["win_recall"] <= found["recall"]).all() and found["win_recall"].mean() > 0.2


def test_recall_is_that_of_an_evaluation(sim, arm):
    found = Panel(sim, arm, 64).measure(arm)
    block = sim.arrivals.block("panel", 0, 64)
    evaluator = sim.environment.evaluator(arm, np.ones(sim.world.n_ads, bool))
    decision = serve(block, arm, sim.platform)
    result = outcome(block, decision, sim.environment._truth, sim.world.slot_effects, sim.seed)
    context = evaluator.context(block, np.zeros(len(block), int), 1)
    columns = evaluator.columns(context, arm, decision, result)
    metric = ARM_MEASURES["true_value_recall"]
    assert columns[metric.bottom].all()
    assert np.array_equal(found["recall"], columns[metric.top])


def test_the_panel_is_the_same_for_every_arm_and_its_requests_are_no_others(sim, arm):
    blocks = [sim.arrivals.block("panel", i, N) for i in range(5)]
    ids = np.concatenate([block.requests for block in blocks])
    assert len(np.unique(ids)) == N and ids.min() > sim.arrivals.block("market", 0, 64).requests.max()
    other = replace(arm.with_stage(0, size=10), name="other")
    assert np.array_equal(
        Panel(sim, arm, N).measure(other)["recall"], Panel(sim, other, N).measure(other)["recall"]
    )


def test_in_a_world_that_changes_a_panel_is_held_against_the_truth_of_its_day(sim, arm):
    spec = sim.scenario.world.model_copy(
        update={"drift": Drift(per_day=0.3), "churn": Churn(mean_lifetime_days=2.0)}
    )
    turned = Simulation(sim.scenario.model_copy(update={"world": spec}), sim.seed)
    own = turned.arm("now", resolved_arms(sim.scenario)["now"])
    known = with_stage_of(own, 0, own.last)  # the truth in both seats
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
        "requests": len(ones), "interval": 10.0, "exploration": exploration, "panel": panel,
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
            return 2.0 * sim.environment._truth.ctr(block, ids)

    arm = sim.arm("now", resolved_arms(sim.scenario)["now"])
    arm = with_stage_of(arm, -1, Stage(Double(), "opt", Fusion()))
    found = Panel(sim, arm, 64).measure(arm)
    assert found["predicted"].sum() / found["true"].sum() == pytest.approx(2)
    assert found["shown_predicted"].sum() / found["shown_true"].sum() == pytest.approx(2)


def test_the_level_is_that_of_the_raw_score_and_the_rest_of_the_prediction():
    """A calibrator changes predictions and not the score, which is that of the pages of the start."""
    sim = learning_sim(learning_scenario())
    arm = sim.arm("now", resolved_arms(sim.scenario)["now"])
    mapped = with_calibrator(arm.last.scorer, Platt(0.5, -2.0))
    block = sim.arrivals.block("panel", 0, 64)
    calibrated = arm.with_stage(-1, scorer=mapped)
    decision = serve(block, calibrated, sim.platform)
    ids, pages = decision.retrieved, decision.win_set
    score = np.where(pages >= 0, arm.last.scorer.logit(block, pages), 0.0).astype(np.float64)
    p, y = (
        mapped.predict(block, ids).astype(np.float64).ravel(),
        sim.environment._truth.ctr(block, ids).ravel(),
    )
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


def test_auc_per_request_is_measured_on_the_same_pages_for_every_arm():
    """Those of the baseline before anybody trains; each request counts alike, whatever it is worth."""
    sim = learning_sim(learning_scenario())
    arms = {name: sim.arm(name, resolved_arms(sim.scenario)[name]) for name in ("now", "twice")}
    block = sim.arrivals.block("panel", 0, 40)
    pages = serve(block, arms[sim.scenario.report.baseline], sim.platform).win_set
    truth = sim.environment._truth.ctr(block, pages).astype(np.float64)

    class Backwards:
        name, link = "backwards", "sigmoid"

        def predict(self, block, ids):
            return 1.0 - sim.environment._truth.ctr(block, ids)

    for arm in (*arms.values(), with_stage_of(arms["now"], -1, Stage(Backwards(), "opt", Fusion()))):
        found = Panel(sim, arm, 40).measure(arm)
        said = arm.last.scorer.predict(block, pages).astype(np.float64)
        each = [_soft_auc(said[i][pages[i] >= 0], truth[i][pages[i] >= 0]) for i in range(40)]
        assert found["auc_on_page"] == pytest.approx(each, abs=1e-9)
        shown = pages >= 0
        assert found["pooled_page_auc"] == pytest.approx(_soft_auc(said[shown], truth[shown]), abs=1e-9)


def test_a_page_with_one_ad_has_no_auc_and_is_left_out_of_the_mean():
    pages = np.array([0.5, np.nan, 0.7])
    found = ratio_intervals({"": {"auc_on_page": pages}}, {"page_gauc": PANEL_RATIOS["page_gauc"]}, "", 0, 1)
    assert found[""]["page_gauc"]["value"] == pytest.approx(0.6)


def test_means_past_the_transient_are_over_deployments_and_then_over_requests():
    """Three deployments of two requests: the first is the transient. Differences are paired by request."""

    def learning(first, second, third):
        columns = {name: [1.0, 1.0] for name in PANEL_COLUMNS}
        tables = [
            {**columns, "auc_on_page": x, "pooled_auc": x[0]} for x in ([0.0, 0.0], first, second, third)
        ]
        return {"panel": tables, "version": [0, 1, 2, 3], "time": [0.0, 1.0, 2.0, 3.0]}

    hours = {"requests": [10.0] * 24, "revenue": [1.0] * 24}
    arms = {
        "base": {"learning": learning([0.1, 0.1], [0.5, 0.7], [0.7, 0.9]), "hours": hours},
        "own": {"learning": learning([0.9, 0.9], [0.6, 0.8], [0.8, 1.0]), "hours": hours},
    }
    found = learning_sections(arms, "base", 50, 1)["own"]["settled"]
    assert found["page_gauc"]["value"] == pytest.approx(np.mean([0.6, 0.8, 0.8, 1.0]))
    assert found["page_gauc"]["low"] == pytest.approx(0.7) and found["page_gauc"]["high"] == pytest.approx(
        0.9
    )
    gap = found["difference"]["page_gauc"]
    assert (gap["value"], gap["low"], gap["high"]) == pytest.approx((0.1, 0.1, 0.1))  # of both requests
    assert found["auc"]["value"] == pytest.approx(0.7)
    assert found["difference"]["auc"]["value"] == pytest.approx(0.1)
    whole = learning_sections(arms, "base", 50, 1, after=0)["own"]["settled"]
    assert whole["page_gauc"]["value"] == pytest.approx(np.mean([0.9, 0.9, 0.6, 0.8, 0.8, 1.0]))
