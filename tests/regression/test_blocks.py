"""Sums by group: they add up, halve, and are refused when damaged."""

import json
import shutil

import numpy as np
import pytest

from answers.told import tells
from cascade_sim.cli import main
from cascade_sim.regression.blocks import DAY_COLUMNS, METRICS, n_groups, with_days
from worlds.guarded_market import plain_run


def test_the_sums_of_the_groups_add_up_to_the_metrics(measured):
    for arm in measured.blocks.arms.values():
        assert set(arm.values) == set(METRICS)
        for name, metric in METRICS.items():
            value = metric.of({column: sums.sum() for column, sums in arm.sums.items()})
            assert arm.values[name] == pytest.approx(value, rel=1e-12)


def test_a_finished_run_keeps_the_sums_of_its_own_metrics():
    metrics = json.loads((plain_run() / "metrics.json").read_text())
    blocks = json.loads((plain_run() / "blocks.json").read_text())
    assert blocks["groups"] == 256
    for arm, kept in blocks["arms"].items():
        for metric, value in kept["values"].items():
            assert value == pytest.approx(metrics["arms"][arm][metric]["value"], rel=1e-12), (arm, metric)


def test_groups_are_a_power_of_two_of_at_most_256():
    assert [n_groups(n) for n in (1, 100, 256, 512, 10**6)] == [1, 64, 256, 256, 256]


def test_a_run_without_its_sums_is_refused(tmp_path, capsys):
    shutil.copytree(plain_run(), tmp_path / "run")
    (tmp_path / "run" / "blocks.json").unlink()
    assert main(["baseline", str(tmp_path / "run"), "--out", str(tmp_path / "x.json")]) == 2
    assert tells(capsys.readouterr().err, "blocks.json", "missing")
    (tmp_path / "run" / "seed-1").mkdir()
    assert main(["baseline", str(tmp_path / "run"), "--out", str(tmp_path / "x.json")]) == 2
    assert tells(capsys.readouterr().err, tmp_path / "run", "1 worlds")


def test_a_market_is_summed_by_day_and_its_last_day_may_be_a_part_of_one(measured):
    hours = {name: np.ones(30) for name in DAY_COLUMNS} | {"revenue": np.arange(30.0)}
    arm = with_days(measured.blocks.arms["production"], hours)
    assert arm.days["requests"].tolist() == [24, 6]
    assert arm.days["revenue"].tolist() == [sum(range(24)), sum(range(24, 30))]
    assert arm.values["market_rpm"] == pytest.approx(1000 * sum(range(30)) / 30)
    assert arm.values["rpm"] == measured.blocks.arms["production"].values["rpm"]


def test_a_group_is_as_many_requests_in_a_row_as_any_other(measured):
    arm = measured.blocks.arms["production"]
    assert arm.sums["requests"].tolist() == [512 / 256] * 256
    halved = arm.with_groups(128)
    assert halved.sums["revenue"][0] == arm.sums["revenue"][:2].sum()
    assert halved.sums["requests"].tolist() == [512 / 128] * 128


def test_the_first_group_earned_what_the_log_of_its_requests_says(measured):
    from cascade_sim.storage.tables import read_table

    log = read_table(plain_run(), "evaluate-production", ["request", "charge_micros"])
    for group in (0, 100, 255):
        own = (log["request"] - 4 * 10**9) // 2 == group  # ids of the evaluation begin there
        assert measured.blocks.arms["production"].sums["revenue"][group] == pytest.approx(
            log["charge_micros"][own].sum() / 1e6, rel=1e-12
        )
