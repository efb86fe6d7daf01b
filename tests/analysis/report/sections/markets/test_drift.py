import pytest

from answers.drift import drift_metrics
from answers.learning import fixed_metrics, learning_metrics
from answers.report import minimal_metrics, renamed
from answers.section_text import said, says
from answers.table_text import cells
from answers.told import tells
from cascade_sim.analysis.report.page import render
from cascade_sim.analysis.report.sections.markets.drift import (
    arms_of,
    drift_arms,
    drift_section,
    drift_table,
    drift_words,
    how,
    level_words,
)
from cascade_sim.analysis.report.terminal import terminal_summary


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


def shown(metrics, arm, **which):
    """Heading -> what stands under it in the arm's row."""
    table = drift_table(metrics, **which)
    return dict(zip(table.columns, [cell.text for cell in cells(table, arm)], strict=True))


def test_the_table_tells_start_end_slope_verdict_and_scale(metrics):
    table = drift_table(metrics)
    assert sum(width for _, width in table.groups) == len(table.columns) == len(texts(metrics, "ltr"))
    ltr = shown(metrics, "ltr")
    assert (ltr["start"], ltr["end"]) == ("−0.60", "−3.00")  # -0.5 - 0.1, and -0.5 - 120 * 0.02 - 0.1
    assert ltr["moved"] == "−2.20"  # from deployments 1 to 10 to 111 to 120: 110 * 0.02
    assert ltr["slope/100"] == "−2.00" and ltr["level"] == "drifting, p 0.002"  # 100 * 0.02
    assert ltr["paper's mark"] == "unstable" and ltr["lift %"] == "−5.0"
    assert (ltr["off by, shown"], ltr["off by, all ads"]) == ("6.50", "12.00")
    base = shown(metrics, "logloss")
    assert (base["level"], base["paper's mark"], base["lift %"]) == ("stationary", "stable", "0")
    row = next(row for row in table.rows if row.label == "distill-pre")
    assert tells(row.tag, "calibrator") and says(row.hint, "softmax", "platt", "anew")


def test_auc_per_request_stands_apart_from_the_pooled_one_and_is_held_against_the_baseline(metrics):
    ltr, base = shown(metrics, "ltr"), shown(metrics, "logloss")
    assert (ltr["AUC/request, pages"], ltr["AUC pooled, pages"]) == ("0.6700", "0.7700")  # 0.7 - 3 * 0.01
    assert (ltr["AUC/request, candidates"], ltr["AUC pooled, candidates"]) == ("0.7700", "0.8700")
    assert (ltr["less baseline's"], base["less baseline's"]) == ("+0.0400", "0")  # 4 letters fewer


def test_the_terminal_has_the_columns_that_answer_the_question(metrics):
    ltr = shown(metrics, "ltr", narrow=True)
    assert ltr["level"] == "drifting, p 0.002" and ltr["AUC/req. pages"] == "0.6700"
    assert set(ltr) == {
        *("slope/100", "persistence", "unit root", "level", "paper's mark", "off by, shown"),
        *("AUC/req. pages", "less base", "AUC/req. all ads", "AUC pooled"),
    }
    text = terminal_summary(metrics)
    wanted = ("Score stationarity", "slope/100", "drifting, p 0.002", "AUC/req. pages", "AUC pooled")
    assert all(part in text for part in wanted)
    assert "Score stationarity" not in terminal_summary(learning_metrics())


def test_over_several_worlds_it_counts_those_that_drift_and_those_that_hold(metrics):
    metrics["seeds"] = {"n": 5, "seeds": [1, 2, 3, 4, 5]}
    for arm, drifts, holds in (("ltr", 0.8, 0.0), ("logloss", 0.2, 0.6)):
        metrics["market"]["arms"][arm]["learning"]["drift"] |= {"drifting": drifts, "stationary": holds}
    assert shown(metrics, "ltr")["level"] == "drifting 4, stationary 0 of 5"
    assert shown(metrics, "logloss")["level"] == "drifting 1, stationary 3 of 5"
    assert shown(metrics, "ltr")["paper's mark"] == "stable in 0 of 5"
    table = drift_table(metrics)
    tones = {row.label: row.cells[table.columns.index("level")].tone for row in table.rows}
    assert (tones["ltr"], tones["logloss"]) == ("down", "")
    assert "5 worlds" in said(drift_section(metrics))
    assert says(level_words(metrics), "times 5 worlds", "order alone 4 of 5", "regression part 1 of 5")


def test_neither_drift_nor_return_is_left_open(metrics):
    metrics["market"]["arms"]["ltr"]["learning"]["drift"] |= {"drifting": 0.0, "stationary": 0.0}
    assert shown(metrics, "ltr")["level"] == "inconclusive"


def test_too_few_deployments_leave_the_verdict_open(metrics):
    metrics["market"]["arms"]["ltr"]["learning"]["drift"] |= {"drifting": None, "paper_stable": None}
    assert (shown(metrics, "ltr")["level"], shown(metrics, "ltr")["paper's mark"]) == ("–", "–")
    assert says(drift_words(metrics), "too few")


def test_a_file_without_means_past_the_transient_shows_the_last_deployment(metrics):
    del metrics["market"]["arms"]["ltr"]["learning"]["settled"]
    ltr = shown(metrics, "ltr")
    assert (ltr["AUC/request, pages"], ltr["less baseline's"]) == ("0.6000", "–")


def test_two_sentences_say_whose_level_drifts_and_who_orders_best(metrics):
    words = drift_words(metrics)
    groups = [
        *("order alone", "1 of 1", "6.50", "2.20"),
        *("calibrator", "1 of 1", "1.10", "2.20"),
        *("regression", "0 of 1", "1.05", "0.00"),
    ]
    assert says(words, "80 deployments past the transient", *groups)
    assert says(words, "Per request", "ltr", "highest AUC", "0.670", "distill-pre", "lowest", "0.590")
    assert says(words, "logloss", "0.630")


def test_a_setting_is_told_in_words():
    assert tells(how({"objective": "sbcr", "batching": "lists"}), "sbcr", "whole pages")
    assert says(how({"objective": "softmax", "calibrator": "platt"}), "softmax", "platt", "once")
    told = {"objective": "sbcr", "calibrator": "platt", "fit": "joint", "logged_scores_from": "old"}
    assert says(how(told), "sbcr", "old", "platt")


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
