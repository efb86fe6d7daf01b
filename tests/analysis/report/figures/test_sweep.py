"""The Pareto plot: where points, bars and labels are."""

import pytest

from answers.sweep import FOUR, X, Y, findings
from answers.told import tells
from cascade_sim.analysis.report.figures.style import style
from cascade_sim.analysis.report.figures.sweep import sweep_figure, sweep_svg


def drawn(made):
    with style("sweep"):
        return sweep_figure(made, X, Y).axes[0]


def test_points_stand_at_the_values_and_the_line_joins_the_frontier():
    axes = drawn(findings(FOUR))
    at = [tuple(map(float, line.get_xydata()[0])) for line in axes.lines if line.get_markersize() == 5.5]
    assert at == [(pytest.approx(100 * x), y) for x, y in FOUR]
    (line,) = [line for line in axes.lines if line.get_linestyle() == "--"]
    assert line.get_xydata().tolist() == [[pytest.approx(8.0), 1.2], [pytest.approx(10.0), 1.0]]
    assert tells(axes.get_xlabel(), "CTR", "%", "more is better")


def test_bars_are_the_paired_difference_from_the_first_cell():
    axes = drawn(findings(FOUR))
    bars = [segment.tolist() for bar in axes.collections for segment in bar.get_segments()]
    # cell 2: y 1.2, lift 0.20 ± 0.02 of the first cell's 1.0
    assert [[pytest.approx(8.0), pytest.approx(1.18)], [pytest.approx(8.0), pytest.approx(1.22)]] in bars
    assert len(bars) == 2 * 3  # the first cell has none


def test_cells_are_named_by_their_values_and_cells_at_one_point_share_a_label():
    texts = [text.get_text() for text in drawn(findings([(0.1, 1.0), (0.1, 1.0), (0.2, 0.5)])).texts]
    assert texts == ["1, 2", "3"]


def test_of_many_cells_only_the_frontier_is_named():
    many = [(0.1 + 0.001 * i, 1.0 - 0.001 * i) for i in range(3)] + [(0.05, 0.01 * i) for i in range(1, 15)]
    assert {text.get_text() for text in drawn(findings(many)).texts} == {
        "slots=1", "slots=2", "slots=3"
    }  # fmt: skip


def test_the_figure_is_the_same_bytes_each_time_and_survives_undefined_cells():
    made = findings([(None, 1.0), (0.1, None), (0.1, 1.0)])
    assert sweep_svg(made, X, Y) == sweep_svg(made, X, Y)
    assert sweep_svg(findings([(None, None)]), X, Y).startswith("<svg")
