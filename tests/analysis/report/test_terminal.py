import re

import pytest

from answers.report import make_metrics, minimal_metrics
from answers.section_text import says
from answers.whatif import answer
from cascade_sim.analysis.report.tables import Cell, Row, Table
from cascade_sim.analysis.report.terminal import table_text, terminal_summary


@pytest.fixture(scope="module")
def metrics():
    return make_metrics()


def test_the_summary_fits_eighty_columns(metrics):
    text = terminal_summary(metrics, width=80)
    assert max(len(line) for line in text.splitlines()) <= 80
    assert "…" not in text


def test_the_summary_names_every_arm_and_the_answer(metrics):
    text = terminal_summary(metrics)
    assert all(arm in text for arm in metrics["arms"])
    assert "Ship distill-pre." in text and "79.8 ±0.6" in text and "+3.7 ±0.4" in text


def test_the_answer_stands_before_the_tables_and_what_the_scenario_asks_before_that(metrics):
    text = terminal_summary(metrics)
    assert text.index("Ship distill-pre.") < text.index("Lifts over")
    assert text.count("Ship distill-pre.") == 1
    asked = {**metrics, "what_if": {"reserve": answer((0.6, 1.1), (0.8, 1.05))}}
    text = terminal_summary(asked)
    assert says(text[: text.index("Ship distill-pre.")], "0.6", "+10.0 %", "revenue per request")


def test_colour_codes_are_written_only_for_a_terminal(metrics):
    assert "\x1b[" not in terminal_summary(metrics)
    assert "\x1b[" in terminal_summary(metrics, color=True)


def test_a_name_in_brackets_is_a_name_and_not_markup():
    metrics = minimal_metrics()
    metrics["arms"]["[red]x[/red]"] = {"rcs": {"value": 0.5, "low": 0.4, "high": 0.6}}
    assert "[red]x[/red]" in terminal_summary(metrics)


def test_a_reference_arm_that_pays_is_told(metrics):
    paying = make_metrics()
    paying["arms"]["pctr_only"]["expected_revenue_per_request"]["lift"] = {
        "value": 0.05,
        "low": 0.04,
        "high": 0.06,
    }
    assert says(terminal_summary(paying), "Dropping the bid", "pctr_only", "+5.0 %")
    assert "Dropping the bid" not in terminal_summary(metrics)


def test_the_summary_says_that_intervals_are_not_adjusted(metrics):
    assert says(terminal_summary(metrics), "not adjusted", "arms")


@pytest.mark.parametrize("width", [80, 100])
@pytest.mark.parametrize("columns", [3, 5, 9])
@pytest.mark.parametrize("color", [False, True])
def test_numbers_of_a_wide_table_are_never_cut(width, columns, color):
    cells = [Cell(f"+{i}2.34", margin="±12.56") for i in range(columns)]
    rows = [Row(f"reserve_cpc=0.{i}, squashing=0.8", cells) for i in range(2)]
    table = Table("Lifts", "cell", [f"revenue per request {i}" for i in range(columns)], rows)
    text = re.sub(r"\x1b\[\d*m", "", table_text(table, color=color, width=width))
    assert max(len(line) for line in text.splitlines()) <= width
    assert "…" not in text and text.count("Lifts") == 1
    for row in rows:
        said = " ".join(line for line in text.splitlines() if line.strip().startswith(row.label))
        assert all(f"{cell.text} {cell.margin}" in said for cell in cells)
    for heading in table.columns:
        assert heading in text
