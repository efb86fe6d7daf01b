"""Experiments on a market as a study runs them: truth, bias, tables, and going on after a stop."""

import json

import numpy as np
import pytest

from cascade_sim.context import RunContext
from cascade_sim.experiments.run import DesignRun
from cascade_sim.experiments.study import run_designs
from cascade_sim.foundation import random as draws
from cascade_sim.market.study import run_markets
from cascade_sim.storage.tables import read_table, tables
from cascade_sim.study.results import _combine
from cascade_sim.study.simulation import Simulation
from worlds.design_market import design_scenario

KINDS = ("request", "user", "budget", "switchback")
# Little traffic, and so little money that every day it is gone.
TIGHT = {
    "requests_per_second": 0.006,
    "window": 14_400.0,
    "budgets": {"share": 1.0, "median": 4.0, "sigma": 0.3},
    "bidders": {"fixed": {}},
}
DEARER = {"now": {}, "better": {"auction": {"pricing": "first"}}}


def markets(folder, scenario, workers=1):
    sim = Simulation(scenario, scenario.seed, workers)
    context = RunContext(folder, workers=workers)
    return {**run_markets(sim, context), "designs": run_designs(sim, context)}


@pytest.fixture(scope="module")
def dearer(tmp_path_factory):
    """A treatment that shows the same ads and charges the bid for them."""
    folder = tmp_path_factory.mktemp("dearer")
    return folder, markets(folder, design_scenario(TIGHT, arms=DEARER))


def lift(section, kind):
    return section["designs"]["kinds"][kind]["measures"]["revenue_per_request"]["lift"]["value"]


@pytest.mark.drill
def test_a_dearer_auction_looks_far_better_in_a_trial_on_common_budgets_than_it_is(dearer):
    section = dearer[1]["designs"]
    truth = section["truth"]["revenue_per_request"]["lift"]["value"]
    assert abs(truth) < 0.1  # all budgets are spent under either rule
    assert lift(dearer[1], "request") > truth + 0.3
    assert section["kinds"]["request"]["spend_share"]["value"] > 0.55
    assert abs(lift(dearer[1], "budget") - truth) < 0.1


def test_bias_is_the_estimate_less_the_truth_with_the_estimates_interval(dearer):
    section = dearer[1]["designs"]
    for kind in KINDS:
        for name, one in section["kinds"][kind]["measures"].items():
            truth = section["truth"][name]
            for key, of in (("bias", "difference"), ("lift_bias", "lift")):
                for end in ("value", "low", "high"):
                    if one[of][end] is not None:
                        assert one[key][end] == one[of][end] - truth[of]["value"]


def test_every_design_has_its_table_which_adds_up_to_its_figures(dearer):
    folder, section = dearer
    names = ["launch", "request", "user", "budget-control", "budget-treatment", "switchback"]
    assert {f"market-design-{name}" for name in names} | {"market-now", "market-better"} == set(
        tables(folder)
    )
    for kind in ("request", "user", "switchback"):
        table = read_table(folder, f"market-design-{kind}")
        trial = table["time"] >= 86_400
        assert not table["is_treated"][~trial].any()
        revenue = [
            table["charge_micros"][trial & (table["is_treated"] == arm)].sum() / 1e6 for arm in (True, False)
        ]
        found = section["designs"]["kinds"][kind]
        assert found["spend_share"]["value"] == pytest.approx(revenue[0] / sum(revenue))
        if kind != "switchback":  # whose arms are compared within hours
            level = found["measures"]["revenue_per_request"]["treatment"]["value"]
            assert level == pytest.approx(revenue[0] / found["requests"]["treatment"])


def test_each_part_of_a_split_market_is_served_by_one_arm_during_the_trial(dearer):
    folder, _ = dearer
    seed = design_scenario(TIGHT, arms=DEARER).seed
    for name in ("control", "treatment"):
        table = read_table(folder, f"market-design-budget-{name}")
        trial = table["time"] >= 86_400
        assert 0.2 < trial.mean() < 0.8
        assert (table["is_treated"] == (trial & (name == "treatment"))).all()
        drawn = draws.uniform(seed, "assignment", table["request"]) < 0.5
        assert (drawn == (name == "treatment")).all()


def test_the_launch_is_the_controls_market_until_the_trial_begins(dearer):
    folder, section = dearer
    launch, control, treatment = (
        read_table(folder, f"market-{name}") for name in ("design-launch", "now", "better")
    )
    day = [table["time"] < 86_400 for table in (launch, control)]
    for name in control:
        assert (launch[name][day[0]] == control[name][day[1]]).all()
    assert launch["is_treated"][~day[0]].all()
    assert not np.array_equal(launch["cpc_micros"][~day[0]], control["cpc_micros"][~day[1]])


@pytest.mark.drill
def test_equal_arms_have_no_effect_and_every_design_says_so(tmp_path):
    arms = {"now": {"slots": 2}, "again": {"slots": 2}}
    scenario = design_scenario(
        {"requests_per_second": 0.006, "window": 14_400.0}, arms, treatment="again", kinds=["request", "user"]
    )
    section = markets(tmp_path, scenario)["designs"]
    for name, truth in section["truth"].items():
        assert truth["difference"]["value"] == truth["lift"]["value"] == 0.0, name
    for kind, found in section["kinds"].items():
        one = found["measures"]["clicks_per_request"]
        assert one["bias"] == one["difference"]
        assert one["bias"]["low"] < 0 < one["bias"]["high"], kind


@pytest.mark.drill
def test_results_and_tables_are_the_same_bytes_with_two_workers_and_after_a_stop(
    dearer, tmp_path, monkeypatch
):
    folder, section = dearer
    scenario = design_scenario({**TIGHT, "checkpoint": 20_000.0}, arms=DEARER)
    book, calls = DesignRun._book, []

    def stopped(self, settled):
        calls.append(self.part)
        if len(calls) == 300 or (self.part and calls.count(True) == 40):
            raise KeyboardInterrupt
        book(self, settled)

    monkeypatch.setattr(DesignRun, "_book", stopped)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            markets(tmp_path, scenario, workers=2)
    assert (tmp_path / "checkpoints" / "design-budget-treatment.npz").is_file()
    again = markets(tmp_path, scenario, workers=2)
    assert json.dumps(again) == json.dumps(section)
    files = [file.relative_to(folder) for file in sorted((folder / "logs").rglob("*.parquet"))]
    assert len(files) == 8
    for file in files:
        assert (folder / file).read_bytes() == (tmp_path / file).read_bytes(), file


def test_over_several_worlds_the_bias_has_an_interval_between_them(dearer):
    one = dearer[1]["designs"]
    other = json.loads(json.dumps(one))
    bias = other["kinds"]["request"]["measures"]["revenue_per_request"]["lift_bias"]
    bias["value"] += 0.2
    found = _combine([one, other])["kinds"]["request"]["measures"]["revenue_per_request"]["lift_bias"]
    assert found["value"] == pytest.approx(bias["value"] - 0.1)
    # Two worlds 0.2 apart: sd 0.1 * sqrt(2), half-width t(1) * sd / sqrt(2)
    assert found["high"] - found["value"] == pytest.approx(12.7062 * 0.1, rel=1e-4)
    assert _combine([one, other])["treatment"] == "better"
