"""The headline rests on the evaluation; the page says when the market disagrees."""

import pytest

from answers.report import make_metrics
from answers.section_text import says
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
    (line,) = under_budgets(metrics, "distill-pre")
    assert says(line, "market", "+3.0 % [+1.0, +5.0]", "against logloss") and "otherwise" not in line


@pytest.mark.parametrize(
    ("lift", "parts"),
    [
        ((-0.02, -0.03, -0.01), ["earns less", "−2.0 % [−3.0, −1.0]", "logloss"]),
        ((0.01, -0.01, 0.03), ["no significant gain", "+1.0 % [−1.0, +3.0]", "logloss"]),
        ((-0.02, None, None), ["earns less", "−2.0 %", "logloss", "no interval"]),
        ((0.001, None, None), ["has no gain", "+0.1 %", "logloss", "no interval"]),
    ],
)
def test_an_arm_that_the_market_denies_is_not_shipped(lift, parts):
    metrics = with_lifts(distill_pre=lift, ltr=(-0.05, -0.06, -0.04))
    decision = decide(metrics)
    assert decision.arms == () and says(decision.headline, "Do not ship distill-pre", "does not confirm")
    warning = decision.warnings[0]
    assert says(warning, "market simulation disagrees", "distill-pre", *parts)
    assert ("significant" in warning) <= (lift[1] is not None), "a word of a test that was not made"
    assert says(decision.gain, "fixed bids and unlimited budgets", "+3.7 %")


def test_of_arms_that_do_not_differ_the_one_that_the_market_confirms_is_shipped():
    metrics = with_lifts(distill_pre=(-0.02, -0.03, -0.01), ltr=(0.02, 0.01, 0.03))
    metrics["contrasts"] = {}
    revenue = "expected_revenue_per_request"
    metrics["arms"]["ltr"][revenue] = metrics["arms"]["distill-pre"][revenue]
    decision = decide(metrics)
    assert decision.arm == "ltr" and decision.headline.startswith("Ship ltr")
    assert says(" ".join(decision.warnings), "market simulation disagrees", "distill-pre earns less")


def test_totals_of_arms_that_met_unequally_many_requests_are_compared_by_request():
    metrics = make_metrics()
    metrics["market"] |= {
        "lifts": {},
        "arms": {
            metrics["baseline"]: {"requests": 1000, "clicks": 100, "revenue": 50.0, "cpc": 0.5},
            "ltr": {"requests": 500, "clicks": 50, "revenue": 20.0, "cpc": 0.4},
        },
    }
    measures = ("clicks_per_request", "revenue_per_request", "cpc")
    found = [market_lift(metrics, "ltr", measure).value for measure in measures]
    assert found == pytest.approx([0.0, -0.2, -0.2])


def test_another_arm_that_earns_more_in_the_market_is_named():
    metrics = with_lifts(distill_pre=(0.01, 0.005, 0.02), ltr=(0.05, 0.04, 0.06))
    other = under_budgets(metrics, "distill-pre")[1]
    assert says(other, "not distill-pre", "ltr", "most", "+5.0 % [+4.0, +6.0]", "against logloss")


def test_an_arm_that_only_seems_to_earn_more_in_the_market_is_no_news():
    metrics = with_lifts(distill_pre=(0.04, 0.02, 0.06), ltr=(0.05, 0.02, 0.08))
    for low, lines in ((-0.01, 1), (0.002, 2)):
        gap = {"value": 0.01, "low": low, "high": 0.03}
        metrics["market"]["contrasts"] = {"ltr": {"distill-pre": {"revenue_per_request": gap}}}
        assert len(under_budgets(metrics, "distill-pre")) == lines


def test_an_arm_to_keep_is_no_headline_where_the_market_has_a_gain():
    metrics = with_lifts(ltr=(0.05, 0.04, 0.06))
    for arm in metrics["arms"].values():
        arm["expected_revenue_per_request"]["lift"] = {"value": 0.0, "low": -0.1, "high": 0.1}
    headline = decide(metrics).headline
    assert says(headline, "fixed bids", "keep logloss") and headline.endswith("; the market disagrees.")
    assert headline.endswith("; the market disagrees.")


def test_where_no_arm_is_shipped_a_gain_in_the_market_is_told():
    metrics = with_lifts(ltr=(0.05, 0.04, 0.06))
    assert says(under_budgets(metrics, None)[0], "market simulation disagrees", "ltr", "+5.0 % [+4.0, +6.0]")
    assert under_budgets(with_lifts(ltr=(0.05, -0.01, 0.11), distill_pre=(0.0, -0.1, 0.1)), None) == []
    unclear = with_lifts(ltr=(0.05, -0.01, 0.11), distill_pre=(0.02, 0.01, 0.03))
    assert says(under_budgets(unclear, None)[0], "distill-pre", "+2.0 %")


@pytest.mark.parametrize(
    ("lift", "verdict"),
    [(0.005, "14 % of the +3.7 %"), (0.03, "cannot pay for"), (0.06, "more than the +3.7 %")],
)
def test_the_lift_of_the_market_is_held_against_that_of_the_evaluation(lift, verdict):
    line = under_budgets(with_lifts(distill_pre=(lift, lift - 0.001, lift + 0.001)), "distill-pre")[0]
    verdicts = ("14 % of the +3.7 %", "cannot pay for", "more than the +3.7 %")
    assert [words for words in verdicts if says(line, words)] == [verdict]


def test_without_stored_lifts_the_totals_are_compared():
    metrics = make_metrics()  # each arm earns 1 % of 600 more than the one before
    assert market_lift(metrics, "distill-pre").value == pytest.approx(1.04 / 1.02 - 1)
    assert market_lift(metrics, "nobody").value is None
    del metrics["market"]
    assert under_budgets(metrics, "distill-pre") == []
