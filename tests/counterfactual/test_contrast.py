"""Arms over several worlds, each compared with one of them."""

import copy
import json
import math
import shutil

import numpy as np
import pytest
from scipy.stats import t, ttest_rel

from answers.section_text import says
from answers.told import refused
from cascade_sim.cli import main
from cascade_sim.counterfactual.contrast import contrasts
from cascade_sim.foundation.errors import UserError
from worlds.whatif_runs import measured_run

WORLDS = 4
RPM = {"logloss": [1.0, 1.2, 0.9, 1.1], "distill-pre": [1.1, 1.35, 1.0, 1.2]}
ECE = {"logloss": [0.01, 0.02, 0.03, 0.04], "distill-pre": [0.012, 0.018, 0.033, 0.041]}


@pytest.fixture(scope="module")
def worlds(study, tmp_path_factory):
    """A study of four worlds whose arms differ in RPM and proxy ECE as the tables above say."""
    folder = tmp_path_factory.mktemp("worlds") / "many"
    for i in range(WORLDS):
        metrics = copy.deepcopy(study.metrics)
        for arm in RPM:
            metrics["arms"][arm]["expected_rpm"]["value"] = RPM[arm][i]
            metrics["arms"][arm]["proxy_ece"]["value"] = ECE[arm][i]
        path = measured_run(study, folder / f"seed-{i + 1}")
        (path / "metrics.json").write_text(json.dumps(metrics))
    return folder


def test_differences_are_taken_world_by_world_with_a_t_interval_between_them(worlds):
    (found,) = contrasts(worlds, "logloss", ["distill-pre"], ["expected_rpm"])
    own, base = np.array(RPM["distill-pre"]), np.array(RPM["logloss"])
    gap = own - base
    half = t.ppf(0.975, WORLDS - 1) * gap.std(ddof=1) / math.sqrt(WORLDS)
    assert (found.value, found.other) == (pytest.approx(own.mean()), pytest.approx(base.mean()))
    assert (found.difference, found.low, found.high) == pytest.approx(
        (gap.mean(), gap.mean() - half, gap.mean() + half)
    )
    assert found.p == pytest.approx(ttest_rel(own, base).pvalue)
    assert (found.ahead, found.worlds) == (4, 4) and found.is_told


def test_measures_of_a_stage_are_compared_as_any_others(worlds):
    names = [
        "ideal_page_recall_after_retrieval",
        "best_page_recall_of_pre_ranking",
        "corpus_welfare_efficiency",
    ]
    found = contrasts(worlds, "logloss", ["distill-pre"], names)
    assert [one.measure for one in found] == names
    assert all(one.value is not None and one.worlds == WORLDS for one in found)
    ahead = found[2].value > found[2].other
    assert found[2].ahead == WORLDS * ahead  # the same in each world


def test_two_comparisons_have_wider_intervals_and_larger_p(worlds):
    alone = contrasts(worlds, "logloss", ["distill-pre"], ["expected_rpm"])[0]
    first, second = contrasts(worlds, "logloss", ["distill-pre"], ["expected_rpm", "proxy_ece"])
    assert first.high - first.low == pytest.approx(
        (alone.high - alone.low) * t.ppf(1 - 0.05 / 4, 3) / t.ppf(0.975, 3)
    )
    assert first.p == pytest.approx(2 * alone.p)  # the smaller of two
    assert second.ahead == 1  # a lower ECE is better: in the second world alone


def test_a_relative_difference_is_in_percent_of_the_other(worlds):
    (found,) = contrasts(worlds, "logloss", ["distill-pre"], ["expected_rpm%"])
    shares = 100 * (np.array(RPM["distill-pre"]) / np.array(RPM["logloss"]) - 1)
    assert found.difference == pytest.approx(shares.mean())


def test_what_cannot_be_contrasted_is_refused_by_name(worlds, tmp_path):
    with pytest.raises(UserError, match="has one world.*--seeds"):
        contrasts(worlds / "seed-1", "logloss")
    stopped = shutil.copytree(worlds / "seed-1", tmp_path / "stopped")
    (stopped / "metrics.json").unlink()
    with pytest.raises(UserError, match="did not finish.*--resume"):
        contrasts(stopped, "logloss")
    with refused("'loglos'", "logloss"):
        contrasts(worlds, "loglos")
    with refused("'gaucc'", "gauc"):
        contrasts(worlds, "logloss", measures=["gaucc"])


def test_the_command_prints_a_row_an_arm_with_what_is_told_in_bold(worlds, tmp_path, capsys):
    out = tmp_path / "contrast.json"
    command = ["contrast", str(worlds), "--against", "logloss", "--arms", "distill-pre", "--out", str(out)]
    assert main([*command, "--metrics", "expected_rpm,proxy_ece"]) == 0
    text = capsys.readouterr().out
    assert "| arm | expected_rpm | proxy_ece |" in text
    assert "| distill-pre | **+0.11" in text and "(4/4)" in text and "(1/4)" in text
    assert says(text, "4 worlds") and says(text, "all 2 comparisons")
    assert [row["is_told"] for row in json.loads(out.read_text())] == [True, False]


def test_value_lost_by_stage_and_cost_are_compared_too(worlds, study):
    names = ["value_lost_retrieval", "value_lost_pre_ranking", "cost.flops"]
    found = contrasts(worlds, "logloss", ["distill-pre"], names)
    lost = study.metrics["attribution"]["distill-pre"]
    for one, row in zip(found[:2], lost["stages"], strict=False):
        assert one.value == pytest.approx(row["ecpm_lost"]["value"] / lost["ecpm_best"])
        assert one.ahead == WORLDS * (one.value < one.other)
    assert found[2].value == pytest.approx(study.metrics["cost"]["distill-pre"]["flops"])
