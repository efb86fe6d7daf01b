import html
import re
from xml.etree import ElementTree

import pytest

from answers.report import EVIL, make_metrics, minimal_metrics
from cascade_sim.analysis.report.figures.style import COLORS, arm_colors, ranker_model
from cascade_sim.analysis.report.figures.style import drawn as drawn_svg
from cascade_sim.analysis.report.page import draw_all, figures_of

# Figures that show a name in full; others cut it short or show other names.
WITH_EVIL = (
    *("rcs_vs_revenue", "score_distributions", "reliability", "market_hours", "market_wins"),
    *("market_multipliers", "compute_latency", "compute_hours", "drift_calibrator"),
    *("learning_recall", "learning_revenue"),
)


@pytest.fixture(scope="module")
def metrics():
    return make_metrics()


def drawn_again(metrics, names):
    """Some figures alone, name → SVG."""
    figures = figures_of(metrics)
    return {name: drawn_svg(figures[name].draw, metrics, name, figures[name].title) for name in names}


def test_every_figure_is_drawn_from_full_metrics(figures):
    assert set(figures) == set(figures_of(make_metrics()))


@pytest.mark.drill
def test_the_same_metrics_give_the_same_bytes(figures):
    """One figure of each module."""
    metrics = make_metrics()
    modules = {figure.draw.__module__: name for name, figure in figures_of(metrics).items()}
    again = drawn_again(metrics, modules.values())
    assert len(again) >= 12 and again == {name: figures[name] for name in again}


def test_each_figure_is_one_svg_element(figures):
    for svg in figures.values():
        assert ElementTree.fromstring(svg).tag == "{http://www.w3.org/2000/svg}svg"


def test_figures_on_one_page_share_no_ids(figures):
    ids = [name for svg in figures.values() for name in re.findall(r'\bid="([^"]+)"', svg)]
    assert len(ids) == len(set(ids)) > 0


def test_every_reference_inside_a_figure_leads_somewhere(figures):
    for svg in figures.values():
        ids = set(re.findall(r'\bid="([^"]+)"', svg))
        assert set(re.findall(r'(?:href="#|url\(#)([^")]+)', svg)) <= ids


def test_figures_load_nothing_and_tell_no_date(figures):
    for svg in figures.values():
        without_names = re.sub(r'xmlns(:\w+)?="[^"]*"', "", svg)
        assert "http" not in without_names and "<metadata" not in svg and "<image" not in svg


def test_every_arm_is_named_where_arms_are_compared(metrics, figures):
    for figure in ("rcs_vs_revenue", "lifts", "funnel"):
        for arm in metrics["arms"]:
            if figure != "lifts" or arm != metrics["baseline"]:  # the baseline has no lift over itself
                assert arm in figures[figure], (figure, arm)


def test_far_reference_arms_do_not_squeeze_the_others(figures):
    assert "Off the chart" in figures["rcs_vs_revenue"]
    assert "−47" in figures["rcs_vs_revenue"]  # random, 100 · −0.466


def test_hostile_names_are_text_in_every_figure(hostile_figures):
    assert set(hostile_figures) == set(figures_of(make_metrics()))
    for svg in hostile_figures.values():
        assert "<script" not in svg
        ElementTree.fromstring(svg)
    assert ">$x_1$<" in hostile_figures["rcs_vs_revenue"] and "_hidden" in hostile_figures["reliability"]


@pytest.mark.parametrize("name", WITH_EVIL)
def test_a_name_that_is_markup_is_shown_as_it_is(name, hostile_figures):
    assert html.escape(EVIL, quote=False) in hostile_figures[name].replace("&quot;", '"')


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
    metrics["ablation"][0]["rcs"] = {"value": None, "low": None, "high": None}
    changed = ("rcs_vs_revenue", "lifts", "ablation", "funnel", "score_distributions", "reliability")
    again = drawn_again(metrics, changed)
    assert None not in again.values()
    assert ">ltr<" not in again["rcs_vs_revenue"] and ">distill-pre<" not in again["rcs_vs_revenue"]
