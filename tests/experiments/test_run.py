"""A market on trial: arms that are alike change nothing, split budgets add up, and a stopped run goes on."""

import numpy as np
import pytest

from cascade_sim.cascade.ledger import NO_BUDGET
from cascade_sim.environments.market_inputs import draw_budgets
from cascade_sim.experiments.run import part_of_budgets
from cascade_sim.market.run import MarketRun
from worlds.design_market import design_scenario, design_study, live_design

DAY = 86_400.0
LATE = {"charging": {"click_delay": 600.0, "hold": "expected", "click_window": 3000.0, "overspend": 0.1}}
NAMES = ("ads", "cpc_micros", "charges_micros", "clicks", "click_time", "model_version")


def same_pages(one, other):
    for name in NAMES:
        a, b = (np.concatenate([getattr(piece, name) for piece in settled]) for settled in (one, other))
        assert a.tobytes() == b.tobytes(), name


def control_market(scenario):
    study = design_study(scenario)
    settled = []
    run = MarketRun(study.sim, *study.arms["control"], on_block=settled.append)
    run.run()
    return run, settled


@pytest.fixture(scope="module")
def without_a_trial():
    return control_market(design_scenario(treatment="again", pre_days=0))


@pytest.mark.parametrize("unit", ["request", "user", "switchback"])
def test_with_equal_arms_the_market_on_trial_is_the_market_without_one(unit, without_a_trial):
    run, settled = live_design(design_scenario(treatment="again", pre_days=0), unit)
    alone, expected = without_a_trial
    same_pages(settled, expected)
    assert run.tally.metrics() == alone.tally.metrics()
    assert run.outcomes.columns()["is_treated"].any()


def test_before_the_trial_the_market_is_the_controls_and_after_its_start_it_is_not(without_a_trial):
    run, settled = live_design(design_scenario(), "user")
    _, expected = without_a_trial
    ads, alone = (np.concatenate([one.ads for one in found]) for found in (settled, expected))
    before = np.concatenate([one.block.times for one in settled]) < DAY
    assert (ads[before][:, :2] == alone[before]).all() and (ads[before][:, 2:] == -1).all()
    assert (ads[~before][:, :2] != alone[~before]).any()
    treated = run.outcomes.columns()["is_treated"]
    assert not treated[before].any() and treated[~before].any()


def test_the_log_does_not_depend_on_the_number_of_workers():
    (one, a), (two, b) = (live_design(design_scenario(), "switchback", workers=n) for n in (1, 2))
    same_pages(a, b)
    assert one.tally.metrics() == two.tally.metrics()


def test_the_parts_of_a_split_budget_are_the_whole_and_each_keeps_to_its_own():
    scenario = design_scenario(share=0.3, pre_days=0)
    whole = draw_budgets(scenario.market.budgets, scenario.world.advertisers, scenario.seed)
    runs = {part: live_design(scenario, "all" if part else "none", part) for part in (True, False)}
    budgets = {part: run.ledger.budget for part, (run, _) in runs.items()}
    assert (budgets[True] + budgets[False] == whole).all()
    assert (np.abs(budgets[True] - 0.3 * whole) <= 1).all()
    requests = {part: run.outcomes.columns()["request"] for part, (run, _) in runs.items()}
    everything = np.sort(np.concatenate(list(requests.values())))
    assert (np.diff(everything) == 1).all()  # each request in one of the two
    assert 0.25 < len(requests[True]) / len(everything) < 0.35
    by_request = live_design(scenario, "request")[0].outcomes.columns()
    assert requests[True].tolist() == by_request["request"][by_request["is_treated"]].tolist()
    for run, _ in runs.values():
        assert run.tally.metrics()["overspend"] == 0.0
        assert (run.ledger.spend() <= 2 * run.ledger.budget).all()  # two days


def test_who_has_no_budget_has_none_in_either_part():
    whole = np.array([10, 7, 1, NO_BUDGET])
    assert part_of_budgets(whole, 0.5, True).tolist() == [5, 3, 0, NO_BUDGET]
    assert part_of_budgets(whole, 0.5, False).tolist() == [5, 4, 1, NO_BUDGET]


@pytest.mark.parametrize("market", [None, LATE], ids=["at once", "late"])
def test_a_restored_trial_goes_on_as_if_it_had_not_been_stopped(market):
    scenario = design_scenario({**(market or {}), "checkpoint": 30_000.0})
    study = design_study(scenario)
    from cascade_sim.experiments.assignment import make_assignment
    from cascade_sim.experiments.run import DesignRun

    def make():
        return DesignRun(study.sim, study.arms, make_assignment(study.spec, "request", study.sim.seed))

    states, run = [], make()
    run.on_checkpoint = states.append
    run.run()
    again = make()
    again.restore(states[3])  # in the middle of the trial
    assert again.now > DAY
    again.run()
    assert again.tally.metrics() == run.tally.metrics()
    one, two = run.outcomes.columns(), again.outcomes.columns()
    assert all(one[name].tobytes() == two[name].tobytes() for name in one)


def test_late_charges_are_booked_on_the_request_they_came_from():
    scenario = design_scenario(LATE)
    charged, run = [], None
    study = design_study(scenario)
    from cascade_sim.experiments.assignment import make_assignment
    from cascade_sim.experiments.run import DesignRun

    run = DesignRun(study.sim, study.arms, make_assignment(study.spec, "user", study.sim.seed))
    run.on_charges = charged.append
    run.run()
    found = run.outcomes.columns()
    requests, charges = (np.concatenate([one[name] for one in charged]) for name in ("request", "charge"))
    first = found["request"][0]
    assert (
        found["revenue_micros"].tolist()
        == np.bincount(requests - first, charges, len(found["request"])).tolist()
    )
    assert found["revenue_micros"].sum() == run.ledger.spend().sum() > 10**7
    assert found["charged_clicks"].sum() == len(requests) <= found["clicks"].sum()
