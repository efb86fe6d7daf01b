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
    assert [122.0, pytest.approx(3.7)] in spots  # distill-pre: 28 + 94 kFLOPs of scoring, 3.7 % more RPM
    pieces = dashes(rpm)
    assert pieces[0][0] == [106.0, pytest.approx(-2.9)] and pieces[-1][1] == [564.0, pytest.approx(5.8)]
    assert all(a[0] < b[0] and a[1] < b[1] for a, b in pieces)
    assert dashes(rcs)[-1][1] == [564.0, 100.0]
    assert "kFLOPs" in rpm.get_xlabel() and "after retrieval" in rpm.get_xlabel()


def test_costs_far_apart_stand_on_a_logarithmic_axis(metrics):
    assert drawn(metrics).axes[0].get_xscale() == "linear"
    metrics["cost"]["ranker"]["scoring_flops"] *= 100
    axes = drawn(metrics).axes[0]
    assert axes.get_xscale() == "log"
    axes.figure.canvas.draw()
    assert all(label.get_text().replace(".", "").isdigit() for label in axes.get_xticklabels())


def test_reference_arms_far_below_are_named_under_the_panel(metrics):
    rpm = drawn(metrics).axes[0]
    texts = [text.get_text() for text in rpm.texts]
    # Wording: a note in the figure, all of what a reader sees of that arm.
    assert any(text.startswith("Off the chart: random (−47") for text in texts)
    assert {"ltr", "ranker"} <= set(texts) and "random" not in texts


def test_nothing_is_drawn_where_costs_are_not_known_or_all_alike(metrics):
    assert drawn(minimal_metrics()) is None
    for own in metrics["cost"].values():
        own["scoring_flops"] = 5.0
    assert drawn(metrics) is None
