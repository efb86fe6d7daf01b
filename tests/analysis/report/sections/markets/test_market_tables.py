import pytest

from answers.market import make_market
from answers.report import make_metrics, minimal_metrics, renamed
from answers.section_text import clauses, said, says, tables
from answers.table_text import by_column, cells, plain
from answers.told import tells
from cascade_sim.analysis.report.sections.markets.market import (
    bidder_kinds,
    bidders_table,
    clock,
    market_baseline,
    market_section,
    market_words,
    totals_table,
)
from cascade_sim.analysis.report.terminal import terminal_summary
from cascade_sim.study.results import combine_seeds


@pytest.fixture
def metrics():
    return make_metrics()


def test_totals_show_each_arm_and_its_difference_to_the_baseline(metrics):
    table = totals_table(metrics)
    shown = by_column(table, "distill-pre")
    assert (shown["Revenue"].text, plain(shown["Revenue"].lift)) == ("624.0", "+2.0 %")  # 1.04 / 1.02 - 1
    assert (shown["CTR %"].text, plain(shown["CTR %"].lift)) == ("5.20", "+2.0 %")
    assert (shown["Requests"].text, shown["Requests"].lift) == ("2,400", "same")
    assert [cell.lift for cell in cells(table, "logloss")] == [""] * len(table.columns)
    assert [row.kind for row in table.rows if row.label == "logloss"] == ["baseline"]


def test_differences_with_an_interval_show_it_and_are_toned(metrics):
    lift = {"value": 0.02, "low": 0.01, "high": 0.03}
    lifts = {"revenue_per_request": lift, "ctr": {**lift, "low": -0.01}, "cpc": lift}
    metrics["market"]["lifts"] = {"distill-pre": lifts}
    shown = by_column(totals_table(metrics), "distill-pre")
    revenue = shown["Revenue per request"]
    assert (plain(revenue.interval), revenue.lift, revenue.tone) == ("+2.0 %", "[+1.0, +3.0]", "up")
    assert (shown["CTR %"].lift, shown["CTR %"].tone) == ("[−1.0, +3.0]", "")
    assert (shown["CPC"].lift, shown["CPC"].tone) == ("[+1.0, +3.0]", "")  # dearer clicks: good for one side
    assert (shown["Surplus"].text, plain(shown["Surplus"].lift)) == (
        "374.4",
        "+2.0 %",
    )  # 360 · 1.04, no interval


def test_overspend_is_compared_in_money_because_the_baseline_has_none(metrics):
    metrics["market"]["arms"]["ltr"]["overspend"] = 0.125
    table = totals_table(metrics)
    overspend = cells(table, "ltr")[table.columns.index("Overspend")]
    assert (overspend.text, overspend.lift) == ("0.125", "+0.125")


def test_a_ratio_to_nothing_is_left_out(metrics):
    metrics["market"]["arms"]["logloss"]["conversions"] = 0
    metrics["market"]["arms"]["ltr"]["revenue"] = None
    table = totals_table(metrics)
    assert cells(table, "ltr")[table.columns.index("Conversions")].lift == ""
    assert cells(table, "ltr")[table.columns.index("Revenue")].text == "–"


def test_bidders_come_smoothest_first_and_those_without_budgets_last(metrics):
    table = bidders_table(metrics)
    assert [row.label for row in table.rows] == ["paced", "greedy", "open"]
    texts = [cell.text for cell in cells(table, "greedy")]
    assert texts == ["40 of 60", "200", "100.0", "100.0", "06:00", "75.0"]  # 40 budgets of 5
    assert [cell.text for cell in cells(table, "open")] == ["0 of 60"] + ["–"] * 5


def test_an_hour_is_written_as_time():
    assert [clock(4.7774), clock(23.999), clock(0.0), clock(None)] == ["04:47", "24:00", "00:00", "–"]


def test_one_sentence_says_who_ran_dry_who_kept_pace_and_that_nobody_overspent(metrics):
    words = market_words(metrics)
    assert says(words, "logloss", "greedy", "100 %", "06:00", "exhausted their budgets early")
    assert says(words, "paced", "4.0 pp", "on pace")
    assert says(words, "no advertiser", "beyond its budget") and len(clauses(words)) == 3


def test_running_dry_as_the_day_ends_is_not_running_dry_early(metrics):
    paced = metrics["market"]["arms"]["logloss"]["bidders"]["paced"]
    paced["budget_exhausted"] = 0.9  # at 23:30, after 47 of 48 updates
    words = market_words(metrics)
    assert says(words, "paced", "4.0 pp", "on pace") and not says(words, "paced", "exhausted")


def test_a_kind_that_saves_its_money_strays_from_traffic(metrics):
    metrics["market"]["arms"]["logloss"]["bidders"]["paced"]["max_pacing_error"] = 0.4
    assert says(market_words(metrics), "paced", "40.0 pp", "went off pace")


def test_a_budget_that_does_not_bind_has_no_pace(metrics):
    metrics["market"]["arms"]["logloss"]["bidders"]["paced"] |= {
        "max_pacing_error": 0.98,
        "budget_utilisation": 0.018,
    }
    words = market_words(metrics)
    assert says(words, "paced", "1.8 % spent", "left most of their budgets unspent")
    assert "off pace" not in words and "98.0" not in words


def test_overspend_is_told(metrics):
    metrics["market"]["arms"]["logloss"]["overspend"] = 1.5
    assert says(market_words(metrics), "1.50", "beyond its budget") and "declared" not in market_words(
        metrics
    )
    for beyond, word in ((0.0, "within"), (0.5, "beyond")):
        metrics["market"]["arms"]["logloss"] |= {"overspend_limit": 0.02, "beyond_limit": beyond}
        assert says(market_words(metrics), "1.50", "beyond its budget", f"{word} the declared 2 %")


def test_without_budgets_the_sentence_says_only_that(metrics):
    for arm in metrics["market"]["arms"].values():
        arm["bidders"] = {"open": arm["bidders"]["open"]}
    (clause,) = clauses(market_words(metrics))
    assert says(clause, "logloss", "no advertiser", "budget")


def test_the_section_says_when_budgets_leave_no_room(metrics):
    section = market_section(metrics)
    assert section is not None and section.title == "The market day"
    # (60 · 0.96 + 40 · 1) / 100
    assert says(said(section), "97.6 %", "budgets")
    assert "share its budgets" in said(section)
    for name in ("paced", "greedy"):
        metrics["market"]["arms"]["logloss"]["bidders"][name]["budget_utilisation"] = 0.5
    assert "of all budgets" not in said(market_section(metrics))


def test_several_days_are_counted(metrics):
    metrics["market"] = make_market(["logloss", "ltr"], days=3)
    section = market_section(metrics)
    assert section.title.endswith("days") and says(said(section), "3 simulated days")
    assert [row.label for row in tables(section)["Totals of the market"].rows] == ["ltr", "logloss"]


def test_a_study_without_a_market_has_none():
    for metrics in (minimal_metrics(), {**make_metrics(), "market": {"arms": {}}}):
        assert market_section(metrics) is None and bidder_kinds(metrics) == {} and market_words(metrics) == ""


def test_where_the_baseline_had_no_market_the_first_arm_stands_in(metrics):
    del metrics["market"]["arms"]["logloss"]
    assert market_baseline(metrics) == "distill-pre" == totals_table(metrics).rows[0].label


def test_the_market_of_several_worlds_is_their_mean(metrics):
    other = make_metrics()
    for arm in other["market"]["arms"].values():
        arm["revenue"] += 10
        arm["bidders"]["greedy"]["curve"]["spend_share"][0] += 0.5
        arm["bidders"]["greedy"]["exhaustion_hour"] = 8.0
    worlds = [{"seed": i, "market": world["market"]} for i, world in enumerate((metrics, other))]
    both = {**make_metrics(seeds=2), **combine_seeds(worlds)}
    table = totals_table(both)
    revenue = cells(table, "logloss")[table.columns.index("Revenue")]
    assert revenue.text == "617.0"  # 612 + 10 / 2
    assert cells(bidders_table(both), "greedy")[4].text == "07:00"
    # An hour that one world lacks is that of the other.
    other["market"]["arms"]["logloss"]["bidders"]["greedy"]["exhaustion_hour"] = None
    for first, second in ((metrics, other), (other, metrics)):
        both = combine_seeds([{"seed": i, "market": w["market"]} for i, w in enumerate((first, second))])
        assert both["market"]["arms"]["logloss"]["bidders"]["greedy"]["exhaustion_hour"] == 6.0
    both = {**make_metrics(seeds=2), **combine_seeds(worlds)}
    own = metrics["market"]["arms"]["logloss"]["bidders"]["greedy"]["curve"]["spend_share"][0]
    mean = both["market"]["arms"]["logloss"]["bidders"]["greedy"]["curve"]["spend_share"][0]
    assert mean == pytest.approx(own + 0.25)
    assert says(said(market_section(both)), "2 worlds")


def test_the_terminal_prints_the_bidders_and_fits(metrics):
    text = terminal_summary(renamed(metrics, "greedy", "[red]greedy[/red]"), width=80)
    assert tells(text, "Budgets", "logloss", "[red]greedy[/red]")
    assert tells(text, "06:00", "exhausted")
    assert max(len(line) for line in text.splitlines()) <= 80
    assert "Budgets" not in terminal_summary(minimal_metrics())
