import pytest

from answers.compute import with_compute, without_compute
from answers.report import make_metrics, minimal_metrics
from answers.section_text import said, tables
from cascade_sim.analysis.report.sections.compute import (
    answers_table,
    arms_table,
    compute_arms,
    compute_section,
    compute_words,
    stages_table,
)
from cascade_sim.phases.results import combine_seeds

ARMS = ["logloss-small", "logloss-med", "logloss", "ltr", "distill-pre"]


@pytest.fixture
def metrics():
    found = make_metrics()
    market = found["market"]
    market["arms"] = {arm: market["arms"][arm] for arm in ARMS}
    return with_compute(found)


def row(table, label):
    cells = next(one.cells for one in table.rows if one.label == label)
    return dict(zip(table.columns, (cell.text for cell in cells), strict=True))


def plain(text):
    return " ".join(text.replace("\u00a0", " ").split())


def test_arms_come_cheapest_first(metrics):
    assert compute_arms(metrics) == ARMS
    metrics["market"]["arms"]["ltr"]["compute"]["server_ms_per_request"] = 1.0
    assert compute_arms(metrics)[0] == "ltr"


def test_a_row_says_what_an_arm_ranks_costs_takes_and_earns(metrics):
    found = row(arms_table(metrics), "logloss")
    assert found["Ads ranked"] == "150.0" and found["Server ms per request"] == "40.0"  # 10 + 0.2 * 150
    assert found["Late %"] == "10.00" and found["p99, ms"] == "99.0"
    assert [one.kind for one in arms_table(metrics).rows if one.label == "logloss"] == ["baseline"]


def test_stages_are_grouped_and_have_their_own_load(metrics):
    table = stages_table(metrics)
    assert [name for name, _ in table.groups] == ["Retrieval", "Pre-ranking", "Ranking"]
    assert sum(width for _, width in table.groups) == len(table.columns) == 9
    cells = next(one.cells for one in table.rows if one.label == "ltr")
    assert [cells[i].text for i in (0, 3, 6)] == ["10.0", "20.0", "80.0"]  # 0.004 * 200


def test_answers_are_shares_of_all_requests(metrics):
    assert row(answers_table(metrics), "distill-pre") == {
        "Ranking %": "70.00", "Pre-ranking %": "30.00", "Retrieval %": "0.00", "Nobody %": "0.00"
    }  # fmt: skip


def test_the_sentence_tells_the_deadline_and_the_arm_that_earned_most(metrics):
    for arm, revenue in zip(ARMS, (0.20, 0.26, 0.25, 0.24, 0.22), strict=True):
        metrics["market"]["arms"][arm]["revenue_per_request"] = revenue
    # 0.26 / 0.25 and 30 / 40
    assert plain(compute_words(metrics)) == (
        "With logloss, 10.0 % of requests missed the deadline of 100 ms; half were answered within 20 ms, "
        "99 % within 99 ms. logloss-med earned most per request, 4.0 % more than logloss, with −25 % server "
        "time and 0.0 % late."
    )


def test_a_difference_too_small_to_mean_anything_is_not_praised(metrics):
    for arm in ARMS:
        metrics["market"]["arms"][arm]["revenue_per_request"] = 0.25
    metrics["market"]["arms"]["ltr"]["revenue_per_request"] = 0.251
    assert compute_words(metrics).endswith("No arm earned clearly more per request than logloss.")


def test_a_study_without_servers_has_no_section():
    for metrics in (minimal_metrics(), without_compute(make_metrics())):
        assert compute_section(metrics) is None and compute_words(metrics) == ""


def test_arms_without_servers_are_left_out(metrics):
    del metrics["market"]["arms"]["logloss"]["compute"]
    section = compute_section(metrics)
    assert section is not None and "With logloss-small" in said(section)
    rows = tables(section)["Latency and compute"].rows
    assert [row.label for row in rows] == [arm for arm in ARMS if arm != "logloss"]


def test_missing_numbers_are_dashes(metrics):
    metrics["market"]["arms"]["ltr"]["compute"]["latency"]["p50"] = None
    metrics["market"]["arms"]["ltr"]["compute"]["stages"]["ranking"] = None
    assert row(arms_table(metrics), "ltr")["Latency p50, ms"] == "–"
    assert next(one.cells for one in stages_table(metrics).rows if one.label == "ltr")[6].text == "–"


def test_the_section_names_the_servers(metrics):
    assert "2 for retrieval, 2 for pre-ranking, 2 for ranking" in said(compute_section(metrics))


def test_several_worlds_are_means(metrics):
    other = with_compute(make_metrics())
    other["market"]["arms"] = {arm: other["market"]["arms"][arm] for arm in ARMS}
    other["market"]["arms"]["logloss"]["compute"]["late"] = 0.3
    metrics["market"]["arms"]["logloss"]["compute"]["late"] = 0.1
    worlds = [{"seed": i, "market": one["market"]} for i, one in enumerate((metrics, other))]
    both = {**make_metrics(seeds=2), **combine_seeds(worlds)}
    assert row(arms_table(both), "logloss")["Late %"] == "20.00"


def test_an_arm_that_earns_more_with_the_same_server_time_is_said_to(metrics):
    arms = list(metrics["market"]["arms"].values())
    for i, arm in enumerate(arms):
        arm["revenue_per_request"] = 0.2 + 0.01 * i
        arm["compute"]["server_ms_per_request"] = 30.0
    assert "with the same server time" in compute_words(metrics)
