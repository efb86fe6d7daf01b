"""Figures of what-ifs: drawn from the answers, the same bytes each time."""

import pytest

from answers.report import make_metrics
from answers.whatif import answer
from cascade_sim.analysis.report.figures.whatif import (
    answer_figure,
    answer_image,
    is_curve,
    what_if_curves,
    what_if_lifts,
)
from cascade_sim.analysis.report.page import figures_of

CURVE = answer((0.3, 0.9), (0.5, 1.05), (0.6, 1.0))
RULES = answer(("gsp", 1.0), ("first", 1.1), parameter="auction.pricing", current="gsp")
ONE = answer((0.5, 1.05))


def lines(axes):
    return [list(line.get_ydata()) for line in axes.lines]


def test_a_curve_is_one_parameter_with_several_numbers():
    assert is_curve(CURVE) and not is_curve(RULES) and not is_curve(ONE)


def test_the_curve_shows_lifts_above_slots_filled_in_the_order_of_the_parameter():
    mixed = {**CURVE, "points": CURVE["points"][::-1]}
    figure = what_if_curves({"what_if": {"reserve": mixed, "one": ONE}})
    top, bottom = figure.axes
    assert any(ys == pytest.approx([-10.0, 5.0, 0.0]) for ys in lines(top))
    assert any(ys == pytest.approx([90.0, 105.0, 100.0]) for ys in lines(bottom))
    assert bottom.get_xlabel() == "auction.reserve_cpc"
    assert [0.4, 0.4] in [list(line.get_xdata()) for line in top.lines]  # current


def test_single_changes_are_rows():
    figure = what_if_lifts({"what_if": {"reserve": CURVE, "dearer": ONE, "rule": RULES}})
    (axes,) = figure.axes
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["dearer", "rule: gsp", "rule: first"]


def test_without_questions_there_is_no_figure():
    assert what_if_curves({}) is None and what_if_lifts({"what_if": {"reserve": CURVE}}) is None


def test_an_answer_is_drawn_to_the_same_bytes():
    svg = answer_image(CURVE, "svg")
    assert svg.startswith(b"<svg ") and svg == answer_image(CURVE, "svg")
    assert answer_image(ONE, "png").startswith(b"\x89PNG")
    assert len(answer_figure(RULES).axes) == 1


def test_the_report_s_figures_include_them():

    figures = figures_of(make_metrics())
    assert figures["what_if_curves"].draw is what_if_curves
    assert figures["what_if_lifts"].draw is what_if_lifts
