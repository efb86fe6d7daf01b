"""What a log can answer follows from its columns and from how much of it the declared rule gives again."""

import copy

import pytest

from answers.told import refused, tells
from cascade_sim import import_logs, whatif
from worlds.small_log import small_log

WHOLE = small_log(40)


def said(log, folder):
    answer = import_logs(log.write(folder / "log"), folder / "market")
    lines = str(answer).split("\n")
    return answer, [line for line in lines if line.startswith(("supports", "does not support"))]


@pytest.fixture
def log():
    return copy.deepcopy(WHOLE)


def test_all_that_was_logged_can_be_asked(log, tmp_path):
    answer, lines = said(log, tmp_path)
    assert answer.replayed == 1.0
    assert len([line for line in lines[:2] if line.startswith("supports: ")]) == 2
    assert tells(lines[0], "shown", "clicked", "paid") and tells(lines[1], "squashing", "100 %")
    assert any(line.startswith("does not support: ") and tells(line, "propensities") for line in lines)


@pytest.mark.parametrize(
    ("lost", "can", "cannot"),
    [
        ("    click: clicked\n", "what was shown and paid", "(click)"),
        (
            "    price: {column: cost, unit: micros}\n",
            "what was shown and clicked",
            "price",
        ),
        (
            ", pctr: p_click",
            "what was shown, clicked and paid",
            "squashing pCTR (pctr)",
        ),
    ],
)
def test_what_is_not_mapped_is_no_answer(lost, can, cannot, log, tmp_path):
    log.mapping = log.mapping.replace(lost, "")
    _, lines = said(log, tmp_path)
    assert f"supports: {can}" in lines
    assert any(line.startswith("does not support: ") and tells(line, *cannot.split()) for line in lines)
    assert not any(tells(line, *cannot.split()) for line in said(WHOLE, tmp_path / "whole")[1])


def test_pages_that_nobody_saw_are_no_answer_where_clicks_are_too_few_for_a_model(log, tmp_path):
    for row in log.shown:
        row["clicked"] = 0
    answer, lines = said(log, tmp_path)
    assert tells(" ".join(lines), "supports: pricing rules", "100 %")
    assert any(tells(line, "squashing", "0 clicks") for line in lines)
    with refused("clicks", "click model"):
        whatif(answer, {"auction.reserve_cpc": 0.6})


def test_under_a_rule_that_the_log_does_not_follow_nothing_is_promised(log, tmp_path):
    log.mapping = log.mapping.replace("pricing: gsp", "pricing: first")
    answer, lines = said(log, tmp_path)
    assert answer.replayed < 0.5
    assert not any(line.startswith("supports: pricing rules") for line in lines)
    told = next(line for line in lines if line.startswith("does not support: pricing rules"))
    assert tells(told, "declared rule", "audit-logs")
    log.mapping = log.mapping.replace("rule: {pricing: first, squashing: 1}\n", "")
    lines = said(log, tmp_path / "none")[1]
    assert any(tells(line, "none is declared", "100 %") for line in lines)


def test_prices_of_clicked_ads_alone_are_called_that(log, tmp_path):
    for row in log.shown:
        row["cost"] = row["cost"] if row["clicked"] else ""
    share = 100 * sum(row["clicked"] for row in log.shown) / len(log.shown)
    assert tells(said(log, tmp_path)[1][0], "paid", f"{share:.3g} %")
