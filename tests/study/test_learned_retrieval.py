"""A study whose deployed cascade retrieves by a model: its log, its arms, and what is asked of it."""

import json
from dataclasses import replace

import numpy as np
import pytest

from cascade_sim import whatif
from cascade_sim.cascade.retrievers.learned import LearnedRetrieval
from cascade_sim.cascade.retrievers.routes import MergedRoutes
from cascade_sim.cascade.retrievers.uniform import UniformRetrieval
from cascade_sim.cascade.serve import retrieve, serve
from cascade_sim.cli import main
from cascade_sim.counterfactual.critical_bids import critical_bids, section
from cascade_sim.counterfactual.landscape import landscape
from cascade_sim.foundation.errors import UserError
from cascade_sim.live.controls import parameters_of
from cascade_sim.live.session import Session, Variant
from cascade_sim.scenario.overrides import overrides_of
from cascade_sim.scenario.schema import resolved_arms
from cascade_sim.storage.tables import read_table
from cascade_sim.study.prepare import deployed_arm, exploration_pool
from cascade_sim.study.simulation import Simulation
from worlds.tiny_market import QUICK, TINY, tiny_scenario

LEARNED = (
    "models.towers={features: [user, quality, tier, G1, G2, G3], dims: 6}",
    "models.context={features: [user, context, quality, tier, G1], dims: 6}",
    "cascade.retrieval={model: towers, size: 60}",
    *("phases.cold_start=400", "phases.log=500", "phases.shadow=60", "phases.evaluate=256"),
    "arms={deployed: {}, similar: {retrieval: {kind: similarity}}, "
    "no_bid: {retrieval: {model: context, bid_weight: 0}}, "
    "merged: {retrieval: {routes: {learned: {model: towers, size: 40}, near: {size: 20}}}}}",
    "report.baseline=deployed",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("learned")


def run_in(folder, name, *options):
    words = [w for text in (*TINY, *LEARNED) for w in ("--set", text)]
    assert main(["run", str(QUICK), "--out", str(folder / name), "--quiet", *words, *options]) == 0
    return folder / name


@pytest.fixture(scope="module")
def run(folder):
    return run_in(folder, "run")


@pytest.fixture(scope="module")
def session(run):
    return Session(run)


def test_each_arm_has_its_own_retriever_and_more_value_than_by_similarity(run, session):
    kinds = {
        name: session.arm(Variant(name)).retrieval.retriever for name in ("deployed", "similar", "merged")
    }
    assert isinstance(kinds["deployed"], LearnedRetrieval) and kinds["similar"].name == "similarity"
    assert (
        isinstance(kinds["merged"], MergedRoutes) and kinds["merged"].routes[0].retriever is kinds["deployed"]
    )
    arms = json.loads((run / "metrics.json").read_text())["arms"]
    rcs = {name: arms[name]["retrieval_rcs"]["value"] for name in ("deployed", "similar")}
    assert rcs["deployed"] > rcs["similar"] + 0.1


def test_the_cold_start_draws_from_the_whole_corpus_with_its_propensity(run):
    log = read_table(run, "cold_start", ["ad", "propensity", "is_explored"])
    assert log["is_explored"].all() and len(np.unique(log["ad"])) > 500  # of 600
    assert np.allclose(log["propensity"], 1 / 600)


def test_with_other_workers_the_bytes_are_the_same(run, folder):
    again = run_in(folder, "again", "--workers", "2")
    tables = [path.relative_to(run) for path in sorted(run.glob("logs/**/*.parquet"))]
    assert len(tables) > 5
    for name in ("metrics.json", *tables):
        assert (run / name).read_bytes() == (again / name).read_bytes(), name


@pytest.mark.parametrize("name", ["deployed", "merged"])
def test_at_its_own_bid_and_at_others_an_ad_gets_what_serving_again_gives(session, name):
    sim, arm = session.sim, session.arm(Variant(name))
    block = sim.arrivals.block("evaluate", 0, 256)
    shown = serve(block, arm, sim.platform).win_set
    ad = int(np.argmax(np.bincount(shown[shown >= 0])))
    bids = sim.world.init_bid[ad] * np.array([0.02, 0.3, 1.0, 3.0])
    found = landscape(sim, arm, ad, bids, len(block))
    for bid, impressions in zip(bids, found.impressions, strict=True):
        platform = replace(sim.platform, bids=sim.platform.bids.with_bid(ad, float(bid)))
        assert impressions == (serve(block, arm, platform).win_set == ad).sum()
    assert found.impressions[0] < found.impressions[2] <= found.impressions[3]


def test_where_a_route_leaves_another_ad_out_for_a_bid_its_rivals_are_those_of_that_bid(session):
    sim, arm = session.sim, session.arm(Variant("merged"))
    merged = arm.retrieval.retriever
    routes = tuple(replace(one, size=n) for one, n in zip(merged.routes, (2, 20), strict=True))
    arm = replace(arm, retrieval=replace(arm.retrieval, retriever=replace(merged, routes=routes), size=22))
    block = sim.arrivals.block("evaluate", 0, 256)
    found = retrieve(block, arm, sim.platform)
    often = np.argsort(-np.bincount(found[found >= 0]), kind="stable")[:24]
    for ad in often.tolist():
        bids = sim.world.init_bid[ad] * np.array([0.6, 1.0, 1.6])
        platforms = [replace(sim.platform, bids=sim.platform.bids.with_bid(ad, float(bid))) for bid in bids]
        served = [(serve(block, arm, platform).win_set == ad).sum() for platform in platforms]
        assert served == landscape(sim, arm, ad, bids, len(block)).impressions.tolist()


def test_the_trace_says_what_bid_retrieval_asks_for(run, session, capsys):
    sim, arm = session.sim, session.arm(Variant("deployed"))
    block = sim.arrivals.block("evaluate", 0, 256)
    scores = arm.retrieval.retriever.score(block, np.arange(600, dtype=np.int32)[None, :].repeat(256, 0))
    ad = int(np.argsort(-scores[0])[80])  # not among the 60
    assert main(["trace", str(run), "--request", "0", "--ad", str(ad), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    needed = answer["ad"]["bids"]["retrieval"]
    assert answer["ad"]["dropped_by"] == "retrieval" and needed > sim.world.init_bid[ad]
    for bid, is_in in ((needed, True), (needed - 1e-6, False)):
        platform = replace(sim.platform, bids=sim.platform.bids.with_bid(ad, bid))
        assert (ad in serve(block, arm, platform).retrieved[0]) == is_in


WHAT_IFS = {
    "another model": {"retrieval.model": "context", "retrieval.bid_weight": 0},
    "the similarity": {"retrieval.kind": "similarity"},
    "without bids": {"retrieval.bid_weight": 0},
    "routes": {"retrieval.routes": {"one": {"model": "towers", "size": 60}}},
}


@pytest.mark.parametrize("asked", WHAT_IFS.values(), ids=WHAT_IFS)
def test_a_what_if_changes_the_retriever(run, session, asked):
    found = whatif(run, **{f"cascade.{key}": value for key, value in asked.items()}).frame()
    lift = found[found["metric"] == "expected_revenue_per_request"]["lift"].dropna().abs().max()
    assert lift == 0 if "retrieval.routes" in asked else lift > 1e-3


def test_the_live_page_offers_the_models_that_retrieve(session):
    about = {p["path"]: p for p in parameters_of(session, "deployed")}
    assert about["cascade.retrieval.model"]["choices"] == ["towers", "context"]
    assert about["cascade.retrieval.bid_weight"]["current"] == 1.0
    assert "cascade.retrieval.bid_weight" not in {p["path"] for p in parameters_of(session, "similar")}


def test_an_arm_written_out_is_the_same_arm():
    scenario = tiny_scenario(*LEARNED)
    for spec in resolved_arms(scenario).values():
        written = overrides_of(spec)["retrieval"]
        again = tiny_scenario(*LEARNED, f"arms.again={{retrieval: {json.dumps(written)}}}")
        assert resolved_arms(again)["again"].retrieval == spec.retrieval


def test_before_its_first_training_any_ads_are_candidates():
    sim = Simulation(tiny_scenario(*LEARNED), 1)
    arm = deployed_arm(sim)
    assert isinstance(arm.retrieval.retriever, UniformRetrieval)
    assert exploration_pool(sim, arm).n_ads == 600
    similar = Simulation(tiny_scenario(), 1)
    assert exploration_pool(similar, deployed_arm(similar)) is None
    wide = Simulation(tiny_scenario("phases.exploration_pool=corpus"), 1)
    assert exploration_pool(wide, deployed_arm(wide)).n_ads == 600


REFUSED = {
    "no such model": (["cascade.retrieval.model=towrs"], ("cascade.retrieval.model", "towrs", "towers")),
    "no inner product": (
        ["models.towers.kind=coaction"], ("cascade.retrieval.model", "coaction", "encode_users")
    ),
    "a pair feature": (
        ["models.towers.features=[user, mismatch_pair]"], ("cascade.retrieval.model", "mismatch_pair")
    ),
    "conversions": (["models.towers.target=conversion"], ("cascade.retrieval.model", "conversions")),
    "a kind beside it": (["cascade.retrieval.kind=similarity"], ("cascade.retrieval.kind", "model")),
    "a group beside it": (["cascade.retrieval.group=G1"], ("cascade.retrieval.group", "model")),
    "a bid of a similarity": (
        ["arms.similar={retrieval: {kind: similarity, bid_weight: 1}}"],
        ("arms.similar.retrieval.bid_weight",),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("changes", "said"), REFUSED.values(), ids=REFUSED)
def test_contradictions_are_refused_before_any_work(changes, said):
    with pytest.raises(UserError) as refused:
        tiny_scenario(*LEARNED, *changes)
    assert all(word in str(refused.value) for word in said)


def test_critical_bids_say_where_retrieval_is_held(session):
    arms = {name: session.arm(Variant(name)) for name in ("deployed", "similar", "no_bid", "merged")}
    by_arm = {name: critical_bids(session.sim, arm, 20) for name, arm in arms.items()}
    found = section(session.sim, arms, by_arm, 20)["arms"]
    assert {name for name, row in found.items() if row.get("retrieval") == "held"} == {"deployed", "merged"}
