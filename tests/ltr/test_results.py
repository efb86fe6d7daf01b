"""From findings to numbers: means over seeds, paired tests, what is written."""

import json

import numpy as np
import pytest

from cascade_sim.analysis.statistics.bootstrap import seed_spread
from cascade_sim.analysis.statistics.moves import holm, paired_p
from cascade_sim.ltr.study import Files, Plan, results, run_study
from cascade_sim.ltr.training import Settings
from cascade_sim.storage.folder import json_text
from worlds.ltr_files import table

PLAN = Plan(
    ("pointwise", "softmax", "rcr"), alphas=(0.1, 0.9), seeds=(1, 2), settings=Settings((8,), 0.0, 3, 16)
)


@pytest.fixture(scope="module")
def studied():
    files = Files(*(table(seed, n) for seed, n in ((1, 60), (2, 40), (3, 40))))
    findings = run_study(files, PLAN)
    return findings, results(findings, files, PLAN)


def by_name(found):
    return {row["name"]: row for row in found["rows"]}


def test_a_row_is_the_mean_over_seeds_with_its_interval(studied):
    findings, found = studied
    rows = by_name(found)
    assert list(rows) == ["pointwise", "softmax *", "softmax+platt", "rcr"]  # the star: no scale
    values = [row.test.means["ece"] for row in findings.rows if row.name == "rcr"]
    spread = seed_spread(values)
    assert rows["rcr"]["ece"]["value"] == spread["value"] and rows["rcr"]["ece"]["low"] == spread["low"]
    assert [chosen["seed"] for chosen in rows["rcr"]["chosen"]] == [1, 2]
    assert rows["softmax+platt"]["calibrator"] == "platt" and rows["softmax+platt"]["has_scale"]
    assert not rows["softmax *"]["has_scale"]


def test_p_is_of_the_lists_seeds_averaged_and_adjusted_for_the_whole_table(studied):
    findings, found = studied
    rows = by_name(found)

    def per_list(name, metric):
        return np.mean([getattr(r.test, metric) for r in findings.rows if r.name == name], axis=0)

    names, metrics = ["softmax", "softmax+platt", "rcr"], ["ndcg", "loss", "ece"]
    raw = [paired_p(per_list(n, m), per_list("pointwise", m)) for n in names for m in metrics]
    adjusted = iter(holm(raw))
    assert found["comparisons"] == 9 and found["baseline"] == "pointwise"
    for name in ("softmax *", "softmax+platt", "rcr"):
        for metric in metrics:
            assert rows[name][metric]["p"] == pytest.approx(next(adjusted))
    assert "p" not in rows["pointwise"]["ndcg"]
    assert rows["softmax *"]["loss"]["gap"] > 0 and rows["softmax *"]["loss"]["p"] < 0.05


def test_cells_and_wins_cover_the_grid(studied):
    _, found = studied
    assert len(found["cells"]) == (1 + 1 + 2) * 2
    assert found["wins"]["rcr"]["softmax"]["games"] == 2 * 2
    assert found["lists"] == {"train": 60, "valid": 40, "test": 40}
    assert set(found["curves"]) == {"pointwise", "softmax", "rcr"}
    assert len(found["curves"]["rcr"]["1"]["points"]) == 3 * 4


def test_the_numbers_are_json_and_repeat(studied):
    findings, found = studied
    text = json_text(found)
    assert json.loads(text)["loss"] == "LogLoss"
    files = Files(*(table(seed, n) for seed, n in ((1, 60), (2, 40), (3, 40))))
    assert json_text(results(run_study(files, PLAN), files, PLAN)) == text


def test_without_the_baseline_nothing_is_compared():
    files = Files(*(table(seed, 30) for seed in (1, 2, 3)))
    plan = Plan(("rcr",), alphas=(0.5,), settings=Settings((4,), 0.0, 1, 16))
    found = results(run_study(files, plan), files, plan)
    assert found["comparisons"] == 0 and "p" not in found["rows"][0]["loss"]
    assert found["rows"][0]["n_judged"] == 0  # two steps are no trend


def test_the_best_is_told_with_those_it_is_not_told_apart_from(studied):
    """For order without calibrators, which change none; for scale only among those that have one."""
    findings, found = studied
    rows = by_name(found)
    able = {"ndcg": ["pointwise", "softmax *", "rcr"], "loss": ["pointwise", "softmax+platt", "rcr"]}
    for metric, names in able.items():
        best, sign = found["best"][metric], 1 if metric == "ndcg" else -1
        assert best["name"] == max(names, key=lambda name, m=metric, s=sign: s * rows[name][m]["value"])
        others = [name for name in names if name != best["name"]]
        assert best["others"] == 2 and set(best["near"]) <= set(others)

        def per_list(name, m=metric):
            own = name.removesuffix(" *")
            return np.mean([getattr(r.test, m) for r in findings.rows if r.name == own], axis=0)

        ps = holm([paired_p(per_list(name), per_list(best["name"])) for name in others])
        assert best["near"] == [name for name, p in zip(others, ps, strict=True) if not p < 0.05]
