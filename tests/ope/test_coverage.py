"""Coverage on real logs: a hundred short ones of a small world."""

import csv

import numpy as np
import pytest

from answers.told import tells
from cascade_sim.cli import main
from cascade_sim.ope.coverage import coverage_study
from cascade_sim.scenario.targets import AS_LOGGED, CURRENT, Target
from worlds.randomised_logs import SCENARIO, SMALL, logged

TARGETS = (
    Target(AS_LOGGED, estimand="jittered"),
    Target("near", {"reserve_cpc": 0.63}, estimand="jittered"),
    Target("far", {"reserve_cpc": 0.25}, estimand="jittered"),
    Target("colder", temperature=0.5),
    Target("launch", {"reserve_cpc": 0.63}),
    Target("far launch", {"reserve_cpc": 0.25}),
)
REPLICATIONS, REQUESTS = 100, 300


@pytest.fixture(scope="module")
def table():
    world = logged()
    return coverage_study(world.sim, world.arm, TARGETS, REPLICATIONS, REQUESTS, "clicks")


@pytest.mark.drill
def test_intervals_of_weighted_estimates_cover_the_truth(table):
    for target in (AS_LOGGED, "near", "colder"):
        for name, one in table.rows[target].items():
            if name != "direct_method":
                assert one.verdict in ("holds", "wider than needed"), (target, name, one)
                assert one.no_estimate < 0.1
                assert abs(one.bias) < 4 * one.rmse / np.sqrt(REPLICATIONS)


@pytest.mark.drill
def test_a_target_out_of_reach_is_always_refused(table):
    for name, one in table.rows["far"].items():
        assert one.no_estimate == (0.0 if name == "direct_method" else 1.0)
    assert table.ess_share["far"] < 0.1 < table.ess_share["near"] < table.ess_share[AS_LOGGED] == 1.0


@pytest.mark.drill
def test_launches_are_covered_or_refused(table):
    for name in ("local_linear", "local_dr"):
        launch = table.rows["launch"][name]
        assert launch.verdict in ("holds", "wider than needed") and launch.no_estimate < 0.1
        assert table.rows["far launch"][name].no_estimate == 1
    assert 0.1 < table.ess_share["launch"] < 1 and table.ess_share["far launch"] == 0


@pytest.mark.drill
def test_two_logs_of_one_policy_seldom_seem_to_differ(table):
    alarms = table.rows["near"]["doubly_robust"].false_positive_rate
    assert alarms.n == REPLICATIONS // 2 and alarms.low < 0.05


@pytest.mark.drill
def test_the_truth_is_the_mean_of_many_logs(table):
    found = table.rows[AS_LOGGED]["ips"]
    assert found.bias_low < 0 < found.bias_high
    assert table.rows["near"]["ips"].truth > found.truth  # a lower reserve gets more clicks


def test_replications_are_the_same_however_many_are_made():
    world = logged()
    few = coverage_study(world.sim, world.arm, TARGETS[:1], 40, REQUESTS, "clicks")
    again = coverage_study(world.sim, world.arm, TARGETS[:1], 40, REQUESTS, "clicks")
    assert few == again
    more = coverage_study(world.sim, world.arm, TARGETS[:1], 80, REQUESTS, "clicks")
    ends = [one.rows[AS_LOGGED]["direct_method"].truth for one in (few, more)]
    assert ends[0] == pytest.approx(ends[1], rel=0.05)


@pytest.mark.drill
def test_the_command_prints_a_table_and_writes_csv_and_plot(tmp_path, capsys):
    sets = [word for one in SMALL for word in ("--set", one)]
    options = [
        "--replications",
        "20",
        "--requests",
        "100",
        "--target",
        "colder",
        "--target",
        CURRENT,
        "--quiet",
    ]
    files = ["--out", str(tmp_path / "c.csv"), "--plot", str(tmp_path / "c.png")]
    assert main(["coverage", str(SCENARIO), *sets, *options, *files]) in (0, 1)
    text = capsys.readouterr().out
    assert f"{CURRENT}: revenue per request" in text and "local DR" in text and "cascade DR" in text
    rows = list(csv.DictReader((tmp_path / "c.csv").open()))
    assert {row["target"] for row in rows} == {CURRENT, "colder"}
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--target", "coler"], "'colder'?"),
        (["--plot", "x.pdf"], ".png .svg"),
        (["--set", "off_policy=null"], "nothing is randomised"),
        (["--replications", "3"], "--replications"),
    ],
)
def test_mistakes_are_refused_before_anything_is_trained(options, text, capsys):
    assert main(["coverage", str(SCENARIO), *options]) == 2
    assert tells(capsys.readouterr().err, *text.split())
