"""Measures, funnel, payers and curves of two ways to serve."""

import numpy as np
import pytest

from cascade_sim.live import figures
from cascade_sim.live.figures import _Spread
from cascade_sim.live.session import Variant


def answered(session, arm, base, blocks):
    return figures.answer(session, session.pages(arm), session.pages(base), blocks)


@pytest.fixture(scope="module")
def turned(session):
    way = Variant(session.baseline, ("auction.reserve_cpc=0.4", "cascade.pre_ranking.size=25"))
    base, arm, blocks = session.arm(Variant(session.baseline)), session.arm(way), session.blocks(True)
    for side in (base, arm):
        list(session.measured(side, blocks))
    return session, arm, base, blocks


def test_an_interval_of_some_requests_is_narrower_by_those_that_it_has_seen():
    added = np.random.default_rng(1).normal(size=400) / 400
    whole, half = (_Spread(None, share).interval(0.0, added) for share in (1.0, 0.5))
    assert half["high"] / whole["high"] == pytest.approx(np.sqrt(0.5))
    assert _Spread(None, 1.0).interval(float("nan"), added) == {"value": None, "low": None, "high": None}


def test_requests_of_one_unit_count_as_one():
    added = np.repeat(np.random.default_rng(1).normal(size=100), 4)
    alone, together = (
        _Spread(unit, 1.0).interval(0.0, added) for unit in (None, np.repeat(np.arange(100), 4))
    )
    assert together["high"] / alone["high"] == pytest.approx(2.0, rel=0.02)


def test_what_advertisers_pay_adds_up_to_the_revenue(turned):
    session, arm, base, blocks = turned
    found = answered(session, arm, base, blocks)
    for side, key in (("current", "paid_current"), ("variant", "paid_variant")):
        paid = sum(row[key] for row in found["payers"]["tiers"])
        assert paid == pytest.approx(1000 * found["measures"]["expected_revenue_per_request"][side]["value"])
    tiers = found["payers"]["tiers"]
    assert sum(row["advertisers"] for row in tiers) == session.sim.world.n_advertisers
    assert found["payers"]["movers"] and 0 < found["pages_changed"] <= 1


def test_the_funnel_says_where_the_best_ads_went(turned):
    session, arm, base, blocks = turned
    found = answered(session, arm, base, blocks)["funnel"]
    for side, size in (("current", base.most_auctioned), ("variant", arm.most_auctioned)):
        assert found[side]["competitive_set"] == size and sum(found[side]["best"].values()) == pytest.approx(
            1
        )
    recall = answered(session, arm, base, blocks)["measures"]["true_value_recall"]
    assert found["variant"]["best"]["pre_ranking"] == pytest.approx(1 - recall["variant"]["value"], abs=0.01)
    assert found["variant"]["best"]["pre_ranking"] < found["current"]["best"]["pre_ranking"]


def test_the_same_way_twice_moves_nothing(turned):
    session, _, base, blocks = turned
    found = answered(session, base, base, blocks)
    assert found["pages_changed"] == 0 and found["payers"]["movers"] == [] and found["day"] is None
    moved = [
        entry["difference"] for entry in found["measures"].values() if entry["variant"]["value"] is not None
    ]
    assert moved and all(gap == {"value": 0.0, "low": 0.0, "high": 0.0} for gap in moved)


def test_what_serves_alike_under_another_name_moves_nothing_to_the_last_bit(turned):
    session, _, _, blocks = turned
    seated, named = (
        session.arm(way)
        for way in (Variant(session.baseline, ("cascade.pre_ranking.model=ltr",)), Variant("ltr"))
    )
    for side in (seated, named):
        list(session.measured(side, blocks))
    for name, entry in answered(session, seated, named, blocks)["measures"].items():
        assert {*entry["lift"].values()} <= {0.0, None}, name


def test_pages_of_other_lengths_are_held_against_each_other(turned):
    session, _, base, blocks = turned
    arm = session.arm(Variant(session.baseline, ("cascade.slots=2",)))
    list(session.measured(arm, blocks))
    assert answered(session, arm, base, blocks)["pages_changed"] > 0.9
