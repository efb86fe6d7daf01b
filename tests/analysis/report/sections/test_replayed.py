"""The report of a replayed log shows what a log can say, and leaves out what takes a ground truth."""

from answers.section_text import says
from cascade_sim.analysis.report.page import facts
from cascade_sim.analysis.report.sections.arms import all_measures_table, arms_section, arms_table
from cascade_sim.analysis.report.sections.background import glossary
from cascade_sim.analysis.report.sections.funnel import funnel_section
from cascade_sim.analysis.report.sections.money import money_section, money_table
from cascade_sim.analysis.report.sections.whatif import pairing_words
from cascade_sim.analysis.report.short_page import answer_facts
from cascade_sim.analysis.report.template import definitions

MEASURED = {
    "expected_revenue_per_request": 0.1,
    "expected_ctr": 0.1,
    "cpc": 0.3,
    "cpc_error_vs_imputation": 0.305,
    "observed_clicks_share": 0.53,
    "fill_rate": 0.98,
}


def replayed():
    entries = {name: {"value": value, "low": value, "high": value} for name, value in MEASURED.items()}
    replay = {
        **{"log": "last week", "says": [], "notes": [], "models": {}, "level": "bids"},
        "resampled": {"by": "user", "why": "users come again"},
    }
    return {"arms": {"logged": entries}, "baseline": "logged", "replay": replay}


def text_of(section):
    return " ".join(str(part.text) for part in section.parts if hasattr(part, "text"))


def test_measures_of_a_log_have_names_for_people_and_their_units():
    rows = {row.label: row.cells[0].text for row in all_measures_table(replayed()).rows}
    assert rows["Clicks observed %"] == "53.0" and rows["Fill rate %"] == "98.0"
    assert not any("_" in label for label in rows)
    assert {"observed_clicks_share", "fill_rate"} <= {name for _, name, _ in glossary(replayed())}


def test_columns_that_a_log_cannot_fill_are_left_out():
    table = arms_table(replayed())
    groups = [group for group, _ in table.groups]
    assert len(groups) == 4 and groups[0].startswith("Revenue") and groups[1].startswith("Guardrails")
    assert [group.split()[0] for group in groups[2:]] == ["CTR", "CTR"]
    assert sum(n for _, n in table.groups) == len(table.columns) == len(table.rows[0].cells)


def test_nothing_is_said_of_true_rates_where_there_are_none():
    metrics = replayed()
    assert "true probability" not in text_of(arms_section(metrics))
    assert "click model" in text_of(arms_section(metrics))
    assert "click model" in text_of(money_section(metrics)) and "oracle" not in text_of(
        money_section(metrics)
    )
    assert money_table(metrics).rows[0].cells[1].text == "30.5"
    assert funnel_section(metrics).title == "Candidates per stage"
    drawn = {key: value for key, value in metrics.items() if key != "replay"}
    assert "true probability" in text_of(arms_section(drawn))
    assert says(funnel_section(drawn).title, "Value")


def test_a_log_has_an_evidence_level_in_place_of_a_seed():
    metrics = {**replayed(), "seed": 1, "requests": 8}
    assert says(facts(metrics, {})[0], "log", "replayed", "bids")
    answer = {"arm": "logged", "run": "last week", "seed": 1, "requests": 8}
    assert "seed 1" in answer_facts(answer)
    told = answer_facts({**answer, "replay": metrics["replay"]})
    assert "log completeness: bids" in told and "seed 1" not in told


def test_pairing_in_a_log_needs_no_random_numbers():
    worth = {"log_times": {"value": 1.4, "low": 0.7, "high": 2.1}}
    point = {"settings": {}, "metrics": {}, "variance_reduction": {"realised": worth, "expected": worth}}
    assert "random numbers" in pairing_words({"points": [point]})
    words = pairing_words({"points": [point], "replay": {"level": "bids"}})
    assert says(words, "other requests") and "random numbers" not in words and "world" not in words


def test_only_measures_that_a_log_has_are_explained():
    explained = {name: meaning for _, name, meaning in glossary(replayed())}
    assert "rcs" not in explained and says(explained[""], "users")
    drawn = {key: value for key, value in replayed().items() if key != "replay"}
    assert "rcs" in {name for _, name, _ in glossary(drawn)}


def test_words_of_a_figure_that_is_not_drawn_are_not_explained():
    section = arms_section(replayed())
    assert "RCS" not in definitions([section], [])[0][1]
    assert "RCS" in definitions([section], ["rcs_vs_revenue"])[0][1]
