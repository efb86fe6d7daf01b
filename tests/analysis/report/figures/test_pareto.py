import pytest

from answers.alpha_sweep import with_sweep, without_sweep
from answers.report import make_metrics
from cascade_sim.analysis.report.figures.pareto import pareto
from cascade_sim.analysis.report.figures.style import style, svg_text


@pytest.fixture
def metrics():
    return with_sweep(make_metrics())


def drawn(metrics):
    with style("pareto"):
        figure = pareto(metrics)
        return figure, svg_text(figure, "pareto", "title")


def lines_of(axes):
    return {line.get_label(): line for line in axes.lines if not line.get_label().startswith("_")}


def test_a_line_per_family_by_rising_setting_and_the_frontier(metrics):
    figure, _ = drawn(metrics)
    lines = lines_of(figure.axes[0])
    assert set(lines) == {"pointwise", "rcr", "multi_objective", "frontier"}
    assert lines["rcr"].get_xydata().tolist() == [[0.39, 0.62], [0.42, 0.65]]
    assert lines["frontier"].get_xydata().tolist() == [[0.42, 0.65], [0.39, 0.62]]
    second = lines_of(figure.axes[1])
    assert second["rcr"].get_xydata().tolist() == [[0.01, 0.62], [0.03, 0.65]]


def test_the_settings_stand_at_both_ends_of_a_line(metrics):
    figure, _ = drawn(metrics)
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert texts.count("α 0.1") == 2 and texts.count("α 0.9") == 2


def test_a_ranker_without_scale_is_named_and_does_not_stretch_the_axis(metrics):
    figure, _ = drawn(metrics)
    axes = figure.axes[0]
    assert axes.get_xlim()[1] < 1.0
    assert any("softmax 2, GAUC 0.660" in text.get_text() for text in axes.texts)


def test_the_figure_repeats_to_the_byte_and_needs_a_sweep(metrics):
    assert drawn(metrics)[1] == drawn(metrics)[1]
    assert pareto(without_sweep(make_metrics())) is None
