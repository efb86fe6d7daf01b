import pytest

from answers.alpha_sweep import with_sweep, without_sweep
from answers.report import make_metrics
from answers.section_text import says
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
    """Name in the legend → the ends of its pieces, in the order they are drawn."""
    named = {line.get_label(): line for line in axes.lines if not line.get_label().startswith("_")}
    pieces = [line for line in axes.lines if len(line.get_xdata()) == 2]
    return {
        name: [
            piece.get_xydata().tolist()
            for piece in pieces
            if (piece.get_color(), piece.get_linestyle()) == (line.get_color(), line.get_linestyle())
        ]
        for name, line in named.items()
    }


def test_a_line_per_family_by_rising_setting_and_the_frontier(metrics):
    figure, _ = drawn(metrics)
    lines = lines_of(figure.axes[0])
    assert set(lines) == {"pointwise", "rcr", "multi_objective", "frontier"}
    assert lines["rcr"] == [[[0.39, 0.62], [0.42, 0.65]]] and lines["pointwise"] == []
    assert lines["frontier"] == [[[0.42, 0.65], [0.39, 0.62]]]
    assert lines_of(figure.axes[1])["rcr"] == [[[0.01, 0.62], [0.03, 0.65]]]


def test_the_settings_stand_at_both_ends_of_a_line(metrics):
    figure, _ = drawn(metrics)
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert texts.count("α 0.1") == 2 and texts.count("α 0.9") == 2


def test_a_ranker_without_scale_is_named_and_does_not_stretch_the_axis(metrics):
    figure, _ = drawn(metrics)
    axes = figure.axes[0]
    assert axes.get_xlim()[1] < 1.0
    assert any(says(text.get_text(), "softmax", "2", "GAUC", "0.660") for text in axes.texts)


@pytest.mark.drill
def test_the_figure_repeats_to_the_byte_and_needs_a_sweep(metrics):
    assert drawn(metrics)[1] == drawn(metrics)[1]
    assert pareto(without_sweep(make_metrics())) is None
