"""Several steps of pre-ranking: ablation, RCS after each step, sets of models, bids, words and controls."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from answers.section_text import says
from answers.told import tells
from cascade_sim.analysis.metrics.catalogue import ARM_MEASURES, arm_measure, arm_measures, measure_names
from cascade_sim.analysis.metrics.consistency import membership
from cascade_sim.analysis.report.readings import candidate_sets
from cascade_sim.analysis.report.sections.ablation import (
    ablation_section,
    ablation_table,
    ablation_words,
    steps_table,
)
from cascade_sim.analysis.report.terminal import terminal_summary
from cascade_sim.auction import MICROS
from cascade_sim.cascade.serve import serve, shadow
from cascade_sim.counterfactual.critical_bids import of_block
from cascade_sim.diagnostics.trace import explain_ad, find_request, from_stage, min_passing_bid
from cascade_sim.live.controls import _size_range, labels_of
from cascade_sim.scenario.market import Sizes
from cascade_sim.scenario.memory import sizes_of
from cascade_sim.scenario.models import ModelSpec
from cascade_sim.scenario.overrides import overrides_of
from cascade_sim.study.evaluate import ablation_arms
from cascade_sim.study.model_quality import QualityStudy
from cascade_sim.study.results import combine_seeds
from cascade_sim.study.sweeps import ablation_table as markdown_table
from cascade_sim.training.data import sample_lists
from worlds.tiny_market import run_phases, tiny_scenario

STEPS = ["coarse", "middle", "pre_ranking"]
N = 64


@pytest.fixture(scope="module")
def five(tmp_path_factory):
    """Five stages, 60 > 30 > 10 > 8 > 3: by init-bid and chance, truth alone, init-bid and truth, ranking."""
    folder = tmp_path_factory.mktemp("five")
    scenario = tiny_scenario(
        "models={}", "cascade.ranking={model: truth}",
        "phases.cold_start=0", "phases.log=0", "phases.shadow=0", f"phases.evaluate={N}",
        "traffic.block=32", "report.detail_requests=16",
        "cascade.pre_ranking=[{name: coarse, model: random, bid: init, size: 30}, "
        "{name: middle, model: truth, bid: none, size: 10}, {model: truth, bid: init, size: 8}]",
        "arms={now: {}, narrow: {pre_ranking: {earlier: {coarse: {size: 22}}}}}", "report.baseline=now",
    )  # fmt: skip
    return run_phases(scenario, folder, folder / "cache")


@pytest.fixture(scope="module")
def block(five):
    return five.sim.arrivals.block("evaluate", 0, N)


def test_each_step_is_ablated_alone_and_only_all_of_them_together_reach_1(five):
    rows = [(row["stage"], row["bid"], row["model"], row["role"]) for row in five.metrics["ablation"]]
    assert rows == [
        ("coarse", "init", "random", "as it is"), ("coarse", "opt", "random", "bid"),
        ("coarse", "init", "truth", "model"), ("coarse", "opt", "truth", "both"),
        ("middle", "none", "truth", "as it is"), ("middle", "opt", "truth", "bid"),
        ("pre_ranking", "init", "truth", "as it is"), ("pre_ranking", "opt", "truth", "bid"),
        ("all", "opt", "truth", "all"),
    ]  # fmt: skip
    values = [row["rcs"]["value"] for row in five.metrics["ablation"]]
    assert values[-1] == 1.0 and max(values[:-1]) < 1.0
    base = five.metrics["arms"]["now"]["rcs"]["value"]
    assert [v for v, row in zip(values, rows, strict=True) if row[3] == "as it is"] == [base] * 3


def test_an_ablated_step_leaves_the_others_as_they_are(five):
    base = five.evaluation.baseline
    for key, arm in ablation_arms(base).items():
        changed = [one.name for one, was in zip(arm.stages, base.stages, strict=True) if one != was]
        allowed = STEPS if key.stage == "all" else [key.stage]
        assert set(changed) <= set(allowed) and [s.size for s in arm.stages] == [30, 10, 8, None]
    assert len({arm.name for arm in ablation_arms(base).values()}) == len(ablation_arms(base))


def test_rcs_after_a_step_is_the_share_of_the_ideal_win_set_that_it_hands_on(five):
    sim, arm = five.sim, five.evaluation.baseline
    shares, own = {1: [], 2: [], 3: []}, []
    for index in range(N // 32):
        block = sim.arrivals.block("evaluate", index, N)
        decision, ideal = sim.serve(block, arm), sim.serve(block, shadow(arm))
        for at in shares:
            shares[at].append(membership(ideal.win_set, decision.passes[at].ids).mean(axis=1))
        best = np.argsort(-ideal.passes[0].scores.prediction, axis=1, kind="stable")[:, :3]
        first = decision.passes[0]
        top = np.argsort(-first.scores.prediction, axis=1, kind="stable")[:, :30]
        ids = np.take_along_axis(ideal.retrieved, best, 1)
        own.append(membership(ids, np.take_along_axis(first.ids, top, 1)).mean(axis=1))
    found = five.metrics["arms"]["now"]
    names = ("rcs_after_coarse", "rcs_after_middle", "rcs")
    expected = [np.concatenate(part).mean() for part in shares.values()]
    assert [found[name]["value"] for name in names] == pytest.approx(expected)
    assert 1 > expected[0] > expected[1] >= expected[2] > 0
    assert found["single_objective_rcs_after_coarse"]["value"] == pytest.approx(np.concatenate(own).mean())
    narrow = five.metrics["arms"]["narrow"]["rcs_after_coarse"]["value"]
    assert narrow < found["rcs_after_coarse"]["value"]


def test_measures_after_steps_are_named_by_the_columns_and_read_by_their_names():
    assert arm_measures({"ideal_reached", "requests"}) == ARM_MEASURES
    columns = {"ideal_reached_after_coarse", "ideal_requests_after_coarse", "ideal_reached_after_half"}
    assert set(arm_measures(columns)) - set(ARM_MEASURES) == {"rcs_after_coarse"}
    assert (
        arm_measure("rcs_after_coarse").label == "RCS after coarse" and arm_measure("rcs_after_coarse").unit
    )
    assert arm_measure("cpc_after_coarse").label == "cpc_after_coarse"


def test_measures_and_sets_are_listed_in_the_order_of_the_steps(five):
    names = measure_names(five.metrics)
    assert names[:3] == ["rcs_after_coarse", "rcs_after_middle", "rcs"]
    sets = ["win_set", "competitive_set", "pre_ranking_set", "middle_set", "coarse_set"]
    assert candidate_sets(five.metrics) == sets
    assert five.metrics["funnel"]["now"] == {
        "corpus": 600, "coarse_set": 60, "middle_set": 30, "pre_ranking_set": 10, "competitive_set": 8,
        "win_set": 3,
    }  # fmt: skip
    stages = [row["stage"] for row in five.metrics["attribution"]["now"]["stages"]]
    assert stages == ["retrieval", *STEPS, "ranking"]


def test_models_are_measured_on_the_set_of_every_stage(five, block):
    arm, sim = five.evaluation.baseline, five.sim
    study = QualityStudy(sim, ["truth", "random"], None, arm, len(block))
    study.add(block, sim.serve(block, arm), np.arange(len(block)))
    for kind, size in (("coarse_set", 60), ("middle_set", 30), ("pre_ranking_set", 10), ("win_set", 3)):
        assert study.by_model["truth"][kind].sums["bins"].sum(axis=0)[0].sum() == size * len(block)


@pytest.mark.parametrize(
    ("name", "size"), [("coarse", 60), ("middle", 30), ("pre_ranking", 10), ("competitive", 8)]
)
def test_a_student_learns_from_the_set_that_the_named_stage_is_handed(five, block, name, size):
    arm, sim = five.evaluation.baseline, five.sim
    told = {"recipe": "distill", "sample": {"set": name, "per_request": 100}, "features": ("quality",)}
    spec = ModelSpec.model_validate(told)
    teacher = SimpleNamespace(log_odds=lambda block, ids: np.zeros(ids.shape, np.float32))
    lists = sample_lists(spec, teacher, block, sim.serve(block, arm), arm, sim.platform, 1)
    assert lists.ads.shape == (len(block), size)


def test_critical_bids_go_through_every_step(five, block):
    sim, arm = five.sim, five.evaluation.baseline
    decision = serve(block, arm, sim.platform)
    found = of_block(block, arm, sim.platform, decision)

    def least(used, row, slot, ad):
        def keeps(micros):
            changed = replace(sim.platform, bids=sim.platform.bids.with_bid(ad, micros / MICROS))
            return ad in serve(block, used, changed).win_set[row, : slot + 1]

        return min_passing_bid(keeps, int(sim.platform.bids.init_bid[ad] * MICROS))

    auction = from_stage(arm, len(arm.stages) - 1, decision.competitive_set)
    for i in range(0, len(found), 12):
        at = int(found.request[i] - block.requests[0]), int(found.slot[i]), int(found.ad[i])
        assert least(auction, *at) == found.local_micros[i]
        assert least(arm, *at) == found.cascade_micros[i]
    # A step that asks the most is in the bid: without it, less would do for some ads.
    last = replace(arm, stages=arm.stages[2:])
    alone = of_block(block, last, sim.platform, replace(decision, passes=decision.passes[2:]))
    assert (found.cascade_micros > alone.cascade_micros).any()


def test_trace_has_a_row_and_a_least_bid_for_each_stage(five):
    sim, arm = five.sim, five.evaluation.baseline
    request = find_request(sim, 40)
    decision = serve(request.block, arm, sim.platform)
    before = [set(ids[request.row].tolist()) for ids in decision.sets]
    for at, stage in enumerate(STEPS):
        ad = min(before[at] - before[at + 1])
        told = explain_ad(sim, request, arm, decision, ad)
        assert told["dropped_by"] == stage and [row["stage"] for row in told["stages"]][1:-1] == STEPS
        assert set(told["bids"]) >= {*STEPS, "auction", "cascade"}
        assert (told["bids"][stage] or np.inf) > told["init_bid"]
        assert told["bids"]["middle"] in (None, 1 / MICROS)  # which does not look at bids


def test_the_report_says_which_step_and_which_part_is_to_blame(five):
    labels = [row.label for row in ablation_table(five.metrics).rows]
    assert labels[0] == "coarse: init-bid × random" and labels[-1].endswith(": opt-bid × truth")
    words = ablation_words(five.metrics)
    assert says(words, "Coarse", "most", "inconsistency", "model")
    table = steps_table(five.metrics)
    assert table.columns[:3] == ["after coarse", "after middle", "after pre-ranking"]
    assert [width for _, width in table.groups] == [3, 3]
    assert ablation_section(five.metrics) is not None
    text = str(terminal_summary(five.metrics))
    assert labels[-1] in text and "after middle" in text


def test_reference_arms_are_said_to_replace_the_last_step(five, study):
    assert "last step" in five.metrics["references"]["ranker"]
    assert "upper bound" in study.metrics["references"]["ranker"]


def test_one_step_has_no_step_in_its_rows_or_tables(study):
    assert all("stage" not in row for row in study.metrics["ablation"])
    assert not [name for name in study.metrics["arms"]["logloss"] if "rcs_after_" in name]
    assert steps_table(study.metrics) is None and candidate_sets(study.metrics)[-1] == "pre_ranking_set"


def test_orders_between_worlds_have_the_baseline_once(five):
    orders = combine_seeds([five.metrics, five.metrics])["orders"]["ablation"]
    assert " ".join(orders["order"]).count("as it is") == 1
    assert orders["order"][0] == "all: opt × truth"


def test_variants_with_other_steps_stand_in_one_table(five, study):
    lines = markdown_table({"five": five.metrics, "three": study.metrics}).splitlines()
    assert lines[0].count("|") == 3 + 9 + 4 - 1
    assert "| – " in lines[2] and "| – " in lines[3] and "100.0" in lines[2] and "100.0" in lines[3]


def test_memory_counts_the_arms_and_the_sets_of_every_step(five):
    one, steps = sizes_of(tiny_scenario()), sizes_of(five.sim.scenario)
    assert one.ranked == 15 and steps.ranked == 30 + 10 + 8
    assert (one.arms, steps.arms) == (3 + 4 + 4, 2 + 4 + 3 * 4 + 1)


def test_the_page_offers_the_parameters_of_each_step_within_their_neighbours(five):
    session = SimpleNamespace(specs=five.evaluation.specs)
    labels = labels_of(["coarse", "middle"])
    size = ("pre_ranking", "earlier", "coarse", "size")
    assert tells(labels[size], "coarse")
    assert list(labels).index(size) < list(labels).index(("pre_ranking", "size"))
    ranges = {step: _size_range(session, "now", step) for step in STEPS}
    assert {step: (found["low"], found["high"]) for step, found in ranges.items()} == {
        "coarse": (10, 60), "middle": (8, 30), "pre_ranking": (4, 10),
    }  # fmt: skip


def test_a_rule_may_choose_the_size_of_an_earlier_step(five, block, monkeypatch):
    monkeypatch.setattr("cascade_sim.study.size_fit.REQUESTS", 256)
    sim, specs = five.sim, five.evaluation.specs
    coarse = specs["now"].pre_ranking.earlier["coarse"]
    rule = Sizes(choices=(12, 20, 30), mean=20)
    spec = specs["now"].model_copy(update={"earlier_sizes": {"coarse": rule}})
    arm = sim.arm("ruled", spec)
    assert [stage.size_rule is not None for stage in arm.stages] == [True, False, False, False]
    counts = sim.serve(block, arm).passes[1].counts
    assert set(counts.tolist()) <= {12, 20, 30} and len(set(counts.tolist())) > 1
    assert overrides_of(spec)["pre_ranking"]["earlier"]["coarse"] == {
        **{"model": coarse.model, "bid": coarse.bid, "fusion": coarse.fusion},
        "sizes": {"choices": [12, 20, 30], "mean": 20},
    }
    session = SimpleNamespace(specs={"ruled": spec})
    assert _size_range(session, "ruled", "coarse") is None and _size_range(session, "ruled", "middle")
