"""Compared runs as tables, CSV and a page."""

import csv
import io

from answers.section_text import says, text_of
from cascade_sim.analysis.report.figures.compare import compared_lifts
from cascade_sim.analysis.report.sections.compare import (
    arm_table,
    compare_csv,
    compare_figures,
    compare_headline,
    compare_page,
    scenario_table,
)
from cascade_sim.analysis.report.terminal import table_text


def node(value, half=0.5):
    return {"value": value, "low": value - half, "high": value + half}


def entry(before, after, is_paired=True):
    gap = after - before
    return {
        "before": node(before), "after": node(after), "difference": node(gap, 0.1),
        "lift": node(gap / before, 0.1), "is_paired": is_paired,
    }  # fmt: skip


COMPARISON = {
    "first": "runs/a",
    "other": "runs/<b>",
    "names": ["a", "b"],
    "paired_by": "request",
    "scenario": [{"key": "auction.reserve_cpc", "old": 0.0, "new": None}],
    "arms": {
        "plain": {
            "rpm": entry(10.0, 12.0),
            "cpc_error": entry(0.2, 0.1, False),
            "own_metric": entry(1.0, 2.0),
        }
    },
    "notes": ["be careful"],
}


def test_an_arm_has_both_values_the_difference_and_whether_it_is_paired():
    table = arm_table(COMPARISON, "plain")
    rows = {row.label: row for row in table.rows}
    assert [cell.text for cell in rows["RPM, clicked"].cells] == ["10.0", "12.0", "+2.00", "+20.0"]
    assert rows["RPM, clicked"].tag == "" and rows["CPC error %"].tag == "unpaired"
    assert rows["CPC error %"].cells[3].text == "" and list(rows)[-1] == "own_metric"
    assert arm_table({**COMPARISON, "paired_by": "none"}, "plain").rows[1].tag == ""  # said once for all
    assert len(arm_table(COMPARISON, "plain", 1).rows) == 1


def test_what_neither_run_measured_is_no_row_and_the_scenario_s_arms_come_first():
    nothing = {"value": None, "low": None, "high": None}
    unknown = {part: nothing for part in ("before", "after", "difference", "lift")} | {"is_paired": False}
    gone = {**unknown, "before": node(1.0)}
    table = {"rpm": entry(10.0, 12.0), "rcs": unknown, "cpc": gone}
    comparison = {**COMPARISON, "arms": {"bid_only": table, "plain": table}}
    assert [row.label for row in arm_table(comparison, "plain").rows] == ["RPM, clicked", "CPC"]
    page = compare_page([comparison])
    assert 0 < page.index("plain, runs/a") < page.index("bid_only, runs/a")


def test_scenario_keys_are_shown_old_and_new():
    (row,) = scenario_table(COMPARISON).rows
    assert row.label == "auction.reserve_cpc" and [cell.text for cell in row.cells] == ["0.0", "null"]
    assert scenario_table({**COMPARISON, "scenario": []}) is None


def test_keys_stay_whole_beside_long_values_in_a_narrow_terminal():
    key = "models.distill-pre.sample.per_request"
    changes = [{"key": key, "old": ["user", "context", "quality"] * 3, "new": "absent"}]
    table = scenario_table({**COMPARISON, "scenario": changes}, 80)
    text = table_text(table, width=80)
    (line,) = [line for line in text.splitlines() if key in line]
    assert "['user'" in line and "absent" in line and len(line) <= 80


def test_csv_and_page():
    rows = list(csv.DictReader(io.StringIO(compare_csv([COMPARISON]))))
    assert len(rows) == 3 and rows[0]["difference"] == "2.0" and rows[1]["is_paired"] == "False"
    page = compare_page([COMPARISON, {**COMPARISON, "scenario": []}])
    assert "runs/&lt;b&gt;" in page and "<b>" not in page and "be careful" in page
    assert "the scenarios are the same" in page and page.count("<table>") == 3


def test_the_page_has_a_figure_of_the_lifts_of_each_comparison():
    unknown = {**COMPARISON, "arms": {"plain": {}}}
    svgs = compare_figures([COMPARISON, unknown])
    assert list(svgs) == ["compare_1"] and "RPM" in svgs["compare_1"]
    page = compare_page([COMPARISON, unknown], svgs)
    assert 'id="figure-compare_1"' in page and 'id="figure-compare_2"' not in page
    assert page.index('id="figure-compare_1"') < page.index("<table>")
    assert "runs/&lt;b&gt; over runs/a" in page and "runs/<b>" not in page


def test_the_figure_shows_paired_lifts_of_the_scenarios_arms_alone():
    table = {"rpm": entry(10.0, 12.0), "cpc_error": entry(0.2, 0.1), "rcs": entry(0.5, 0.6, False)}
    lifts = compared_lifts({**COMPARISON, "arms": {"plain": table, "random": table}})
    assert list(lifts) == ["rpm"] and list(lifts["rpm"]) == ["plain"]
    assert round(lifts["rpm"]["plain"].value, 6) == 20.0


def test_the_page_leads_with_the_arms_that_earn_otherwise():
    revenue = {"expected_revenue_per_request": entry(1.0, 1.5)}
    same = {"expected_revenue_per_request": entry(1.0, 1.02)}
    moved = {**COMPARISON, "arms": {"plain": revenue, "other": same, "random": revenue}}
    title = compare_headline([moved])
    assert says(title, "plain", "+50.0 %") and "other" not in title and "random" not in title
    assert text_of(title) in text_of(compare_page([moved]).replace("&lt;b&gt;", "<b>"))
    assert "no arm" in compare_headline([{**COMPARISON, "arms": {"other": same}}])
    assert compare_headline([{**COMPARISON, "arms": {"plain": {}}}])
