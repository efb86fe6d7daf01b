import pytest

from answers.drift import drift_metrics
from answers.learning import fixed_metrics, learning_metrics
from answers.report import minimal_metrics, renamed
from answers.section_text import said, says
from answers.table_text import cells
from cascade_sim.analysis.report.page import render
from cascade_sim.analysis.report.sections.drift import (
    arms_of,
    drift_arms,
    drift_section,
    drift_table,
    drift_words,
    how,
)


@pytest.fixture
def metrics():
    return drift_metrics()


def texts(metrics, arm):
    return [cell.text for cell in cells(drift_table(metrics), arm)]


def test_rankers_come_by_what_gives_them_their_scale(metrics):
    assert list(drift_arms(metrics)) == ["ltr", "distill-pre", "logloss"]
    assert [arms_of(metrics, group) for group in ("order", "calibrator", "scale")] == [
        ["ltr"], ["distill-pre"], ["logloss"]
    ]  # fmt: skip


def test_the_table_tells_start_end_change_mark_and_scale(metrics):
    table = drift_table(metrics)
    assert sum(width for _, width in table.groups) == len(table.columns) == len(texts(metrics, "ltr"))
    start, end, moved, change, mark, pcoc, off, shown, *_, lift = texts(metrics, "ltr")
    assert (start, end, mark) == ("−0.60", "−3.00", "unstable")  # -0.5 - 0.1, and -0.5 - 120 * 0.02 - 0.1
    assert moved == "−2.20"  # from deployments 1 to 10 to 111 to 120: 110 * 0.02
    assert change == "−1.99"  # 99 * 0.02 and a trace of the zigzag: 6 * 0.1 / 101
    assert (pcoc, off, shown, lift) == ("12.00", "12.00", "6.50", "−5.0")
    assert texts(metrics, "logloss")[4] == "stable" and texts(metrics, "logloss")[-1] == "0"
    row = next(row for row in table.rows if row.label == "distill-pre")
    assert row.tag == "followed by a calibrator" and says(row.hint, "softmax", "platt", "anew")


def test_over_several_worlds_the_mark_is_the_share_that_is_stable(metrics):
    metrics["seeds"] = {"n": 5, "seeds": [1, 2, 3, 4, 5]}
    for arm, share in (("ltr", 0.2), ("logloss", 0.8)):
        metrics["market"]["arms"][arm]["learning"]["drift"]["stable"] = share
    assert texts(metrics, "ltr")[4] == "stable in 1 of 5"
    assert texts(metrics, "logloss")[4] == "stable in 4 of 5"
    tones = {row.label: row.cells[4].tone for row in drift_table(metrics).rows}
    assert (tones["ltr"], tones["logloss"]) == ("down", "")
    assert "5 worlds" in said(drift_section(metrics))


def test_too_few_deployments_leave_the_mark_open(metrics):
    metrics["market"]["arms"]["ltr"]["learning"]["drift"]["stable"] = None
    assert texts(metrics, "ltr")[4] == "–"
    assert "too few to judge" in drift_words(metrics)


def test_two_sentences_say_who_holds_the_level_and_who_orders_best(metrics):
    words = drift_words(metrics)
    groups = [
        *("order alone", "0 of 1", "6.50", "2.20"),
        *("calibrator", "0 of 1", "1.10", "2.20"),
        *("regression", "1 of 1", "1.05", "0.00"),
    ]
    assert says(words, "100 deployments", *groups)
    assert says(words, "ltr", "highest AUC", "0.770", "distill-pre", "lowest", "0.690")
    assert says(words, "logloss", "0.730")


def test_a_setting_is_told_in_words():
    assert how({"objective": "sbcr", "batching": "lists"}) == "sbcr, batches of whole pages"
    assert how({"objective": "softmax", "calibrator": "platt"}) == "softmax, then platt, fitted once"
    told = {"objective": "sbcr", "calibrator": "platt", "fit": "joint", "dumped_by": "old"}
    assert how(told) == "sbcr, beside the scores of old, then platt, trained with it"


def test_rankers_trained_alike_have_no_such_section(metrics):
    for arm in ("ltr", "distill-pre"):
        metrics["market"]["arms"][arm]["learning"]["ranker"] = dict(
            metrics["market"]["arms"]["logloss"]["learning"]["ranker"], model=arm
        )
    for other in (metrics, learning_metrics(), fixed_metrics(), minimal_metrics()):
        assert drift_section(other) is None and drift_words(other) == ""


def test_the_report_shows_it_and_escapes_names(metrics):
    metrics = renamed(metrics, "ltr", "<ltr>")
    figures = ("drift_order", "drift_calibrator", "drift_scale")
    page = render(metrics, {}, "name: x", dict.fromkeys(figures, "<svg></svg>"))
    assert 'id="drift"' in page and all(f'id="figure-{name}"' in page for name in figures)
    assert "<ltr>" not in page and "&lt;ltr&gt;" in page
    assert 'id="drift"' not in render(learning_metrics(), {}, "name: x", {})
