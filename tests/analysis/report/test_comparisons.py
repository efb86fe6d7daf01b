from answers.report import entry, make_metrics
from cascade_sim.analysis.report.comparisons import candidates, contrast, ordered_arms, revenue_lift

REVENUE = "expected_revenue_per_request"


def study(**lifts):
    """Arms with the given (lift of revenue per request, half width), against an arm called base."""
    arms = {"base": {REVENUE: entry(0.2, 0.01)}}
    return {
        "baseline": "base",
        "arms": arms | {arm: {REVENUE: entry(0.2, 0.01, lift)} for arm, lift in lifts.items()},
    }


def test_arms_come_by_revenue_per_request_with_the_engines_own_last():
    metrics = study(a=(-0.01, 0.01), b=(0.02, 0.01), random=(0.5, 0.1))
    metrics["arms"]["a"]["expected_rpm"] = entry(90.0, 1.0, (0.9, 0.01))
    assert ordered_arms(metrics) == ["b", "base", "a", "random"]
    assert candidates(metrics) == ["b", "a"]


def test_an_arm_without_a_revenue_lift_is_no_candidate():
    metrics = study(a=(0.01, 0.01))
    metrics["arms"]["b"] = {"expected_rpm": entry(90.0, 1.0, (0.9, 0.01))}
    assert candidates(metrics) == ["a"]


def test_clicked_revenue_decides_where_expected_revenue_is_unknown():
    metrics = {
        "baseline": "base",
        "arms": {"base": {}, "a": {"revenue_per_request": entry(1, 0.1, (0.02, 0.01))}},
    }
    assert revenue_lift(metrics, "a").value == 0.02


def test_a_contrast_with_the_baseline_is_the_lift():
    metrics = make_metrics()
    assert contrast(metrics, "ltr", "logloss") == revenue_lift(metrics, "ltr")


def test_a_contrast_the_run_does_not_hold_is_empty():
    metrics = make_metrics()
    assert contrast(metrics, "ltr", "distill-pre").value == 1.033 / 1.037 - 1
    assert contrast(metrics, "ranker", "ltr").value is None
    del metrics["contrasts"]
    assert contrast(metrics, "ltr", "distill-pre").value is None
