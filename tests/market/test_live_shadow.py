"""Ranking consistency watched on live requests."""

import numpy as np
import pytest

from cascade_sim.analysis.metrics.consistency import rcs
from cascade_sim.analysis.report.figures.market import market_consistency
from cascade_sim.cascade.serve import serve, shadow
from cascade_sim.market.live_shadow import LiveShadow
from cascade_sim.market.run import MarketRun
from cascade_sim.scenario.schema import resolved_arms
from cascade_sim.study.simulation import Simulation
from worlds.timed_market import timed_scenario


def lived(share, name="now", **market):
    sim = Simulation(timed_scenario({"shadow": share, **market}), 1)
    blocks = []
    arm = sim.arm(name, resolved_arms(sim.scenario)[name])
    run = MarketRun(sim, arm, sim.scenario.market, is_watched=True, on_block=blocks.append)
    run.run()
    return sim, arm, run, blocks


def test_every_watched_request_counts_by_what_its_ranker_would_have_shown():
    _, arm, run, pieces = lived(1.0)
    shares, n = [], 0
    for piece in pieces:
        ideal, live = (serve(piece.block, a, run.server.platform) for a in (shadow(arm), arm))
        shares.append(rcs(ideal.win_set, live.competitive_set))
        n += len(piece.block)
    whole = np.concatenate(shares)
    found = run.live_shadow.metrics()
    assert found["requests"] == n == len(whole) > 1000
    assert found["rcs"]["value"] == pytest.approx(whole.mean())
    half = 1.96 * whole.std(ddof=1) / np.sqrt(n)
    assert found["rcs"]["high"] - found["rcs"]["value"] == pytest.approx(half, rel=1e-3)
    assert 0.2 < whole.mean() < 0.4  # random pre-ranking, by bid: 20 of 60


def test_a_share_is_watched_without_changing_what_anybody_is_shown():
    _, _, some, pieces = lived(0.2)
    _, _, none, others = lived(0.0)
    assert none.live_shadow.metrics() is None and none.live_shadow.state() == {}
    assert some.tally.metrics() == none.tally.metrics()
    assert all(np.array_equal(a.ads, b.ads) for a, b in zip(pieces, others, strict=True))
    n = sum(len(piece.block) for piece in pieces)
    assert abs(some.live_shadow.metrics()["requests"] - 0.2 * n) < 4 * np.sqrt(0.16 * n)


def test_hours_and_days_are_parts_of_the_whole_and_a_state_holds_them():
    _, _, run, _ = lived(0.5, days=0.06)
    found = run.live_shadow.metrics()
    assert len(found["hours"]) == 2 and len(found["days"]) == 1
    assert found["days"][0] == found["rcs"]
    again = LiveShadow(run.spec, run.sim.seed)
    again.restore(run.live_shadow.state())
    assert again.metrics() == found


def test_a_market_that_is_not_watched_is_written_as_before():
    assert "shadow" not in timed_scenario().market.model_dump()
    assert timed_scenario({"shadow": 0.1}).market.model_dump()["shadow"] == 0.1


def test_the_figure_has_a_line_for_every_watched_arm():
    entry = {"value": 0.5, "low": 0.4, "high": 0.6}
    nothing = {"value": None, "low": None, "high": None}
    arm = {"hours": {}, "consistency": {"hours": [entry, nothing, entry], "days": [entry]}}
    metrics = {
        "baseline": "a",
        "arms": {"a": {}, "b": {}},
        "market": {"arms": {"a": arm, "b": {"hours": {}}}},
    }
    figure = market_consistency(metrics)
    assert [line.get_ydata().tolist() for line in figure.axes[0].lines if len(line.get_ydata()) == 2] == [
        [50.0, 50.0]
    ]
    metrics["market"]["arms"]["a"] = {"hours": {}}
    assert market_consistency(metrics) is None
