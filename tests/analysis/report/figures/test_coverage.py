"""The figure of coverage."""

import pytest

from answers.coverage_rows import some_rows
from cascade_sim.analysis.off_policy.coverage import coverage_of
from cascade_sim.analysis.report.figures.coverage import coverage_image


def test_every_estimator_and_target_is_in_the_figure_and_refusals_are_marked():
    svg = coverage_image(some_rows(claimed=0.8), "svg").decode()
    assert svg == coverage_image(some_rows(claimed=0.8), "svg").decode()
    for text in ("IPS", "SNIPS", "direct method", "near", "far", "no estimate", "too seldom", "99.8 % band"):
        assert text in svg


@pytest.mark.parametrize("only", ["ips", "slate_ips"])
def test_one_log_alone_is_drawn_as_png(only):
    from answers.coverage import normal_answers

    rows = {"as logged": {only: coverage_of(*normal_answers(100), 10.0)}}
    assert coverage_image(rows, "png").startswith(b"\x89PNG")
