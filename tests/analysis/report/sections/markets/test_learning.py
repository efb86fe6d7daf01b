import pytest

from answers.learning import around, fixed_metrics, learning_metrics
from answers.report import minimal_metrics, renamed
from answers.section_text import said, says
from answers.table_text import cells, plain
from cascade_sim.analysis.report.figures.learning import learning_recall
from cascade_sim.analysis.report.figures.style import drawn
from cascade_sim.analysis.report.page import figures_of, render
from cascade_sim.analysis.report.sections.markets.learning import (
    arms_table,
    learning_arms,
    learning_section,
    learning_words,
)
from cascade_sim.analysis.report.terminal import terminal_summary


@pytest.fixture
def metrics():
    return learning_metrics()


def test_arms_that_learn_come_by_how_much_they_explore(metrics):
    assert learning_arms(metrics) == ["logloss", "ltr"]
    metrics["market"]["arms"]["logloss"]["learning"]["exploration"] = 0.5
    assert learning_arms(metrics) == ["ltr", "logloss"]


def test_the_table_shows_the_last_deployment_and_its_paired_difference(metrics):
    table = arms_table(metrics)
    texts = [cell.text for cell in cells(table, "ltr")]
    assert texts == [
        "10.0",
        "60.0",
        "+10.0",
        "30.0",
        "+5.0",
        "0.800",
        "1.20",
        "1.00",
        "1.920",
        "−4.0",
        "−4.0",
    ]
    assert sum(width for _, width in table.groups) == len(table.columns) == len(texts)
    recall, gap, _, win_gap = cells(table, "ltr")[1:5]
    assert (recall.interval, gap.interval, gap.tone) == ("[58.0, 62.0]", "[+8.0, +12.0]", "up")
    assert win_gap.tone == ""  # 5 points, give or take 6
    assert cells(table, "ltr")[9].tone == "down"
    base = [cell.text for cell in cells(table, "logloss")]
    assert base == ["0.0", "50.0", "0", "25.0", "0", "0.800", "1.20", "1.00", "2.000", "0", "0"]


def test_two_sentences_say_what_is_found_and_what_it_costs(metrics):
    words = learning_words(metrics)
    assert says(words, "logloss", "50.0 %", "most valuable") and says(
        words, "ltr", "10.0 points more [+8.0, +12.0]"
    )
    assert says(words, "Revenue per request", "against logloss", "ltr", "−4.0 % [−5.0, −3.0]")


def test_of_many_arms_only_those_that_clearly_differ_are_named(metrics):
    arms = metrics["market"]["arms"]
    alike = {
        **arms["ltr"]["learning"],
        "difference": {"recall": around(0.001)},
        "revenue_per_request": around(2.0, lift=around(0.0)),
    }
    for i in range(7):
        arms[f"other-{i}"] = {**arms["ltr"], "learning": alike}
        metrics["arms"][f"other-{i}"] = metrics["arms"]["ltr"]
    words = learning_words(metrics)
    assert says(words, "ltr", "10.0 points more") and says(words, "7 others", "about as many")
    assert says(words, "ltr", "−4.0 % [−5.0, −3.0]") and says(
        words, "7 others", "not significantly different"
    )
    assert "other-" not in words


@pytest.mark.parametrize(
    ("gap", "text"),
    [
        (around(-0.1), "ltr 10.0 points fewer [−12.0, −8.0]"),
        (around(0.01), "ltr about as many (+1.0 points [−1.0, +3.0])"),
        ({"value": 0.01}, "ltr about as many (+1.0 points)"),
        (None, "ltr cannot be compared"),
    ],
)
def test_a_difference_is_called_what_its_interval_allows(metrics, gap, text):
    # Wording: what an interval does not show must not be claimed.
    metrics["market"]["arms"]["ltr"]["learning"]["difference"]["recall"] = gap
    assert text in plain(learning_words(metrics))


def test_a_study_whose_models_stay_has_no_such_section():
    for metrics in (fixed_metrics(), minimal_metrics()):
        assert learning_section(metrics) is None and learning_words(metrics) == ""


def test_the_page_says_how_often_models_are_trained_and_what_the_intervals_are(metrics):
    about = said(learning_section(metrics))
    assert "Every 24 hours" in about and "512 requests" in about and "resample" in about
    metrics["seeds"] = {"n": 5, "seeds": [1, 2, 3, 4, 5]}
    assert "between 5 worlds" in said(learning_section(metrics))


def test_report_and_terminal_show_it(metrics):
    metrics = renamed(metrics, "ltr", "<ltr>")
    title = figures_of(metrics)["learning_recall"].title
    svg = drawn(learning_recall, metrics, "learning_recall", title)
    page = render(metrics, {}, "name: x", {"learning_recall": svg})
    assert 'id="learning"' in page and 'id="figure-learning_recall"' in page and "<ltr>" not in page
    assert "&lt;ltr&gt;" in page and f'aria-label="{title}"' in page
    assert plain(learning_words(metrics)) in plain(terminal_summary(metrics))
    without = fixed_metrics()
    assert 'id="learning"' not in render(without, {}, "name: x", {})
    assert "most valuable" not in terminal_summary(without)
