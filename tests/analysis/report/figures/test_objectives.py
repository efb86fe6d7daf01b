from answers.alpha_sweep import with_sweep
from answers.report import make_metrics
from answers.with_objectives import with_objectives
from cascade_sim.analysis.report.figures import objectives as plots_calibration
from cascade_sim.analysis.report.figures.objectives import miscalibration, objective_reliability

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


def test_of_a_large_sweep_each_familys_best_is_named_in_the_colour_of_its_family(monkeypatch):
    monkeypatch.setattr(plots_calibration, "NAMED", 5)
    axes = miscalibration(with_sweep(make_metrics())).axes[0]
    assert sorted(text.get_text() for text in axes.texts) == ["mo-b", "point", "rcr-b", "soft"]
    assert len(axes.lines) == 6 and len({line.get_color() for line in axes.lines}) == 4
