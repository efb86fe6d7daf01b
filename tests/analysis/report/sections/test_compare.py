"""Compared runs as tables, CSV and a page."""

import csv
import io
import re

from answers.section_text import says, text_of
from answers.table_text import plain
from cascade_sim.analysis.report.compare_verdict import compare_verdict
from cascade_sim.analysis.report.figures.compare import compared_lifts
from cascade_sim.analysis.report.sections.compare import (
    arm_table,
    compare_csv,
    compare_figures,
    compare_page,
    lifts_table,
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
    assert [cell.text for cell in rows["RPM, realised"].cells] == ["10.0", "12.0", "+2.00", "+20.0"]
    assert rows["RPM, realised"].tag == "" and rows["CPC error %"].tag == "unpaired"
    assert rows["CPC error %"].cells[3].text == "" and list(rows)[-1] == "own_metric"
    assert arm_table({**COMPARISON, "paired_by": "none"}, "plain").rows[1].tag == ""  # said once for all
    assert len(arm_table(COMPARISON, "plain", 1).rows) == 1


def test_what_neither_run_measured_is_no_row_and_the_scenario_s_arms_come_first():
    nothing = {"value": None, "low": None, "high": None}
    unknown = {part: nothing for part in ("before", "after", "difference", "lift")} | {"is_paired": False}
    gone = {**unknown, "before": node(1.0)}
    table = {"rpm": entry(10.0, 12.0), "rcs": unknown, "cpc": gone}
    comparison = {**COMPARISON, "arms": {"bid_only": table, "plain": table}}
    assert [row.label for row in arm_table(comparison, "plain").rows] == ["RPM, realised", "CPC"]
    page = compare_page([comparison])
    assert re.findall(r'<details data-arm="([^"]+)">', page) == ["plain", "bid_only"]


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


def test_the_verdict_is_about_revenue_and_guardrails_and_not_the_largest_of_many_changes():
    table = {
        "expected_revenue_per_request": entry(1.0, 1.02),
        "price_match_rate": entry(1.0, 0.01),
        "rcs": entry(0.1, 0.9),
        "cpc": entry(1.0, 1.5),
    }
    said = plain(" ".join(compare_verdict({**COMPARISON, "arms": {"plain": table}})))
    assert "no significant change, +2.0 %" in said and "CPC gets worse" in said
    assert "as logged" not in said and "RCS" not in said


def test_the_verdict_leads_with_the_arm_that_both_runs_recommend_or_have_as_baseline():
    revenue = {"expected_revenue_per_request": entry(1.0, 1.5)}
    same = {"expected_revenue_per_request": entry(1.0, 1.02)}
    pair = {**COMPARISON, "arms": {"wild": revenue, "base": same, "ranker": revenue}}
    for why in ("recommended by both runs", "baseline of both runs"):
        headline, about = compare_verdict({**pair, "lead": {"arm": "base", "why": why}})
        assert says(headline, "base", "+2.0 %") and "wild" not in headline
        assert says(about, "base is", why) and says(about, "1 of 1")


def test_the_verdict_says_whether_models_were_trained_again():
    pair = {**COMPARISON, "arms": {"plain": {"expected_revenue_per_request": entry(1.0, 1.02)}}}
    assert "trained again" not in " ".join(compare_verdict(pair))  # not known
    assert says(compare_verdict({**pair, "trained_again": {"a": False}})[-1], "same weights")
    again = compare_verdict({**pair, "trained_again": {"a": True, "b": False}})[-1]
    assert says(again, "trained again", "1 of 2", "(a)")


def test_csv_and_page():
    rows = list(csv.DictReader(io.StringIO(compare_csv([COMPARISON]))))
    assert len(rows) == 3 and rows[0]["difference"] == "2.0" and rows[1]["is_paired"] == "False"
    page = compare_page([COMPARISON, {**COMPARISON, "scenario": []}])
    assert "runs/&lt;b&gt;" in page and "<b>" not in page and "Be careful." in page
    assert says(page, "scenarios", "the same")
    assert re.findall(r'role="region" aria-label="([^"]+)"', page) == ["Scenario", *("Arm plain",) * 2]


def test_the_page_has_a_figure_of_the_lifts_of_each_comparison():
    unknown = {**COMPARISON, "arms": {"plain": {}}}
    svgs = compare_figures([COMPARISON, unknown])
    assert list(svgs) == ["compare_1"] and "RPM" in svgs["compare_1"]
    page = compare_page([COMPARISON, unknown], svgs)
    assert 'id="figure-compare_1"' in page and 'id="figure-compare_2"' not in page
    assert page.index('id="figure-compare_1"') < page.index('aria-label="Arm plain"')
    assert "runs/&lt;b&gt; over runs/a" in page and "runs/<b>" not in page


def test_the_figure_shows_paired_lifts_of_the_scenarios_arms_alone():
    table = {"rpm": entry(10.0, 12.0), "cpc_error": entry(0.2, 0.1), "rcs": entry(0.5, 0.6, False)}
    lifts = compared_lifts({**COMPARISON, "arms": {"plain": table, "random": table}})
    assert list(lifts) == ["rpm"] and list(lifts["rpm"]) == ["plain"]
    assert round(lifts["rpm"]["plain"].value, 6) == 20.0


def headings(page):
    return [text_of(heading) for heading in re.findall(r"<h2>(.*?)</h2>", page)]


def test_the_page_leads_with_the_verdict_that_the_command_prints():
    revenue = {"expected_revenue_per_request": entry(1.0, 1.5), "ctr": entry(0.1, 0.3)}
    same = {"expected_revenue_per_request": entry(1.0, 1.02)}
    moved = {**COMPARISON, "arms": {"plain": revenue, "other": same, "random": revenue}}
    headline, most = compare_verdict({**moved, "lead": {"arm": "plain", "why": "baseline of both runs"}})
    assert says(headline, "plain", "+50.0 %") and says(most, "plain", "baseline")
    moved["lead"] = {"arm": "plain", "why": "baseline of both runs"}
    page = compare_page([moved], compare_figures([moved]))
    assert headings(page)[0] == plain(headline) and text_of(most) in text_of(page)
    assert re.search(r'<section id="part-0" class="answer">\s*<h2>', page)
    for arms in ({"other": same}, {"plain": {}}, {}):
        pair = {**COMPARISON, "arms": arms}
        assert headings(compare_page([pair]))[0] == plain(compare_verdict(pair)[0])


def test_of_several_pairs_every_one_leads_with_its_verdict():
    other = {**COMPARISON, "other": "runs/c", "arms": {"plain": {"rpm": entry(10.0, 10.0)}}}
    page = compare_page([COMPARISON, other])
    for heading, pair in zip(headings(page), (COMPARISON, other), strict=False):
        assert heading.startswith(f"runs/a → {pair['other']}") and heading.endswith(
            plain(compare_verdict(pair)[0])
        )


def test_every_arm_has_a_row_of_lifts_what_is_unpaired_says_so():
    table = {"ctr": entry(10.0, 12.0), "rcs": entry(0.5, 0.6, False)}
    arms = {"plain": table, "random": {"ctr": entry(10.0, 9.0)}}
    lifts = lifts_table({**COMPARISON, "arms": arms}, list(arms))
    assert [(row.arm, row.kind) for row in lifts.rows] == [("plain", ""), ("random", "reference")]
    assert [cell.text for cell in lifts.rows[0].cells] == ["+20.0", "+20.0"]
    assert ["unpaired" in heading for heading in lifts.columns] == [False, True]
    unpaired = lifts_table({**COMPARISON, "paired_by": "none", "arms": arms}, list(arms))
    assert not any("unpaired" in heading for heading in unpaired.columns)  # said once for all
    assert lifts_table({**COMPARISON, "arms": {"plain": {}}}, ["plain"]) is None


def test_an_arm_is_switched_off_in_rows_tables_and_the_figure():
    table = {"expected_revenue_per_request": entry(10.0, 12.0)}
    long = "a-name-that-is-cut-in-the-legend"
    moved = {**COMPARISON, "arms": {"plain": table, long: table, "random": table}}
    page = compare_page([moved], compare_figures([moved]))
    assert re.findall(r'<button[^>]* data-arm="([^"]+)"', page) == ["plain", long, "random"]
    for tag, arms in {"tr": 3, "details": 3, "g": 2}.items():
        assert len(set(re.findall(rf'<{tag}[^>]* data-arm="([^"]+)"', page))) == arms
    legend = page[page.index('id="compare_1-legend_1"') :]
    assert set(re.findall(r'<g data-arm="([^"]+)"', legend[: legend.index("</svg>")])) == {"plain", long}


def test_many_keys_of_the_scenario_are_folded_away_below():
    keys = [{"key": f"world.k{i}", "old": i, "new": i + 1} for i in range(20)]
    few, many = (
        compare_page([{**COMPARISON, "scenario": keys[:2]}]),
        compare_page([{**COMPARISON, "scenario": keys}]),
    )
    answers = [page[: page.index("</section>")] for page in (few, many)]
    assert "world.k1" in answers[0] and "world.k1" not in answers[1]
    assert "world.k19" in many[many.index('<details class="more">') :]
