"""No number of a real run lies outside its own interval: a reader who sees one trusts neither."""

import json

import pytest

from cascade_sim.analysis.metrics.catalogue import ARM_MEASURES, MARKET_MEASURES, MODEL_MEASURES
from cascade_sim.analysis.statistics.days import RATIOS
from cascade_sim.context import RunContext
from cascade_sim.scenario.file import load_scenario
from cascade_sim.study.run import run_seed
from places import ROOT

# Nothing is trained; a market of a few days with few requests, noisy enough to show what noise does.
SMALL_MARKET = (
    *("models={}", "cascade.ranking.model=truth", "cascade.pre_ranking.model=random"),
    *("phases.cold_start=0", "phases.log=0", "phases.shadow=0", "phases.evaluate=256"),
    "arms={logloss: {}, wide: {pre_ranking: {size: 80}}}",
    *("market.days=5", "market.requests_per_second=0.004", "market.window=3600", "market.update=7200"),
    *("report.resamples=100", "report.detail_requests=64"),
    "what_if={reserve: ['auction.reserve_cpc=0.2,0.8']}",
)


def entries(node, path=()):
    """(path, entry) of everything that has a value and an interval."""
    if isinstance(node, dict):
        if {"value", "low", "high"} <= set(node) and None not in (node["value"], node["low"], node["high"]):
            yield path, node
        for key, part in node.items():
            yield from entries(part, (*path, key))
    elif isinstance(node, list):
        for i, part in enumerate(node):
            yield from entries(part, (*path, i))


def outside(metrics):
    return {path: e for path, e in entries(metrics) if not e["low"] <= e["value"] <= e["high"]}


@pytest.fixture(scope="module")
def market(tmp_path_factory):
    scenario = load_scenario(ROOT / "scenarios" / "market_day.yaml", SMALL_MARKET)
    context = RunContext(tmp_path_factory.mktemp("market"), ROOT / "scenarios", device="cpu")
    made = run_seed(scenario, context)
    return json.loads(json.dumps(made))


def test_no_metric_of_a_study_leaves_its_own_interval(study):
    assert not outside(study.metrics)
    known = {path[-1] for path, _ in entries(study.metrics)}
    assert set(ARM_MEASURES) | set(MODEL_MEASURES) <= known


@pytest.mark.drill
def test_no_metric_of_a_market_leaves_its_own_interval(market):
    assert not outside(market)
    known = {path[:1] + path[-1:] for path, _ in entries(market)}
    assert {("arms", name) for name in ("payment_error_vs_oracle", "rcs", "cpc_error")} <= known
    assert {("market", name) for name in set(RATIOS) & set(MARKET_MEASURES)} <= known
    assert ("what_if", "difference") in known


def test_a_value_outside_is_found():
    assert list(outside({"a": [{"value": 1.0, "low": 2.0, "high": 3.0}]})) == [("a", 0)]
