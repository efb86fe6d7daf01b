from report_fixture import make_metrics
from test_calibration_tables import with_objectives

from analysis.plots_calibration import miscalibration, objective_reliability

BY_LOSS = ["logloss", "distill-pre", "ltr"]


def test_a_panel_per_ranker_with_the_diagonal():
    figure = objective_reliability(with_objectives(make_metrics()))
    panels = [axes for axes in figure.axes if axes.get_title(loc="left")]
    assert [axes.get_title(loc="left") for axes in panels] == BY_LOSS
    diagonal, curve = panels[0].lines
    assert list(diagonal.get_xdata()) == list(diagonal.get_ydata())
    assert list(curve.get_xdata()) == [5.0, 20.0]  # percent


def test_a_point_per_ranker_leads_from_ece_to_cpc_error_to_rpm():
    metrics = with_objectives(make_metrics())
    first, second = miscalibration(metrics).axes
    ece = [line.get_xdata()[0] for line in first.lines]
    error = [line.get_ydata()[0] for line in first.lines]
    assert ece == [0.004, 0.02, 0.54] and error == [20.0, 30.0, 90.0]
    assert [line.get_xdata()[0] for line in second.lines] == error
    rpm = [metrics["arms"][arm]["expected_rpm"]["value"] for arm in BY_LOSS]
    assert [line.get_ydata()[0] for line in second.lines] == rpm
