"""The headline rests on the evaluation; the page says when the market disagrees."""

import pytest

from answers.report import make_metrics
from answers.table_text import plain
from cascade_sim.analysis.report.decision import decide
from cascade_sim.analysis.report.market_verdict import market_lift, under_budgets


def with_lifts(**lifts):
    """A study that ships distill-pre, with these lifts in the market: (value, low, high)."""
    metrics = make_metrics()
    names = ("value", "low", "high")
    metrics["market"]["lifts"] = {
        arm.replace("_", "-"): {"revenue_per_request": dict(zip(names, lift, strict=True))}
        for arm, lift in lifts.items()
    }
    return metrics


def test_a_market_that_agrees_is_quoted_and_nothing_more():
    metrics = with_lifts(distill_pre=(0.03, 0.01, 0.05), ltr=(0.02, 0.0, 0.04))
    assert decide(metrics).arm == "distill-pre"
    found = under_budgets(metrics, "distill-pre")
    assert [plain(one) for one in found] == [
        "In the market with budgets it earns +3.0 % [+1.0, +5.0] against logloss: what advertisers cannot "
        "pay for is no revenue."
    ]


@pytest.mark.parametrize(
    ("lift", "words"),
    [
        ((-0.02, -0.03, -0.01), "earns less, −2.0 % [−3.0, −1.0]"),
        ((0.01, -0.01, 0.03), "has no clear gain, +1.0 % [−1.0, +3.0]"),
        ((-0.02, None, None), "earns less, −2.0 % against logloss (no interval)"),
        ((0.001, None, None), "has no clear gain, +0.1 % against logloss (no interval)"),
    ],
)
def test_a_market_that_disagrees_is_a_warning_on_the_page(lift, words):
    metrics = with_lifts(distill_pre=lift, ltr=(-0.05, -0.06, -0.04))
    warning = plain(decide(metrics).warnings[0])
    assert warning.startswith("The market says otherwise: with budgets and bidders that adapt distill-pre")
    assert words in warning and "rests on the evaluation" in warning


def test_another_arm_that_earns_more_in_the_market_is_named():
    metrics = with_lifts(distill_pre=(0.01, 0.005, 0.02), ltr=(0.05, 0.04, 0.06))
    assert plain(under_budgets(metrics, "distill-pre")[1]) == (
        "In the market not distill-pre but ltr earns most: +5.0 % [+4.0, +6.0] against logloss."
    )


def test_where_no_arm_is_shipped_a_gain_in_the_market_is_told():
    metrics = with_lifts(ltr=(0.05, 0.04, 0.06))
    assert plain(under_budgets(metrics, None)[0]).startswith(
        "The market says otherwise: with budgets and bidders that adapt ltr earns +5.0 % [+4.0, +6.0]"
    )
    assert under_budgets(with_lifts(ltr=(0.05, -0.01, 0.11), distill_pre=(0.0, -0.1, 0.1)), None) == []
    unclear = with_lifts(ltr=(0.05, -0.01, 0.11), distill_pre=(0.02, 0.01, 0.03))
    assert "adapt distill-pre earns +2.0" in plain(under_budgets(unclear, None)[0])


@pytest.mark.parametrize(
    ("lift", "words"),
    [
        (0.005, "little is left of the +3.7 % with fixed bids and endless money, on which the headline"),
        (0.03, "what advertisers cannot pay for is no revenue"),
        (0.06, "more than the +3.7 % with fixed bids"),
    ],
)
def test_the_lift_of_the_market_is_held_against_that_of_the_evaluation(lift, words):
    metrics = with_lifts(distill_pre=(lift, lift - 0.001, lift + 0.001))
    assert words in plain(under_budgets(metrics, "distill-pre")[0])


def test_without_stored_lifts_the_totals_are_compared():
    metrics = make_metrics()  # each arm earns 1 % of 600 more than the one before
    assert market_lift(metrics, "distill-pre").value == pytest.approx(1.04 / 1.02 - 1)
    assert market_lift(metrics, "nobody").value is None
    del metrics["market"]
    assert under_budgets(metrics, "distill-pre") == []
