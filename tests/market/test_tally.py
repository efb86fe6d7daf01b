"""What is kept of a market, against the same figures counted from its log."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from cascade_sim.agents.traffic_profiles import constant
from cascade_sim.cascade.ledger import NO_BUDGET, Ledger
from cascade_sim.market.tally import MarketTally
from cascade_sim.scenario.market import Market
from worlds.timed_market import DAY, live, slow_days

HOUR = 3_600.0
MARKET = slow_days(
    days=1.5,
    requests_per_second=0.015,
    window=1800.0,
    update=3600.0,
    median=12.0,
    bidders={"free": {}, "half": {"options": {"factor": 0.5}}},
)


@pytest.fixture(scope="module")
def lived():
    """A day and a half with budgets that run dry on the first day, some also on the second."""
    return live(MARKET)


def test_hours_hold_what_the_log_holds(lived):
    log, hours = lived.log, lived.metrics["hours"]
    hour = (log["time"] // HOUR).astype(int)
    assert hours["time"] == [float(h) for h in range(36)]
    assert hours["impressions"] == np.bincount(hour, minlength=36).tolist()
    assert hours["clicks"] == np.bincount(hour[log["click"]], minlength=36).tolist()
    assert hours["conversions"] == np.bincount(hour[log["conversion"]], minlength=36).tolist()
    micros = np.zeros(36, np.int64)
    np.add.at(micros, hour, log["charge_micros"])
    assert hours["revenue"] == (micros / 1e6).tolist()


def test_totals_and_rates_follow_from_the_log(lived):
    log, m = lived.log, lived.metrics
    revenue = int(log["charge_micros"].sum()) / 1e6
    n_requests = sum(len(s.block) for s in lived.settled)
    assert (m["requests"], m["impressions"], m["revenue"]) == (n_requests, len(log["ad"]), revenue)
    assert m["ctr"] == log["click"].sum() / len(log["ad"])
    assert m["rpm"] == 1000 * revenue / len(log["ad"])
    assert m["revenue_per_request"] == revenue / n_requests
    effects, block = lived.sim.world.slot_effects, lived.settled
    plain = 0.0
    for piece in block:
        for r in range(len(piece.block)):
            true_ctr = lived.sim.environment._truth.ctr(piece.block, piece.ads)
            for slot, ad in enumerate(piece.ads[r]):
                plain += effects[slot] * true_ctr[r, slot] if ad >= 0 else 0.0
    assert m["expected_clicks"] == pytest.approx(plain, rel=1e-12)
    assert abs(m["clicks"] - plain) < 4 * np.sqrt(plain)


@pytest.mark.parametrize("name", ["free", "half"])
def test_a_kinds_budgets_spend_and_dry_hours_follow_from_the_log(lived, name):
    kind, mine, log = lived.metrics["bidders"][name], lived.members(name), lived.log
    budget = lived.run.ledger.budget
    budgeted = mine[budget[mine] < NO_BUDGET]
    assert (kind["advertisers"], kind["with_budget"]) == (len(mine), len(budgeted))
    day = lived.day()
    days = np.stack([lived.per_advertiser(day == d, "charge_micros") for d in (0, 1)])
    assert days[1].any()
    assert kind["spend"] == days[:, mine].sum() / 1e6
    assert kind["budget"] == 2 * budget[budgeted].sum() / 1e6  # of the half day too
    assert kind["budget_utilisation"] == pytest.approx(days[:, budgeted].sum() / (2 * budget[budgeted].sum()))
    assert kind["median_utilisation"] == pytest.approx(np.median(days[:, budgeted] / budget[budgeted]))
    exhaustion_hours = []
    for advertiser in budgeted:
        emptied = [
            log["time"][(day == d) & (log["advertiser"] == advertiser) & log["click"]].max() - d * DAY
            for d in (0, 1)
            if days[d, advertiser] == budget[advertiser]
        ]
        exhaustion_hours += [second / HOUR for second in emptied]
    assert len(exhaustion_hours) > 2
    assert kind["budget_exhausted"] == pytest.approx(
        len(exhaustion_hours) / (2 * len(budgeted))
    )  # of the half day too
    assert kind["exhaustion_hour"] == pytest.approx(np.median(exhaustion_hours))


@pytest.mark.parametrize("name", ["free", "half"])
def test_the_curve_is_the_share_of_todays_budgets_spent_by_each_update(lived, name):
    kind, mine, log = lived.metrics["bidders"][name], lived.members(name), lived.log
    budgeted = mine[lived.run.ledger.budget[mine] < NO_BUDGET]
    total, curve = lived.run.ledger.budget[budgeted].sum(), kind["curve"]
    assert curve["hour"] == [float(h) for h in range(1, 37)]
    gaps = []
    for hour, traffic, share in zip(curve["hour"], curve["traffic_share"], curve["spend_share"], strict=True):
        start = 0.0 if hour <= 24 else DAY  # midnight closes the first day
        rows = (log["time"] >= start) & (log["time"] < hour * HOUR)
        spent = lived.per_advertiser(rows, "charge_micros")[budgeted].sum()
        assert share == pytest.approx(spent / total, abs=1e-12)
        assert traffic == pytest.approx((hour * HOUR - start) / DAY)  # a constant profile
        gaps.append(abs(share - traffic))
    assert kind["max_pacing_error"] == pytest.approx(max(gaps))
    assert curve["multiplier"] == pytest.approx([{"free": 1.0, "half": 0.5}[name]] * 36)


def made_up(budget, days):
    ledger = Ledger(np.array(budget))
    crowd = SimpleNamespace(names=["all"], kind_of=np.zeros(len(budget), int))
    world = SimpleNamespace(init_bid=np.ones(len(budget)), advertiser=np.arange(len(budget)))
    return ledger, MarketTally(crowd, ledger, Market(days=days), constant(1.0), world)


def test_an_overdraft_on_any_day_would_be_seen():
    ledger, tally = made_up([100, 200], 2.0)
    ledger.available -= [103, 200]
    tally.end_of_day()
    ledger.new_day()
    ledger.available -= [5, 5]
    tally.end_of_day()
    ledger.new_day()
    tally.close()
    assert tally.metrics()["overspend"] == 3 / 1e6


def test_a_begun_day_counts_even_if_nothing_was_spent_and_a_finished_one_only_once():
    ledger, tally = made_up([100, 100], 1.5)
    ledger.available -= [50, 100]
    tally.end_of_day()
    ledger.new_day()
    tally.close()
    assert tally.metrics()["bidders"]["all"]["budget_utilisation"] == 150 / (2 * 200)
    ledger, tally = made_up([100, 100], 1.0)
    ledger.available -= [50, 100]
    tally.end_of_day()
    ledger.new_day()
    tally.close()
    assert tally.metrics()["bidders"]["all"]["budget_utilisation"] == 150 / 200


def test_a_kind_without_budgets_has_no_use_and_metrics_are_plain_json():
    lived = live({"days": 600 / DAY, "bidders": {"all": {"share": 1e9}, "nobody": {"share": 1e-9}}})
    for name in ("all", "nobody"):
        kind = lived.metrics["bidders"][name]
        assert kind["with_budget"] == 0 and kind["budget"] == 0.0
        assert [
            kind[key]
            for key in ("budget_utilisation", "median_utilisation", "budget_exhausted", "exhaustion_hour")
        ] == [None] * 4
    assert lived.metrics["bidders"]["nobody"]["advertisers"] == 0
    assert json.loads(json.dumps(lived.metrics, allow_nan=False)) == lived.metrics


def test_a_market_without_a_single_request_has_metrics():
    tally = made_up([100, NO_BUDGET], 0.01)[1]
    tally.close()
    metrics = tally.metrics()
    assert (metrics["requests"], metrics["ctr"], metrics["rpm"], metrics["overspend"]) == (0, 0.0, 0.0, 0.0)
