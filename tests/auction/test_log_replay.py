"""Every impression in the logs, once more from its request by the plain-Python auction: to the micro-unit."""

from dataclasses import replace

import numpy as np
import pytest

from cascade_sim.auction.reference import charge_micros, reference_auction
from cascade_sim.cascade.serve import Block, score, serve
from cascade_sim.foundation import random as draws
from cascade_sim.scenario.schema import resolved_arms
from cascade_sim.storage.tables import read_table
from worlds.timed_market import OPEN, live

COLUMNS = ["request", "slot", "ad", "bid", "cpc_micros", "click", "charge_micros"]


def reference_page(bids, qualities, ads, arm, effects):
    """[(ad, bid, CPC in micro-units)] in slot order, from a request's candidates."""
    columns, prices = reference_auction(
        bids, qualities, slots=arm.slots, pricing=arm.pricing, reserve_cpc=arm.reserve_cpc,
        score_floor=arm.score_floor, effects=effects, ids=ads, **arm.parameters,
    )  # fmt: skip
    shown = [(at, price) for at, price in zip(columns, prices, strict=True) if at is not None]
    return [(ads[at], bids[at], charge_micros(float(price), bids[at])) for at, price in shown]


def candidates(block, arm, platform):
    """(bids, qualities, ads) of every request's competitive set, as plain lists."""
    ids = serve(block, arm, platform).competitive_set
    entering = score(block, ids, arm.last, arm, platform)
    tables = (entering.bid, entering.quality.astype(np.float64), ids)
    return list(zip(*(table.tolist() for table in tables), strict=True))


def replayed(sim, arm):
    """{request: page} of the whole evaluation."""
    pages, total = {}, sim.scenario.phases.evaluate
    for index in range(-(-total // sim.scenario.traffic.block)):
        block = sim.arrivals.block("evaluate", index, total)
        entered = candidates(block, arm, sim.platform)
        for request, one in zip(block.requests.tolist(), entered, strict=True):
            pages[request] = reference_page(*one, arm, sim.platform.slot_effects.tolist())
    return pages


def differences(log, pages):
    """Impressions that one of the two has and the other has not, or with another bid, price or charge."""
    in_log = set(zip(*(log[name].tolist() for name in COLUMNS), strict=True))
    clicks = {(r, slot): click for r, slot, *_, click, _ in in_log}
    again = set()
    for request, page in pages.items():
        for slot, (ad, bid, cpc) in enumerate(page):
            click = clicks.get((request, slot))
            again.add((request, slot, ad, bid, cpc, click, cpc if click else 0))
    return in_log ^ again


@pytest.mark.parametrize("name", ["logloss", "distill-pre", "ltr", "ranker", "pctr_only", "random"])
def test_every_logged_impression_of_the_evaluation_is_what_the_reference_says(study, name):
    arm = study.evaluation.arms[name]
    log = read_table(study.folder, f"evaluate-{name}", COLUMNS)
    assert len(log["request"]) > 1000
    assert differences(log, replayed(study.sim, arm)) == set()


def test_a_wrong_rule_would_be_seen(study):
    log = read_table(study.folder, "evaluate-logloss", COLUMNS)
    other = replace(study.evaluation.arms["logloss"], pricing="vcg")
    assert len(differences(log, replayed(study.sim, other))) > 1000


RULES = {
    "gsp": {},
    "vcg, reserve": {"pricing": "vcg", "reserve_cpc": 0.6},
    "first, floor": {"pricing": "first", "score_floor": 0.02},
    "soft floor": {"pricing": "soft_floor", "soft_floor": 0.9, "reserve_cpc": 0.3},
    "squashed": {"squashing": 0.5, "reserve_cpc": 0.3},
}


CASES = [pytest.param(name, marks=pytest.mark.drill if n % 3 else ()) for n, name in enumerate(RULES)]


@pytest.mark.parametrize("rules", CASES)
def test_every_impression_of_a_market_is_what_the_reference_says(rules):
    """Budgets run dry on the way: a plain-Python ledger keeps them, in request order."""
    market = {"budgets": {"share": 0.8, "median": 15.0, "sigma": 1.0}, "bidders": {"fixed": {}}}
    everyone = {**OPEN, "world": {**OPEN["world"], "advertisers": 20}}
    finished = live(market, **everyone, auction=RULES[rules])
    sim, log = finished.sim, finished.log
    arm = sim.arm("now", resolved_arms(sim.scenario)["now"])
    rows = {}
    for row in zip(*(log[name].tolist() for name in [*COLUMNS, "user"]), strict=True):
        rows.setdefault(row[0], []).append(row)
    left = [int(budget) for budget in finished.run.ledger.budget]
    requests = sorted(rows)
    block = logged_block(sim, requests, [rows[request][0][-1] for request in requests])
    entered = candidates(block, arm, sim.platform)
    n_dry, effects = 0, sim.platform.slot_effects.tolist()
    for at, request in enumerate(requests):
        bids, qualities, ads = entered[at]
        ids = [ad if ad >= 0 and left[sim.world.advertiser[ad]] > 0 else -1 for ad in ads]
        n_dry += ids != ads
        page, logged = reference_page(bids, qualities, ids, arm, effects), rows[request]
        assert [(slot, *place) for slot, place in enumerate(page)] == [row[1:5] for row in logged]
        shown = np.array([[ad for ad, _, _ in page]], np.int32)
        true_ctr = sim.environment._truth.ctr(block.take([at]), shown)[0].tolist()
        draw = draws.uniform(sim.seed, "click", np.array([request]), shown[0]).tolist()
        for slot, (ad, _, cpc) in enumerate(page):
            click = draw[slot] < effects[slot] * true_ctr[slot]
            charge = min(cpc, left[sim.world.advertiser[ad]]) if click else 0
            assert logged[slot][5:7] == (click, charge)
            left[sim.world.advertiser[ad]] -= charge
    assert n_dry > 20 and len(log["ad"]) > 2000  # the ledger matters
    spent = np.bincount(log["advertiser"], log["charge_micros"], sim.world.n_advertisers)
    assert spent.astype(np.int64).tolist() == (finished.run.ledger.budget - np.array(left)).tolist()


def logged_block(sim, requests, users):
    """Requests of the log as a block; the truth's predictions do not depend on who is beside whom."""
    ids = np.array(requests, np.int64)
    context = draws.normal(sim.seed, "context", ids).astype(np.float32)
    return Block(ids, np.array(users, np.int32), context, np.zeros(len(ids)))
