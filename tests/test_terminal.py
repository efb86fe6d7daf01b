import pytest
from report_fixture import make_metrics, minimal_metrics

from analysis.terminal import terminal_summary


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
