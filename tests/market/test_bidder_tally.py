"""What is kept of the kinds of bidders, against the same figures counted from the log."""

import numpy as np
import pytest

from cascade_sim.cascade.ledger import NO_BUDGET
from cascade_sim.market.bidder_tally import DRAWN, QUANTILES, SINGLE
from worlds.timed_market import live

DAY, HOUR = 86_400.0, 3_600.0
KINDS = {"free": {}, "half": {"options": {"factor": 0.5}}}


@pytest.fixture(scope="module")
def open_market():
    """No budgets, so that taking part is a matter of reaching the auction alone; a fifth is explored."""
    market = {"days": 0.25, "requests_per_second": 0.05, "window": 1800.0, "update": 3600.0}
    return live({**market, "exploration": 0.2, "bidders": KINDS})


@pytest.fixture(scope="module")
def scarce_market():
    market = {"days": 1.5, "requests_per_second": 0.015, "window": 1800.0, "update": 3600.0}
    return live({**market, "budgets": {"share": 0.8, "median": 12.0, "sigma": 0.7}, "bidders": KINDS})


@pytest.fixture(scope="module")
def late_market():
    market = {"days": 0.1, "requests_per_second": 0.2, "window": 60.0, "update": 1000.0}
    charging = {"click_delay": 120.0, "overspend": 0.1}
    return live({**market, "budgets": {"share": 0.6, "median": 8.0}, "charging": charging, "bidders": KINDS})


@pytest.mark.parametrize("name", KINDS)
def test_wins_and_requests_taken_part_in_are_those_of_the_auctions(open_market, name):
    mine, kind = open_market.members(name), open_market.metrics["bidders"][name]
    requests, won = np.zeros(6, int), np.zeros(6, int)
    for settled in open_market.settled:
        for r, time in enumerate(settled.block.times):
            entrants = set(settled.lists.entrants[r].tolist()) - {-1}
            requests[int(time // HOUR)] += sum(one in mine for one in entrants)
            if settled.lists.is_auctioned[r]:
                shown = settled.advertiser[r][settled.ads[r] >= 0]
                won[int(time // HOUR)] += np.isin(shown, mine).sum()
    assert kind["hours"] == {"requests": requests.tolist(), "impressions": won.tolist()}
    assert kind["win_rate"] == won.sum() / requests.sum() > 0
    # Explored pages are shown without an auction: impressions, but not won.
    assert kind["impressions"] == open_market.per_advertiser(slice(None))[mine].sum() > won.sum()


@pytest.mark.parametrize("found", ["scarce_market", "late_market"])
def test_surplus_is_what_the_clicks_were_worth_less_what_was_paid(found, request):
    found = request.getfixturevalue(found)
    value = np.rint(found.sim.world.init_bid * 1e6).astype(np.int64)
    rows = found.late or {name: x[found.log["click"]] for name, x in found.log.items()}
    charge = rows.get("charge", rows.get("charge_micros"))
    worth, paid = int(value[rows["ad"]].sum()), int(charge.sum())
    m = found.metrics
    assert (m["click_value"], m["surplus"]) == (worth / 1e6, (worth - paid) / 1e6)
    assert m["cpc"] == pytest.approx(paid / 1e6 / len(charge), rel=1e-12)
    assert sum(m["hours"]["charged_clicks"]) == len(charge) == m["clicks"] - m["pending_clicks"]
    for name, kind in m["bidders"].items():
        mine = np.isin(rows["advertiser"], found.members(name))
        worth, paid = int(value[rows["ad"][mine]].sum()), int(charge[mine].sum())
        assert (kind["click_value"], kind["surplus"]) == (worth / 1e6, (worth - paid) / 1e6)
        assert kind["clicks"] == mine.sum()


def test_late_clicks_stay_within_the_declared_limit(late_market):
    m, budget = late_market.metrics, late_market.run.ledger.budget
    spend = np.zeros(len(budget), np.int64)
    np.add.at(spend, late_market.late["advertiser"], late_market.late["charge"])
    assert m["overspend"] == (spend - budget).max() / 1e6 > 0 and m["beyond_limit"] == 0
    assert m["overspend_share"] == pytest.approx((spend / budget - 1).max())
    assert 0 < m["overspend_share"] <= m["overspend_limit"] == 0.1 and m["pending_clicks"] > 0


@pytest.mark.parametrize("name", KINDS)
def test_the_spread_over_advertisers_and_single_ones_follow_from_the_log(scarce_market, name):
    found, ledger = scarce_market, scarce_market.run.ledger
    mine = found.members(name)
    mine = mine[ledger.budget[mine] < NO_BUDGET]
    curve, log = found.metrics["bidders"][name]["curve"]["advertisers"], found.log
    assert curve["hour"] == [float(h) for h in range(1, 37)]
    middle = np.log(np.median(ledger.budget[mine]))
    median_ones = sorted(mine, key=lambda who: abs(np.log(ledger.budget[who]) - middle))[:SINGLE]
    assert [one["budget"] for one in curve["single"]] == [ledger.budget[who] / 1e6 for who in median_ones]
    for i, hour in enumerate(curve["hour"]):
        start = 0.0 if hour <= 24 else DAY
        rows = (log["time"] >= start) & (log["time"] < hour * HOUR)
        share = found.per_advertiser(rows, "charge_micros") / ledger.budget
        drawn = [curve[key][i] for key in ("low", "median", "high")]
        assert drawn == pytest.approx(np.quantile(share[mine], QUANTILES), abs=5.1e-5)
        single = [one["share"][i] for one in curve["single"]]
        assert single == pytest.approx(share[median_ones], abs=5.1e-5)


def test_bids_and_participation_are_means_over_a_kind(scarce_market):
    for name, bid in (("free", 1.0), ("half", 0.5)):
        kind = scarce_market.metrics["bidders"][name]
        assert kind["last_multiplier"] == pytest.approx(bid)
        assert kind["curve"]["participation"] == [1.0] * 36


def test_many_updates_are_thinned_for_the_eye_and_keep_midnights():
    market = {"days": 2.0, "requests_per_second": 0.001, "window": 150.0, "update": 150.0}
    found = live({**market, "budgets": {"share": 1.0}})
    curve = found.metrics["bidders"]["fixed"]["curve"]
    hours = curve["advertisers"]["hour"]
    assert len(curve["hour"]) == 2 * 576 > DRAWN and len(hours) <= DRAWN + 2
    assert {24.0, 48.0} <= set(hours) and hours == sorted(set(hours))
