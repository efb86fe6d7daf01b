"""What a figure draws of an arm is marked with its name, so that a page can switch it off."""

import html
import json
import re
import warnings
from xml.etree import ElementTree

import pytest

from answers.alpha_sweep import with_sweep
from answers.report import EVIL, make_metrics
from cascade_sim.analysis.report.comparisons import ordered_arms
from cascade_sim.analysis.report.figures.models import reliability, score_distributions
from cascade_sim.analysis.report.figures.pareto import pareto
from cascade_sim.analysis.report.figures.style import (
    LEAST,
    blank,
    drawn,
    mark_legend,
    of_arms,
    style,
    svg_text,
)
from cascade_sim.analysis.report.readings import (
    compute_arms,
    critical_arms,
    drift_arms,
    learning_arms,
    market_arms,
    model_value,
    objective_arms,
)

# Figure → the arms that it draws.
DRAWN_OF = {
    "rcs_vs_revenue": ordered_arms,
    "lifts": lambda metrics: [arm for arm in metrics["arms"] if arm != metrics["baseline"]],
    "funnel": ordered_arms,
    "critical_bids": critical_arms,
    "market_multipliers": market_arms,
    "market_hours": market_arms,
    "compute_latency": compute_arms,
    "compute_hours": compute_arms,
    "compute_value": compute_arms,
    "learning_recall": learning_arms,
    "learning_revenue": learning_arms,
    "objective_reliability": objective_arms,
    "miscalibration": lambda metrics: [
        arm for arm in objective_arms(metrics) if model_value(metrics, arm, "ece").value
    ],
}


def arms_of(svg):
    """The arms that a figure has parts of."""
    return {html.unescape(arm) for arm in re.findall(r'<g data-arm="([^"]+)">', svg)}


def unmarked(element):
    """The texts that belong to no arm."""
    if "data-arm" in element.attrib:
        return set()
    return {(element.text or "").strip()}.union(*map(unmarked, element))


@pytest.mark.parametrize("name", DRAWN_OF)
def test_every_arm_of_a_figure_has_groups_of_its_own(name, figures):
    assert arms_of(figures[name]) == set(DRAWN_OF[name](make_metrics()))


def test_every_ranker_that_drifts_is_marked_in_the_figure_of_its_group(figures):
    marked = set().union(*(arms_of(svg) for name, svg in figures.items() if name.startswith("drift_")))
    assert marked == set(drift_arms(make_metrics()))


def test_models_that_are_called_like_arms_are_marked_as_their_colours_are(figures):
    for name in ("score_distributions", "reliability"):
        assert {"logloss", "ltr"} & arms_of(figures[name]), name


def test_names_in_figures_stand_in_the_group_of_their_arm(figures):
    """Nothing is left of a name outside of its groups, in those figures that name arms."""
    for name, arms in DRAWN_OF.items():
        assert not unmarked(ElementTree.fromstring(figures[name])) & set(arms(make_metrics())), name


def test_a_line_between_two_arms_belongs_to_both():
    metrics = with_sweep(make_metrics())
    svg = drawn(pareto, metrics, "pareto", "t")
    joined = [json.loads(html.unescape(arms)) for arms in re.findall(r'<g data-arms="([^"]+)">', svg)]
    assert joined and all(len(arms) == 2 and set(arms) <= arms_of(svg) for arms in joined)


def test_a_name_that_is_markup_is_kept_whole():
    with style("arms"):
        figure, axes = blank(2.0)
        with of_arms(axes, EVIL):
            axes.plot([0, 1], [0, 1], label="x")
        mark_legend(figure.legend(), [EVIL], [EVIL])
        svg = svg_text(figure, "arms", "t")
    assert arms_of(svg) == {EVIL} and len(re.findall("<g data-arm=", svg)) == 3


def test_no_lettering_is_too_small_for_a_phone(figures):
    sizes = {
        (name, float(size))
        for name, svg in figures.items()
        for style in re.findall(r"<text[^>]*style=\"([^\"]*)\"", svg)
        for size in re.findall(r"font(?:-size)?:[^;]*?([\d.]+)px", style)
    }
    assert len(sizes) > 10 and {pair for pair in sizes if pair[1] < LEAST} == set()


def test_the_plot_keeps_its_room_under_the_names_of_many_models():
    metrics = make_metrics()
    curves = metrics["curves"]
    for part in curves["score_distribution"].values():
        some = next(iter(part["density"].values()))
        part["density"] |= {f"a-rather-long-model-name-{i}": some for i in range(40)}
    some = next(curve for curve in curves["proxy_reliability"].values() if curve)
    curves["proxy_reliability"] |= {f"a-rather-long-model-name-{i}": some for i in range(40)}
    with style("many"), warnings.catch_warnings():
        warnings.simplefilter("error")  # matplotlib warns where a plot collapses
        for draw in (score_distributions, reliability):
            figure = draw(metrics)
            svg_text(figure, "many", "t")
            assert all(axes.get_window_extent().height > 80 for axes in figure.axes)
