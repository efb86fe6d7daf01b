"""What is tried of each objective, what is chosen, and that the test lists have no say in it."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch

from answers.told import refused
from cascade_sim.ltr.line import LinearlyCalibrated
from cascade_sim.ltr.study import Files, Measured, Plan, drawn_aside, results, run_study
from cascade_sim.ltr.training import Settings
from cascade_sim.ltr.tuning import choose, diagonal, measure_of
from cascade_sim.models.objectives import make_objective
from worlds.ltr_files import table

SMALL = Settings(layers=(4,), dropout=0.0, epochs=2, batch=16)
NAMES = ("pointwise", "softmax", "multi_objective-mean", "calibrated_softmax", "rcr")
PLAN = Plan(
    NAMES,
    alphas=(0.1, 0.5, 0.9, 0.99),
    learning_rates=(0.001, 0.03),
    dropouts=(0.0, 0.3),
    y0s=(0.3, 1.0),
    budget=4,
    settings=SMALL,
    papers=True,
)


def files(**options):
    return Files(*(table(seed, n, **options) for seed, n in ((1, 32), (2, 20), (3, 20))))


@pytest.fixture(scope="module")
def studied():
    data = files()
    return data, run_study(data, PLAN)


@pytest.mark.parametrize(("own", "common"), [(1, 6), (4, 6), (15, 45), (3, 7), (9, 9), (5, 1)])
def test_a_budget_takes_different_points_and_every_value_equally_often(own, common):
    for n in {1, min(own * common, 5), common, own * common}:
        pairs = diagonal(own, common, n)
        assert len(set(pairs)) == n
        for axis, size in ((0, own), (1, common)):
            counts = Counter(pair[axis] for pair in pairs)
            assert max(counts.values()) - (min(counts.values()) if len(counts) == size else 0) <= 1
            assert len(counts) == min(size, n)


def test_objectives_with_and_without_an_own_value_share_the_common_settings():
    wanted = {j for _, j in diagonal(1, 8, 5)}
    assert all({j for _, j in diagonal(own, 8, 5)} == wanted for own in (2, 8, 15))


def test_every_objective_has_the_same_number_of_trainings(studied):
    data, found = studied
    points = {name: PLAN.cells_of(name) for name in NAMES}
    assert {name: len(own) for name, own in points.items()} == dict.fromkeys(NAMES, 4)
    assert {point.alpha for point in points["rcr"]} == {0.1, 0.5, 0.9, 0.99}
    assert {point.y0 for point in points["calibrated_softmax"]} == {0.3, 1.0}
    assert all(point.objective.y0 == point.y0 for point in points["calibrated_softmax"])
    assert Counter(cell.name for cell in found.cells) == dict.fromkeys(NAMES, 4)
    assert results(found, data, PLAN)["trainings"] == dict.fromkeys(NAMES, 4)


def test_a_budget_that_an_objective_cannot_spend_is_refused():
    with refused(4, "4 common", "budget of 5", kind=ValueError):
        replace(PLAN, budget=5).cells_of("pointwise")
    assert len(replace(PLAN, budget=5).cells_of("rcr")) == 5
    assert len(replace(PLAN, budget=None).cells_of("rcr")) == 4 * 4


def choices(found):
    """What was chosen by each rule, epoch included."""
    by_rule = {"near": found.rows, **found.by_rule}
    return [
        (rule, row.name, row.cell.point.setting, row.cell.epoch, row.cell.valid.means)
        for rule, rows in by_rule.items()
        for row in rows
    ]


@pytest.mark.parametrize("poison", ["labels", "features", "not finite", "fewer lists"])
def test_a_poisoned_test_part_changes_no_choice(studied, poison):
    data, found = studied
    test = data.test
    poisoned = {
        "labels": lambda: replace(test, labels=1 - test.labels),
        "features": lambda: replace(test, features=test.features.flip(0) * 1e3),
        "not finite": lambda: replace(test, features=torch.full_like(test.features, torch.inf)),
        "fewer lists": lambda: test.take_lists(np.arange(5)),
    }[poison]()
    other = run_study(replace(data, test=poisoned), PLAN)
    assert choices(other) == choices(found)
    if poison == "not finite":
        assert len(other.diverged) == 4 * len(NAMES) and other.cells == []
        assert all(cell["where"] == "test" for cell in other.diverged)
        numbers = results(other, replace(data, test=poisoned), PLAN)
        assert all(row["ndcg"]["value"] is None and row["loss"]["value"] is None for row in numbers["rows"])
        assert numbers["best"] == {"ndcg": None, "loss": None}
    else:
        assert [row.test.means for row in other.rows] != [row.test.means for row in found.rows]


def test_each_rule_has_the_best_cell_and_epoch_by_its_measure(studied):
    _, found = studied
    for name in NAMES:
        by_ndcg, by_loss = (
            next(r for r in found.by_rule[rule] if r.name == name) for rule in ("ndcg", "loss")
        )
        assert by_ndcg.cell.valid.means["ndcg"] >= by_loss.cell.valid.means["ndcg"]
        assert by_loss.cell.valid.means["loss"] <= by_ndcg.cell.valid.means["loss"]
        usual = [cell for cell in found.cells if cell.name == name]
        best = by_loss if usual[0].objective.has_scale else by_ndcg
        measure = "loss" if usual[0].objective.has_scale else "ndcg"
        pick = min if measure == "loss" else max
        assert best.cell.valid.means[measure] == pick(cell.valid.means[measure] for cell in usual)


def test_rules_look_at_the_measure_of_their_name():
    assert [measure_of(rule, make_objective("rcr")) for rule in ("near", "ndcg", "loss")] == [
        "loss", "ndcg", "loss",
    ]  # fmt: skip
    assert measure_of("near", make_objective("softmax")) == "ndcg"


def test_choice_by_loss_or_order_alone():
    class Judged:
        objective = make_objective("rcr")

        def __init__(self, ndcg, loss):
            one = np.ones(2)
            self.valid = Measured(np.array([ndcg - 0.1, ndcg + 0.1]), one, loss * one, one, one, one, one)

    best, near, far = Judged(0.6, 9.0), Judged(0.51, 5.0), Judged(0.4, 1.0)
    assert [choose([near, far, best], rule) for rule in ("ndcg", "loss", "near")] == [best, far, near]


def test_the_tables_of_the_papers_are_made_of_the_rules_rows(studied):
    data, found = studied
    numbers = results(found, data, PLAN)
    assert numbers["rival"] == "multi_objective-mean" and numbers["rule_comparisons"] == 2 * 4 * 2
    for rule, rows in numbers["by_rule"].items():
        assert [row["objective"] for row in rows] == list(NAMES)
        values = {row.name: row.test.means for row in found.by_rule[rule]}
        assert all(row["loss"]["value"] == values[row["objective"]]["loss"] for row in rows)
        assert all(("p" in row["ndcg"]) == (row["objective"] != "multi_objective-mean") for row in rows)
    games = numbers["approaches"]
    assert set(games) == {"pointwise", "listwise", "multi-objective", "calibrated_softmax", "rcr"}
    assert games["rcr"]["listwise"]["games"] == 2  # one seed, two rules
    by_loss = {row.name: row.test.means for row in found.by_rule["loss"]}
    by_ndcg = {row.name: row.test.means for row in found.by_rule["ndcg"]}
    won = sum(
        means["rcr"]["ndcg"] >= means["softmax"]["ndcg"] and means["rcr"]["loss"] <= means["softmax"]["loss"]
        for means in (by_loss, by_ndcg)
    )
    assert games["rcr"]["listwise"]["won"] == won
    assert "by_rule" not in results(found, data, replace(PLAN, papers=False))


def test_others_may_be_tested_against_any_row(studied):
    data, found = studied
    numbers = results(found, data, replace(PLAN, baseline="softmax+platt"))
    rows = {row["name"]: row for row in numbers["rows"]}
    assert numbers["baseline"] == "softmax+platt" and "p" not in rows["softmax+platt"]["loss"]
    assert rows["pointwise"]["loss"]["p"] is not None


def test_grades_get_a_line_behind_scores_without_scale():
    plan = Plan(("pointwise", "softmax"), task="graded", settings=SMALL, papers=True)
    found = run_study(files(positive_from=None, max_grade=4), plan)
    assert [row.name for row in found.rows] == ["pointwise", "softmax", "softmax+line"]
    softmax, line = found.rows[1:]
    assert np.array_equal(softmax.test.ndcg, line.test.ndcg, equal_nan=True)
    assert line.test.means["loss"] < softmax.test.means["loss"]


def test_the_line_is_that_of_least_squares():
    outputs, grades = torch.tensor([[0.0], [1.0], [3.0], [4.0]]), torch.tensor([1.0, 0.0, 2.0, 4.0])
    line = LinearlyCalibrated.fit(make_objective("softmax", "graded"), outputs, grades)
    assert [line.slope, line.intercept] == pytest.approx(np.polyfit([0, 1, 3, 4], [1, 0, 2, 4], 1))
    assert line.predict(outputs).mean() == pytest.approx(7 / 4)  # the level of the labels
    level = LinearlyCalibrated.fit(line.objective, torch.ones(4, 1), grades)
    assert (level.slope, level.intercept) == (0, 7 / 4)


def test_each_seed_draws_a_fifth_of_the_lists_to_choose_by():
    aside = np.array([drawn_aside(63, seed) for seed in range(1, 301)])
    assert (aside.sum(axis=1) == 12).all()
    # of 300 seeds a list is aside in about 300 · 12/63, within five standard errors
    share = 12 / 63
    assert abs(aside.mean(axis=0) - share).max() < 5 * np.sqrt(share * (1 - share) / 300)
    whole, test = table(n_lists=63), table(3, 20)
    parts = Files(whole, whole, test, whole)
    first, again, other = (parts.of_seed(seed) for seed in (1, 1, 2))
    assert torch.equal(first.valid.features, again.valid.features)
    assert not torch.equal(first.valid.features[:5], other.valid.features[:5])
    assert (first.train.n_lists, first.valid.n_lists) == (51, 12) and first.test is test
    assert len(first.train.labels) + len(first.valid.labels) == len(whole.labels)
    fixed = Files(whole, whole, test)
    assert fixed.of_seed(2) is fixed
