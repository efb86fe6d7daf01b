import pytest

from answers.report import make_metrics, minimal_metrics
from cascade_sim.analysis.report.figures.cost import cost
from cascade_sim.analysis.report.figures.style import style


@pytest.fixture
def metrics():
    return make_metrics()


def drawn(metrics):
    with style("cost"):
        return cost(metrics)


def dashes(axes):
    """The ends of the pieces of the frontier."""
    return [
        line.get_xydata().tolist()
        for line in axes.lines
        if len(line.get_xdata()) == 2 and line.get_linestyle() == "--"
    ]


def test_a_point_per_arm_and_the_frontier_from_cheap_to_good(metrics):
    rpm, rcs = drawn(metrics).axes
    spots = [line.get_xydata()[0].tolist() for line in rpm.lines if len(line.get_xdata()) == 1]
    assert len(spots) >= len(metrics["arms"])
    assert [122.0, pytest.approx(3.7)] in spots  # distill-pre: 28 + 94 kFLOPs of scoring, 3.7 % more RPM
    pieces = dashes(rpm)
    assert pieces[0][0] == [94.0, pytest.approx(-38.3)] and pieces[-1][1] == [564.0, pytest.approx(5.8)]
    assert all(a[0] < b[0] and a[1] < b[1] for a, b in pieces)
    assert dashes(rcs)[-1][1] == [564.0, 100.0]
    assert "kFLOPs" in rpm.get_xlabel() and "after retrieval" in rpm.get_xlabel()


def test_costs_far_apart_stand_on_a_logarithmic_axis(metrics):
    assert drawn(metrics).axes[0].get_xscale() == "linear"
    metrics["cost"]["ranker"]["scoring_flops"] *= 100
    assert drawn(metrics).axes[0].get_xscale() == "log"


def test_nothing_is_drawn_where_costs_are_not_known_or_all_alike(metrics):
    assert drawn(minimal_metrics()) is None
    for own in metrics["cost"].values():
        own["scoring_flops"] = 5.0
    assert drawn(metrics) is None
