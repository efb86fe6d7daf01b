"""What-ifs in words and tables."""

import csv
import io

import pytest

from answers.section_text import says, tables
from answers.table_text import plain
from answers.whatif import answer
from cascade_sim.analysis.report.sections.whatif import (
    WHAT_IF_MEASURES,
    difference_cell,
    measures_table,
    pairing_words,
    points_table,
    settings_text,
    value_text,
    what_if_csv,
    what_if_lines,
    what_if_section,
    what_if_words,
)


def test_settings_are_written_as_in_a_scenario():
    assert (
        settings_text({"auction.reserve_cpc": 0.2, "cascade.slots": 4})
        == "auction.reserve_cpc = 0.2, cascade.slots = 4"
    )
    assert [value_text(v) for v in (True, None, 1e-05, "vcg", 12)] == ["true", "none", "1e-05", "vcg", "12"]


def test_one_change_has_a_row_per_measure_with_difference_and_lift():
    table = measures_table(answer((0.5, 1.034)))
    row = next(row for row in table.rows if row.label == "Revenue per request, expected")
    assert [cell.text for cell in row.cells] == ["1.00", "1.03", "+0.0340", "+3.4"]
    assert row.cells[2].interval == "[+0.0330, +0.0350]" and row.cells[2].tone == "up"
    error = next(
        row for row in table.rows if row.label == "CPC error %"
    )  # 0 is perfect: no relative lift, and more is a loss
    assert error.cells[3].text == "" and (error.cells[2].text, error.cells[2].tone) == ("+3.40", "down")
    assert len(measures_table(answer((0.5, 1.0)), 3).rows) == 3


def test_a_difference_has_the_digits_that_its_interval_knows():
    measure = WHAT_IF_MEASURES["expected_revenue_per_request"]

    def text(value, half):
        made = difference_cell(
            measure, {"difference": {"value": value, "low": value - half, "high": value + half}}
        )
        return f"{made.text} {made.margin}"

    assert text(-0.000066, 0.00341) == "−0.0001 ±0.0034"
    assert text(0.0856, 0.004) == "+0.0856 ±0.0040"
    assert text(-28.63, 1.57) == "−28.6 ±1.6"


def test_several_values_have_a_row_each_below_today_s():
    table = points_table(answer((0.3, 0.98), (0.5, 1.05)))
    assert [row.label for row in table.rows] == ["0.4", "0.3", "0.5"] and table.rows[0].tag == "current"
    assert [row.cells[0].text for row in table.rows] == ["0", "−2.0", "+5.0"]
    assert [row.cells[-1].text for row in table.rows] == ["", "310", "310"]
    assert table.rows[1].cells[-2].interval == "[57, 67]"
    assert sum(width for _, width in table.groups) == len(table.columns)
    narrow = points_table(answer((0.3, 0.98), (0.5, 1.05)), narrow=True)
    assert len(set(narrow.columns)) == len(narrow.columns) and narrow.rows == table.rows


@pytest.mark.parametrize(
    ("asked", "parts"),
    [
        (answer((0.5, 1.034)), ["0.5", "plain", "+3.4 % [+2.4, +4.4]", "expected revenue"]),
        (answer((0.5, 1.004)), ["[−0.6, +1.4]", "expected revenue", "not significant"]),
        (answer((0.3, 0.9), (0.5, 1.05), (0.6, 1.0)), ["0.5", "highest", "expected revenue", "+5.0 %"]),
        (answer((0.3, 0.9), (0.5, 1.05)), ["best may lie beyond"]),
        (answer((0.3, 0.9), (0.4, 1.0), (0.5, 0.95)), ["plain", "0.4", "highest"]),
        (answer((0.5, 0.99), (0.6, 0.9)), ["auction.reserve_cpc", "none", "higher expected revenue", "0.4"]),
        (answer((0.5, 0.99), (0.6, 0.9)), ["the best of them", "0.5", "−1.0 %"]),
        (
            answer(("gsp", 1.0), ("first", 1.1), parameter="auction.pricing", current="gsp"),
            ["first", "highest", "current gsp"],
        ),
    ],
)
def test_words_say_what_would_have_been_brought_and_how_sure_that_is(asked, parts):
    assert says(what_if_words(asked), *parts)


def test_what_lies_between_today_s_value_and_the_others_is_not_called_the_last():
    assert "beyond" not in what_if_words(answer((0.5, 1.05), (0.6, 1.01)))
    assert "beyond" in what_if_words(answer((0.5, 1.01), (0.6, 1.05)))


def test_the_best_inside_the_range_is_not_called_the_last():
    assert "beyond" not in what_if_words(answer((0.3, 0.9), (0.5, 1.05), (0.6, 1.0)))


def test_the_worth_of_pairing_is_said():
    text = pairing_words(answer((0.5, 1.1)))
    assert says(text, "310 [305, 315]", "realised", "62 [57, 67]", "expected")
    assert says(pairing_words(answer((0.5, 1.1), (0.6, 1.1))), "310", "realised")
    assert says(pairing_words(answer((0.5, 1.0), worths=(None, None))), "Nothing", "differs")


def test_a_measure_that_moves_while_no_page_does_is_explained():
    """A tiny reserve: nobody pays it, but with the true CTRs somebody would."""
    asked = answer((0.01, 1.0), current=0.0, worths=(None, None))
    point = asked["points"][0]["metrics"]
    still = {"value": 0.0, "low": 0.0, "high": 0.0}
    for name in point:
        point[name]["difference"] = (
            {"value": -0.01, "low": -0.02, "high": 0.0} if name == "cpc_error" else still
        )
    words = plain(pairing_words(asked))
    assert says(words, "Nothing that was shown or charged differs")
    assert says(words, "CPC error", "true CTRs", "new setting") and "RCS" not in words
    point["rcs"]["difference"] = {"value": 0.01, "low": 0.0, "high": 0.02}
    assert says(plain(pairing_words(asked)), "RCS", "inside the cascade")
    point["rcs"]["difference"] = point["cpc_error"]["difference"] = still
    assert len(plain(pairing_words(asked)).split(". ")) == 1


def test_the_csv_has_every_number_unrounded():
    asked = answer((0.5, 1.1), (0.6, 1.2))
    asked["points"][1]["metrics"]["rcs"] = {"value": None, "low": None, "high": None}
    rows = list(csv.DictReader(io.StringIO(what_if_csv(asked))))
    assert len(rows) == 2 * 8 and rows[0]["setting"] == "auction.reserve_cpc = 0.5"
    assert float(rows[0]["lift"]) == 1.1 / 1.0 - 1 and float(rows[0]["difference_high"]) == 1.1 - 1.0 + 0.001
    gone = next(row for row in rows[8:] if row["metric"] == "rcs")
    assert gone["variant"] == gone["lift"] == "" and gone["current"] == "1.0"


def test_a_study_shows_a_section_per_question():
    metrics = {"what_if": {"curve": answer((0.3, 0.9), (0.5, 1.1)), "single": answer((0.5, 1.1))}}
    section = what_if_section({**metrics, "baseline": "plain"})
    assert [part.text for part in section.parts if part.shape == "heading"] == ["curve", "single"]
    curve, single = tables(section).values()
    assert curve.corner == "auction.reserve_cpc"
    assert single.columns == ["current", "variant", "difference", "lift %"]
    lines = what_if_lines(metrics, 80)
    assert [plain(line).split(": ")[0] for line in lines] == ["What if, curve", "What if, single"]
    assert what_if_section({}) is None and what_if_lines({}, 80) == []
