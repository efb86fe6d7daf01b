import pytest

from answers.report import make_metrics, minimal_metrics
from answers.section_text import says
from cascade_sim.analysis.report.terminal import terminal_summary


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
