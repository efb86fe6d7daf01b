"""The headline of what a log says: a lift where there is one, else the value; refused only what was."""

import pytest

from answers.off_policy import make_launches, make_off_policy
from answers.table_text import plain
from cascade_sim.analysis.report.log_verdict import log_answers, log_verdict

# Wording: a headline from logs alone must not claim more than the estimates do.


def headline(targets):
    return plain(log_verdict(log_answers(targets)).headline)


def rows_of(target):
    return target["rewards"]["revenue"]["estimators"]


@pytest.fixture
def launches():
    part = make_launches()["targets"]
    return {name: part[name] for name in ("near", "far")}


@pytest.fixture
def pages():
    """Two questions about pages, which have no lift, and the pages as they were logged."""
    colder, cold, logged = (make_off_policy()["targets"]["colder"] for _ in range(3))
    cold["changes"], logged["changes"] = "slates.temperature=0.3", ""
    for target in (colder, cold, logged):
        for row in rows_of(target).values():
            del row["lift"]
    return {"as it was": logged, "colder": colder, "cold": cold}


def test_a_lift_whose_interval_holds_zero_is_no_clear_change(launches):
    del launches["far"]
    text = "From the log alone, auction.reserve_cpc = 0.63: no clear change, −2.0 % [−5.0, +1.0]"
    assert headline(launches) == f"{text} revenue per request."
    rows_of(launches["near"])["local_dr"]["lift"] = {"value": -0.02, "low": -0.03, "high": -0.01}
    assert "0.63: −2.0 % [−3.0, −1.0] revenue" in headline(launches)


def test_a_launch_whose_lift_alone_is_refused_has_its_value_beside_today_s(launches):
    del launches["far"]
    rows_of(launches["near"])["local_dr"].update(lift={"value": None, "low": 0.1, "high": 0.2})
    text = "0.63: 0.2920 [0.2800, 0.3000] revenue per request; current 0.3000 [0.2900, 0.3100]."
    assert headline(launches).endswith(text)
    rows_of(launches["near"])["local_dr"].update(lift={"value": 0.1}, lift_verdict="refuse")
    assert headline(launches).endswith(text)


def test_a_question_that_was_refused_is_called_so(launches):
    del launches["near"]
    text = headline(launches)
    assert "revenue per request: no estimate by local DR" in text and "cannot" not in text
    assert headline({**launches, "again": launches["far"]}) == (
        "From the log alone, no answer: 2 of 2 targets without an estimate."
    )


def test_pages_have_their_values_and_what_was_logged(pages):
    each = "0.2000 [0.1900, 0.2100]"
    assert headline(pages) == (
        f"From the log alone, revenue per request: {each} under slates.temperature = 0.5, "
        f"{each} under slates.temperature = 0.3; as logged 0.2800 [0.2700, 0.2900]."
    )


def test_where_nothing_is_changed_the_policy_is_judged_alone(pages):
    only = {"as it was": pages["as it was"]}
    assert headline(only) == ("From the log alone, as it was: 0.2000 [0.1900, 0.2100] revenue per request.")
    rows_of(only["as it was"])["slate_ips"]["lift"] = {"value": 0.0, "low": 0.0, "high": 0.0}
    assert "%" not in headline(only)


def test_of_several_questions_the_best_leads_and_the_others_are_counted(launches, pages):
    rows_of(launches["near"])["local_dr"]["lift"] = {"value": 0.02, "low": 0.01, "high": 0.03}
    verdict = log_verdict(log_answers({**launches, **pages}))
    assert plain(verdict.headline) == (
        "From the log alone, auction.reserve_cpc = 0.63 has the highest lift: +2.0 % [+1.0, +3.0] revenue "
        "per request; 1 of 4 targets without an estimate; 2 of 4 answered without a lift."
    )
    assert verdict.named == ("near",)


def test_targets_that_no_estimator_answers_are_left_out(launches, pages):
    for target in launches.values():
        rows_of(target).clear()
    assert headline({**launches, **pages}) == headline(pages)
    assert headline(launches) == ""
