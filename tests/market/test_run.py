"""A market in simulated time: what is shown, charged and told, however the work is cut."""

import numpy as np
import pytest

from cascade_sim.foundation import random as draws
from cascade_sim.foundation.errors import UserError
from cascade_sim.market.ad_server import MarketServer
from worlds.timed_market import (
    DAY,
    FIRST_ONE,
    OPEN,
    RAISER,
    RECORDER,
    SCARCE,
    live,
    same,
    slow_days,
    write_bidder,
)
from worlds.tiny_market import z_score

TWO_DAYS = slow_days(window=3600.0)


@pytest.fixture(scope="module")
def scarce():
    """A market in which budgets run dry, bids move and ads sit out."""
    return live(SCARCE)


@pytest.fixture(scope="module")
def two_days():
    return live(TWO_DAYS)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Two days with two bidders that write down what they are told."""
    folder = tmp_path_factory.mktemp("recorder")
    kind = write_bidder(folder, RECORDER)
    bidders = {"one": {"kind": kind, "share": 0.3}, "other": {"kind": kind, "share": 0.7}}
    return live({**TWO_DAYS, "bidders": bidders}, home=folder)


def test_the_scarce_market_has_what_the_tests_below_are_about(scarce):
    kinds = scarce.metrics["bidders"]
    assert sum(kind["budget_exhausted"] * kind["with_budget"] for kind in kinds.values()) > 3
    assert min(kinds["throttling"]["advertisers"], kinds["shading"]["advertisers"]) > 1
    assert scarce.run.participation.min() < 0.9
    assert kinds["shading"]["curve"]["multiplier"][-1] < 0.99


def test_the_log_does_not_depend_on_the_number_of_workers(scarce):
    same(scarce, live(SCARCE, workers=2))


def test_the_log_does_not_depend_on_the_block_size(scarce):
    same(scarce, live(SCARCE, traffic={"block": 512}))
    same(scarce, live({**SCARCE, "depth": 5}, traffic={"block": 7}))


@pytest.mark.parametrize("depth", [4, 6, 1000])
def test_the_log_does_not_depend_on_the_depth_of_the_lists(scarce, depth):
    same(scarce, live({**SCARCE, "depth": depth}))


@pytest.mark.parametrize("pricing", ["gsp", "vcg", "first"])
def test_charges_are_spend_are_revenue_to_the_micro_unit(pricing):
    lived = live(SCARCE, auction={"pricing": pricing, "reserve_cpc": 0.6})
    log, everyone = lived.log, slice(None)
    assert (log["charge_micros"][~log["click"]] == 0).all()  # no charge without a click
    assert (log["charge_micros"] <= log["cpc_micros"]).all()
    assert (log["cpc_micros"] <= log["bid"] * 1e6 + 1e-6).all() and (log["cpc_micros"] >= 600_000).all()
    spend = lived.per_advertiser(everyone, "charge_micros")
    assert (spend == lived.run.ledger.spend()).all() and spend.sum() > 10**7
    revenue = lived.run.tally.hours["revenue_micros"].sum()
    assert revenue == spend.sum() == sum(int(s.charges_micros.sum()) for s in lived.settled)
    assert lived.metrics["revenue"] == revenue / 1e6
    for name in ("click", "conversion"):
        assert lived.metrics[f"{name}s"] == log[name].sum() > 0
    assert lived.metrics["impressions"] == len(log["ad"])


def test_nobody_overdraws_a_budget(scarce):
    budget, spent = scarce.run.ledger.budget, scarce.run.ledger.spend()
    assert (spent <= budget).all()
    dry = spent == budget
    assert dry.sum() > 3 and scarce.metrics["overspend"] == 0.0
    in_part = scarce.log["click"] & (scarce.log["charge_micros"] < scarce.log["cpc_micros"])
    assert in_part.any() and dry[scarce.log["advertiser"][in_part]].all()


def test_who_is_dry_when_a_window_begins_takes_no_place_in_its_auctions(scarce):
    left = scarce.run.ledger.budget.copy()
    owner, window, n_dry = scarce.sim.world.advertiser, -1, 0
    for piece in scarce.settled:
        if piece.block.times[0] // 60 > window:
            window, dry = piece.block.times[0] // 60, left <= 0
        candidates = owner[piece.lists.ads[piece.lists.ads >= 0]]
        assert not dry[candidates].any() and not dry[piece.lists.entrants[piece.lists.entrants >= 0]].any()
        np.subtract.at(left, piece.advertiser, piece.charges_micros)
        n_dry += dry.sum()
    assert n_dry > 50 and (left == scarce.run.ledger.available).all()


@pytest.mark.parametrize("window", [3600.0, 50_000.0, DAY / 7])
def test_who_has_spent_the_budget_shows_nothing_until_midnight_and_then_again(window):
    lived = live({**TWO_DAYS, "window": window})
    budget, log, day = lived.run.ledger.budget, lived.log, lived.day()
    n_dry, dry_on_monday = 0, []
    for today in (0, 1):
        spend = lived.per_advertiser(day == today, "charge_micros")
        assert (spend <= budget).all()
        for advertiser in np.nonzero(spend == budget)[0]:
            rows = (day == today) & (log["advertiser"] == advertiser)
            last = log["time"][rows & log["click"] & (log["charge_micros"] > 0)].max()
            assert log["time"][rows].max() == last  # the page that emptied it was its last of the day
            n_dry += 1
            dry_on_monday += [advertiser] if today == 0 else []
    assert n_dry > 8 and len(dry_on_monday) > 3
    back = log["time"][(day == 1) & np.isin(log["advertiser"], dry_on_monday)]
    assert back.min() < DAY + 1800  # there are some 18 requests in that half hour
    both = lived.per_advertiser(slice(None), "charge_micros")
    assert (both > budget).any()  # a budget is for a day
    assert (both == lived.run.ledger.spend()).all()


def test_requests_of_a_window_see_the_bids_from_its_start(tmp_path):
    lived = live(
        {"bidders": {"up": {"kind": write_bidder(tmp_path, RAISER)}}, "window": 60.0, "update": 150.0},
        home=tmp_path,
    )
    log = lived.log
    # Updates are due at 150, 300, 450 ..., and happen when a window ends: at 180, 300, 480, 600 ...
    ends = [60.0 * np.ceil(150.0 * i / 60.0) for i in range(1, 20)]
    times = 1 + np.searchsorted(ends, log["time"], side="right")
    assert times.max() > 5
    assert (log["bid"] == lived.sim.world.init_bid[log["ad"]] * times).all()


def test_bidders_are_asked_at_the_start_and_after_every_update(recorded):
    asked = recorded.bidder("one").asked
    assert [now.time for now in asked] == [7200.0 * i for i in range(25)]
    assert [now.day for now in asked] == [0] * 12 + [1] * 12 + [2]
    assert asked[12].elapsed == asked[12].expected_traffic == 0.0
    assert asked[6].elapsed == asked[6].expected_traffic == pytest.approx(0.5)


@pytest.mark.parametrize("name", ["one", "other"])
def test_bidders_are_told_exactly_what_happened_to_their_own_advertisers(recorded, name):
    log, mine = recorded.log, recorded.members(name)
    bidder, seed = recorded.bidder(name), recorded.sim.seed
    assert len(mine) > 2 and len(bidder.told) == 24
    kinds, draw = (
        draws.uniform(seed, purpose, log["request"], log["ad"]) for purpose in ("delay kind", "delay")
    )
    from cascade_sim.agents.conversions import delays

    arrival = np.where(log["conversion"], log["time"] + delays(kinds, draw), np.inf)
    before, n_late = 0.0, 0
    for at, told in bidder.told:
        now = at.time
        rows = (log["time"] >= before) & (log["time"] < now)
        expected = {
            "impressions": recorded.per_advertiser(rows),
            "clicks": recorded.per_advertiser(rows & log["click"]),
            "spend_micros": recorded.per_advertiser(rows, "charge_micros"),
            "conversions": recorded.per_advertiser((arrival > before) & (arrival <= now)),
            "spend_today_micros": recorded.per_advertiser(
                (log["time"] >= at.day * DAY) & (log["time"] < now), "charge_micros"
            ),
        }
        for key, values in expected.items():
            assert getattr(told, key).tolist() == values[mine].tolist(), (key, now)
        n_late += int(told.conversions.sum() > recorded.per_advertiser(rows & log["conversion"])[mine].sum())
        before = now
    assert n_late > 0  # news of a sale came after its update
    total = sum(int(told.conversions.sum()) for _, told in bidder.told)
    assert 0 < total < recorded.per_advertiser(log["conversion"])[mine].sum()  # and some had not come yet


def test_a_bidder_that_writes_into_what_it_is_given_changes_nothing_else(tmp_path, two_days):
    body = """
    def __init__(self, portfolio):
        super().__init__(portfolio)
        self.own = self.value.copy()
        portfolio.value[:] = 77.0
        portfolio.budget_micros[:] = 77

    def bids(self, now):
        return self.own

    def observe(self, feedback, now):
        feedback.spend_today_micros[:] = 0
        feedback.impressions[:] = 0
"""
    lived = live({**TWO_DAYS, "bidders": {"fixed": {"kind": write_bidder(tmp_path, body)}}}, home=tmp_path)
    same(two_days, lived)


def participated(lived, name):
    return sum(told.participated for _, told in lived.bidder(name).told)


def test_an_advertiser_with_money_takes_part_wherever_its_ads_reach_the_auction(tmp_path):
    kind = write_bidder(tmp_path, RECORDER)
    lived = live({"days": 900 / DAY, "bidders": {"all": {"kind": kind}}}, home=tmp_path, **OPEN)
    assert participated(lived, "all").tolist() == [lived.metrics["requests"]] * 5


def test_participation_counts_end_with_the_money(tmp_path):
    kind = write_bidder(tmp_path, RECORDER)
    budgets = {"share": 1.0, "median": 8.0, "sigma": 0.2}
    market = {"days": 900 / DAY, "budgets": budgets, "bidders": {"all": {"kind": kind}}}
    lived = live(market, home=tmp_path, **OPEN)
    counted, log = participated(lived, "all"), lived.log
    assert (lived.run.ledger.available == 0).sum() > 1
    for advertiser in np.nonzero(lived.run.ledger.available == 0)[0]:
        last = log["request"][log["advertiser"] == advertiser].max()
        assert counted[advertiser] == last - lived.settled[0].block.requests[0] + 1


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_an_advertiser_that_sits_out_loses_that_share_of_its_impressions(tmp_path, share):
    kind = write_bidder(tmp_path, FIRST_ONE)

    def with_share(first):
        bidders = {"own": {"kind": kind, "options": {"first": first}}}
        return live({"days": 0.05, "bidders": bidders}, home=tmp_path)

    full, throttled = with_share(1.0), with_share(share)
    requests = [np.unique(f.log["request"][f.log["advertiser"] == 0]) for f in (full, throttled)]
    assert len(requests[0]) > 300
    assert set(requests[1]) <= set(requests[0])
    if share == 0.0:
        assert len(requests[1]) == 0
    else:
        assert abs(z_score(len(requests[1]), np.full(len(requests[0]), share))) < 4
    assert throttled.metrics["impressions"] == full.metrics["impressions"]  # others moved up


def test_requests_follow_the_profile_hour_by_hour(tmp_path):
    shape = [0.0 if hour in (3, 4) else 1.0 + (hour % 6) for hour in range(24)]
    (tmp_path / "hours.csv").write_text("hour,value\n" + "".join(f"{h},{v}\n" for h, v in enumerate(shape)))
    market = {"days": 1.0, "requests_per_second": 0.05, "profile": "hours.csv", "window": 3600.0}
    lived = live({**market, "update": 3600.0}, home=tmp_path)
    counts = np.array(lived.metrics["hours"]["requests"])
    expected = 0.05 * DAY * np.array(shape) / np.sum(shape)
    assert counts.sum() == lived.metrics["requests"] == sum(len(s.block) for s in lived.settled)
    assert (counts[expected == 0] == 0).all() and expected.sum() == pytest.approx(4320)
    z = (counts - expected)[expected > 0] / np.sqrt(expected[expected > 0])
    assert np.abs(z).max() < 4 and 0.4 < np.mean(z**2) < 1.9


def traffic(lived):
    parts = [(s.block.requests, s.block.times, s.block.users, s.block.context) for s in lived.settled]
    return [np.concatenate(column) for column in zip(*parts, strict=True)]


def test_all_arms_live_through_the_same_traffic(scarce):
    other = live({**SCARCE, "bidders": {"fixed": {}}}, arm="opt", auction={"pricing": "first"})
    assert other.log["ad"].tolist() != scarce.log["ad"].tolist()
    for column, other_column in zip(traffic(scarce), traffic(other), strict=True):
        assert column.tobytes() == other_column.tobytes()
    requests, times, *_ = traffic(scarce)
    assert (np.diff(requests) == 1).all() and (np.diff(times) >= 0).all()
    assert times[-1] < 0.02 * DAY


def test_longer_simulations_begin_like_shorter_ones():
    short, long = live({"days": 0.01}), live({"days": 0.02})
    n = len(short.log["ad"])
    assert 0 < n < len(long.log["ad"])
    for name in short.log:
        assert short.log[name].tobytes() == long.log[name][:n].tobytes()


def test_a_block_is_ranked_again_at_most_once(monkeypatch):
    ranked = []
    rank = MarketServer.rank

    def counted(self, block, depth, *served_by_stage):
        ranked.append((int(block.requests[0]), depth))
        return rank(self, block, depth, *served_by_stage)

    monkeypatch.setattr(MarketServer, "rank", counted)
    lived = live({**SCARCE, "depth": 4, "window": 900.0}, traffic={"block": 128})
    again = [first for first, depth in ranked if depth == 20]
    assert len(again) > 3  # short lists did run out
    assert len(again) == len(set(again))
    blocks = {first for first, depth in ranked if depth == 4}
    n_dry = (lived.run.ledger.available <= 0).sum()
    assert set(again) <= blocks and len(lived.settled) <= 2 * len(blocks) + n_dry


def test_nonsense_in_the_middle_of_a_run_stops_it_too(tmp_path):
    body = "    def bids(self, now):\n        return self.value * (np.nan if now.time > 700 else 1)\n"
    with pytest.raises(UserError, match=r"market\.bidders\.odd: .*bids.* nan"):
        live({"bidders": {"odd": {"kind": write_bidder(tmp_path, body)}}}, home=tmp_path)


def test_explored_pages_are_full_while_anybody_can_pay_and_nobody_is_shown_below_the_reserve():
    scarce = {**SCARCE, "exploration": 1.0, "budgets": {"share": 0.9, "median": 3.0}}
    lived = live(scarce, auction={"reserve_cpc": 0.9})
    log, bid_enough = lived.log, lived.sim.world.init_bid >= 0.9
    assert log["is_explored"].all() and (log["cpc_micros"] == 900_000).all() and (log["bid"] >= 0.9).all()
    assert 0.2 < bid_enough.mean() < 0.9
    dry = (lived.run.ledger.available <= 0).mean()
    assert dry > 0.5
    late = [piece for piece in lived.settled if piece.block.times[0] > 1200]
    retrieved = [lived.sim.retriever(piece.block.users, 60) for piece in late]
    can_pay = lived.run.ledger.available[lived.sim.world.advertiser] > 0
    n_able = np.concatenate([(can_pay & bid_enough)[ids].sum(axis=1) for ids in retrieved])
    n_shown = np.concatenate([(piece.ads >= 0).sum(axis=1) for piece in late])
    assert (n_shown >= np.minimum(n_able, 3)).mean() > 0.6  # bids of those that pace lie below their values


def test_clicks_that_a_budget_could_not_pay_in_full_are_counted(scarce):
    clicked = scarce.log["click"]
    missing = (scarce.log["cpc_micros"] - scarce.log["charge_micros"])[clicked]
    assert scarce.metrics["unbilled_clicks"] == (missing > 0).sum() > 3
    assert scarce.metrics["unbilled_revenue"] == missing.sum() / 1e6


def test_the_hour_a_budget_ran_dry_is_that_of_the_click_that_emptied_it_on_each_day(two_days):
    log, budget, day = two_days.log, two_days.run.ledger.budget, two_days.day()
    hours = []
    for today in (0, 1):
        for advertiser in range(len(budget)):
            rows = (day == today) & (log["advertiser"] == advertiser)
            spent = np.cumsum(log["charge_micros"][rows])
            if len(spent) and spent[-1] >= budget[advertiser]:
                hours.append(log["time"][rows][np.argmax(spent >= budget[advertiser])] % DAY / 3600)
    kind = two_days.metrics["bidders"]["fixed"]
    assert kind["exhaustion_hour"] == np.median(hours) and len(hours) > 8
    assert kind["budget_exhausted"] == len(hours) / (2 * kind["with_budget"])
