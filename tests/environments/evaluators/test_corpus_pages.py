"""Recall of pages of the whole corpus by stage and route, against plain loops; welfare against its best."""

from dataclasses import replace
from math import prod

import numpy as np
import pytest

from cascade_sim.analysis.metrics.catalogue import ARM_MEASURES, arm_measures, part_measure
from cascade_sim.cascade.fusion import Fusion
from cascade_sim.cascade.retrievers.routes import MergedRoutes, Quota
from cascade_sim.cascade.serve import Stage, serve, shadow
from cascade_sim.environments.evaluators import corpus as detail
from cascade_sim.scenario.schema import Route, resolved_arms
from cascade_sim.study.results import stage_settings
from cascade_sim.study.simulation import Simulation
from worlds.cascades import with_retrieved
from worlds.tiny_market import part_of, run_phases, tiny_scenario

N_ADS, SLOTS, N = 300, 3, 60
PAGES = ("ideal_page", "best_page")
UNTRAINED = (
    *("models={}", "cascade.ranking.model=truth", "cascade.pre_ranking.model=truth"),
    *("phases.cold_start=0", "phases.log=0", "phases.shadow=0"),
)


class Crooked:
    """A ranker that is wrong about every third ad."""

    name, link, by_pair = "crooked", "sigmoid", True

    def __init__(self, truth):
        self.truth = truth

    def predict(self, block, ids):
        return self.truth.predict(block, ids) * np.where(ids % 3 == 0, 0.2, 1.0)


def market(*overrides):
    scenario = tiny_scenario(
        *UNTRAINED, f"world.ads={N_ADS}", "arms={now: {}}", "report.baseline=now", *overrides
    )
    sim = Simulation(scenario, 1, 1)
    arm = sim.arm("now", resolved_arms(scenario)["now"])
    arm = arm.with_stage(-1, scorer=Crooked(sim.scorers["truth"]))
    return sim, arm, part_of(sim.arrivals.block("evaluate", 0, N), slice(0, N))


def in_steps(sim, arm):
    """Two steps more before the last one."""
    coarse = Stage(sim.scorers["random"], "init", Fusion(), size=40, name="coarse")
    middle = Stage(sim.scorers["truth"], "none", Fusion(), size=25, name="middle")
    return replace(arm, stages=(coarse, middle, *arm.stages))


def by_routes(sim, arm):
    """Near ads of two groups; some are brought by both."""
    routes = {group: sim.environment.retriever(Route(group=group, size=25), None) for group in ("G1", "G3")}
    merged = MergedRoutes(tuple(Quota(group, found, 25) for group, found in routes.items()))
    return with_retrieved(arm.among(merged), 50)


WAYS = {
    "one step": ((), lambda sim, arm: arm),
    "three steps": ((), in_steps),
    "routes": ((), by_routes),
    "churn": (("world.churn={available_share: 0.6, mean_lifetime_days: 3}",), by_routes),
    "reserve": (("auction.reserve_cpc=1.1",), in_steps),
}


@pytest.fixture(scope="module", params=WAYS)
def case(request):
    overrides, change = WAYS[request.param]
    sim, arm, block = market(*overrides)
    arm = change(sim, arm)
    decision = serve(block, arm, sim.platform)
    table = detail.corpus_columns(sim.environment, N_ADS, block, {"now": (arm, decision)}, "now")["now"]
    return sim, arm, block, decision, table


def pages(sim, arm, block, r):
    """The best ads of the corpus for one request, ad by ad: {page: ids}."""
    one, lives = part_of(block, slice(r, r + 1)), sim.platform.lives
    worth = {name: {} for name in PAGES}
    for ad in range(N_ADS):
        ids = np.array([[ad]], np.int32)
        if lives is not None and not lives.is_available(ids, one.times[:, None])[0, 0]:
            continue
        bid = sim.platform.bids.bid(arm.last.bid, one, ids, arm.bid_rule, arm.bid_range)[0, 0]
        if bid < arm.reserve_cpc:
            continue
        worth["ideal_page"][ad] = bid * arm.last.scorer.predict(one, ids)[0, 0]
        worth["best_page"][ad] = bid * sim.environment.ctr(one, ids)[0, 0]
    return {name: sorted(found, key=lambda ad: (-found[ad], ad))[:SLOTS] for name, found in worth.items()}


def test_recall_by_stage_and_route_is_what_a_plain_loop_finds(case):
    sim, arm, block, decision, table = case
    lives, retriever = sim.platform.lives, arm.retrieval.retriever
    routes = {route.name: route for route in getattr(retriever, "routes", ())}
    for r in (0, 9, N - 1):
        one = part_of(block, slice(r, r + 1))
        brought = {name: set(q.retriever.retrieve(one, q.size, lives)[0]) for name, q in routes.items()}
        for page, ads in pages(sim, arm, block, r).items():
            kept = [np.isin(ads, ids[r]).mean() for ids in decision.sets]
            assert table[f"{page}_reached"][r] == kept[-1] and table[f"{page}_requests"][r] == 1.0
            for at, stage in enumerate(arm.stage_names[:-1]):
                assert table[f"{page}_reached_after_{stage}"][r] == kept[at]
                later = arm.stage_names[at + 1]
                assert table[f"{page}_reached_of_{later}"][r] == kept[at + 1]
                assert table[f"{page}_requests_of_{later}"][r] == kept[at]
            for name, own in brought.items():
                others = set().union(*(ads for other, ads in brought.items() if other != name))
                assert table[f"{page}_reached_by_{name}"][r] == np.mean([ad in own for ad in ads])
                alone = np.mean([ad in own - others for ad in ads])
                assert table[f"{page}_reached_only_by_{name}"][r] == alone
    assert all(0 < table[f"{page}_reached_after_retrieval"].mean() < 1 for page in PAGES)


def test_what_stages_do_by_themselves_multiplies_to_the_cascade(case):
    _, arm, _, _, table = case
    sums = {name: float(column.sum()) for name, column in table.items()}
    measures = arm_measures(table)
    for whole in ("ideal_page_recall", "best_page_recall"):
        alone = [measures[f"{whole}_of_{stage}"].of(sums) for stage in arm.stage_names[1:]]
        first = measures[f"{whole}_after_retrieval"].of(sums)
        assert first * prod(alone) == pytest.approx(measures[whole].of(sums))
    # What comes to ranking of the page that ranking itself would choose is always shown.
    assert measures["ideal_page_recall_of_ranking"].of(sums) == 1.0
    assert measures["best_page_recall_of_ranking"].of(sums) < 1.0


def test_routes_bring_what_is_retrieved_and_alone_less(case):
    _, arm, _, _, table = case
    names = [route.name for route in getattr(arm.retrieval.retriever, "routes", ())]
    measures = {name for name in arm_measures(table) if "_by_" in name}
    assert len(measures) == 4 * len(names)
    for page in PAGES if names else ():
        by, only = (
            np.array([table[f"{page}_reached_{kind}_{name}"] for name in names]) for kind in ("by", "only_by")
        )
        assert np.all(only <= by) and (only < by).any()
        both = by[0] + by[1] - table[f"{page}_reached_after_retrieval"]
        assert both == pytest.approx(by[0] - only[0])


def test_the_ideal_page_is_what_ranking_shows_of_all_ads():
    sim, arm, block = market("auction.reserve_cpc=1.1", "auction.squashing=0.7")
    found = detail.pages_of_corpus(sim.environment, N_ADS, arm, block)
    everything = shadow(with_retrieved(arm, N_ADS))
    assert np.array_equal(found.ideal, serve(block, everything, sim.platform).win_set)
    assert not np.array_equal(found.ideal, found.best)


def test_arms_with_one_ranker_ask_it_once_about_the_corpus(monkeypatch):
    sim, arm, block = market()
    asked = []
    predict = Crooked.predict
    monkeypatch.setattr(
        Crooked,
        "predict",
        lambda self, block, ids: (asked.append(ids.shape[1]), predict(self, block, ids))[1],
    )
    arms = {"now": arm, "more": with_retrieved(arm, 80), "routes": by_routes(sim, arm)}
    served = {name: (one, serve(block, one, sim.platform)) for name, one in arms.items()}
    asked.clear()
    found = detail.corpus_columns(sim.environment, N_ADS, block, served, "now")
    assert asked.count(N_ADS) == 1
    assert np.array_equal(found["now"]["best_page_value"], found["routes"]["best_page_value"])


def test_an_arm_with_better_candidates_exceeds_the_oracle_and_never_the_corpus(tmp_path):
    """The oracle has the baseline's 20 of 300 ads; the arm that sees all of them has no mistake to make."""
    metrics = run_phases(
        tiny_scenario(
            *UNTRAINED, f"world.ads={N_ADS}", "phases.evaluate=64", "traffic.block=64",
            "cascade.retrieval={size: 20, overlap: 0.0}", "cascade.pre_ranking.bid=opt",
            "cascade.pre_ranking.size=10", "auction.reserve_cpc=0.9", "report.baseline=now",
            "arms={now: {}, all: {retrieval: {size: 300}, auction: {reserve_cpc: 0.0}}, "
            "more: {retrieval: {size: 60}}}",
        ),
        tmp_path, tmp_path / "cache",
    ).metrics["arms"]  # fmt: skip
    oracle, corpus = (
        {arm: metrics[arm][name]["value"] for arm in ("now", "more", "all")}
        for name in ("welfare_vs_oracle", "corpus_welfare_efficiency")
    )
    assert oracle["now"] == pytest.approx(1.0) and oracle["all"] > oracle["more"] > 1.05
    assert corpus["now"] < corpus["more"] < corpus["all"] and corpus["all"] == pytest.approx(1.0)
    assert metrics["more"]["corpus_welfare_efficiency"]["lift"]["low"] > 0


def test_gaps_between_stages_are_paired_and_settings_name_the_keys(study):
    own = study.metrics["attribution"]["logloss"]
    stages = [row["stage"] for row in own["stages"]]
    for kind, values in (
        ("avoidable", own["ecpm_avoidable"]),
        ("perfect", {stage: own["perfect_stage"][stage]["ecpm_gain"] for stage in stages}),
    ):
        gaps = own[f"{kind}_gaps"]
        for one in stages:
            assert set(gaps[one]) == {*stages} - {one}
            for other, gap in gaps[one].items():
                assert gap["value"] == pytest.approx(values[one]["value"] - values[other]["value"])
                assert gap["low"] < gap["value"] < gap["high"]
                assert gap["low"] == pytest.approx(-gaps[other][one]["high"])
    settings = own["settings"]
    assert list(settings) == stages
    assert settings["retrieval"] == {"kind": "similarity", "key": "retrieval", "size": 60}
    assert settings["ranking"] == {"kind": "ranking", "model": "rank", "recipe": "logloss"}
    step = settings["pre_ranking"]
    assert (step["kind"], step["key"], step["size"], step["bid"]) == ("step", "pre_ranking", 15, "init")
    assert [arm for arm, row in study.metrics["attribution"].items() if "settings" in row] == ["logloss"]


def test_settings_name_the_steps_and_the_routes_of_an_arm():
    scenario = tiny_scenario(
        *UNTRAINED, "arms={now: {}}", "report.baseline=now",
        "cascade.retrieval={routes: {near: {size: 30}, off: {size: 0}, new: {group: G3, size: 20}}}",
        "cascade.pre_ranking=[{name: coarse, model: random, size: 30}, {model: truth, size: 9}]",
    )  # fmt: skip
    found = stage_settings(resolved_arms(scenario)["now"], scenario.models)
    assert found["retrieval"] == {"kind": "routes", "routes": {"near": 30, "new": 20}}
    assert found["coarse"]["key"] == "pre_ranking.earlier.coarse" and "recipe" not in found["coarse"]
    assert list(found) == ["retrieval", "coarse", "pre_ranking", "ranking"]


def test_the_names_of_parts_are_read_by_the_measure_that_they_begin_with():
    found = part_measure("best_page_recall_only_by_two_of_towers")
    assert found.parts == (
        "best_page_reached_only_by_two_of_towers",
        "best_page_requests_only_by_two_of_towers",
    )
    # Wording: labels of measures.
    assert found.is_of_corpus and found.label == "Best-page recall only by two-of-towers"
    assert part_measure("ideal_page_recall_of_") is None and part_measure("rcs_of_ranking") is None
    assert part_measure("ideal_page_recall_after_x_of_y").label == "Ideal-page recall after x-of-y"
    assert set(arm_measures({"ideal_page_reached_by_a", "ideal_page_requests"})) == set(ARM_MEASURES)
