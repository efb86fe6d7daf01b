"""Off-policy estimates in words and tables."""

import pytest

from answers.off_policy import make_launches, row
from answers.off_policy_metrics import metrics
from answers.section_text import said, says, tables
from cascade_sim.analysis.report.sections.off_policy import (
    answer_table,
    off_policy_section,
    reasons,
    refusals,
    shown_estimate,
    slopes_table,
    targets_table,
)
from cascade_sim.analysis.statistics.estimates import Estimate


def test_a_study_without_randomised_logs_has_no_section():
    assert off_policy_section({}) is None
    assert off_policy_section({"off_policy": {"targets": {}}}) is None


def test_each_target_stands_beside_its_truth_and_refusals_show_no_number():
    table = targets_table(metrics()["off_policy"], "parameters", "revenue")
    assert table.columns == ["truth", "ESS %", "IPS", "doubly robust", "direct method"]
    near, far = table.rows
    assert [cell.text for cell in near.cells] == ["0.2900", "90", "0.2910", "0.2930", "0.3300"]
    assert [cell.text for cell in far.cells][2:] == ["no estimate", "no estimate", "0.3300"]
    assert near.tag == "auction.reserve_cpc=0.63"


def test_launches_stand_with_their_lifts_and_the_page_says_that_they_are_launches():
    part = make_launches()
    table = targets_table(part, "parameters", "revenue")
    names = ["local linear", "local DR", "direct method"]
    assert table.columns == ["truth", "ESS %", *names, "lift %, truth", "lift %, local DR"]
    near, far = table.rows
    assert [cell.text for cell in near.cells][-2:] == ["+4.0", "−2.0"]
    assert [cell.text for cell in far.cells][2:4] == ["no estimate", "no estimate"]
    text = said(off_policy_section({"off_policy": part}))
    assert says(text, "launch without jitter") and says(text, "pages drawn") and "not a launch." not in text


def test_a_file_of_an_older_version_is_said_to_keep_the_jitter():
    text = said(off_policy_section(metrics()))
    assert says(
        text, "jitter around another centre", "not a launch"
    ) and "launch without" not in text.replace("a launch without jitter earns otherwise", "")


def test_a_launch_in_full_has_its_bias_bound_and_today_s_values():
    table = answer_table("near", make_launches()["targets"]["near"], "revenue")
    labels = [row.label for row in table.rows]
    assert (
        says(labels[-3], "current values", "(local DR)")
        and says(labels[-2], "logged")
        and says(labels[-1], "truth")
    )
    first = dict(zip(table.columns, table.rows[1].cells, strict=False))
    assert (first["bias ≤"].text, first["inside"].text, first["lift %"].text) == ("0.6", "12,486", "−2.0")
    assert {len(row.cells) for row in table.rows} == {len(table.columns)}


def test_a_lift_s_own_reason_is_told():
    near = make_launches()["targets"]["near"]
    near["rewards"]["revenue"]["estimators"]["local_dr"] |= {
        "lift_verdict": "warn",
        "lift_reason": "it bends",
    }
    assert any(says(line, "local DR", "warn on the lift", "it bends") for line in reasons(near, "revenue"))


def test_sorted_keys_of_a_file_do_not_change_the_order():
    part = metrics()["off_policy"]
    mixed = {**part, "targets": dict(sorted(part["targets"].items())), "order": ["near", "far", "colder"]}
    mixed["targets"]["near"]["rewards"]["revenue"]["estimators"] = dict(
        sorted(mixed["targets"]["near"]["rewards"]["revenue"]["estimators"].items())
    )
    table = targets_table(mixed, "parameters", "revenue")
    assert [row.label for row in table.rows] == ["near", "far"]
    assert table.columns[2:] == ["IPS", "doubly robust", "direct method"]


def test_an_interval_that_misses_the_truth_is_toned():
    near = targets_table(metrics()["off_policy"], "parameters", "revenue").rows[0]
    assert [cell.tone for cell in near.cells[2:]] == ["", "down", "down"]


def test_words_count_answers_and_refusals_and_judge_the_direct_method():
    words = off_policy_section(metrics()).finding
    # four weighted answers, one of which misses; two of six targets without an estimate
    assert says(words[0], "75 % of the answers", "revenue") and says(words[0], "33 %", "no estimate")
    assert says(words[1], "covers the truth", "0 %")


def test_refusals_carry_their_reason_within_one_world_only():
    (line,) = refusals(metrics()["off_policy"])
    assert says(line, "far: no estimate by", "IPS", "doubly robust") and says(line, "missing", "too far")
    assert "no estimate by" not in said(off_policy_section(metrics(seeds=True)))
    assert "between worlds" in said(off_policy_section(metrics(seeds=True)))


def test_slopes_stand_beside_served_differences():
    table = slopes_table(metrics()["off_policy"])
    assert table.rows[0].label == "log reserve"
    assert [cell.text for cell in table.rows[0].cells] == ["−0.090", "−0.080"] * 2
    assert slopes_table({"slopes": {}}) is None


def test_one_target_in_full_has_bounds_the_log_and_the_truth():
    table = answer_table("near", metrics()["off_policy"]["targets"]["near"], "revenue")
    labels = [row.label for row in table.rows]
    assert labels[-4:] == ["inner (clipped)", "outer (bounds)", "as logged", "truth (simulator)"]
    first = dict(zip(table.columns, table.rows[0].cells, strict=True))
    assert (first["ESS %"].text, first["max %"].text, first["lift %"].text) == ("90.0", "0.12", "+5.0")
    assert {len(row.cells) for row in table.rows} == {len(table.columns)}


def test_estimators_with_one_reason_share_its_line():
    far = metrics()["off_policy"]["targets"]["far"]
    assert says(reasons(far, "revenue")[0], "IPS", "doubly robust", "refuse", "missing", "too far")


def test_over_several_worlds_the_interval_is_that_of_the_error_around_the_truth():
    estimate = row(0.30, 0.10, 0.50, 0.29)
    assert shown_estimate(estimate, 0.29) == Estimate(0.30, 0.10, 0.50)  # one world: its own
    pooled = {**estimate, "error": {"value": 0.01, "low": -0.02, "high": 0.04, "sd": 0.02}}
    assert shown_estimate(pooled, 0.29) == Estimate(0.30, 0.29 - 0.02, 0.29 + 0.04)


def test_worlds_that_refused_do_not_shift_the_answers_of_the_others_against_the_truth():
    """Worlds that earn 0.20 and 0.40; the second refused, the first was 0.01 too high."""
    partly = {"estimate": {"value": 0.21}, "error": {"value": 0.01, "low": -0.02, "high": 0.04}}
    shown = shown_estimate(partly, 0.30)
    assert (shown.value, shown.low, shown.high) == pytest.approx((0.31, 0.28, 0.34))


@pytest.mark.parametrize("seeds", [False, True])
def test_the_section_has_both_logs(seeds):
    section = off_policy_section(metrics(seeds))
    assert len(tables(section)) == 3
    assert says(said(section), "first 6 ads", "temperature 0.7")
