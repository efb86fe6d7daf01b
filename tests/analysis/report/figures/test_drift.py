import pytest

from answers.drift import drift_metrics
from answers.learning import learning_metrics
from answers.report import minimal_metrics
from cascade_sim.analysis.report.figures.drift import drift_calibrator, drift_order, drift_scale, points
from cascade_sim.analysis.report.figures.style import QUIET, style

DRAWN = [drift_order, drift_calibrator, drift_scale]


def drawn(draw, metrics):
    with style("drift"):
        return draw(metrics)


def curves(axes):
    return [line for line in axes.get_lines() if len(line.get_xdata()) == 121]


def test_a_group_has_its_rankers_and_the_baseline_in_grey():
    figure = drawn(drift_order, drift_metrics())
    score, scale, auc = figure.axes
    own, base = curves(score)
    assert list(own.get_xdata())[:3] == [0, 0.5, 1] and own.get_ydata()[-1] == pytest.approx(-3.0)
    assert base.get_color() == QUIET and base.get_ydata()[0] == pytest.approx(-4.1)
    assert list(curves(scale)[0].get_ydata()) == [12.0] * 121 and scale.get_yscale() == "log"
    assert len(curves(auc)) == 2 and auc.get_xlabel() == "day"
    assert len(curves(drawn(drift_scale, drift_metrics()).axes[0])) == 1  # the baseline is of that group


def test_all_groups_have_the_same_axes():
    metrics = drift_metrics()
    limits = [[(a.get_xlim(), a.get_ylim()) for a in drawn(draw, metrics).axes] for draw in DRAWN]
    assert limits[0] == limits[1] == limits[2]
    low, high = limits[0][0][1]
    assert low < -4.1 and high > -0.4


def test_a_scale_of_nothing_is_left_out_of_a_log_axis():
    metrics = drift_metrics()
    metrics["market"]["arms"]["ltr"]["learning"]["pcoc"][5] = {"value": 0.0}
    assert len(points(metrics, "ltr", "pcoc")) == 120


@pytest.mark.parametrize("draw", DRAWN)
def test_nothing_is_drawn_where_rankers_are_trained_alike(draw):
    assert drawn(draw, learning_metrics()) is None and drawn(draw, minimal_metrics()) is None
