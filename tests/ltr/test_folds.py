"""Cross-validation, rows that learn from the grades, and gaps with their intervals."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

from cascade_sim.ltr.study import (
    Files,
    Measured,
    Plan,
    approach_of,
    drawn_folds,
    fold_files,
    results,
    run_study,
)
from cascade_sim.ltr.training import Settings
from worlds.ltr_files import table

SMALL = Settings(layers=(8,), dropout=0.0, epochs=2, batch=8)
NAMES = ("pointwise", "softmax-grades", "softmax")


@pytest.fixture(scope="module")
def whole():
    return table(1, 31, max_grade=4)


@pytest.fixture(scope="module")
def studied(whole):
    plan = Plan(NAMES, seeds=(1, 2), settings=SMALL, folds=4)
    files = fold_files(whole, 0, 4)
    found = run_study(files, plan)
    return found, results(found, files, plan)


def of_lists(data):
    """Each list by the bytes of its features, which no two share."""
    return [
        data.features[a:b].numpy().tobytes() for a, b in zip(data.lists[:-1], data.lists[1:], strict=True)
    ]


def test_every_list_is_tested_on_once_and_is_in_one_part_of_a_fold(whole):
    folds = [fold_files(whole, fold, 4) for fold in range(4)]
    every = sorted(of_lists(whole))
    assert sorted(one for files in folds for one in of_lists(files.test)) == every
    for fold, files in enumerate(folds):
        parts = [of_lists(part) for part in (files.train, files.valid, files.test)]
        assert sorted(one for part in parts for one in part) == every
        assert parts[1] == of_lists(folds[(fold + 1) % 4].test)
        assert np.array_equal(files.test.grades >= 1, files.test.labels)
    sizes = np.bincount(drawn_folds(31, 4))
    assert sizes.tolist() == [8, 8, 8, 7]
    assert np.bincount(drawn_folds(31, 4)[:8]).max() < 8  # drawn, not cut in the order of the file


def outputs(name, data):
    plan = Plan((name,), settings=SMALL)
    return run_study(data, plan).cells[0].test_outputs


def test_only_what_learns_from_grades_sees_more_than_their_sign(whole):
    data = replace(fold_files(whole, 0, 4), whole=None)
    other = replace(data.train, grades=data.train.labels * 2)
    for name in NAMES:
        same = torch.equal(outputs(name, data), outputs(name, replace(data, train=other)))
        assert same == (name != "softmax-grades")
    binary = replace(data, train=replace(data.train, grades=data.train.labels))
    assert torch.equal(outputs("softmax-grades", binary), outputs("softmax", data))


def test_what_learns_from_grades_is_calibrated_to_the_labels(studied):
    """Scale is that of 0 and 1 whatever the order was learnt from."""
    _, found = studied
    rows = {row["name"]: row for row in found["rows"]}
    assert list(rows) == [
        "pointwise",
        "softmax-grades *",
        "softmax-grades+platt",
        "softmax *",
        "softmax+platt",
    ]
    assert rows["softmax-grades+platt"]["pcoc"]["value"] == pytest.approx(1, abs=0.15)
    assert rows["softmax-grades+platt"]["ndcg"]["value"] == rows["softmax-grades *"]["ndcg"]["value"]


def test_the_folds_of_a_seed_are_one_test_file(studied):
    found, numbers = studied
    row = next(row for row in numbers["rows"] if row["name"] == "softmax *")
    for metric in ("ndcg", "ndcg_1", "loss"):
        of_seeds = []
        for seed in (1, 2):
            rows = [one.test for one in found.rows if one.name == "softmax" and one.cell.seed == seed]
            assert len(rows) == 4
            values = [value for test in rows for value in getattr(test, metric) if not math.isnan(value)]
            counted = sum(int(test.items.sum()) for test in rows) if metric == "loss" else len(values)
            of_seeds.append(sum(values) / counted)
        assert row[metric]["value"] == pytest.approx(np.mean(of_seeds))
    assert numbers["folds"] == 4 and row["n_judged"] == 8


def test_a_gap_has_the_intervals_of_plain_loops(studied):
    found, numbers = studied
    row = next(row for row in numbers["rows"] if row["name"] == "softmax-grades *")
    for metric in ("ndcg", "ndcg_1", "ece"):
        gaps = []  # by fold
        for fold in range(4):
            own, base = (
                [r.test for r in found.rows if r.name == name and r.cell.fold == fold]
                for name in ("softmax-grades", "pointwise")
            )
            lists = zip(*(getattr(test, metric) for test in (*own, *base)), strict=True)
            gap = [(a + b) / 2 - (c + d) / 2 for a, b, c, d in lists]
            gaps.append([value for value in gap if not math.isnan(value)])
        every = [value for gap in gaps for value in gap]
        assert row["gaps"][metric]["gap"] == pytest.approx(sum(every) / len(every))
        for part, values in (("lists", every), ("folds", [sum(gap) / len(gap) for gap in gaps])):
            low, high = stats.t.interval(0.95, len(values) - 1, np.mean(values), stats.sem(values))
            assert row["gaps"][metric][part] == pytest.approx((high - low) / 2)
    assert "gaps" not in numbers["rows"][0]


def test_without_folds_there_are_no_such_gaps():
    files = Files(*(table(seed, 20) for seed in (1, 2, 3)))
    plan = Plan(("pointwise", "softmax"), settings=SMALL)
    found = results(run_study(files, plan), files, plan)
    assert "folds" not in found and not any("gaps" in row for row in found["rows"])
    assert found["rows"][1]["chosen"][0].keys().isdisjoint({"fold"})


def test_one_fold_pooled_is_itself():
    one = Measured.undefined(np.array([0, 2, 5]))
    assert Measured.pooled([one]) is one


def test_mse_softplus_is_the_regression_part_of_rcr_with_a_row_of_its_own():
    files = Files(*(table(seed, 20, positive_from=None, max_grade=4) for seed in (1, 2, 3)))
    own, zero, half = (
        run_study(files, Plan((name,), "graded", alphas=(alpha,), settings=SMALL)).cells[0]
        for name, alpha in (("mse_softplus", 0.5), ("rcr_regression", 0.0), ("rcr_regression", 0.5))
    )
    assert own.name == "mse_softplus" and own.point.alpha is None
    assert approach_of("mse_softplus") == "pointwise" and approach_of("softmax-grades") == "listwise"
    assert torch.equal(own.test_outputs, zero.test_outputs)
    assert not torch.equal(own.test_outputs, half.test_outputs)
