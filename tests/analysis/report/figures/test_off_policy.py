"""The figure of off-policy estimates."""

import copy

from answers.off_policy import make_launches
from answers.off_policy_metrics import metrics
from cascade_sim.analysis.report.figures.off_policy import off_policy_targets
from cascade_sim.analysis.report.figures.style import style, svg_text


def drawn(of):
    with style("off_policy_targets"):
        figure = off_policy_targets(of)
        return None if figure is None else svg_text(figure, "off_policy_targets", "x")


def test_both_logs_all_targets_and_refusals_are_drawn_and_bytes_repeat():
    svg = drawn(metrics())
    for text in (
        "Other parameters",
        "Other pages",
        "near",
        "far",
        "colder",
        "doubly robust",
        "cascade DR",
        "no estimate",
    ):
        assert text in svg
    assert svg == drawn(metrics())


def test_launches_are_drawn_by_their_own_estimators():
    svg = drawn({"off_policy": make_launches()})
    assert "local DR" in svg and "cascade DR" in svg and "SNIPS" not in svg


def test_without_a_log_or_without_the_truth_nothing_is_drawn():
    assert drawn({}) is None
    blind = copy.deepcopy(metrics())
    for target in blind["off_policy"]["targets"].values():
        for answer in target["rewards"].values():
            answer["truth"] = {"value": None}
    assert drawn(blind) is None


def test_intervals_out_of_all_proportion_are_cut_at_the_edge():
    wide = copy.deepcopy(metrics())
    wide["off_policy"]["targets"]["near"]["rewards"]["revenue"]["estimators"]["ips"]["estimate"]["high"] = (
        99.0
    )
    with style("off_policy_targets"):
        figure = off_policy_targets(wide)
    assert max(abs(end) for axes in figure.axes for end in axes.get_xlim()) < 50
