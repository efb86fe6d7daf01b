"""Worlds fitted to a log in studies of synthetic worlds: markets, retraining, trials, randomised logs."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from answers.told import refused
from cascade_sim.cascade.serve import serve
from cascade_sim.cli import main
from cascade_sim.foundation.errors import ScenarioError
from cascade_sim.market.run import MarketRun
from cascade_sim.scenario.file import load_scenario
from cascade_sim.scenario.schema import resolved_arms
from cascade_sim.study.simulation import Simulation

pytestmark = pytest.mark.drill

REQUESTS, DAYS = 1600, 3.0  # of the log
OWN = "{features: [user, context, quality, tier, ad_id], dims: 4, hidden: 8, epochs: 1, data: [log]}"
STILL = "{days: 0.5, window: 1800, update: 3600, budgets: {share: 0}}"
LIVELY = (
    "{days: 1, window: 1800, update: 3600, exploration: 0.1, budgets: {share: 1, median: 0.5}, "
    "users: {fatigue: {strength: 0.3}}, bidders: {pid: {kind: pid}, cpa: {kind: target_cpa}}}"
)


def written(place, name, *sections, arms="{logged: {}}", slots=4, evaluate=100, log=0):
    """The fitted world's scenario with further sections."""
    head = (place / "world.yaml").read_text().partition("phases:")[0].replace("slots: 4", f"slots: {slots}")
    phases = f"phases: {{cold_start: 0, log: {log}, shadow: 0, evaluate: {evaluate}}}"
    file = place / f"{name}.yaml"
    file.write_text("\n".join([head + phases, f"arms: {arms}", *sections, ""]))
    return file


def market_run(place, name, market, **more):
    sim = Simulation(load_scenario(written(place, name, f"market: {market}")), 1, home=place)
    return MarketRun(
        sim, sim.arm("logged", resolved_arms(sim.scenario)["logged"]), sim.scenario.market, **more
    )


def test_without_budgets_a_market_shows_the_pages_that_serving_shows(place):
    settled = []
    run = market_run(place, "still", STILL, on_block=settled.append)
    run.run()
    sim, arm = run.sim, run.server.arm
    lengths = set()
    for part in settled:
        page = serve(part.block, arm, sim.platform)
        assert np.array_equal(part.ads, page.win_set) and np.array_equal(part.cpc_micros, page.cpc_micros)
        lengths |= {*(part.ads >= 0).sum(axis=1).tolist()}
    assert {2, 4} <= lengths  # pages have the slots of the requests that stand behind them
    times = np.concatenate([part.block.times for part in settled])
    log = sim.environment.replay.store.requests["time"]
    assert len(times) == pytest.approx((log % 86_400 < 43_200).sum() / DAYS, rel=0.35)
    assert np.all(np.diff(times) >= 0) and times[-1] < 43_200


def test_budgets_pacing_exploration_and_fatigue_work_and_a_stopped_market_goes_on_alike(place):
    states, shown = [], []
    run = market_run(place, "lively", LIVELY.replace("days: 1,", "days: 1, checkpoint: 28800,"),
                     on_checkpoint=states.append, on_block=shown.append)  # fmt: skip
    told = run.run().metrics()
    assert told["clicks"] > 0 and told["overspend"] == 0
    assert any(kind["budget_exhausted"] for kind in told["bidders"].values())
    assert any(part.lists.is_explored.any() for part in shown)
    again = market_run(place, "lively", LIVELY)
    again.restore(states[0])
    assert again.run().metrics() == told


def test_the_traffic_that_bidders_expect_is_the_logs(place):
    run = market_run(place, "still", STILL)
    hour = (run.sim.environment.replay.store.requests["time"] // 3600 % 24).astype(int)
    assert run.profile.mean_rate * 86_400 * DAYS == pytest.approx(REQUESTS, rel=0.1)
    assert np.corrcoef(run.profile.rates, np.bincount(hour, minlength=24))[0, 1] > 0.95


@pytest.mark.drill
def test_models_are_retrained_in_its_market_and_trials_are_held(place):
    file = written(
        place, "learning", f"models: {{own: {OWN}}}", "report: {baseline: own, resamples: 50}",
        "market: {days: 0.5, window: 3600, update: 7200, training: {interval: 14400, panel: 32}}",
        arms="{own: {ranking: {model: own}}}", log=600,
    )  # fmt: skip
    assert main(["run", str(file), "--quiet", "--out", str(place / "learned")]) == 0
    market = json.loads((place / "learned" / "metrics.json").read_text())["market"]
    assert market["arms"]["own"]["learning"]["version"] == [0, 1, 2, 3]
    file = written(
        place, "trial", "report: {baseline: logged, resamples: 50}",
        "market: {days: 2, window: 7200, update: 14400, budgets: {median: 2},"
        " designs: {treatment: dear, kinds: [request, user, budget]}}",
        arms="{logged: {}, dear: {auction: {reserve_cpc: 0.5}}}",
    )  # fmt: skip
    assert main(["run", str(file), "--quiet", "--out", str(place / "tried")]) == 0
    designs = json.loads((place / "tried" / "metrics.json").read_text())["market"]["designs"]
    assert set(designs["kinds"]) == {"request", "user", "budget"}


def test_randomised_logs_of_it_say_what_its_truth_says(place):
    file = written(
        place, "drawn", "report: {baseline: logged, resamples: 50}",
        "off_policy: {requests: 1500, randomise: {squashing: 0.1}, slates: {requests: 1500, depth: 4},"
        " targets: {flatter: [auction.squashing=0.85], colder: [slates.temperature=0.4]}}",
        slots=2,
    )  # fmt: skip
    assert main(["run", str(file), "--quiet", "--out", str(place / "randomised")]) == 0
    asked = json.loads((place / "randomised" / "metrics.json").read_text())["off_policy"]["targets"]
    for name, estimator in (("flatter", "local_linear"), ("colder", "slate_ips")):
        for answer in asked[name]["rewards"].values():
            assert answer["estimators"][estimator]["covers"] == 1.0
    logged = asked["pages as logged"]["rewards"]["clicks"]
    assert logged["logged"]["low"] <= logged["truth"]["value"] <= logged["logged"]["high"]


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ("market: {requests_per_second: 9}", "market.requests_per_second"),
        ("market: {profile: constant}", "market.profile"),
        ("market: {users: {sessions: {}}}", "market.users"),
        ("market: {compute: {}}", "market.compute"),
        ("market: {budgets: {logged: true}}", "market.budgets.logged"),
        ("off_policy: {slates: {depth: 6}}", "off_policy.slates: 2 4"),
    ],
)
def test_what_a_fitted_world_cannot_have_is_refused_with_the_reason(place, section, words):
    with refused(*words.split(), kind=ScenarioError):
        load_scenario(written(place, "bad", section))


def test_its_market_may_have_the_logs_own_budgets(place, tmp_path):
    from cascade_sim.cascade.ledger import NO_BUDGET
    from cascade_sim.logs.replay.budgets import LoggedBudgets
    from cascade_sim.logs.store.store import open_store

    class Store:
        """The log with a table of budgets."""

        about = replace(open_store(place / "market").about, zone="UTC")
        n_advertisers = 4
        budgets = {  # noqa: RUF012
            "advertiser": np.array([1, 1, 2]), "day": np.array([0, 1, -1]),
            "budget_micros": np.array([10, 20, 7]),
        }  # fmt: skip

    usual = LoggedBudgets(Store()).usual(int(NO_BUDGET))
    assert usual.tolist() == [NO_BUDGET, 15, 7, NO_BUDGET]
