"""What serving costs in the results: by formula in metrics.json, as measured in manifest.json alone."""

import itertools
import json

import pytest

from cascade_sim.cascade.arm_cost import stage_costs
from cascade_sim.study.cost import REQUESTS, ROUNDS, cost_section, mean_micros, measured_micros


def test_the_costs_of_an_arm_are_those_of_the_candidates_it_was_handed(study):
    evaluation, found = study.evaluation, study.metrics["cost"]
    assert list(found) == list(evaluation.arms)
    for name, arm in evaluation.arms.items():
        funnel = study.metrics["funnel"][name]
        handed = [funnel[one] for one in arm.set_names[:-1]]
        expected = stage_costs(arm, study.sim.world.n_ads, handed)
        own = found[name]
        assert [stage["flops"] for stage in own["stages"]] == [stage.flops for stage in expected]
        assert own["flops"] == pytest.approx(sum(stage.flops for stage in expected))
        assert own["scoring_flops"] == pytest.approx(own["flops"] - expected[0].flops)
        assert own["bytes"] == pytest.approx(sum(stage.bytes for stage in expected))


def test_the_ranker_as_the_pre_ranking_model_is_not_free(study):
    found = study.metrics["cost"]
    pre = {name: own["stages"][1]["flops"] for name, own in found.items()}
    assert pre["random"] == pre["bid_only"] == 0 < pre["ltr"] < pre["ranker"] / 4


def test_costs_by_formula_repeat_and_are_plain_numbers(study):
    found = cost_section(study.evaluation)
    assert json.loads(json.dumps(study.metrics["cost"])) == found["cost"]


def test_each_stage_is_timed_by_the_clock_that_is_given(study):
    """Of a clock that goes on by one whenever it is looked at, each stage takes one tick a part."""
    ticks = itertools.count()
    found = measured_micros(study.evaluation, clock=lambda: float(next(ticks)))
    arms = study.evaluation.arms
    assert {name: tuple(own) for name, own in found.items()} == {n: a.stage_names for n, a in arms.items()}
    assert {micros for own in found.values() for micros in own.values()} == {1e6 / REQUESTS}
    each = 3 + 1  # marks of an arm with retrieval and two stages
    parts = min(ROUNDS, -(-500 // REQUESTS))
    assert next(ticks) == parts * each * len(arms)


def test_timing_changes_nothing(study):
    before = study.sim.serve(study.sim.arrivals.block("evaluate", 0, 500), study.evaluation.baseline).win_set
    measured_micros(study.evaluation)
    after = study.sim.serve(study.sim.arrivals.block("evaluate", 0, 500), study.evaluation.baseline).win_set
    assert (before == after).all()


def test_worlds_are_averaged_and_what_one_lacks_is_left_out():
    one = {"a": {"ranking": 2.0, "coarse": 1.0}, "b": {"ranking": 1.0}}
    assert mean_micros([one, {"a": {"ranking": 4.0}}]) == {"a": {"ranking": 3.0}, "b": {}}
    assert mean_micros([]) == {}
