"""Clicks that are charged after their page: what is held, what is overspent, what is given away."""

import numpy as np
import pytest

from worlds.timed_market import live, same

LATE = {
    "days": 0.05,
    "budgets": {"share": 0.9, "median": 6.0, "sigma": 1.0},
    "bidders": {"fixed": {}, "pid": {"kind": "pid"}},
}


def late(**charging):
    return {**LATE, "charging": {"click_delay": 40.0, **charging}}


@pytest.fixture(scope="module", params=["none", "expected", "full"])
def found(request):
    return live(late(hold=request.param, overspend=0.1))


def test_late_charges_are_spend_are_revenue_and_every_one_has_its_click(found):
    log, charged = found.log, found.late
    assert len(charged["time"]) > 50 and (log["charge_micros"] == 0).all()
    assert found.metrics["revenue"] == charged["charge"].sum() / 1e6
    spend = np.zeros(found.sim.world.n_advertisers, np.int64)
    np.add.at(spend, charged["advertiser"], charged["charge"])
    assert (spend == found.run.ledger.spend()).all()
    clicked = {
        (r, s): (t, c) for r, s, t, c, k in zip(*(log[n] for n in
        ("request", "slot", "click_time", "cpc_micros", "click")), strict=True) if k
    }  # fmt: skip
    rows = list(zip(*(charged[n] for n in ("request", "slot", "time", "cpc")), strict=True))
    assert len(set(rows)) == len(rows)  # nobody pays twice for a click
    assert all(clicked[r, s] == (t, c) for r, s, t, c in rows)
    assert len(clicked) == len(rows) + found.metrics["pending_clicks"]
    assert (charged["charge"] <= charged["cpc"]).all() and (np.diff(charged["time"]) >= 0).all()


def test_no_day_costs_more_than_the_budget_and_the_declared_slack(found):
    budget, spent = found.run.ledger.budget, found.run.ledger.spend()
    assert (spent <= np.floor(budget * 1.1)).all()
    assert found.metrics["overspend_limit"] == 0.1
    over = np.maximum(spent - budget, 0).max() / 1e6
    assert found.metrics["overspend"] == over


@pytest.mark.drill
def test_without_holds_late_clicks_overspend_and_with_them_less():
    loose, tight, full = (live(late(hold=kind, overspend=1.0)) for kind in ("none", "expected", "full"))
    assert loose.metrics["overspend"] > 0.1
    total = [np.maximum(f.run.ledger.spend() - f.run.ledger.budget, 0).sum() for f in (loose, tight, full)]
    assert total[0] > total[1] >= total[2]


def test_without_slack_nothing_is_overspent_and_clicks_beyond_are_free():
    found = live(late(hold="none", overspend=0.0))
    assert (found.run.ledger.spend() <= found.run.ledger.budget).all()
    assert found.metrics["overspend"] == 0.0 and found.metrics["unbilled_clicks"] > 3
    given = (found.late["cpc"] - found.late["charge"]).sum()
    assert found.metrics["unbilled_revenue"] == given / 1e6 > 0


def test_holds_end_with_the_click_or_with_its_window():
    found = live({**late(hold="full"), "days": 0.02})
    still = np.zeros(found.sim.world.n_advertisers, np.int64)
    for one in found.settled:
        ends = np.minimum(one.click_time, one.block.times[:, None] + 60.0)
        is_open = ends > 0.02 * 86_400
        np.add.at(still, one.advertiser[is_open], one.held_micros[is_open])
        whole = one.held_micros == one.cpc_micros  # in part only where no more was left
        assert whole[:-1].all() and (one.held_micros <= one.cpc_micros).all()
    assert (found.run.ledger.held == still).all() and still.sum() > 0
    ledger = found.run.ledger
    assert (ledger.available + ledger.held + ledger.spend_today() == ledger.budget).all()


@pytest.mark.drill
def test_the_log_of_late_clicks_depends_neither_on_workers_nor_on_blocks():
    one = live(late(hold="expected"))
    same(one, live(late(hold="expected"), workers=2, traffic={"block": 32}))
    same(one, live({**late(hold="expected"), "depth": 4}))


def test_clicks_of_one_day_may_be_charged_on_the_next_and_then_count_for_it():
    market = {**late(hold="none"), "days": 2.0, "requests_per_second": 0.03, "window": 1800.0,
              "update": 7200.0, "charging": {"click_delay": 7200.0, "hold": "none"},
              "budgets": {"share": 0.9, "median": 60.0, "sigma": 1.0}}  # fmt: skip
    found = live(market)
    click, charge = found.late["request"], found.late["time"] // 86_400
    made = dict(zip(found.log["request"], found.log["time"] // 86_400, strict=True))
    assert any(made[r] < day for r, day in zip(click, charge, strict=True))
    for day in (0, 1):
        spend = np.zeros(found.sim.world.n_advertisers, np.int64)
        np.add.at(spend, found.late["advertiser"][charge == day], found.late["charge"][charge == day])
        assert (spend <= found.run.ledger.budget).all()


def test_late_clicks_empty_a_budget_at_the_click_that_reaches_it():
    found = live({**late(hold="none"), "window": 1200.0})
    budget, charged = found.run.ledger.budget, found.late
    hours = []
    for advertiser in range(len(budget)):
        rows = charged["advertiser"] == advertiser
        spent = np.cumsum(charged["charge"][rows])
        if len(spent) and spent[-1] >= budget[advertiser]:
            hours.append(charged["time"][rows][np.argmax(spent >= budget[advertiser])] / 3600)
    n = sum(k["budget_exhausted"] * k["with_budget"] for k in found.metrics["bidders"].values())
    assert len(hours) == round(n) > 3
    kinds = found.run.crowd.kind_of
    assert found.run.tally._dry_days[0][kinds >= 0].min() / 3600 == min(hours)
