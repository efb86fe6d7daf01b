"""Logged budgets are replayed: who has spent the day's takes part in no later auction of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from answers.told import tells
from cascade_sim.counterfactual.whatif import what_if_study
from cascade_sim.diagnostics.reopen import reopen
from cascade_sim.environments.statement import FELT_BUDGETS, NO_BUDGETS
from cascade_sim.foundation.progress import Progress
from cascade_sim.logs.audit.study import audit
from cascade_sim.logs.replay.budgets import LoggedBudgets
from cascade_sim.logs.store.format import About, Rule
from cascade_sim.logs.store.store import open_store
from cascade_sim.scenario.file import load_scenario
from cascade_sim.scenario.log_support import accepting_mismatch
from cascade_sim.study.evaluate import Evaluation
from cascade_sim.study.simulation import Simulation
from worlds.logged_market import (
    ADS,
    HOUR,
    SLOTS,
    STARTS,
    ZONE,
    auctions,
    budget_market,
    made_market,
    plainly_served,
)


def asked(folder, *words: str):
    return what_if_study(folder, list(words))


@pytest.mark.parametrize("charging", ["click", "impression"])
@pytest.mark.parametrize("with_those_out", [True, False])
def test_replayed_as_deployed_the_log_comes_out_with_who_ran_out(tmp_path, charging, with_those_out):
    ran_out, revenue = budget_market(tmp_path / "m", auctions(1), charging, with_those_out=with_those_out)
    answer = asked(tmp_path / "m", "auction.reserve_cpc=0.5")
    replay = answer["replay"]
    assert replay["replayed"] == {"page_match_rate": 1.0, "price_match_rate": 1.0}
    current = replay["budgets"]["exhausted"]["current"]
    assert current == {"advertisers": len({who for who, _ in ran_out}), "days": len(ran_out)}
    assert current["days"] >= 5 and replay["budgets"]["left_out_shown"] == 0
    per_request = answer["current"]["metrics"]["revenue_per_request"]["value"]
    assert per_request * answer["requests"] == pytest.approx(revenue, abs=1e-6)
    told = " ".join(answer["notes"])
    assert tells(told, f"{current['advertisers']} as deployed", "with auction.reserve_cpc=0.5")
    assert tells(told, "no candidates") is not with_those_out
    assert any("the logged budgets" in line for line in answer["held_fixed"])


@pytest.mark.parametrize("reserve", [0.8, 1.3, 2.5])
def test_under_another_reserve_advertisers_run_out_at_other_times(tmp_path, reserve):
    made = auctions(2)
    budget_market(tmp_path / "m", made, "impression", with_those_out=True)
    *_, ran_out, revenue = plainly_served(made, "impression", reserve)
    answer = asked(tmp_path / "m", f"auction.reserve_cpc={reserve}")
    (point,) = answer["points"]
    assert point["metrics"]["revenue_per_request"]["value"] * len(made.times) == pytest.approx(revenue)
    variant, current = (answer["replay"]["budgets"]["exhausted"][name] for name in ("point 1", "current"))
    assert variant == {"advertisers": len({who for who, _ in ran_out}), "days": len(ran_out)}
    if reserve > 2:
        assert variant["days"] < current["days"]


def test_budgets_that_are_ignored_are_said_to_be_in_a_line(tmp_path):
    def ignored(scenario):
        scenario["world"]["replay"]["budgets"] = "ignore"

    budget_market(tmp_path / "m", auctions(3), "impression", with_those_out=True, changes=ignored)
    answer = asked(tmp_path / "m", "auction.reserve_cpc=0.5")
    assert answer["replay"]["budgets"] is None and answer["notes"][-1] == NO_BUDGETS
    assert FELT_BUDGETS in answer["held_fixed"]
    assert answer["replay"]["replayed"]["page_match_rate"] < 1


def test_a_run_of_the_market_says_who_ran_out_in_each_arm(tmp_path):
    def dearer(scenario):
        scenario["arms"]["dearer"] = {"auction": {"reserve_cpc": 3.0}}
        scenario["report"] = {"baseline": "logged"}

    budget_market(tmp_path / "m", auctions(8), "click", with_those_out=True, changes=dearer)
    sim = Simulation(load_scenario(tmp_path / "m" / "scenario.yaml"), 1, workers=2, home=tmp_path / "m")
    evaluation = Evaluation(sim, tmp_path / "run", Progress(quiet=True))
    evaluation.run()
    replay = evaluation.replay_facts()["replay"]
    assert replay["replayed"]["page_match_rate"] == 1
    days = {name: facts["days"] for name, facts in replay["budgets"]["exhausted"].items()}
    assert days["logged"] > days["dearer"]
    assert any("as deployed" in note and "with dearer" in note for note in replay["notes"])


def test_pages_do_not_depend_on_how_requests_are_cut_into_blocks(tmp_path):
    budget_market(tmp_path / "m", auctions(4), "click", with_those_out=True)
    answers = []
    for size in (7, 1024):
        run = reopen(tmp_path / "m")
        run.sim.scenario.traffic.__dict__["block"] = size
        budgets, pages = run.sim.environment.budget_replay(), []
        arm = replace(run.arm("logged"), reserve_cpc=0.4)
        for index in range(-(-900 // size)):
            settled = budgets.settle(run.sim.arrivals.block("evaluate", index, 900), arm)
            pages.append(np.hstack([settled.decision.win_set, settled.outcome.charges_micros]))
        answers.append((np.concatenate(pages), budgets.facts(arm)))
    assert np.array_equal(answers[0][0], answers[1][0]) and answers[0][1] == answers[1][1]


def test_days_begin_at_midnight_of_the_zone_also_when_clocks_are_put_back(tmp_path):
    budget_market(tmp_path / "m", auctions(5), "click", with_those_out=True)
    budgets = LoggedBudgets(open_store(tmp_path / "m"))
    assert budgets.days(np.array([0.0, 24 * HOUR - 1, 24 * HOUR, 49 * HOUR - 1, 49 * HOUR])).tolist() == [
        0, 0, 1, 1, 2,
    ]  # fmt: skip
    assert budgets.of_day(1, -1).tolist() == [40_000_000, 70_000_000, 3_000_000, 0, -1, -1]
    assert budgets.of_day(2, -1).tolist() == [40_000_000, 15_000_000, 3_000_000, -1, -1, -1]


def test_budgets_that_cannot_be_right_are_warned_of(tmp_path):
    made = auctions(6)
    slot, price, *_ = plainly_served(made, "impression")
    budget_market(tmp_path / "m", made, "impression", with_those_out=True)
    generous = replace(made, bids=made.bids * 10)  # prices ten times as high, budgets as before
    requests = {"time": made.times, "slots": np.full(len(slot), SLOTS), "first": np.arange(len(slot) + 1) * 5}
    candidates = {
        "ad": made.ads.ravel(), "bid": generous.bids.ravel(), "slot": slot.ravel(),
        "price_micros": np.where(price >= 0, price * 10, -1).ravel(),
    }  # fmt: skip
    about = About("wrong", STARTS, ZONE, level="bids", charging="impression", rule=Rule("gsp", 0.0, 0.0, 0.0))
    budgets = {"advertiser": [0], "day": [-1], "budget_micros": [1_000_000]}
    made_market(
        tmp_path / "wrong", requests, candidates, about, advertiser=np.arange(ADS) // 2, budgets=budgets
    )
    with accepting_mismatch():
        notes = asked(tmp_path / "wrong", "auction.reserve_cpc=0.5")["notes"]
    assert any(note.startswith("Warning:") and tells(note, "budget") for note in notes)


@pytest.mark.parametrize("charging", ["click", "impression"])
def test_the_audit_leaves_out_who_had_run_out(tmp_path, charging):
    ran_out, _ = budget_market(tmp_path / "m", auctions(7), charging, with_those_out=True)
    found = audit(tmp_path / "m")
    assert found.tally()["share"].tolist() == [1.0, 1.0, 1.0]
    n = len({who for who, _ in ran_out})
    assert any(tells(note, f"{n} advertisers", "budget") for note in found.answer["notes"])
