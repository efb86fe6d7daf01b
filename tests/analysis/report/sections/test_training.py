import pytest

from answers.report import make_metrics
from answers.section_text import said, says
from answers.table_text import cells
from cascade_sim.analysis.report.figures.style import drawn
from cascade_sim.analysis.report.figures.training import training_curves
from cascade_sim.analysis.report.sections.training import (
    training_section,
    training_table,
    training_warnings,
)
from cascade_sim.analysis.report.terminal import terminal_summary


def line(descent, steps=1400, **more):
    fall = [0.2 * 0.5**point + 0.1 for point in range(21)]
    return {
        "epochs": 4, "validation": 0.05, "samples": 9000, "steps": [steps * i // 20 for i in range(21)],
        "loss": [None, *fall[1:]], "part_loss": fall, "gauc": [0.5 + 0.01 * i for i in range(21)],
        "residual_improvement": {"value": descent, "low": descent - 0.01, "high": descent + 0.01}, **more,
    }  # fmt: skip


@pytest.fixture
def metrics():
    told = {"slot_effects": [1.0, 0.82], "true_slot_effects": [1.0, 0.8]}
    return {**make_metrics(), "training": {"rank": line(0.01, **told), "ltr": line(0.12, 150), "odd": {}}}


def test_who_still_gained_is_named_with_its_steps_in_report_and_terminal(metrics):
    (warning,) = training_warnings(metrics)
    assert says(warning, "ltr (150 steps)", "of 2 still improving") and "rank" not in warning
    assert warning in said(training_section(metrics))
    assert warning in terminal_summary(metrics, width=400)


def test_of_many_the_first_are_named_and_the_rest_counted(metrics):
    metrics["training"] = {f"m{i}": line(0.2) for i in range(9)}
    (warning,) = training_warnings(metrics)
    assert says(warning, "m5 (1,400 steps) and 3 others of 9") and "m6" not in warning


def test_where_all_settled_the_section_says_so(metrics):
    metrics["training"]["ltr"] = line(0.0)
    section = training_section(metrics)
    assert training_warnings(metrics) == [] and says(section.finding[0], "All 2", "converged")


def test_the_table_tells_steps_end_and_descent(metrics):
    row = [cell.text for cell in cells(training_table(metrics), "ltr")]
    assert row == ["4", "150", "0.1000", "0.6000", "0.7000", "12.0", "not converged"]  # 0.1 + 0.2 / 2^20
    assert [cell.text for cell in cells(training_table(metrics), "rank")][-1] == "converged"


def test_estimated_slots_stand_beside_the_truth(metrics):
    text = said(training_section(metrics))
    assert "rank 1.00, 0.82." in text and "The truth: 1.00, 0.80." in text


def test_there_is_a_panel_for_each_model_that_was_watched(metrics):
    svg = drawn(training_curves, metrics, "training_curves", "title")
    assert "rank" in svg and "ltr" in svg and "odd" not in svg


def test_a_study_without_lines_has_no_section():
    assert training_section(make_metrics()) is None
    assert training_section({**make_metrics(), "training": {"rank": {}}}) is None
    assert training_curves(make_metrics()) is None
