"""Logged budgets are replayed: who has spent the day's takes part in no later auction of it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from cascade_sim.audit.study import audit
from cascade_sim.logged.format import About, Rule
from cascade_sim.logged.store import open_store
from cascade_sim.phases.budgets import Spending
from cascade_sim.phases.evaluate import Evaluation
from cascade_sim.phases.simulation import Simulation
from cascade_sim.progress import Progress
from cascade_sim.questions.reopen import reopen
from cascade_sim.questions.replayed import FELT_BUDGETS, NO_BUDGETS, run_evidence
from cascade_sim.questions.whatif import what_if_study
from cascade_sim.scenario.changes import parse_points
from cascade_sim.scenario.file import load_scenario
from cascade_sim.world.budgets import LoggedBudgets
from worlds.logged_market import made_market

ADS, OWNERS, SLOTS = 12, 6, 2
HOUR, MICROS = 3600.0, 1_000_000
ZONE, STARTS = "Europe/Berlin", "2026-10-24T00:00:00+02:00"  # the second day has 25 hours
MIDNIGHTS = (0.0, 24 * HOUR, 49 * HOUR, 73 * HOUR)
EVERY_DAY = {0: 40.0, 1: 15.0, 2: 3.0}  # budgets by advertiser
OF_DAY_1 = {1: 70.0, 3: 0.0}


@dataclass(frozen=True)
class Auctions:
    """Requests [R] with candidates [R, n]: times, ads, bids, and who would click."""

    times: np.ndarray
    ads: np.ndarray
    bids: np.ndarray
    clicks: np.ndarray


def auctions(seed: int, n: int = 900, candidates: int = 5) -> Auctions:
    rng = np.random.default_rng(seed)
    ads = np.sort(np.argsort(rng.random((n, ADS)), axis=1)[:, :candidates], axis=1)
    bids = np.round(np.exp(rng.normal(0, 0.5, ads.shape)), 3)
    return Auctions(np.sort(rng.random(n)) * MIDNIGHTS[3], ads, bids, rng.random(ads.shape) < 0.3)


def budgets_of(day: int) -> dict[int, int]:
    told = {**EVERY_DAY, **(OF_DAY_1 if day == 1 else {})}
    return {who: round(amount * MICROS) for who, amount in told.items()}


def plainly_served(made: Auctions, charging: str, reserve: float = 0.0):
    """One auction after the other in plain Python: slots, prices and who took part [R, n], and the money."""
    slot, price = np.full(made.ads.shape, -1), np.full(made.ads.shape, -1, np.int64)
    takes_part, ran_out, revenue, day, left = np.ones(made.ads.shape, bool), set(), 0, -1, {}
    for r, time in enumerate(made.times):
        today = max(d for d, midnight in enumerate(MIDNIGHTS) if time >= midnight)
        if today != day:
            day, left = today, budgets_of(today)
        owner = made.ads[r] // (ADS // OWNERS)
        takes_part[r] = [left.get(who, 1) > 0 for who in owner]
        order = sorted(
            (j for j in range(made.ads.shape[1]) if takes_part[r, j] and made.bids[r, j] >= reserve),
            key=lambda j: (-made.bids[r, j], made.ads[r, j]),
        )
        for k, j in enumerate(order[:SLOTS]):
            below = made.bids[r, order[k + 1]] if k + 1 < len(order) else 0.0
            slot[r, j], price[r, j] = k, round(max(below, reserve) * MICROS)
        for j in order[:SLOTS]:
            if charging == "click" and not made.clicks[r, j]:
                continue
            paid = min(price[r, j], left.get(owner[j], price[r, j]))
            revenue += paid
            if owner[j] in left:
                left[owner[j]] -= paid
                if left[owner[j]] <= 0 and paid:
                    ran_out.add((int(owner[j]), day))
    return slot, price, takes_part, ran_out, revenue / MICROS


def market_of(folder, made: Auctions, charging: str, *, with_those_out: bool, changes=None):
    """The market that logged these auctions; `with_those_out`: who had run out is still a candidate."""
    slot, price, takes_part, ran_out, revenue = plainly_served(made, charging)
    kept = np.ones(slot.shape, bool) if with_those_out else takes_part
    shown = slot >= 0
    requests = {
        "time": made.times,
        "slots": np.full(len(slot), SLOTS),
        "reserve": np.zeros(len(slot)),
        "first": np.concatenate([[0], np.cumsum(kept.sum(axis=1))]),
    }
    candidates = {
        "ad": made.ads, "bid": made.bids, "slot": slot, "price_micros": price,
        "click": np.where(shown, made.clicks, -1),
        "pctr": np.full(slot.shape, 0.3),
        "stage": np.where(shown, 2, 1),
    }  # fmt: skip
    about = About(
        "three days", STARTS, ZONE, level="bids", charging=charging,
        rule=Rule("gsp", 0.0, 0.0, 0.0),
    )  # fmt: skip
    rows = [(who, -1, amount) for who, amount in EVERY_DAY.items()]
    rows += [(who, 1, amount) for who, amount in OF_DAY_1.items()]
    budgets = {
        "advertiser": [row[0] for row in rows],
        "day": [row[1] for row in rows],
        "budget_micros": [round(row[2] * MICROS) for row in rows],
    }
    made_market(
        folder, requests, {name: values[kept] for name, values in candidates.items()}, about,
        advertiser=np.arange(ADS) // (ADS // OWNERS), budgets=budgets, changes=changes,
    )  # fmt: skip
    return ran_out, revenue


def asked(folder, *words: str):
    return what_if_study(folder, lambda scenario, arm: parse_points(list(words), scenario, arm))


@pytest.mark.parametrize("charging", ["click", "impression"])
@pytest.mark.parametrize("with_those_out", [True, False])
def test_replayed_as_deployed_the_log_comes_out_with_who_ran_out(tmp_path, charging, with_those_out):
    ran_out, revenue = market_of(tmp_path / "m", auctions(1), charging, with_those_out=with_those_out)
    answer = asked(tmp_path / "m", "auction.reserve_cpc=0.5")
    evidence = answer["evidence"]
    assert evidence["replayed"] == {"pages_as_logged": 1.0, "prices_as_logged": 1.0}
    today = evidence["budgets"]["ran_out"]["today"]
    assert today == {"advertisers": len({who for who, _ in ran_out}), "days": len(ran_out)}
    assert today["days"] >= 5 and evidence["budgets"]["left_out_shown"] == 0
    per_request = answer["today"]["metrics"]["revenue_per_request"]["value"]
    assert per_request * answer["requests"] == pytest.approx(revenue, abs=1e-6)
    told = " ".join(answer["notes"])
    assert f"ran out: {today['advertisers']} as deployed, " in told and "with auction.reserve_cpc=0.5" in told
    assert ("no candidates in the log" in told) is not with_those_out
    assert any("the logged budgets" in line for line in answer["held_fixed"])


@pytest.mark.parametrize(("reserve", "fewer_run_out"), [(0.8, False), (2.5, True)])
def test_under_another_reserve_advertisers_run_out_at_other_times(tmp_path, reserve, fewer_run_out):
    made = auctions(2)
    market_of(tmp_path / "m", made, "impression", with_those_out=True)
    *_, ran_out, revenue = plainly_served(made, "impression", reserve)
    answer = asked(tmp_path / "m", f"auction.reserve_cpc={reserve}")
    (point,) = answer["points"]
    assert point["metrics"]["revenue_per_request"]["value"] * len(made.times) == pytest.approx(revenue)
    then, today = (answer["evidence"]["budgets"]["ran_out"][name] for name in ("point 1", "today"))
    assert then == {"advertisers": len({who for who, _ in ran_out}), "days": len(ran_out)}
    assert (then["days"] < today["days"]) is fewer_run_out


def test_budgets_that_are_ignored_are_said_to_be_in_a_line(tmp_path):
    def ignored(scenario):
        scenario["world"]["logged"]["budgets"] = "ignore"

    market_of(tmp_path / "m", auctions(3), "impression", with_those_out=True, changes=ignored)
    answer = asked(tmp_path / "m", "auction.reserve_cpc=0.5")
    assert answer["evidence"]["budgets"] is None and answer["notes"][-1] == NO_BUDGETS
    assert FELT_BUDGETS in answer["held_fixed"]
    assert answer["evidence"]["replayed"]["pages_as_logged"] < 1


def test_a_run_of_the_market_says_who_ran_out_in_each_arm(tmp_path):
    def dearer(scenario):
        scenario["arms"]["dearer"] = {"auction": {"reserve_cpc": 3.0}}
        scenario["report"] = {"baseline": "logged"}

    market_of(tmp_path / "m", auctions(8), "click", with_those_out=True, changes=dearer)
    sim = Simulation(load_scenario(tmp_path / "m" / "scenario.yaml"), 1, workers=2, home=tmp_path / "m")
    evaluation = Evaluation(sim, tmp_path / "run", Progress(quiet=True))
    evaluation.run()
    evidence = run_evidence(evaluation)
    assert evidence["replayed"]["pages_as_logged"] == 1
    days = {name: facts["days"] for name, facts in evidence["budgets"]["ran_out"].items()}
    assert days["logged"] > days["dearer"]
    assert any("as deployed" in note and "with dearer" in note for note in evidence["notes"])


def test_pages_do_not_depend_on_how_requests_are_cut_into_blocks(tmp_path):
    market_of(tmp_path / "m", auctions(4), "click", with_those_out=True)
    answers = []
    for size in (7, 1024):
        run = reopen(tmp_path / "m")
        run.sim.scenario.traffic.__dict__["block"] = size
        budgets, pages = Spending(run.sim, LoggedBudgets(run.sim.replay.store)), []
        arm = replace(run.arm("logged"), reserve_cpc=0.4)
        for index in range(-(-900 // size)):
            settled = budgets.settle(run.sim.arrivals.block("evaluate", index, 900), arm)
            pages.append(np.hstack([settled.decision.win_set, settled.outcome.charges_micros]))
        answers.append((np.concatenate(pages), budgets.facts(arm)))
    assert np.array_equal(answers[0][0], answers[1][0]) and answers[0][1] == answers[1][1]


def test_days_begin_at_midnight_of_the_zone_also_when_clocks_are_put_back(tmp_path):
    market_of(tmp_path / "m", auctions(5), "click", with_those_out=True)
    budgets = LoggedBudgets(open_store(tmp_path / "m"))
    assert budgets.days(np.array([0.0, 24 * HOUR - 1, 24 * HOUR, 49 * HOUR - 1, 49 * HOUR])).tolist() == [
        0, 0, 1, 1, 2,
    ]  # fmt: skip
    assert budgets.of_day(1, -1).tolist() == [40_000_000, 70_000_000, 3_000_000, 0, -1, -1]
    assert budgets.of_day(2, -1).tolist() == [40_000_000, 15_000_000, 3_000_000, -1, -1, -1]


def test_budgets_that_cannot_be_right_are_warned_of(tmp_path):
    made = auctions(6)
    slot, price, *_ = plainly_served(made, "impression")
    market_of(tmp_path / "m", made, "impression", with_those_out=True)
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
    notes = asked(tmp_path / "wrong", "auction.reserve_cpc=0.5")["notes"]
    assert any(note.startswith("Warning:") and "whose budget was spent" in note for note in notes)


@pytest.mark.parametrize("charging", ["click", "impression"])
def test_the_audit_leaves_out_who_had_run_out(tmp_path, charging):
    ran_out, _ = market_of(tmp_path / "m", auctions(7), charging, with_those_out=True)
    found = audit(tmp_path / "m")
    assert found.tally()["share"].tolist() == [1.0, 1.0, 1.0]
    n = len({who for who, _ in ran_out})
    assert any(
        note.startswith(f"{n} advertisers spent a day's logged budget") for note in found.answer["notes"]
    )
