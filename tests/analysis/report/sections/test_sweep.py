"""Tables, CSV and words of a sweep, from figures that can be checked by hand."""

import csv
import io

import pytest

from answers.section_text import says, section_text, text_of
from answers.sweep import FOUR, X, Y, entry, findings
from answers.table_text import plain
from cascade_sim.analysis.report.sections.sweep import (
    cells_guardrails,
    cells_table,
    csv_text,
    frontier,
    in_sentence,
    known_measures,
    sweep_headline,
    sweep_words,
)
from cascade_sim.analysis.report.short_page import sweep_page


def test_the_frontier_is_what_no_other_cell_beats():
    # 3 is beaten by 2 in both, 4 by the first in one with the other equal
    assert frontier(findings(FOUR), X, Y) == [1, 0]


def test_equal_cells_share_the_frontier_and_what_is_undefined_is_not_on_it():
    assert frontier(findings([(0.1, 1.0), (0.1, 1.0), (None, 5.0), (0.2, None)]), X, Y) == [0, 1]


def test_where_less_is_better_the_frontier_turns_round():
    points = [(0.10, 1.0), (0.08, 1.2), (0.07, 1.1), (0.10, 0.9)]
    assert frontier(findings(points, x="cpc_error"), "cpc_error", Y) == [1, 2]


def test_the_table_has_a_row_per_cell_with_lifts_over_the_first():
    table = cells_table(findings(FOUR), X, Y)
    assert len(table.columns) == 5 and table.columns[1::2] == ["lift %", "lift %"]
    assert [name.split()[0] for name in table.columns[::2]] == ["Revenue", "CTR,", "frontier"]
    assert [row.label for row in table.rows] == [f"slots={i}" for i in (1, 2, 3, 4)]
    first, second = ([cell.text for cell in row.cells] for row in table.rows[:2])
    assert first == ["1.00", "0", "10.00", "0", "yes"]
    assert second == ["1.20", "+20.0", "8.00", "−20.0", "yes"]  # 1.2 / 1 - 1, 0.08 / 0.1 - 1
    assert table.rows[1].cells[1].interval == "[+18.0, +22.0]" and table.rows[1].cells[1].tone == "up"
    assert [row.tag for row in table.rows] == ["reference", "", "", ""]


@pytest.mark.parametrize("error", ["payment_error_vs_oracle", "cpc_error"])
def test_a_smaller_error_has_the_colour_of_a_gain(error):
    table = cells_table(findings(FOUR, x=error), error, Y)
    assert [row.cells[3].text for row in table.rows] == ["0", "−20.0", "−30.0", "0.0"]
    assert [row.cells[3].tone for row in table.rows] == ["", "up", "up", ""]


def test_the_csv_has_every_number_and_empty_cells_for_what_is_undefined():
    rows = list(csv.DictReader(io.StringIO(csv_text(findings([(0.1, 1.0), (None, 1.5)]), X, Y))))
    assert [row["cascade.slots"] for row in rows] == ["1", "2"]
    assert [row["frontier"] for row in rows] == ["1", "0"]
    assert float(rows[1][f"{Y} lift low"]) == pytest.approx(0.5 - 0.02)
    assert rows[1][X] == rows[1][f"{X} low"] == "" and rows[0][f"{Y} lift"] == ""


def test_the_words_name_the_frontier():
    words, rest = sweep_words(findings(FOUR), X, Y)
    assert says(words, "frontier", "slots=2 and slots=1") and "slots=3" not in words
    assert says(rest, "2 of 4", "Pareto-optimal") and says(rest, "by their estimates")
    best, rest = sweep_words(findings([(0.1, 1.0), (0.2, 2.0)]), X, Y)
    assert says(best, "2 cells", "slots=2 is best in both") and says(rest, "by their estimates")
    assert says(sweep_words(findings([(None, 1.0)]), X, Y)[0], "No cell")


def guarded(points):
    """Cells that also have a CPC, which rises by half where revenue rises."""
    made = findings(points)
    for i, cell in enumerate(made["cells"]):
        cell["measures"]["cpc"] = entry(1.0, None if i == 0 else 0.5 if points[i][1] > points[0][1] else 0.0)
    return made


def test_every_cell_has_its_guardrails_against_the_reference():
    table = cells_guardrails(guarded(FOUR))
    assert table.columns == ["Revenue per request", "CPC"] and table.corner == "cell"
    assert [row.label for row in table.rows] == ["slots=2", "slots=3", "slots=4"]
    assert [cell.text for cell in table.rows[0].cells] == ["+20.0", "+50.0"]
    assert [cell.tone for cell in table.rows[0].cells] == ["up", "down"]
    assert cells_guardrails(findings(FOUR)) is None


def test_the_headline_says_which_cell_is_best_in_what_and_what_gets_worse_there():
    # Wording: the headline claims neither more nor less than the intervals show.
    text = plain(sweep_headline(guarded(FOUR), X, Y))
    assert text == (
        "Best in expected revenue per request: slots=2 (+20.0 % [+18.0, +22.0]); there CPC gets worse; "
        "best in expected CTR: slots=1, the reference."
    )
    near = findings([(0.1, 1.0), (0.2, 1.01)])
    assert plain(sweep_headline(near, X, Y)) == (
        "Best in expected revenue per request and expected CTR: "
        "slots=2 (+1.0 % [−1.0, +3.0], not significant)."
    )


def test_the_page_says_which_worlds_and_escapes_names():
    made = findings(FOUR)
    made["name"] = "<b>quick</b>"
    page = sweep_page(made, X, Y, "<svg></svg>")
    assert "&lt;b&gt;quick" in page and "<svg></svg>" in page and "<b>quick" not in page
    assert says(text_of(page), "4 cells", "arm ltr", "3 worlds", "seeds 1 to 3", "2,048 requests")
    assert "between worlds" in page
    assert says(text_of(sweep_page({**made, "seeds": [1]}, X, Y, "")), "not", "between worlds")
    assert "://" not in page.replace("http://www.w3.org", "")  # opens from disk


def test_measures_without_a_better_end_are_no_axes():
    assert {"expected_ctr", "welfare_vs_oracle", "cpc_error"} <= set(known_measures(has_market=False))
    assert not {"cpc", "cpc_bias", "market.revenue"} & set(known_measures(has_market=False))
    assert "market.surplus" in known_measures(has_market=True)
    assert "cost.flops" not in known_measures(has_market=True)
    assert "cost.flops" in known_measures(has_market=False, has_cost=True)


def test_a_cost_is_better_where_it_is_less():
    made = findings([(9.0, 1.0), (4.0, 1.0), (9.0, 2.0)])
    for cell in made["cells"]:
        cell["measures"]["cost.flops"] = cell["measures"][X]
    assert frontier(made, "cost.flops", Y) == [2, 1]
    # Wording: a measure as sentences have it.
    assert in_sentence("cost.scoring_flops") == "scoring FLOPs per request"


def test_the_page_leads_with_the_best_cells():
    made = findings(FOUR)
    title, cells = sweep_headline(made, X, Y), [cell["name"] for cell in made["cells"]]
    assert any(name in title for name in cells)
    answer = text_of(section_text(sweep_page(made, X, Y, "<svg></svg>"), "part-0"))
    assert answer.count("slots=2") == answer.count("slots=1") == 1  # each best cell is named once
    assert text_of(title) in text_of(sweep_page(made, X, Y, "<svg></svg>"))
