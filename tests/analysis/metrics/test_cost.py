import pytest

from answers.report import make_metrics
from cascade_sim.analysis.metrics.cost import (
    ALL,
    SCORING,
    CostPoint,
    compared_cost,
    cost_frontier,
    cost_points,
    flops_of,
    stages_of,
)
from cascade_sim.analysis.statistics.estimates import Estimate


def point(arm, flops, value):
    return CostPoint(arm, flops, Estimate(value))


def test_the_frontier_is_what_no_other_beats_the_cheapest_first():
    points = [
        point("dear", 9.0, 2.0),
        point("worse", 9.0, 1.5),
        point("cheap", 1.0, 1.0),
        point("mid", 5.0, 0.9),
    ]
    assert [one.arm for one in cost_frontier(points)] == ["cheap", "dear"]
    assert [one.arm for one in cost_frontier([point("a", 1.0, 1.0), point("b", 1.0, 1.0)])] == ["a", "b"]


def test_retrieval_counts_where_it_tells_arms_apart():
    metrics = make_metrics()
    arms = list(metrics["cost"])
    assert compared_cost(metrics, arms) == SCORING
    metrics["cost"]["ltr"]["stages"][0]["flops"] = 1.0
    assert compared_cost(metrics, arms) == ALL
    assert compared_cost(metrics, [arm for arm in arms if arm != "ltr"]) == SCORING


@pytest.mark.parametrize("gone", [{}, {"ltr": {}}, {"ltr": {"scoring_flops": None, "stages": []}}])
def test_an_arm_without_a_cost_is_no_point(gone):
    metrics = {**make_metrics(), "cost": gone}
    assert stages_of(metrics, "ltr") == [] and flops_of(metrics, "ltr", ALL) is None
    assert cost_points(metrics, ["ltr", "random"], {"ltr": Estimate(1.0)}) == []
