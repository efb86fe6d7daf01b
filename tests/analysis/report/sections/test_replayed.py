"""The report of a replayed log shows what a log can say, and leaves out what takes a hidden truth."""

from cascade_sim.analysis.report.sections.arms import all_measures_table, arms_section, arms_table
from cascade_sim.analysis.report.sections.background import glossary
from cascade_sim.analysis.report.sections.funnel import funnel_section
from cascade_sim.analysis.report.sections.money import money_section, money_table

MEASURED = {
    "expected_revenue_per_request": 0.1,
    "expected_ctr": 0.1,
    "cpc": 0.3,
    "cpc_error_vs_click_model": 0.305,
    "observed_clicks_share": 0.53,
    "slots_filled": 0.98,
}


def replayed():
    entries = {name: {"value": value, "low": value, "high": value} for name, value in MEASURED.items()}
    evidence = {"market": "last week", "says": [], "notes": [], "models": {}}
    return {"arms": {"logged": entries}, "baseline": "logged", "evidence": evidence}


def text_of(section):
    return " ".join(str(part.text) for part in section.parts if hasattr(part, "text"))


def test_measures_of_a_log_have_names_for_people_and_their_units():
    rows = {row.label: row.cells[0].text for row in all_measures_table(replayed()).rows}
    assert rows["Clicks observed %"] == "53.0" and rows["Slots filled %"] == "98.0"
    assert not any("_" in label for label in rows)
    assert {"observed_clicks_share", "slots_filled"} <= {name for _, name, _ in glossary(replayed())}


def test_columns_that_a_log_cannot_fill_are_left_out():
    table = arms_table(replayed())
    assert [group for group, _ in table.groups] == [
        "Revenue per request, lift %",
        "CTR lift %",
        "CTR %",
    ]
    assert sum(n for _, n in table.groups) == len(table.columns) == len(table.rows[0].cells)


def test_nothing_is_said_of_true_rates_where_there_are_none():
    metrics = replayed()
    assert "true probability" not in text_of(arms_section(metrics))
    assert "click model" in text_of(arms_section(metrics))
    assert "click model" in text_of(money_section(metrics)) and "oracle" not in text_of(
        money_section(metrics)
    )
    assert money_table(metrics).rows[0].cells[1].text == "30.5"
    assert funnel_section(metrics).title == "From candidates to the page"
    drawn = {key: value for key, value in metrics.items() if key != "evidence"}
    assert "true probability" in text_of(arms_section(drawn))
    assert funnel_section(drawn).title == "Where the money is lost"
