"""Two arms on one ledger: each decides as it would alone, and together they overdraw no budget."""

import numpy as np
import pytest

from cascade_sim.cascade.serve import Block, serve
from cascade_sim.experiments.server import mixed
from cascade_sim.market.ad_server import MarketServer
from cascade_sim.market.settlement import RankedLists, list_pages
from worlds.design_market import design_scenario, live_design

DAY = 86_400.0


@pytest.fixture(scope="module")
def trial():
    """A trial by request on both days; the treatment has more slots, other prices and a reserve."""
    return live_design(design_scenario(pre_days=0), "request")


def columns(settled, *names):
    return [np.concatenate([getattr(one, name) for one in settled]) for name in names]


def requests_of(settled):
    return [
        np.concatenate([getattr(one.block, name) for one in settled])
        for name in ("requests", "users", "times")
    ]


def test_both_arms_serve_and_the_treatment_has_its_own_slots_and_reserve(trial):
    run, settled = trial
    treated = run.outcomes.columns()["is_treated"]
    ads, cpc = columns(settled, "ads", "cpc_micros")
    assert 0.4 < treated.mean() < 0.6
    assert ads.shape[1] == 3 and (ads[~treated, 2] == -1).all() and (ads[treated, 2] >= 0).mean() > 0.3
    assert cpc[treated][ads[treated] >= 0].min() >= 400_000 > cpc[~treated][ads[~treated] >= 0].min()


def test_no_budget_is_overdrawn_on_any_day_by_both_arms_together(trial):
    run, settled = trial
    budget, (_, _, times) = run.ledger.budget, requests_of(settled)
    owner, charges = columns(settled, "advertiser", "charges_micros")
    dry = 0
    for day in (0, 1):
        rows = times // DAY == day
        spend = np.zeros(len(budget), np.int64)
        np.add.at(spend, owner[rows], charges[rows])
        assert (spend <= budget).all()
        dry += (spend == budget).sum()
    assert dry > 8
    assert run.tally.metrics()["overspend"] == 0.0


def test_money_is_taken_in_request_order_whoever_serves(trial):
    run, settled = trial
    requests, _, times = requests_of(settled)
    assert (np.diff(requests) == 1).all() and (np.diff(times) >= 0).all()


def test_each_arm_ranks_its_requests_as_it_would_alone_at_the_same_bids(trial):
    run, settled = trial
    server, treated = run.server, run.outcomes.columns()["is_treated"]
    requests, users, times = requests_of(settled)
    from cascade_sim.foundation import random as draws

    context = draws.normal(run.sim.seed, "context", requests).astype(np.float32)
    rows = slice(0, 200)
    block = Block(requests[rows], users[rows].astype(np.int32), context[rows], times[rows])
    found = server.rank(block, 1)
    for i, alone in enumerate(server.servers):
        own = np.nonzero(treated[rows] == bool(i))[0]
        assert len(own) > 50
        expected = alone.rank(block.take(own), alone.list_depth)
        depth = expected.ads.shape[1]
        for name in ("ads", "bid", "quality", "prediction", "is_in"):
            assert (getattr(found, name)[own, :depth] == getattr(expected, name)).all(), name
        decided = serve(block.take(own), alone.arm, alone.platform)
        k = alone.arm.slots
        assert (expected.ads[:, :k] == decided.ranked_set[:, :k]).all()


def test_each_arm_prices_its_own_pages_for_the_budgets_as_they_stand(trial):
    run, settled = trial
    server = run.server
    block = settled[0].block
    lists = server.rank(block, 1)
    full = np.full_like(run.ledger.available, 10**12)
    before, run.ledger.available = run.ledger.available, full
    try:
        pages, stop = server.list_pages(lists, 0)
        assert stop == len(block)
        for i, alone in enumerate(server.servers):
            rows = np.nonzero(run.assignment.is_treated(block) == bool(i))[0]
            arm = alone.arm
            expected, _ = list_pages(
                alone.rank(block.take(rows), alone.list_depth), run.sim.world.advertiser, full,
                arm.rules(run.sim.platform.slot_effects),
            )  # fmt: skip
            assert (pages.cpc_micros[rows, : arm.slots] == expected.cpc_micros).all()
            assert (pages.column[rows, : arm.slots] == expected.column).all()
    finally:
        run.ledger.available = before


def test_short_lists_that_run_out_are_ranked_again_and_change_nothing(trial, monkeypatch):
    _, settled = trial
    deep = []
    rank = MarketServer.rank

    def counted(self, block, depth, *served_by_stage):
        deep.append(depth == self.arm.most_auctioned)
        return rank(self, block, depth, *served_by_stage)

    monkeypatch.setattr(MarketServer, "rank", counted)
    _, again = live_design(design_scenario({"depth": 4}, pre_days=0), "request")
    assert sum(deep) > 3
    for one, other in zip(
        *(columns(s, "ads", "cpc_micros", "charges_micros") for s in (settled, again)), strict=True
    ):
        assert (one == other).all()


def lists_of(width, rows, fill):
    shape = (rows, width)
    return RankedLists(
        np.full(shape, fill, np.int32), np.full(shape, 1.0), np.full(shape, 0.5), np.full(shape, 0.1),
        np.ones(shape, bool), np.ones(rows, bool), np.ones(rows, bool), np.zeros(rows, bool),
        np.full(rows, 2, np.int8), np.full(shape, 0.3, np.float32), np.full((rows, width + 1), fill),
    )  # fmt: skip


def test_lists_of_different_depth_come_together_in_request_order():
    found = mixed([(np.array([0, 2]), lists_of(2, 2, 7)), (np.array([1]), lists_of(3, 1, 8))])
    assert found.ads.tolist() == [[7, 7, -1], [8, 8, 8], [7, 7, -1]]
    assert found.entrants.tolist() == [[7, 7, 7, -1], [8] * 4, [7, 7, 7, -1]]
    assert np.isnan(found.raw_score).tolist() == [[False, False, True], [False] * 3, [False, False, True]]
    assert found.is_in.tolist() == [[True, True, False], [True] * 3, [True, True, False]]
    assert type(found.take([1])) is RankedLists and found.take([1]).ads.tolist() == [[8, 8, 8]]


def test_arms_of_a_cascade_with_two_steps_share_a_market():
    """A first step that hands on all of its candidates leaves both arms as they are."""
    scenario = design_scenario({"days": 0.5}, pre_days=0)
    plain = scenario.cascade.model_dump()
    plain["pre_ranking"]["earlier"] = {"coarse": {"model": "random", "bid": "none", "size": 60}}
    four = scenario.model_copy(update={"cascade": type(scenario.cascade).model_validate(plain)})
    (three_run, three), (four_run, settled) = (live_design(one, "request") for one in (scenario, four))
    assert all((piece.lists.served_by_stage == 3).all() for piece in settled)
    assert len(four_run.server.arm.stages) == 3 == len(three_run.server.arm.stages) + 1
    names = ("ads", "cpc_micros", "charges_micros")
    for one, other in zip(columns(three, *names), columns(settled, *names), strict=True):
        assert len(one) > 100 and one.tobytes() == other.tobytes()
