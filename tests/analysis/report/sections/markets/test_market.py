"""The report's section on the market: bidders by arm, days, late clicks, and how sure it all is."""

import pytest

from answers.market import make_market
from answers.report import make_metrics
from answers.section_text import said, says, tables
from answers.table_text import cells
from cascade_sim.analysis.report.sections.markets.market import (
    days_table,
    delayed_table,
    kinds_table,
    market_section,
)
from cascade_sim.analysis.statistics.days import market_lifts
from cascade_sim.study.results import combine_seeds


def texts(table, row):
    return [cell.text for cell in cells(table, row)]


def of_days(n):
    market = make_market(["logloss", "ltr"], n)
    return {**make_metrics(), "market": {**market, "lifts": market_lifts(market["arms"], "logloss")}}


def test_bidders_are_shown_for_every_arm_with_wins_bids_and_surplus():
    metrics = make_metrics()
    metrics["market"]["arms"]["ltr"]["bidders"]["paced"] |= {"win_rate": None, "click_value": 0.0}
    table = kinds_table(metrics)
    assert table.columns == ["paced", "greedy", "open"] * 3
    assert texts(table, "logloss") == ["25.0"] * 3 + ["40.0", "100.0", "120.0"] + ["25.0"] * 3  # 100 of 400
    assert texts(table, "ltr")[0] == "–" == texts(table, "ltr")[6]


def test_days_are_listed_with_what_other_arms_earned_on_each():
    metrics = of_days(3)
    hours = metrics["market"]["arms"]["ltr"]["hours"]
    hours["revenue"][24:48] = [2 * x for x in hours["revenue"][24:48]]
    table = days_table(metrics)
    assert [row.label for row in table.rows] == ["Day 1", "Day 2", "Day 3"]
    # 6 hours of 50 and 18 of 50 / 3 make 600 a day, of 24 · 100 requests and 24 · 20 clicks
    assert texts(table, "Day 1") == ["2,400", "5.00", "1.250", "600.0", "0.2500", "+1.0"]
    assert texts(table, "Day 2")[-1] == "+102.0"
    assert days_table(of_days(1)) is None and days_table(of_days(40)) is None


def test_late_clicks_have_a_table_only_where_clicks_are_late():
    metrics = make_metrics()
    assert delayed_table(metrics) is None and "Delayed clicks" not in tables(market_section(metrics))
    for arm in metrics["market"]["arms"].values():
        arm |= {"click_delay": 30.0, "overspend_limit": 0.05, "overspend_share": 0.04, "pending_clicks": 3}
    metrics["market"]["arms"]["ltr"]["beyond_limit"] = 0.5
    table = delayed_table(metrics)
    shown = dict(zip(table.columns, texts(table, "logloss"), strict=True))
    assert (shown["Pending clicks"], shown["Declared limit %"], shown["Limit kept"]) == ("3", "5.00", "yes")
    assert texts(table, "ltr")[-1] == "no"


@pytest.mark.parametrize(
    ("n", "parts"), [(1, ["Hours", "share its budgets"]), (7, ["95 % t intervals", "7 days"])]
)
def test_the_section_says_what_its_intervals_mean(n, parts):
    assert says(said(market_section(of_days(n))), *parts)


def test_over_several_worlds_the_intervals_are_between_worlds():
    worlds = [{"seed": i, "market": of_days(1)["market"]} for i in range(3)]
    for i, world in enumerate(worlds):
        world["market"]["lifts"]["ltr"]["revenue_per_request"]["value"] = 0.01 * (i + 1)
    both = {**make_metrics(seeds=3), **combine_seeds(worlds)}
    assert says(said(market_section(both)), "between worlds")
    lift = both["market"]["lifts"]["ltr"]["revenue_per_request"]
    # mean .02, sd .01, t(2) = 4.303
    assert (lift["value"], lift["high"]) == (
        pytest.approx(0.02),
        pytest.approx(0.02 + 4.3027 * 0.01 / 3**0.5, abs=1e-6),
    )
