import pytest

from answers.report import entry, make_metrics, minimal_metrics
from answers.section_text import says
from answers.table_text import plain
from cascade_sim.analysis.report.decision import decide, key_figures, money_lost

REVENUE = "expected_revenue_per_request"


def study(contrasts=None, **lifts):
    """Arms with the given (lift of revenue per request, half width), against an arm called base.

    contrasts: {(arm, rival): (value, half width)}.
    """
    arms = {"base": {REVENUE: entry(0.2, 0.01), "expected_ctr": entry(0.05, 0.001)}}
    for arm, lift in lifts.items():
        arms[arm] = {REVENUE: entry(0.2, 0.01, lift), "expected_ctr": entry(0.05, 0.001, (0.02, 0.01))}
    made = {"name": "s", "seed": 3, "baseline": "base", "arms": arms}
    for (arm, rival), (value, width) in (contrasts or {}).items():
        rivals = made.setdefault("contrasts", {}).setdefault(arm, {})
        rivals[rival] = {REVENUE: entry(value, width)}
    return made


def words(decision):
    parts = [decision.headline, *decision.reasons, *decision.findings, *decision.warnings, *decision.notes]
    return plain(" ".join(parts))


def test_the_best_arm_whose_interval_excludes_zero_is_shipped():
    decision = decide(study(sure=(0.03, 0.01), wild=(0.08, 0.09), small=(0.01, 0.005)))
    assert decision.arm == "sure" and decision.headline == "Ship sure."


def test_no_arm_is_shipped_when_every_interval_reaches_zero():
    decision = decide(study(a=(0.03, 0.03), b=(-0.02, 0.01)))
    assert decision.arm is None and says(decision.headline, "No arm", "better", "base")
    assert "but" not in decision.headline
    assert says(words(decision), "b", "clearly less", "base")


def test_an_arm_that_earns_more_per_impression_and_less_per_request_is_not_shipped():
    metrics = study(sparse=(-0.55, 0.01), own=(0.02, 0.01))
    metrics["arms"]["sparse"]["expected_rpm"] = entry(60.0, 1.0, (0.3, 0.01))
    decision = decide(metrics)
    assert decision.arm == "own"
    assert says(words(decision), "sparse", "raises", "RPM +30.0 % [+29.0, +31.0]", "fewer ads")
    del metrics["arms"]["own"]
    assert decide(metrics).arm is None


def test_a_rising_rpm_alone_ships_nothing():
    metrics = study(flat=(0.0, 0.01))
    metrics["arms"]["flat"]["expected_rpm"] = entry(60.0, 1.0, (0.3, 0.01))
    assert decide(metrics).arm is None
    del metrics["arms"]["flat"][REVENUE]
    decision = decide(metrics)
    assert decision.arm is None and "undefined for flat" in words(decision)


def test_an_arm_that_earns_by_showing_more_ads_says_so():
    metrics = study(more=(0.05, 0.01))
    metrics["arms"]["more"]["expected_rpm"] = entry(30.0, 1.0, (-0.2, 0.01))
    assert says(words(decide(metrics)), "falls", "more", "RPM −20.0 %")


def test_an_arm_that_lowers_ctr_says_so():
    metrics = study(dear=(0.05, 0.01))
    metrics["arms"]["dear"]["expected_ctr"] = entry(0.04, 0.001, (-0.2, 0.01))
    assert "dear lowers CTR (−20.0 %" in words(decide(metrics))


def test_an_arm_the_engine_added_is_never_shipped():
    decision = decide(study(own=(0.03, 0.01), ranker=(0.06, 0.01), pctr_only=(0.09, 0.01)))
    assert decision.arm == "own"
    assert "50" in next(reason for reason in decision.reasons if "ranker" in reason)  # 0.03 / 0.06


def test_rivals_are_told_apart_by_their_paired_contrast_and_not_by_overlap():
    lifts = {"best": (0.05, 0.03), "near": (0.04, 0.03)}  # against base these overlap widely
    clear = words(decide(study({("best", "near"): (0.01, 0.005)}, **lifts)))
    assert says(clear, "ahead of near", "+1.0 % [+0.5, +1.5]") and "not told apart" not in clear
    close = words(decide(study({("best", "near"): (0.01, 0.02)}, **lifts)))
    assert says(close, "not told apart from near", "+1.0 % [−1.0, +3.0]") and "ahead" not in close


def test_a_rival_not_clearly_above_the_baseline_may_still_not_be_told_apart():
    decision = decide(study({("best", "wild"): (-0.02, 0.08)}, best=(0.05, 0.01), wild=(0.07, 0.09)))
    assert "not told apart from wild" in words(decision)


def test_a_run_without_contrasts_says_that_it_cannot_tell():
    assert "no paired comparison" in words(decide(study(best=(0.05, 0.01), near=(0.04, 0.01))))
    assert "no paired comparison" not in words(decide(study(best=(0.05, 0.01), near=(0.02, 0.01))))


def test_dropping_the_bid_is_named_when_it_alone_pays():
    decision = decide(study({("own", "pctr_only"): (0.02, 0.01)}, own=(0.05, 0.01), pctr_only=(0.03, 0.01)))
    assert decision.headline == "Ship own."
    (finding,) = decision.findings
    assert says(finding, "Dropping the bid", "pctr_only", "+3.0 % [+2.0, +4.0]", "worse than its pCTR")
    assert says(finding, "own", "ahead", "+2.0 % [+1.0, +3.0]")


@pytest.mark.parametrize(
    ("arm", "verdict"),
    [
        ("pctr_only", "worse than its pCTR"),
        ("bid_only", "worse than its bid"),
        ("random", "worse than chance"),
    ],
)
def test_a_reference_arm_that_beats_the_baseline_is_in_the_headline_when_no_other_does(arm, verdict):
    decision = decide(study(own=(0.0, 0.01), **{arm: (0.03, 0.01)}))
    assert decision.arm is None
    assert says(decision.headline, "No arm", "better", "base", "but", arm)
    assert says(words(decision), arm, verdict)


def test_a_reference_arm_that_beats_the_arm_to_ship_is_in_the_headline():
    metrics = study({("own", "bid_only"): (-0.04, 0.01)}, own=(0.05, 0.01), bid_only=(0.09, 0.01))
    decision = decide(metrics)
    assert says(decision.headline, "Ship own", "but", "bid_only", "more")
    assert says(words(decision), "own", "−4.0 % [−5.0, −3.0]", "against it")


def test_reference_arms_that_do_not_pay_are_not_spoken_of():
    assert decide(study(own=(0.05, 0.01), pctr_only=(0.0, 0.01), random=(-0.5, 0.01))).findings == []
    assert decide(make_metrics()).findings == []


def test_several_comparisons_come_with_what_that_does_to_their_intervals():
    decision = decide(study(a=(0.1, 0.01), b=(0.1, 0.01), c=(0.1, 0.01), d=(0.1, 0.01)))
    assert says(" ".join(decision.notes), "none of the 4", "better than base", "10 %")  # 4 · 2.5 %
    assert decide(study(a=(0.1, 0.01))).notes == []


def test_revenue_per_request_is_the_first_key_figure():
    assert [label for label, _, _ in key_figures(make_metrics(), "ltr")] == [
        *("Revenue per request", "RPM", "CTR", "RCS")
    ]


def test_one_world_comes_with_a_caution_and_several_do_not():
    assert "--seeds" in words(decide(make_metrics()))
    assert "--seeds" not in words(decide(make_metrics(seeds=5)))


def test_a_study_of_one_arm_compares_nothing():
    decision = decide(minimal_metrics())
    assert decision.arm is None and says(decision.headline, "No other arm", "only")  # the arm's name
    assert money_lost(minimal_metrics()) is None


def test_the_stage_that_loses_most_is_named_with_its_share():
    headline, sentence = money_lost(make_metrics())
    assert says(headline, "Retrieval", "loses the most")
    assert f"retrieval {100 * 171 / 612:.1f}" in sentence


def test_rpm_is_not_repeated_where_as_many_ads_are_shown():
    metrics = study(own=(0.05, 0.01))
    metrics["arms"]["own"]["expected_rpm"] = entry(42.0, 1.0, (0.05, 0.01))
    assert says(words(decide(metrics)), "revenue per request", "the same", "(RPM)")
    metrics["arms"]["own"]["expected_rpm"] = entry(41.0, 1.0, (0.03, 0.01))
    text = words(decide(metrics))
    assert says(text, "revenue per request", "+3.0 % [+2.0, +4.0]", "(RPM)") and "the same" not in text


def test_the_page_says_what_budgets_leave_of_the_lift():
    metrics = study(sure=(0.03, 0.01))
    assert "budgets" not in words(decide(metrics))
    metrics["market"] = {"arms": {"sure": {"revenue": 101.0}, "base": {"revenue": 100.0}}}
    assert says(words(decide(metrics)), "market", "budgets", "+1.0 %", "base")


def test_of_many_rivals_the_nearest_are_named_and_the_others_counted():
    lifts = {f"arm{i}": (0.05 + i / 1000, 0.001) for i in range(10)}
    gaps = {("arm9", f"arm{i}"): ((9 - i) / 1000, 0.0001) for i in range(9)}
    said = words(decide(study(gaps, **lifts)))
    assert "ahead of arm8 by +0.1 %" in said and "ahead of arm3 by" in said and "arm2" not in said
    assert f"further ahead of {9 - 6} others" in said


def test_a_study_of_what_ifs_alone_leads_with_their_answers():
    metrics = make_metrics()
    base = metrics["baseline"]
    decision = decide({**metrics, "arms": {base: metrics["arms"][base]}})
    assert decision.arm is None and says(decision.headline, "other settings", f"of {base}")
    assert len(decision.reasons) == len(metrics["what_if"])
