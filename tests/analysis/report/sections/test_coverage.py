"""Coverage in tables, as CSV and in words."""

import csv
import io

from answers.coverage_rows import some_rows
from answers.section_text import says
from cascade_sim.analysis.report.sections.coverage import (
    CSV_COLUMNS,
    coverage_csv,
    coverage_tables,
    coverage_words,
)


def test_a_table_per_target_with_errors_in_percent_of_the_truth():
    near, far = coverage_tables(some_rows(), {"near": 0.884, "far": 0.001}, "revenue")
    assert says(near.title, "near", "10.00", "ESS 88 %")
    cells = dict(zip(near.columns, near.rows[0].cells, strict=True))
    assert cells["width %"].text == "39.2"  # 2 * 1.96 of 10
    assert cells["verdict"].text == "holds" and cells["coverage %"].margin.startswith("±0.")
    assert far.rows[0].cells[0].text == "100.0" and far.rows[0].cells[4].text == "–"


def test_words_name_who_covers_too_seldom_but_leave_the_direct_method_apart():
    words = coverage_words(some_rows(), 1000)
    assert words.is_good and says(words.lines[0], "2 of 2", "1,000 requests")
    assert says(words.lines[-1], "never", "IPS on far")
    words = coverage_words(some_rows(claimed=0.8), 1000)
    assert not words.is_good
    (narrow,) = [line for line in words.lines if line.startswith("too seldom")]
    assert "SNIPS on near, 8" in narrow


def test_wide_intervals_are_named_but_are_no_fault():
    words = coverage_words(some_rows(claimed=1.4), 1000)
    (wide,) = [line for line in words.lines if line.startswith("wider")]
    assert words.is_good and "SNIPS on near, 99" in wide


def test_the_csv_has_a_line_per_target_and_estimator():
    text = coverage_csv(some_rows(), {"near": 0.9, "far": 0.0}, "revenue", 500)
    rows = list(csv.DictReader(io.StringIO(text)))
    assert len(rows) == 4 and tuple(rows[0]) == CSV_COLUMNS
    assert rows[0]["requests"] == "500" and float(rows[0]["coverage"]) > 0.9
    assert rows[3]["coverage"] == "" and rows[3]["no_estimate"] == "1.0"
