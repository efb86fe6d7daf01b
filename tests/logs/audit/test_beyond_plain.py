"""Logs beyond plain auctions: scores with a pCVR in them, and drawn pages at the prices of their lists."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from answers.told import refused, tells
from cascade_sim.auction import to_micros
from cascade_sim.counterfactual.whatif import what_if_study
from cascade_sim.foundation.errors import ScenarioError
from cascade_sim.logs.audit.study import audit
from cascade_sim.logs.importing.mapping import read_mapping
from worlds.logged_auctions import drawn, paged, stored
from worlds.logged_market import write_market

MAPPING = """
name: fused
{charging}rule: {{pricing: gsp, squashing: 1, pcvr: 1}}
requests: {{columns: {{request: r, time: t}}}}
candidates: {{files: log.csv, columns: {{request: r, ad: a, bid: b, pctr: p{pcvr}}}}}
outcomes: {{columns: {{request: r, ad: a, slot: s}}}}
"""


@pytest.fixture(scope="module")
def market(tmp_path_factory):
    """A market of 1,500 auctions by bid * pCTR * pCVR ^ 0.5."""
    folder, log = tmp_path_factory.mktemp("fused") / "market", drawn(3)
    pcvr = np.random.default_rng(4).uniform(0.02, 0.3, log.pctr.shape)
    pages = paged(replace(log, pctr=log.pctr * pcvr**0.5), reserve_cpc=0.3)
    rule = {"pricing": "gsp", "squashing": 1.0, "pcvr": 0.5, "reserve_cpc": 0.3}
    store = stored(
        folder, replace(pages, pctr=log.pctr), rule,
        further={"pcvr": pcvr, "click": np.where(pages.slot >= 0, pcvr > 0.2, -1)},
    )  # fmt: skip
    write_market(folder, store)
    return folder


def test_all_pages_come_out_under_the_declared_rule(market):
    found = audit(market)
    assert found.tally()["share"].tolist() == [1.0, 1.0, 1.0]
    assert tells(found.answer["rule_text"], "pCVR", 0.5)


def test_the_exponent_of_the_pctr_is_found_beside_it(market):
    best = audit(market, infer=True).answer["inference"]["rules"][0]
    assert best["values"]["squashing"] == pytest.approx(1.0, abs=1e-6) and best["pages"] == 1.0


def test_what_ifs_follow_it(market):
    answer = what_if_study(market, ["auction.reserve_cpc=0.8"])
    assert answer["replay"]["replayed"] == {"page_match_rate": 1.0, "price_match_rate": 1.0}
    (point,) = answer["points"]
    assert point["metrics"]["cpc"]["value"] > answer["current"]["metrics"]["cpc"]["value"]


@pytest.mark.parametrize("rule", [{"pricing": "gsp", "squashing": 1.0}, None])
def test_drawn_pages_are_held_against_the_price_of_their_list(rule, tmp_path):
    log, slots, depth = drawn(5, requests=400), 3, 5
    score = log.bid * log.pctr
    rng, order = np.random.default_rng(6), np.argsort(-score, axis=1, kind="stable")
    places = np.argsort(rng.random((400, depth)), axis=1)[:, :slots]
    winners = np.take_along_axis(order, places, 1)
    bid, quality = (np.take_along_axis(values, winners, 1) for values in (log.bid, log.pctr))
    beyond = np.take_along_axis(score, order[:, [depth]], 1)
    prices = to_micros(np.minimum(beyond / quality, bid), bid)
    prices[:100] = 0  # at the reserve, which is none
    prices[100:150] = 123_456  # one price for all
    drawn_log = log.with_pages(winners, prices)
    chance = {"propensity": np.where(drawn_log.slot >= 0, 0.2, np.nan)}
    found = audit(stored(tmp_path / "m", drawn_log, rule, further=chance, is_randomised=True))
    counts = {row["key"]: row["requests"] for row in found.answer["reasons"]}
    assert counts.pop("tie", 0) + sum(counts.values()) + found.answer["tally"]["pages_matched"] == 400
    assert counts["explored"] == 100 and counts["flat_price"] == 50 and counts["list_price"] >= 240
    assert "unexplained" not in counts
    assert any(tells(note, "prices") for note in found.answer["notes"])
    assert not any("exponent cannot" in note for note in found.answer["notes"])


def test_a_rule_with_a_pcvr_needs_one_in_the_log(tmp_path):
    (tmp_path / "log.csv").write_text("r,t,a,b,p,s,v\n")
    good = read_mapping(MAPPING.format(charging="", pcvr=", pcvr: v"), "mapping.yaml", tmp_path)
    assert good.rule.pcvr == 1
    with pytest.raises(ScenarioError, match=r"mapping.yaml:3:\d+ rule.pcvr: .*add `pcvr` to candidates"):
        read_mapping(MAPPING.format(charging="", pcvr=""), "mapping.yaml", tmp_path)
    with refused("mapping.yaml:", "per impression", kind=ScenarioError):
        read_mapping(
            MAPPING.format(charging="charging: impression\n", pcvr=", pcvr: v"), "mapping.yaml", tmp_path
        )
