"""Experiments in words and tables: which designs miss the truth, and which can be trusted."""

import pytest

from answers.designs import make_designs
from answers.report import make_metrics
from answers.section_text import clauses, says
from cascade_sim.analysis.report.readings import design_verdict
from cascade_sim.analysis.report.sections.markets.designs import (
    cuped_table,
    cuped_words,
    design_section,
    design_words,
    designs_table,
    measures_table,
    sequence_words,
    trust_words,
)


@pytest.fixture
def metrics():
    made = make_metrics()
    made["market"] = {"arms": {}, "designs": make_designs()}
    return made


def judged(text):
    """Verdict → the designs that it is passed on."""
    verdicts = dict(clause.split(": ", 1) for clause in clauses(text) if ": " in clause)
    names = ("by request", "by user", "switchback", "split budgets")
    return {verdict: [name for name in names if name in about] for verdict, about in verdicts.items()}


def test_a_study_without_experiments_has_no_such_section():
    assert design_section({**make_metrics(), "market": {"arms": {}}}) is None


def test_a_design_is_right_only_if_its_interval_holds_zero_and_rules_out_the_bias_of_those_that_miss(metrics):
    # Truth +4 %; by request +30 ± 5, by user +17 ± 15, switchback without interval, split budgets +5 ± 2.
    # By user the bias is -2 to 28 points, which holds zero and also the 26 points of the trial by request.
    kinds = ("request", "user", "switchback", "budget")
    assert [design_verdict(metrics, kind) for kind in kinds] == ["wrong", "unclear", "unknown", "right"]


def test_where_none_misses_the_truth_an_interval_as_wide_as_the_effect_tells_nothing(metrics):
    kinds = metrics["market"]["designs"]["kinds"]
    del kinds["request"]
    assert design_verdict(metrics, "budget") == "right"  # -1 to 3 points; the effect is 4
    kinds["budget"]["measures"]["revenue_per_request"]["lift_bias"] = {
        "value": 1.0,
        "low": -0.03,
        "high": 0.05,
    }
    assert design_verdict(metrics, "budget") == "unclear"


def test_words_name_the_launch_the_bias_and_what_mends_it(metrics):
    text = design_words(metrics)
    assert says(text, "new", "+4.0 %", "old")
    assert says(text, "share budgets", "overstate", "by request", "+26.0 points [+21.0, +31.0]")
    assert says(text, "split budgets", "+5.0 % [+3.0, +7.0]")


def test_what_can_be_trusted_is_told_apart_from_what_is_too_uncertain(metrics):
    words = trust_words(metrics)
    assert judged(words) == {
        "Unbiased within error": ["split budgets"],
        "Biased": ["by request"],
        "Inconclusive": ["by user"],
        "Without an interval": ["switchback"],
    }
    assert says(words, "split budgets", "+1.0 points [−1.0, +3.0]")
    assert says(words, "by user", "+13.0 points [−2.0, +28.0]")


def test_if_all_miss_none_is_trusted_and_split_budgets_are_not_praised(metrics):
    for kind in ("user", "budget"):
        metrics["market"]["designs"]["kinds"][kind] = metrics["market"]["designs"]["kinds"]["request"]
    assert says(trust_words(metrics), "No design", "unbiased")
    assert judged(trust_words(metrics)) == {
        "Biased": ["by request", "by user", "split budgets"],
        "Without an interval": ["switchback"],
    }
    words = design_words(metrics)
    assert "share budgets" not in words and not says(words, "split budgets", "the trial")


def test_tables_have_a_row_for_the_truth_and_one_per_design(metrics):
    table = designs_table(metrics)
    labels = [row.label for row in table.rows]
    assert labels == ["launch", "by request", "by user", "switchback", "split budgets"]
    lift, bias = table.columns.index("Lift %"), table.columns.index("Bias, points")
    assert [row.cells[lift].text for row in table.rows] == ["+4.0", "+30.0", "+17.0", "+20.0", "+5.0"]
    assert [row.cells[bias].text for row in table.rows] == ["0", "+26.0", "+13.0", "+16.0", "+1.0"]
    assert [row.cells[bias].tone for row in table.rows] == ["", "up", "", "", ""]
    assert sum(width for _, width in table.groups) == len(table.columns)
    others = measures_table(metrics)
    assert [heading for heading, _ in others.groups] == ["Clicks per request", "CTR", "CPC"]


def test_cuped_is_told_as_variance_saved(metrics):
    table = cuped_table(metrics)
    assert [row.cells[-1].text for row in table.rows] == ["60.0", "10.0"]
    assert says(cuped_words(metrics), "60 %", "per user", "10 %", "per request")
    metrics["market"]["designs"]["cuped"] = None
    assert cuped_table(metrics) is None and cuped_words(metrics) == ""


def test_the_hour_at_which_each_interval_leaves_zero_is_named(metrics):
    text = sequence_words(metrics)
    assert says(text, "all looks", "excludes zero", "hour 4") and says(text, "single look", "hour 3")
    metrics["market"]["designs"]["sequence"]["low"] = [None] + [-1.0] * 5
    assert "never excludes zero" in sequence_words(metrics)
    metrics["market"]["designs"]["sequence"] = {"time": []}
    assert sequence_words(metrics) == ""
