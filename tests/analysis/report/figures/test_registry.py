import html
import re
from xml.etree import ElementTree

import pytest

from answers.report import EVIL, drawn_figures, hostile_figures, make_metrics, minimal_metrics
from cascade_sim.analysis.report.figures.style import COLORS, arm_colors, ranker_model
from cascade_sim.analysis.report.page import draw_all, figures_of


@pytest.fixture(scope="module")
def metrics():
    return make_metrics()


@pytest.fixture(scope="module")
def drawn(metrics):
    return drawn_figures()


def test_every_figure_is_drawn_from_full_metrics(drawn):
    assert set(drawn) == set(figures_of(make_metrics()))


def test_the_same_metrics_give_the_same_bytes(metrics, drawn):
    assert draw_all(make_metrics()) == drawn


def test_each_figure_is_one_svg_element(drawn):
    for svg in drawn.values():
        assert ElementTree.fromstring(svg).tag == "{http://www.w3.org/2000/svg}svg"


def test_figures_on_one_page_share_no_ids(drawn):
    ids = [found for svg in drawn.values() for found in re.findall(r'\bid="([^"]+)"', svg)]
    assert len(ids) == len(set(ids)) > 0


def test_every_reference_inside_a_figure_leads_somewhere(drawn):
    for svg in drawn.values():
        ids = set(re.findall(r'\bid="([^"]+)"', svg))
        assert set(re.findall(r'(?:href="#|url\(#)([^")]+)', svg)) <= ids


def test_figures_load_nothing_and_tell_no_date(drawn):
    for svg in drawn.values():
        without_names = re.sub(r'xmlns(:\w+)?="[^"]*"', "", svg)
        assert "http" not in without_names and "<metadata" not in svg and "<image" not in svg


def test_every_arm_is_named_where_arms_are_compared(metrics, drawn):
    for figure in ("rcs_vs_revenue", "lifts", "funnel"):
        for arm in metrics["arms"]:
            if figure != "lifts" or arm != metrics["baseline"]:  # the baseline has no lift over itself
                assert arm in drawn[figure], (figure, arm)


def test_far_reference_arms_do_not_squeeze_the_others(drawn):
    assert "Off the chart" in drawn["rcs_vs_revenue"]
    assert "−47" in drawn["rcs_vs_revenue"]  # random, 100 · −0.466


def test_hostile_names_are_text_in_a_figure():
    drawn = hostile_figures()
    for svg in drawn.values():
        assert "<script" not in svg
        ElementTree.fromstring(svg)
    assert html.escape(EVIL, quote=False) in drawn["rcs_vs_revenue"] and ">$x_1$<" in drawn["rcs_vs_revenue"]
    assert "_hidden" in drawn["reliability"]


def test_colours_are_the_same_in_every_figure_and_differ_between_arms(metrics):
    colors = arm_colors(metrics)
    own = [colors[arm] for arm in metrics["arms"] if arm in ("logloss", "ltr", "distill-pre", "logloss-med")]
    assert len(set(own)) == len(own) and set(own) <= set(COLORS)
    assert colors["rank"] == colors["ranker"]  # the same net, in either seat


def test_the_ranker_is_the_model_that_has_no_proxy_curve(metrics):
    assert ranker_model(metrics) == "rank"
    assert ranker_model(minimal_metrics()) is None


def test_nothing_is_drawn_without_data():
    assert draw_all(minimal_metrics()) == {}


def test_undefined_points_are_left_out():
    metrics = make_metrics()
    metrics["arms"]["ltr"]["rcs"] = None
    metrics["arms"]["distill-pre"]["expected_revenue_per_request"]["lift"] = None
    metrics["curves"]["proxy_reliability"]["logloss"] = None
    metrics["curves"]["proxy_reliability"]["logloss-med"]["predicted"][0] = 0.0
    metrics["curves"]["score_distribution"]["win_set"]["density"]["logloss"] = None
    metrics["attribution"]["ltr"] = None
    metrics["culprit"][0]["rcs"] = {"value": None, "low": None, "high": None}
    drawn = draw_all(metrics)
    assert set(drawn) == set(figures_of(make_metrics()))
    assert ">ltr<" not in drawn["rcs_vs_revenue"] and ">distill-pre<" not in drawn["rcs_vs_revenue"]
