"""Checks: from a market run twice to a verdict."""

import json
import re
from dataclasses import replace

import pytest

from answers.told import refused, tells
from cascade_sim.cli import main
from cascade_sim.foundation.errors import UserError
from cascade_sim.regression.baseline import read_baseline, write_baseline
from cascade_sim.regression.blocks import METRICS, Blocks
from cascade_sim.regression.check import check_revenue, judge
from cascade_sim.regression.text import verdict_text
from cascade_sim.storage.checksums import with_checksum
from cascade_sim.storage.environment import processor
from worlds.guarded_market import measure_plain, write_plain


def scaled(measured, arm, columns, factor):
    """The run with some sums of one arm multiplied."""
    old = measured.blocks.arms[arm]
    sums = {name: column * (factor if name in columns else 1.0) for name, column in old.sums.items()}
    values = {m: v * factor if METRICS[m].top in columns else v for m, v in old.values.items()}
    arms = {**measured.blocks.arms, arm: replace(old, sums=sums, values=values)}
    return replace(measured, blocks=Blocks(measured.blocks.requests, measured.blocks.groups, arms))


def test_unchanged_code_on_the_same_traffic_is_identical_and_passes(file, home, capsys):
    assert main(["check", str(home / "plain.yaml"), "--against", str(file), "--quiet"]) == 0
    assert "identical: all 18 metrics" in capsys.readouterr().out


def test_a_reserve_moves_prices_and_the_check_names_metric_size_and_interval(file, home, capsys):
    code = main(
        ["check", str(home / "plain.yaml"), "--against", str(file), "--quiet"]
        + ["--set", "auction.reserve_cpc=0.9", "--metric", "cpc", "--arm", "production"]
    )
    out = capsys.readouterr().out
    assert code == 1
    (changed,) = [line for line in out.splitlines() if "scenario has changed" in line]
    assert "auction.reserve_cpc" in changed
    assert re.search(r"FAILED: 1 of 1 .*production cpc \+", out)
    row = next(line for line in out.splitlines() if line.startswith("production  cpc"))
    assert "<0.0001" in row and "[+" in row and row.endswith("FAILED")


def test_half_a_percent_less_of_every_charge_fails_and_a_tolerance_of_one_percent_lets_it_pass(
    file, measured
):
    cut = scaled(measured, "production", ("revenue", "expected_revenue"), 0.995)
    verdict = check_revenue(read_baseline(file), cut)
    assert {(finding.arm, finding.metric) for finding in verdict.failed} == {
        ("production", metric) for metric in METRICS if "revenue" in METRICS[metric].top
    }
    assert all(finding.move.relative == pytest.approx(-0.005, abs=1e-9) for finding in verdict.failed)
    assert check_revenue(read_baseline(file), cut, tolerances=["1%"]).passed
    by_arm = check_revenue(read_baseline(file), cut, tolerances=["production:rpm=1%"])
    assert ("production", "rpm") not in {(finding.arm, finding.metric) for finding in by_arm.failed}
    assert not by_arm.passed


def test_a_few_changed_requests_could_be_chance_and_do_not_fail(file, measured):
    old = measured.blocks.arms["production"]
    revenue = old.sums["revenue"].copy()
    revenue[0] += 1.0
    values = {**old.values, "revenue_per_request": revenue.sum() / old.sums["requests"].sum()}
    arms = {"production": replace(old, sums={**old.sums, "revenue": revenue}, values=values)}
    plan = {("production", "revenue_per_request"): 0.0}
    changed = replace(measured.blocks, arms=arms)
    (finding,) = judge(measured.blocks.only(["production"]), changed, plan, is_paired=True)
    # one group of 256 differs: t = 1, the two-sided p of Student's t(255) at 1 is 0.32
    assert finding.has_changed and not finding.has_failed
    assert finding.p == pytest.approx(0.318, abs=0.01)


def test_impressions_that_are_gone_always_fail(file, measured):
    gone = scaled(measured, "production", ("impressions", "clicks", "revenue", "expected_revenue"), 0.0)
    failed = {f.metric for f in check_revenue(read_baseline(file), gone, arms=["production"]).failed}
    assert {"rpm", "ctr", "revenue_per_request"} <= failed


@pytest.mark.parametrize(
    "options, words",
    [
        (["--tolerance", "rmp=0.5%"], "--tolerance rmp=0.5%: 'rmp' 'rpm'?"),
        (["--tolerance", "producton:rpm=0.5%"], "'producton' 'production'?"),
        (["--tolerance", "rpm=half"], "'half' 0 1"),
        (["--tolerance", "150%"], "'150%' share"),
        (["--tolerance", "ctr=1%", "--metric", "rpm"], "ctr=1%"),
        (["--metric", "revenu_per_request"], "'revenue_per_request'?"),
        (["--arm", "chep"], "'chep' 'cheap'?"),
        (["--set", "world.ads=700"], "world.ads is 700, but 600 in"),
        (["--set", "seed=2"], "seed 2 1"),
        (["--set", "phases.evaluate=256"], "phases.evaluate is 256, but 512 in"),
    ],
)
def test_a_mistake_is_refused_before_any_work(file, home, capsys, options, words):
    write_plain(home)
    assert main(["check", str(home / "plain.yaml"), "--against", str(file), *options]) == 2
    assert tells(capsys.readouterr().err, *words.split())


def test_an_arm_that_the_scenario_no_longer_has_is_refused_with_a_suggestion(file, measured):
    blocks = Blocks(
        512, 256, {"productions": measured.blocks.arms["production"], "cheap": measured.blocks.arms["cheap"]}
    )
    with refused("'production'", "'productions'?"):
        check_revenue(read_baseline(file), replace(measured, blocks=blocks))


def test_an_arm_that_the_scenario_no_longer_has_is_refused_before_any_work(file, home, capsys, monkeypatch):
    def work(*_, **__):
        raise AssertionError("it was run")

    monkeypatch.setattr("cascade_sim.regression.serving.measure_scenario", work)
    text = write_plain(home).read_text()
    renamed = home / "renamed.yaml"
    renamed.write_text(text.replace("production", "productions"))
    assert main(["check", str(renamed), "--against", str(file), "--quiet"]) == 2
    told = capsys.readouterr().err
    assert tells(told, "renamed.yaml", "'production'", "'productions'?", "guards")


MARKET = (
    "market={days: 0.1, requests_per_second: 0.05, profile: constant, window: 900, "
    "budgets: {share: 1.0, median: 2.0}}"
)


def test_the_money_of_a_market_is_guarded_by_day_and_few_days_have_no_interval(tmp_path, capsys):
    scenario, kept = str(write_plain(tmp_path)), tmp_path / "market.json"
    write_baseline(measure_plain(tmp_path, MARKET), kept)
    same = ["check", scenario, "--against", str(kept), "--set", MARKET, "--quiet", "--workers", "1"]
    assert main(same) == 0
    assert "identical: all 26 metrics" in capsys.readouterr().out  # 2 arms * (9 + 4 of the market)
    poorer = ["--set", "market.budgets.median=0.2", "--arm", "production"]
    assert main([*same, *poorer]) == 1
    out = capsys.readouterr().out
    assert "not guarded" not in out
    rows = [line for line in out.splitlines() if line.startswith("production  market_")]
    assert "few days: none" in rows[0] and rows[0].endswith("FAILED")
    assert tells(out, "identical", "9 of 13")  # budgets do not touch the evaluation
    assert main([*same, *poorer, "--metric", "rpm"]) == 0
    assert "not guarded" in capsys.readouterr().out
    assert main([*same, "--set", "market.days=2"]) == 2
    assert tells(capsys.readouterr().err, "2 days", 1)
    assert main([*same, "--set", "market.days=0.05"]) == 2  # a shorter part of the same day
    assert tells(capsys.readouterr().err, "0.05 days", 0.1)


def test_another_processor_or_package_is_told_and_fails_nothing(file, measured, tmp_path):
    data = json.loads(file.read_text())
    assert (
        data["processor"] == processor()
        and check_revenue(read_baseline(file), measured).other_environment == []
    )
    data["processor"]["torch"], data["packages"]["numpy"] = "SSE2", "1.0"
    other = tmp_path / "other.json"
    other.write_text(json.dumps(with_checksum(data)))
    verdict = check_revenue(read_baseline(other), measured)
    assert verdict.passed
    text = verdict_text(verdict)
    assert "numpy 1.0, then" in text and "torch SSE2, then" in text and "identical" in text


def test_a_baseline_of_before_says_nothing_of_its_processor(file, measured, tmp_path):
    data = json.loads(file.read_text())
    old = tmp_path / "old.json"
    old.write_text(
        json.dumps(with_checksum({key: data[key] for key in data.keys() - {"packages", "processor"}}))
    )
    assert check_revenue(read_baseline(old), measured).other_environment == []
    old.write_text(json.dumps({**data, "processor": "fast"}))
    with pytest.raises(UserError, match="processor"):
        read_baseline(old)
