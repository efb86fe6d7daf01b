from report_fixture import entry, make_metrics, minimal_metrics

from analysis.decision import culprit_words, decide, money_lost, ordered_arms


def study(**rpm_lifts):
    """Arms with the given (expected RPM lift, half width), against an arm called base."""
    arms = {"base": {"expected_rpm": entry(40.0, 1.0), "expected_ctr": entry(0.05, 0.001)}}
    for arm, lift in rpm_lifts.items():
        arms[arm] = {"expected_rpm": entry(40.0, 1.0, lift), "expected_ctr": entry(0.05, 0.001, (0.02, 0.01))}
    return {"name": "s", "seed": 3, "baseline": "base", "arms": arms}


def words(decision):
    return " ".join([decision.headline, *decision.reasons, *decision.warnings])


def test_the_best_arm_whose_interval_excludes_zero_is_shipped():
    decision = decide(study(sure=(0.03, 0.01), wild=(0.08, 0.09), small=(0.01, 0.005)))
    assert decision.arm == "sure" and decision.headline == "Ship sure."


def test_no_arm_is_shipped_when_every_interval_reaches_zero():
    decision = decide(study(a=(0.03, 0.03), b=(-0.02, 0.01)))
    assert decision.arm is None and decision.headline == "No arm is clearly better than base."
    assert "b earns clearly less than base" in words(decision)


def test_an_arm_the_engine_added_is_never_shipped():
    decision = decide(study(own=(0.03, 0.01), ranker=(0.06, 0.01), pctr_only=(0.09, 0.01)))
    assert decision.arm == "own"
    assert "50" in next(reason for reason in decision.reasons if "ranker" in reason)  # 0.03 / 0.06


def test_a_rival_whose_interval_overlaps_is_named():
    assert "near (RPM" in words(decide(study(best=(0.05, 0.01), near=(0.04, 0.01))))
    assert "near (RPM" not in words(decide(study(best=(0.05, 0.01), near=(0.02, 0.01))))


def test_a_falling_revenue_per_request_is_not_hidden_by_a_rising_rpm():
    metrics = study(fewer=(0.05, 0.01))
    metrics["arms"]["fewer"]["expected_revenue_per_request"] = entry(0.1, 0.01, (-0.2, 0.01))
    assert "Revenue per request falls with fewer" in words(decide(metrics))


def test_one_world_comes_with_a_caution_and_several_do_not():
    assert "--seeds" in words(decide(make_metrics()))
    assert "--seeds" not in words(decide(make_metrics(seeds=5)))


def test_a_study_of_one_arm_compares_nothing():
    assert decide(minimal_metrics()).arm is None
    assert money_lost(minimal_metrics()) is None and culprit_words(minimal_metrics()) == ""


def test_clicked_rpm_decides_where_expected_rpm_is_unknown():
    metrics = study()
    metrics["arms"]["other"] = {"rpm": entry(41.0, 1.0, (0.02, 0.01))}
    assert decide(metrics).arm == "other"


def test_arms_come_by_revenue_with_the_engines_own_last():
    names = ordered_arms(study(a=(-0.01, 0.01), b=(0.02, 0.01), random=(0.5, 0.1)))
    assert names == ["b", "base", "a", "random"]


def test_the_stage_that_loses_most_is_named_with_its_share():
    metrics = make_metrics()
    headline, sentence = money_lost(metrics)
    assert headline == "Retrieval loses the most money today."
    assert f"retrieval {100 * 171 / 612:.1f}" in sentence


def test_the_seat_whose_replacement_helps_more_is_the_culprit():
    metrics = make_metrics()
    assert "The model is the main culprit." in culprit_words(metrics)
    metrics["culprit"][1]["rcs"], metrics["culprit"][2]["rcs"] = (
        metrics["culprit"][2]["rcs"],
        metrics["culprit"][1]["rcs"],
    )
    assert "The bid is the main culprit." in culprit_words(metrics)


def test_the_culprit_does_not_depend_on_the_order_of_the_rows():
    metrics = make_metrics()
    before = culprit_words(metrics)
    metrics["culprit"].reverse()
    assert culprit_words(metrics) == before


def test_a_missing_culprit_row_leaves_the_words_out():
    metrics = make_metrics()
    metrics["culprit"][1]["rcs"] = None
    assert culprit_words(metrics) == ""
