import copy

import pytest

from answers.critical_bids import make_critical_bids
from answers.report import SCENARIO_TEXT, make_metrics, minimal_metrics
from answers.section_text import said, says
from answers.told import tells
from cascade_sim.analysis.report.figures.critical_bids import critical_bids
from cascade_sim.analysis.report.figures.style import style
from cascade_sim.analysis.report.page import render
from cascade_sim.analysis.report.sections.critical_bids import (
    COLUMNS,
    critical_arms,
    critical_bids_section,
    critical_table,
    critical_words,
    narrow_tables,
)


@pytest.fixture(scope="module")
def metrics():
    return make_metrics()


def test_a_study_without_critical_bids_has_no_section(metrics):
    assert critical_bids_section(minimal_metrics()) is None
    older = {key: value for key, value in metrics.items() if key != "critical_bids"}
    assert critical_bids_section(older) is None
    with style("critical_bids"):
        assert critical_bids(older) is None
    page = render(older, {}, SCENARIO_TEXT, {})
    assert "critical-bids" not in page and "figure-critical_bids" not in page


def test_the_report_holds_the_section_and_its_figure(metrics):
    page = render(metrics, {}, SCENARIO_TEXT, {"critical_bids": "<svg></svg>"})
    assert '<section id="critical-bids">' in page and 'id="figure-critical_bids"' in page
    assert critical_words(metrics).replace("'", "&#39;") in page


def test_every_arm_is_a_row_and_every_number_a_column(metrics):
    table = critical_table(metrics)
    assert [row.label for row in table.rows] == critical_arms(metrics)
    assert len(table.rows) == 9 and {len(row.cells) for row in table.rows} == {11}
    assert sum(width for _, width in table.groups) == len(table.columns) == 11
    baseline = next(row for row in table.rows if row.kind == "baseline")
    local = metrics["critical_bids"]["arms"]["logloss"]["local_mean"]["value"]
    assert (baseline.cells[0].text, baseline.cells[0].margin) == (f"{100 * local:.1f}", "±1.0")


def test_the_narrow_tables_hold_the_same_cells(metrics):
    wide, parts = critical_table(metrics), narrow_tables(metrics)
    for i, row in enumerate(wide.rows):
        assert [cell for part in parts for cell in part.rows[i].cells] == row.cells
    assert sum(len(part.columns) for part in parts) == sum(len(group) for _, group in COLUMNS)


def test_the_words_give_the_gap_of_the_baseline(metrics):
    words = critical_words(metrics)
    gap = 0.08 * (1 - 2 / 8)  # the third of nine arms
    assert says(words, "logloss", f"{100 * 4 * gap:.1f} %", "need a higher bid")
    assert says(words, "auction", f"{100 * (0.8 + gap):.1f} % through", f"a gap of {100 * gap:.1f} %")


def test_the_words_for_no_gap_and_for_nothing_shown(metrics):
    level = {**metrics, "critical_bids": make_critical_bids(["x", "logloss"])}
    words = critical_words(level)
    assert says(words, "logloss", "pre-ranking", "no more", "auction") and "%" not in words
    empty = copy.deepcopy(level)
    empty["critical_bids"]["arms"]["logloss"]["with_gap"] = {"value": None, "low": None, "high": None}
    assert says(critical_words(empty), "logloss", "no ad")


@pytest.mark.parametrize(("pricing", "text"), [("gsp", "GSP"), ("vcg", "VCG")])
def test_what_is_said_of_the_price_depends_on_the_pricing(metrics, pricing, text):
    other = copy.deepcopy(metrics)
    for row in other["critical_bids"]["arms"].values():
        row["pricing"] = pricing
    about = said(critical_bids_section(other))
    assert tells(about, *text.split()) and about.count("charges") == 1
    assert "200 requests:" in about


def test_several_worlds_are_said_to_be_several(metrics):
    assert says(said(critical_bids_section(make_metrics(seeds=3))), "200 requests", "each world")


def test_of_a_retriever_that_looks_at_bids_it_is_said_that_its_part_is_held(metrics):
    base = metrics["baseline"]
    assert not says(critical_words(metrics), "Retrieval looks at bids")
    held = copy.deepcopy(metrics)
    held["critical_bids"]["arms"][base]["retrieval"] = "held"
    assert says(critical_words(held), "Retrieval looks at bids")
