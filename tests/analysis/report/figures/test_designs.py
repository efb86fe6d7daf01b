"""Figures of experiments: what is drawn where, and nothing without data."""

import pytest

from answers.designs import make_designs
from answers.report import make_metrics
from cascade_sim.analysis.report.figures.designs import (
    RIGHT,
    TRUTH,
    UNCLEAR,
    WRONG,
    design_effects,
    design_sequence,
)
from cascade_sim.analysis.report.figures.style import style
from cascade_sim.analysis.report.page import render


@pytest.fixture
def metrics():
    made = make_metrics()
    made["market"] = {"arms": {}, "designs": make_designs()}
    return made


def test_each_design_has_its_interval_in_percent_and_those_that_miss_the_truth_another_mark(metrics):
    with style("design_effects"):
        axes = design_effects(metrics).axes[0]
    assert [tick.get_text() for tick in axes.get_yticklabels()] == [
        "by request", "by user", "switchback", "split budgets"
    ]  # fmt: skip
    spans = {
        tuple(line.get_xdata().round(6)): line.get_color()
        for line in map(_as_arrays, axes.lines)
        if len(line.get_xdata()) == 2 and line.get_ydata()[0] == line.get_ydata()[1]
    }
    assert spans == {(25.0, 35.0): WRONG, (2.0, 32.0): UNCLEAR, (3.0, 7.0): RIGHT}
    assert {line.get_marker() for line in axes.lines if line.get_color() == WRONG} >= {"s"}
    truth = [line for line in axes.lines if line.get_color() == TRUTH]
    assert truth[0].get_xdata()[0] == pytest.approx(4.0)


def _as_arrays(line):
    import numpy as np

    line.set_data(np.asarray(line.get_xdata(), float), np.asarray(line.get_ydata(), float))
    return line


def test_the_trial_is_drawn_over_its_days_from_its_first_look_on(metrics):
    with style("design_sequence"):
        figure = design_sequence(metrics)
    lines = {line.get_label(): line for line in figure.axes[0].lines}
    assert list(lines["by request, so far"].get_xdata()) == [hour / 24 for hour in range(2, 7)]
    assert lines["truth"].get_ydata()[0] == pytest.approx(0.1 * 0.04)


def test_without_experiments_nothing_is_drawn(metrics):
    metrics["market"]["designs"]["sequence"] = {"time": []}
    assert design_sequence(metrics) is None
    del metrics["market"]["designs"]
    assert design_effects(metrics) is None and design_sequence(metrics) is None


def test_the_report_has_the_section_with_both_figures(metrics):
    drawn = dict.fromkeys(("design_effects", "design_sequence"), "<svg></svg>")
    metrics["market"]["designs"]["treatment"] = "<b>new</b>"
    page = render(metrics, {}, "name: x", drawn)
    assert 'id="designs"' in page and page.count("<svg") == 2
    assert "&lt;b&gt;new&lt;/b&gt; earns" in page and "<b>new</b>" not in page
