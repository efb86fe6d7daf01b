"""What each request brought, from the log: the numbers the run measured."""

import pytest

from answers.told import refused
from cascade_sim.diagnostics.reopen import RATIOS, page_columns
from cascade_sim.storage.tables import TableWriter, read_table


def test_the_log_gives_the_values_that_the_run_measured(study):
    for arm in ("logloss", "distill-pre", "random"):
        found = page_columns(study.sim.environment, study.folder, arm, 500)
        own = study.metrics["arms"][arm]
        measured = [metric for metric in RATIOS if metric in own]
        assert {"revenue_per_request", "expected_revenue_per_request", "rpm", "ctr", "cpc"} <= set(measured)
        for metric in measured:
            top, bottom = RATIOS[metric]
            value = found[top].sum() / found[bottom].sum()
            assert value == pytest.approx(own[metric]["value"], rel=1e-9), metric


def test_a_row_is_a_request_and_a_page_its_sum(study):
    found = page_columns(study.sim.environment, study.folder, "logloss", 200)
    assert {len(values) for values in found.values()} == {200}
    assert found["requests"].tolist() == [1.0] * 200 and set(found["impressions"].tolist()) == {3.0}


def test_in_a_long_evaluation_a_row_is_a_few_requests(study, monkeypatch):
    monkeypatch.setattr("cascade_sim.environments.page_columns.MAX_ROWS", 100)
    found = page_columns(study.sim.environment, study.folder, "logloss", 500)
    assert found["requests"].tolist() == [5.0] * 100 and found["impressions"].sum() == 1500


def test_an_arm_that_showed_nothing_has_rows_of_nothing(study, tmp_path):
    """As under a reserve that nobody bids: its log is there, without a row."""
    shown = read_table(study.folder, "evaluate-logloss")
    with TableWriter(tmp_path, "evaluate-logloss") as log:
        log.append({name: values[:0] for name, values in shown.items()})
    found = page_columns(study.sim.environment, tmp_path, "logloss", 20)
    assert found["requests"].tolist() == [1.0] * 20
    assert all(values.tolist() == [0.0] * 20 for name, values in found.items() if name != "requests")


def test_a_log_that_is_gone_is_said(study, tmp_path):
    with refused("'logloss'"):
        page_columns(study.sim.environment, tmp_path, "logloss", 5)
