import pytest

from answers.compute import with_compute, without_compute
from answers.report import make_metrics, minimal_metrics
from answers.section_text import said, says, tables
from answers.table_text import by_column, cells
from cascade_sim.analysis.report.sections.markets.compute import (
    answers_table,
    arms_table,
    compute_arms,
    compute_section,
    compute_words,
    stages_table,
)
from cascade_sim.study.results import combine_seeds

ARMS = ["logloss-small", "logloss-med", "logloss", "ltr", "distill-pre"]


@pytest.fixture
def metrics():
    metrics = make_metrics()
    market = metrics["market"]
    market["arms"] = {arm: market["arms"][arm] for arm in ARMS}
    return with_compute(metrics)


def texts(table, label):
    """Column → text of a row."""
    return {column: cell.text for column, cell in by_column(table, label).items()}


def test_arms_come_cheapest_first(metrics):
    assert compute_arms(metrics) == ARMS
    metrics["market"]["arms"]["ltr"]["compute"]["server_ms_per_request"] = 1.0
    assert compute_arms(metrics)[0] == "ltr"


def test_a_row_says_what_an_arm_ranks_costs_takes_and_earns(metrics):
    shown = texts(arms_table(metrics), "logloss")
    assert shown["Ads ranked"] == "150.0" and shown["Server ms per request"] == "40.0"  # 10 + 0.2 * 150
    assert shown["Late %"] == "10.00" and shown["p99, ms"] == "99.0"
    assert [row.kind for row in arms_table(metrics).rows if row.label == "logloss"] == ["baseline"]


def test_stages_are_grouped_and_have_their_own_load(metrics):
    table = stages_table(metrics)
    assert [name for name, _ in table.groups] == ["Retrieval", "Pre-ranking", "Ranking"]
    assert sum(width for _, width in table.groups) == len(table.columns) == 9
    shown = cells(table, "ltr")
    assert [shown[i].text for i in (0, 3, 6)] == ["10.0", "20.0", "80.0"]  # 0.004 * 200


def test_answers_are_shares_of_all_requests(metrics):
    assert texts(answers_table(metrics), "distill-pre") == {
        "Ranking %": "70.00", "Pre-ranking %": "30.00", "Retrieval %": "0.00", "No stage %": "0.00"
    }  # fmt: skip


def test_a_step_of_pre_ranking_stands_in_its_place_whatever_its_name(metrics):
    """metrics.json sorts mappings by name; the attribution has stages in their order."""
    names = ("retrieval", "coarse_net", "pre_ranking", "ranking")
    metrics["attribution"] = {"logloss": {"stages": [{"stage": name} for name in names]}}
    for arm in metrics["market"]["arms"].values():
        stages = arm["compute"]["stages"]
        arm["compute"]["stages"] = {name: stages.get(name, {"utilisation": 0.5}) for name in sorted(names)}
        arm["compute"]["answered"]["coarse_net"] = 0.25
    table = stages_table(metrics)
    assert [name for name, _ in table.groups] == ["Retrieval", "Coarse-net", "Pre-ranking", "Ranking"]
    assert [cells(table, "ltr")[i].text for i in (0, 3, 6, 9)] == ["10.0", "50.0", "20.0", "80.0"]
    assert list(texts(answers_table(metrics), "ltr"))[2] == "Coarse-net %"


def test_the_sentence_tells_the_deadline_and_the_arm_that_earned_most(metrics):
    for arm, revenue in zip(ARMS, (0.20, 0.26, 0.25, 0.24, 0.22), strict=True):
        metrics["market"]["arms"][arm]["revenue_per_request"] = revenue
    words = compute_words(metrics)
    assert says(words, "logloss", "10.0 %", "missed the deadline", "100 ms")
    assert says(words, "half", "20 ms", "99 %", "99 ms")
    # 0.26 / 0.25 and 30 / 40
    assert says(
        words, "logloss-med", "earned most", "4.0 % more", "logloss", "−25 % server time", "0.0 % late"
    )


def test_a_difference_too_small_to_mean_anything_is_not_praised(metrics):
    for arm in ARMS:
        metrics["market"]["arms"][arm]["revenue_per_request"] = 0.25
    metrics["market"]["arms"]["ltr"]["revenue_per_request"] = 0.251
    words = compute_words(metrics)
    assert says(words, "No arm", "more per request than", "logloss") and "earned most" not in words


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
    assert texts(arms_table(metrics), "ltr")["Latency p50, ms"] == "–"
    assert cells(stages_table(metrics), "ltr")[6].text == "–"


def test_the_section_names_the_servers(metrics):
    servers = [f"2 for {stage}" for stage in ("retrieval", "pre-ranking", "ranking")]
    assert says(said(compute_section(metrics)), *servers)


def test_several_worlds_are_means(metrics):
    other = with_compute(make_metrics())
    other["market"]["arms"] = {arm: other["market"]["arms"][arm] for arm in ARMS}
    other["market"]["arms"]["logloss"]["compute"]["late"] = 0.3
    metrics["market"]["arms"]["logloss"]["compute"]["late"] = 0.1
    worlds = [{"seed": i, "market": world["market"]} for i, world in enumerate((metrics, other))]
    both = {**make_metrics(seeds=2), **combine_seeds(worlds)}
    assert texts(arms_table(both), "logloss")["Late %"] == "20.00"


def test_an_arm_that_earns_more_with_the_same_server_time_is_said_to(metrics):
    arms = list(metrics["market"]["arms"].values())
    for i, arm in enumerate(arms):
        arm["revenue_per_request"] = 0.2 + 0.01 * i
        arm["compute"]["server_ms_per_request"] = 30.0
    assert says(compute_words(metrics), "same server time")
