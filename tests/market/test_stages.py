"""A market whose stages take time: who is late, what answers then, and what it costs."""

import numpy as np
import pytest

from worlds.timed_market import SCARCE, live, same

BY_RETRIEVAL, BY_PRE_RANKING, BY_RANKING = 0, 1, 2  # places in `arm.stage_names`
# One server a stage at 1 request a second: both rankings are busy for most of the time.
STAGES = {
    "retrieval": {"per_batch_ms": 20.0, "per_candidate_us": 100.0},
    "pre_ranking": {"per_batch_ms": 150.0, "per_candidate_us": 8000.0, "batch": 1},
    "ranking": {"per_batch_ms": 100.0, "per_candidate_us": 30_000.0, "batch": 1},
}
COMPUTE = {"deadline": 1500.0, "stages": STAGES, "jitter": 0.3}
BUSY = {**SCARCE, "compute": COMPUTE}
PRE = {"retrieval": {"size": 60}, "pre_ranking": {"model": "truth", "size": 20},
       "ranking": {"model": "truth", "bid": "init"}, "slots": 3}  # fmt: skip


@pytest.fixture(scope="module")
def busy():
    return live(BUSY)


def answered(found):
    return np.concatenate([one.lists.served_by_stage for one in found.settled])


def test_some_requests_are_late_and_the_tally_counts_what_the_log_holds(busy):
    by = answered(busy)
    figures = busy.run.server.compute.metrics(busy.metrics["revenue"])
    for name, stage in {"ranking": 2, "pre_ranking": 1, "retrieval": 0, "none": -1}.items():
        assert figures["answered"][name] == np.mean(by == stage)
    assert 0.1 < np.mean(by == BY_PRE_RANKING) < 0.9 and (by == BY_RETRIEVAL).any()
    assert figures["latency"]["p99"] <= 1500.0 == figures["deadline"]


def test_without_a_squeeze_nothing_changes_by_one_bit():
    plenty = {"deadline": 1e6, "stages": {name: {"servers": 50} for name in STAGES}}
    free, timed = live(SCARCE), live({**SCARCE, "compute": plenty})
    assert (answered(timed) == BY_RANKING).all()
    same(free, timed)


def test_a_page_made_without_an_auction_costs_the_reserve(busy):
    found = live(BUSY, auction={"reserve_cpc": 0.4})
    by = {int(r): int(a) for one in found.settled for r, a in
          zip(one.block.requests, one.lists.served_by_stage, strict=True)}  # fmt: skip
    rows = np.array([by[int(r)] == BY_RETRIEVAL for r in found.log["request"]])
    assert rows.sum() > 5 and (found.log["cpc_micros"][rows] == 400_000).all()
    assert (found.log["cpc_micros"][~rows] > 400_000).any()
    assert (found.log["served_by_stage"] == [by[int(r)] for r in found.log["request"]]).all()


def test_the_pre_ranking_stage_answers_with_its_own_order():
    """With the truth in both seats and the same bids its page is ranking's own, late or not."""
    quick = {name: {"servers": 9, "per_batch_ms": 1.0, "per_candidate_us": 1.0} for name in STAGES}
    slow = {**COMPUTE, "stages": {**quick, "ranking": {"per_candidate_us": 1e6}}}
    cascade = {**PRE, "pre_ranking": {"model": "truth", "size": 20, "bid": "init"}}
    late, in_time = live({"compute": slow}, cascade=cascade), live({}, cascade=cascade)
    assert (answered(late) == BY_PRE_RANKING).mean() > 0.9
    by = {int(r) for one in late.settled for r, a in
          zip(one.block.requests, one.lists.served_by_stage, strict=True) if a == BY_PRE_RANKING}  # fmt: skip
    rows = [np.isin(f.log["request"], list(by)) for f in (late, in_time)]
    assert late.log["ad"][rows[0]].tolist() == in_time.log["ad"][rows[1]].tolist()


@pytest.mark.drill
def test_lateness_depends_neither_on_workers_nor_on_blocks_nor_on_depth(busy):
    same(busy, live(BUSY, workers=2))
    same(busy, live(BUSY, traffic={"block": 7}))
    same(busy, live({**BUSY, "depth": 4}))


def test_budgets_hold_when_pages_are_late(busy):
    assert (busy.run.ledger.spend() <= busy.run.ledger.budget).all()
    assert (busy.per_advertiser(slice(None), "charge_micros") == busy.run.ledger.spend()).all()


def test_fewer_candidates_cost_less_and_miss_fewer_deadlines(busy):
    small = live(BUSY, cascade={**PRE, "pre_ranking": {"model": "random", "size": 8}})
    one, other = (f.run.server.compute.metrics(1.0) for f in (small, busy))
    assert one["late"] < other["late"] and one["mean_size"] == 8
    assert one["stages"]["ranking"]["utilisation"] < other["stages"]["ranking"]["utilisation"] < 1


SIZES = {"choices": [6, 12, 20], "mean": 12.0}
RULED = {
    "arms": {"now": {"pre_ranking": {"sizes": SIZES}}, "base": {}},
    "report": {"baseline": "base", "resamples": 10, "detail_requests": 16},
}


def test_a_size_rule_keeps_its_mean_size():
    found = live({"compute": COMPUTE, "days": 0.05}, **RULED)
    assert found.run.server.compute.metrics(1.0)["mean_size"] == pytest.approx(12.0, rel=0.1)


@pytest.mark.drill
def test_a_size_rule_depends_neither_on_workers_nor_on_blocks():
    market = {**BUSY, "days": 0.03}
    same(live(market, **RULED), live(market, workers=2, traffic={"block": 19}, **RULED))
