"""Grid, choice and rows of the study."""

from dataclasses import replace

import numpy as np
import pytest

from answers.told import refused
from cascade_sim.analysis.metrics import Stability
from cascade_sim.ltr.study import Cell, Files, Measured, Plan, measured, results, run_study
from cascade_sim.ltr.training import Settings
from cascade_sim.ltr.tuning import Point, choose
from cascade_sim.models.objectives import make_objective
from worlds.ltr_files import table

SMALL = Settings(layers=(8,), dropout=0.0, epochs=2, batch=16)


def files(**options):
    return Files(*(table(seed, n, **options) for seed, n in ((1, 60), (2, 40), (3, 40))))


def cell(name, ndcg, loss):
    """A cell whose validation NDCG is `ndcg` ± 0.1 over two lists."""
    one = np.ones(2)
    valid = Measured(np.array([ndcg - 0.1, ndcg + 0.1]), one, loss * one, one, one, one, one)
    stable = Stability(0.0, 0.0, True)
    empty = np.empty(0)
    point = Point(make_objective(name), None, 0.1, 0.0, 0.1, None)
    return Cell(point, 1, 1, stable, empty, valid, valid, None, None)


def test_the_grid_is_alphas_by_rates_where_there_is_an_alpha():
    plan = Plan(("softmax", "rcr"), alphas=(0.2, 0.8), learning_rates=(0.1, 0.01), seeds=(1, 2, 3))
    assert [point[1:3] for point in plan.cells_of("softmax")] == [(None, 0.1), (None, 0.01)]
    assert [(point.objective.alpha, point.learning_rate) for point in plan.cells_of("rcr")] == [
        (0.2, 0.1), (0.2, 0.01), (0.8, 0.1), (0.8, 0.01),
    ]  # fmt: skip
    assert plan.n_epochs == (2 + 4) * 3 * plan.settings.epochs


def test_options_go_to_the_objectives_that_have_them():
    plan = Plan(("multi_objective", "multi_objective-mean", "rcr-mean"), alphas=(0.5,))
    made = [plan.cells_of(name)[0][0] for name in plan.objectives]
    assert [(objective.family, objective.normalisation) for objective in made] == [
        ("multi_objective", "sum"), ("multi_objective-mean", "mean"), ("rcr", "mean"),
    ]  # fmt: skip
    plan = Plan(("calibrated_softmax", "softmax"), options={"y0": 0.25, "beta": 3.0})
    assert plan.cells_of("calibrated_softmax")[0][0].y0 == 0.25
    assert plan.cells_of("approx_ndcg")[0][0].beta == 3.0
    plan.cells_of("softmax")


def test_without_scale_the_best_order_is_chosen_whatever_its_loss():
    assert choose([cell("softmax", 0.5, 1.0), cell("softmax", 0.6, 9.0)]).valid.means["loss"] == 9


def test_with_scale_the_least_loss_near_the_best_order_is_chosen():
    best, near, far = cell("rcr", 0.6, 9.0), cell("rcr", 0.51, 5.0), cell("rcr", 0.4, 1.0)
    assert best.valid.ndcg_error == pytest.approx(0.1)
    assert choose([far, best, near]) is near


def test_rows_follow_the_plan_and_calibrators_keep_the_order():
    plan = Plan(("pointwise", "softmax", "sbcr"), alphas=(0.5,), settings=SMALL, seeds=(1, 2))
    done = []
    found = run_study(files(), plan, done.append)
    assert sum(done) == plan.n_epochs == 3 * 2 * 2
    names = [row.name for row in found.rows]
    assert list(dict.fromkeys(names)) == [
        "pointwise",
        "softmax",
        "softmax+platt",
        "sbcr",
        "sbcr+platt",
        "sbcr+piecewise_linear",
    ]
    by_seed = {(row.name, row.cell.seed): row.test for row in found.rows}
    for seed in (1, 2):
        for name, calibrated in (("softmax", "softmax+platt"), ("sbcr", "sbcr+piecewise_linear")):
            assert np.array_equal(by_seed[name, seed].ndcg, by_seed[calibrated, seed].ndcg, equal_nan=True)
        off = abs(by_seed["softmax", seed].means["pcoc"] - 1)
        assert abs(by_seed["softmax+platt", seed].means["pcoc"] - 1) < off / 2


def test_a_calibrator_asked_for_follows_every_objective_and_grades_have_none():
    plan = Plan(("pointwise", "softmax"), calibrators=("isotonic",), settings=SMALL)
    assert [row.name for row in run_study(files(), plan).rows] == [
        "pointwise", "pointwise+isotonic", "softmax", "softmax+isotonic",
    ]  # fmt: skip
    graded = replace(plan, task="graded", calibrators=None)
    rows = run_study(files(positive_from=None, max_grade=4), graded).rows
    assert [row.name for row in rows] == ["pointwise", "softmax"]


def test_the_test_lists_have_no_say_in_the_choice():
    plan = Plan(("rcr", "softmax"), alphas=(0.1, 0.9), learning_rates=(0.001, 0.03), settings=SMALL)
    data = files()
    found = run_study(data, plan)
    flipped = replace(data.test, labels=1 - data.test.labels)
    other = run_study(replace(data, test=flipped), plan)
    assert [row.cell.point.setting for row in found.rows] == [row.cell.point.setting for row in other.rows]
    assert found.rows[0].test.means["loss"] != other.rows[0].test.means["loss"]
    assert found.rows[-1].name == "softmax+platt"
    for row, again in zip(found.rows, other.rows, strict=True):
        assert np.array_equal(row.test.predicted, again.test.predicted)


def test_a_cell_is_measured_as_it_will_be_served():
    data = files()
    found = run_study(data, Plan(("jrc",), alphas=(0.5,), settings=SMALL)).cells[0]
    again = measured(found.objective, found.test_outputs, data.test)
    assert again.means == found.test.means
    assert found.trend is not None and len(found.curve) == 2 * 4


def test_a_training_that_diverges_is_left_out_and_one_that_always_does_is_the_users_to_mend():
    data = files(positive_from=None, max_grade=4)
    plan = Plan(("calibrated_softmax",), task="graded", learning_rates=(1e30, 0.01), settings=SMALL)
    found = run_study(data, plan)
    assert [cell.point.learning_rate for cell in found.cells] == [0.01]
    (left_out,) = found.diverged
    assert left_out["objective"] == "calibrated_softmax" and left_out["learning_rate"] == 1e30
    assert left_out["where"] == "training"
    with refused("calibrated_softmax", "finite scores"):
        run_study(data, replace(plan, learning_rates=(1e30,)))


def test_rcr_plays_against_both_forms_of_the_multi_objective_ranker():
    names = ("multi_objective", "multi_objective-mean", "rcr")
    data = files()
    plan = Plan(names, alphas=(0.5, 0.9), settings=SMALL)
    found = results(run_study(data, plan), data, plan)
    assert [row["name"] for row in found["rows"]] == list(names)
    assert set(found["wins"]) == set(names) and found["wins"]["rcr"]["multi_objective-mean"]["games"] == 4
    losses = {(cell["objective"], cell["alpha"]): cell["loss"] for cell in found["cells"]}
    assert losses["multi_objective", 0.9] != losses["multi_objective-mean", 0.9]
    alike = run_study(data, Plan(names[:2], alphas=(0.0,), settings=SMALL)).cells
    assert np.allclose(alike[0].test_outputs, alike[1].test_outputs, atol=1e-5)


def test_rcr_without_its_ranking_part_is_pointwise():
    plan = Plan(("pointwise", "rcr"), alphas=(0.0,), settings=SMALL)
    data = files()
    pointwise, rcr = run_study(data, plan).cells
    assert np.allclose(pointwise.test_outputs, rcr.test_outputs, atol=1e-5)
    assert rcr.test.means["ndcg"] == pointwise.test.means["ndcg"]
