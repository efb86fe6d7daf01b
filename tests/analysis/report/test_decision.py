import math
import re

import pytest
from scipy import stats

from answers.report import entry, make_metrics, minimal_metrics
from answers.section_text import says
from answers.table_text import plain
from cascade_sim.analysis.report.decision import decide
from cascade_sim.analysis.report.section import TablePart, walk
from cascade_sim.analysis.report.sections.answer import answer_section
from cascade_sim.analysis.report.sections.arms import arms_table
from cascade_sim.analysis.report.terminal import terminal_summary
from cascade_sim.analysis.report.value_loss import value_lost
from cascade_sim.analysis.statistics.estimates import t_quantile

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
    parts = [
        decision.headline,
        decision.gain,
        *decision.reasons,
        *decision.findings,
        *decision.warnings,
        *decision.notes,
    ]
    return plain(" ".join(parts))


def test_the_best_arm_whose_interval_excludes_zero_is_shipped():
    decision = decide(study(sure=(0.03, 0.01), wild=(0.08, 0.09), small=(0.01, 0.005)))
    assert decision.arm == "sure" and decision.headline == "Ship sure."


def test_no_arm_is_shipped_when_every_interval_reaches_zero():
    decision = decide(study(a=(0.03, 0.03), b=(-0.02, 0.01)))
    assert decision.arms == () and says(decision.headline, "Keep base", "no arm", "better")
    assert "but" not in decision.headline
    assert says(words(decision), "b", "significantly less", "base")


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
    assert says(clear, "ahead of near", "+1.0 % [+0.5, +1.5]") and "not significantly different" not in clear
    close = words(decide(study({("best", "near"): (0.01, 0.02)}, **lifts)))
    assert (
        says(close, "not significantly different from near", "+1.0 % [−1.0, +3.0]") and "ahead" not in close
    )


def test_a_rival_not_clearly_above_the_baseline_may_still_not_be_told_apart():
    decision = decide(study({("best", "wild"): (-0.02, 0.08)}, best=(0.05, 0.01), wild=(0.07, 0.09)))
    assert says(words(decision), "not significantly", "wild")


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
    assert says(decision.headline, "Keep base", "but", arm, "more")
    assert "alone" not in decision.headline  # other reference arms may earn more as well
    assert says(words(decision), arm, verdict)


def test_a_reference_arm_that_beats_the_arm_to_ship_is_in_the_headline():
    metrics = study({("own", "bid_only"): (-0.04, 0.01)}, own=(0.05, 0.01), bid_only=(0.09, 0.01))
    decision = decide(metrics)
    assert says(decision.headline, "Ship own", "but", "bid_only", "more")
    assert says(words(decision), "own", "−4.0 % [−5.0, −3.0]", "against it")


def test_with_several_steps_reference_arms_are_told_of_the_last_one():
    lifts = {arm: (0.06, 0.01) for arm in ("ranker", "random", "pctr_only", "bid_only")}
    metrics = study(own=(0.05, 0.01), **lifts)
    metrics["ablation"] = [{"stage": "coarse"}, {"stage": "pre_ranking"}, {"stage": "all"}]
    decision = decide(metrics)
    told = [*decision.reasons, *decision.findings]
    spoken = [text for text in told if "pre-ranking" in text]
    assert len(spoken) == 4 and all(says(text, "last step") for text in spoken)


def test_reference_arms_that_do_not_pay_are_not_spoken_of():
    assert decide(study(own=(0.05, 0.01), pctr_only=(0.0, 0.01), random=(-0.5, 0.01))).findings == []
    assert decide(make_metrics()).findings == []


def test_several_comparisons_come_with_what_that_does_to_their_intervals():
    decision = decide(study(a=(0.1, 0.01), b=(0.1, 0.01), c=(0.1, 0.01), d=(0.1, 0.01)))
    assert says(" ".join(decision.notes), "none of the 4", "better than base", "10 %")  # 4 · 2.5 %
    assert decide(study(a=(0.1, 0.01))).notes == []


def test_one_world_comes_with_a_caution_and_several_do_not():
    assert "--seeds" in words(decide(make_metrics()))
    assert "--seeds" not in words(decide(make_metrics(seeds=5)))


def test_a_study_of_one_arm_compares_nothing():
    decision = decide(minimal_metrics())
    assert decision.arm is None and says(decision.headline, "No other arm", "only")  # the arm's name
    assert value_lost(minimal_metrics()) is None


def test_the_stage_that_loses_most_is_named_with_its_share():
    headline, sentence = value_lost(make_metrics())
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
    assert says(said, f"{9 - 6} others")


def test_a_study_of_what_ifs_alone_leads_with_their_answers():
    metrics = make_metrics()
    base = metrics["baseline"]
    decision = decide({**metrics, "arms": {base: metrics["arms"][base]}})
    assert decision.arm is None and says(decision.headline, "other settings", f"of {base}")
    assert len(decision.reasons) == len(metrics["what_if"])


def worlds(n, sd, lifts, contrasts):
    """A study over n worlds; contrasts: {(arm, rival): mean}, all with this standard deviation."""
    half = t_quantile(0.975, n - 1) * sd / math.sqrt(n)
    made = study({pair: (gap, half) for pair, gap in contrasts.items()}, **lifts)
    for arm, rival in contrasts:
        made["contrasts"][arm][rival][REVENUE]["sd"] = sd
    return {**made, "seeds": {"n": n, "seeds": list(range(n))}}


def test_arms_that_are_not_told_apart_are_not_chosen_between():
    lifts = {"one": (0.05, 0.01), "two": (0.048, 0.01), "behind": (0.02, 0.01)}
    gaps = {("one", "two"): (0.002, 0.004), ("one", "behind"): (0.03, 0.005)}
    decision = decide(study(gaps, **lifts))
    assert decision.arm is None and decision.arms == ("one", "two")
    assert says(decision.headline, "Ship one or two", "no significant difference")
    assert says(words(decision), "base", "+5.0 % [+4.0, +6.0] with one", "+4.8 % [+3.8, +5.8] with two")
    assert says(words(decision), "not significantly different from two", "ahead of behind")
    apart = decide(study({**gaps, ("one", "two"): (0.002, 0.001)}, **lifts))
    assert apart.arms == ("one",) and apart.headline == "Ship one."


def test_several_tied_arms_are_all_named_and_very_many_counted():
    lifts = {f"arm{i}": (0.05 - i / 10_000, 0.01) for i in range(6)}
    gaps = {("arm0", arm): (0.0001, 0.01) for arm in lifts}
    few = decide(study(gaps, **{arm: lifts[arm] for arm in ("arm0", "arm1", "arm2")}))
    assert few.arms == ("arm0", "arm1", "arm2") and says(few.headline, "arm0, arm1 or arm2")
    many = decide(study(gaps, **lifts))
    assert len(many.arms) == 6 and says(many.headline, "any of 6 arms")


def test_without_a_paired_comparison_intervals_that_meet_do_not_choose():
    assert decide(study(best=(0.05, 0.01), near=(0.04, 0.01))).arms == ("best", "near")
    assert decide(study(best=(0.05, 0.01), far=(0.02, 0.01))).arms == ("best",)


def test_an_arm_that_may_be_no_better_than_the_baseline_is_not_among_those_to_ship():
    decision = decide(study({("best", "wild"): (-0.02, 0.08)}, best=(0.05, 0.01), wild=(0.07, 0.09)))
    assert decision.arms == ("best",)


def test_where_nothing_is_told_from_the_baseline_the_headline_keeps_it():
    decision = decide(study(a=(0.01, 0.02), b=(-0.01, 0.02)))
    assert decision.arms == () and says(decision.headline, "Keep base", "no arm differs significantly")
    assert says(decide(study(a=(-0.03, 0.02))).headline, "Keep base", "a earns less")
    assert says(decide(study(a=(-0.03, 0.01), b=(-0.02, 0.01))).headline, "Keep base", "every other arm")


def test_an_arm_that_knows_the_truth_is_never_shipped():
    metrics = study({("own", "perfect"): (-0.2, 0.01)}, own=(0.05, 0.01), perfect=(0.25, 0.01))
    metrics["references"] = {"perfect": "knows the true CTR in ranking"}
    decision = decide(metrics)
    assert decision.arms == ("own",) and "perfect" not in decision.headline
    kinds = {row.label: (row.kind, row.hint) for row in arms_table(metrics).rows}
    assert kinds["perfect"] == ("reference", metrics["references"]["perfect"]) and kinds["own"][0] == ""


def test_how_many_requests_would_decide_follows_from_the_paired_interval():
    """Half width 0.4 % at 10,000 requests; 0.2 % at 80 % power needs (2.80 · 0.204 / 0.2)² = 8.2 times."""
    metrics = study({("one", "two"): (0.002, 0.004)}, one=(0.05, 0.01), two=(0.048, 0.01))
    metrics["requests"] = 10_000
    assert says(words(decide(metrics)), "82,000 requests", "10,000")
    replayed = words(decide({**metrics, "replay": {"level": "bids"}}))
    assert says(replayed, "A log of about 82,000 requests", "10,000")
    assert "seeds" not in replayed and "phases.evaluate" not in replayed
    metrics["contrasts"]["one"]["two"][REVENUE] = entry(0.00002, 0.004)
    assert says(words(decide(metrics)), "hardly", "100 times")
    metrics["contrasts"]["one"]["two"][REVENUE] = entry(0.0, 0.0)  # they do the same
    assert says(words(decide(metrics)), "hardly", "100 times")


def test_how_many_seeds_would_decide_follows_from_the_spread_between_worlds():
    lifts = {"one": (0.05, 0.01), "two": (0.048, 0.01)}
    metrics = worlds(5, 0.01, lifts, {("one", "two"): 0.005})
    n = int(re.search(r"About (\d+) seeds", words(decide(metrics)))[1])
    quantiles = {k: stats.t.ppf(0.975, k - 1) + stats.t.ppf(0.8, k - 1) for k in (n - 1, n)}
    assert quantiles[n] * 0.01 / math.sqrt(n) <= 0.005 < quantiles[n - 1] * 0.01 / math.sqrt(n - 1)
    assert says(words(decide(worlds(5, 0.01, lifts, {("one", "two"): 0.0002}))), "more than 200 seeds")
    assert decide(worlds(5, 0.001, lifts, {("one", "two"): 0.005})).arms == ("one",)


def test_the_cost_of_tied_arms_is_told_where_it_differs():
    metrics = study({("one", "two"): (0.002, 0.004)}, one=(0.05, 0.01), two=(0.048, 0.01))
    metrics["funnel"] = {"one": {"competitive_set": 96.0}, "two": {"competitive_set": 64.0}}
    assert says(words(decide(metrics)), "cost", "64.0 ads per request", "with two", "96.0 with one")
    metrics["funnel"]["one"] = metrics["funnel"]["two"]
    assert says(words(decide(metrics)), "cost", "cheaper") and "64.0" not in words(decide(metrics))


def test_the_market_may_tell_tied_arms_apart():
    metrics = study({("one", "two"): (0.002, 0.004)}, one=(0.05, 0.01), two=(0.048, 0.01))
    lifts = {arm: {"revenue_per_request": entry(v, 0.01)} for arm, v in (("one", 0.02), ("two", 0.03))}
    metrics["market"] = {"arms": {arm: {} for arm in metrics["arms"]}, "lifts": lifts}
    assert "does decide" not in words(decide(metrics))  # no paired comparison
    metrics["market"]["contrasts"] = {"two": {"one": {"revenue_per_request": entry(0.01, 0.004)}}}
    assert says(words(decide(metrics)), "market", "decide", "two", "ahead of one", "+1.0 % [+0.6, +1.4]")
    metrics["market"]["contrasts"]["two"]["one"]["revenue_per_request"] = entry(0.01, 0.02)
    assert says(words(decide(metrics)), "market", "does not decide", "+1.0 % [−1.0, +3.0]")
    lifts["one"]["revenue_per_request"] = entry(-0.02, 0.01)
    assert says(" ".join(decide(metrics).warnings), "market simulation disagrees", "one", "earns less")


def test_the_page_and_the_terminal_show_every_tied_arm():
    metrics = make_metrics()
    metrics["contrasts"]["distill-pre"]["ltr"][REVENUE] = entry(0.004, 0.01)
    section = answer_section(metrics)
    assert says(section.title, "Ship distill-pre or ltr")
    (table,) = [part.table for part in walk(section) if isinstance(part, TablePart)]
    assert [row.label for row in table.rows] == ["distill-pre", "ltr"]
    assert table.columns[0] == "Revenue per request" and "CPC" in table.columns
    assert says(terminal_summary(metrics), "Ship distill-pre or ltr")
