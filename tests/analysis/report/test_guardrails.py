"""Guardrails: what gets worse is named, with its interval, on every card."""

from answers.report import entry, make_metrics
from answers.section_text import says
from answers.table_text import plain
from answers.told import tells
from cascade_sim.analysis.report.decision import decide
from cascade_sim.analysis.report.guardrails import (
    arm_changes_of,
    changes,
    guardrail_table,
    guardrail_tiles,
    guardrail_words,
    worse,
    worse_clause,
)
from cascade_sim.analysis.report.section import Text
from cascade_sim.analysis.report.sections.answer import guarded
from cascade_sim.analysis.report.sections.funnel import (
    attribution_table,
    perfect_table,
    perfect_words,
)
from cascade_sim.analysis.report.value_loss import (
    avoidable_shares,
    irreducible_share,
    perfect_stage,
    value_lost,
)
from cascade_sim.analysis.statistics.estimates import Estimate


def lifts(**made):
    return changes(lambda name: made.get(name, Estimate()))


def test_less_is_worse_but_for_the_price_and_only_where_the_interval_says_so():
    found = lifts(
        impressions_per_request=Estimate(-0.5, -0.6, -0.4),
        clicks_per_request=Estimate(-0.1, -0.3, 0.1),
        cpc=Estimate(0.1, 0.05, 0.15),
        surplus=Estimate(0.2, 0.1, 0.3),
    )
    assert [change.guardrail.label for change in worse(found)] == ["impressions", "CPC"]
    assert tells(worse_clause(found), "impressions and CPC", "worse")
    assert [tile.tone for tile in guardrail_tiles(found)] == ["down", "", "down", ""]
    text = plain(guardrail_words(found, "new"))
    assert says(text, "worse with new:", "impressions −50.0 % [−60.0, −40.0]", "CPC +10.0 % [+5.0, +15.0]")


def test_a_significant_change_that_is_printed_as_none_is_no_worse():
    assert worse(lifts(surplus=Estimate(-0.0004, -0.0005, -0.0003))) == []
    assert len(worse(lifts(surplus=Estimate(-0.0006, -0.0007, -0.0005)))) == 1


def test_a_large_change_without_an_interval_is_named_as_that():
    found = lifts(impressions=Estimate(-0.56), cpc=Estimate(0.01))
    text = plain(guardrail_words(found, "new"))
    assert says(text, "Worse with new", "no intervals", "impressions −56.0 %")
    mixed = lifts(impressions=Estimate(-0.56), cpc=Estimate(0.1, 0.05, 0.15))
    assert says(guardrail_words(mixed, "new"), "Worse with new (no interval of impressions):", "CPC +10.0 %")
    assert says(guardrail_words(lifts(cpc=Estimate(0.01)), "new"), "without intervals", "none")


def test_a_lift_over_a_surplus_that_is_not_above_zero_means_nothing():
    found = changes(lambda name: Estimate(-3.0, -4.0, -2.0), lambda name: Estimate(0.01, -0.1, 0.2))
    assert found == []


def test_the_headline_of_an_arm_to_ship_names_what_gets_worse():
    metrics = {"name": "s", "seed": 1, "baseline": "base", "arms": {"base": {}, "new": {}}}
    revenue = "expected_revenue_per_request"
    metrics["arms"]["base"] = {revenue: entry(1.0, 0.1), "cpc": entry(1.0, 0.1)}
    metrics["arms"]["new"] = {revenue: entry(1.1, 0.1, (0.1, 0.01)), "cpc": entry(1.1, 0.1, (0.06, 0.01))}
    assert says(decide(metrics).headline, "Ship new") and says(decide(metrics).headline, "CPC", "worse")
    metrics["arms"]["new"]["cpc"] = entry(1.1, 0.1, (0.06, 0.07))
    assert decide(metrics).headline == "Ship new."
    assert says(decide(metrics).guardrails[0], "CPC", "none is significantly worse", "new")


def test_only_what_gets_worse_is_a_caution_where_several_arms_may_be_shipped():
    metrics = {"name": "s", "seed": 1, "baseline": "base", "arms": {"base": {}, "new": {}, "other": {}}}
    revenue = "expected_revenue_per_request"
    metrics["arms"]["base"] = {revenue: entry(1.0, 0.1), "cpc": entry(1.0, 0.1)}

    def cautions(lift):
        for arm in ("new", "other"):
            metrics["arms"][arm] = {revenue: entry(1.1, 0.1, (0.1, 0.01)), "cpc": entry(1.1, 0.1, lift)}
        answer = decide(metrics)
        assert len(answer.arms) == 2 and len(answer.guardrails) > 0
        return [part.text for part in guarded(metrics, answer) if isinstance(part, Text)]

    assert cautions((0.0, 0.01)) == []
    assert all(says(text, "worse with", "CPC") for text in cautions((0.06, 0.01)))
    assert cautions((0.06, 0.01))


def test_a_table_of_several_arms_colours_a_dearer_click_as_a_loss():
    rows = {"a": (Estimate(0.1, 0.05, 0.2), lifts(cpc=Estimate(0.1, 0.05, 0.2))), "b": (Estimate(0.0), [])}
    table = guardrail_table(rows, "base")
    assert table.columns == ["Revenue per request", "CPC"]
    assert [cell.tone for cell in table.rows[0].cells] == ["up", "down"]
    assert guardrail_table({"a": (Estimate(0.1), [])}, "base") is None


def split_metrics():
    metrics = make_metrics()
    for own in metrics["attribution"].values():
        own["ecpm_best_known"] = entry(0.9 * own["ecpm_best"], 1.0)
        lost = 0.9 * own["ecpm_best"] - own["ecpm_shown"]
        stages = [row["stage"] for row in own["stages"]]
        own["ecpm_avoidable"] = {
            stage: entry(lost * part, 1.0) for stage, part in zip(stages, (0.2, 0.7, 0.1), strict=True)
        }
        own["revenue"] = entry(0.5 * own["ecpm_shown"], 1.0)
    base = metrics["attribution"][metrics["baseline"]]
    base["perfect_stage"] = {
        stage: {"ecpm_gain": entry(gain, 1.0), "revenue_gain": entry(gain / 2, 1.0)}
        for stage, gain in zip(stages, (30.0, 20.0, 10.0), strict=True)
    }
    return metrics


def test_what_no_model_can_know_is_split_from_what_could_be_had():
    metrics = split_metrics()
    base = metrics["baseline"]
    assert abs(irreducible_share(metrics, base) - 0.1) < 1e-12
    shares = dict(avoidable_shares(metrics, base))
    own = metrics["attribution"][base]
    assert abs(sum(shares.values()) + 0.1 + own["ecpm_shown"] / own["ecpm_best"] - 1.0) < 1e-12
    headline, text, advice = value_lost(metrics)
    assert says(headline, "Pre-ranking", "most value") and says(plain(text), "No model can know 10.0 %")
    assert says(headline, "retrieval", "gain more") and says(advice, "retrieval", "pre-ranking")
    assert says(plain(text), "Advertisers", "50 %")
    table = attribution_table(metrics)
    assert {"revenue", "avoidable", "% of the best"} <= set(table.columns)


def test_one_stage_made_perfect_has_its_gain_in_value_and_revenue():
    metrics = split_metrics()
    assert says(perfect_words(metrics), "retrieval", "most")
    assert [row.cells[0].text for row in perfect_table(metrics).rows] == ["+30.0", "+20.0", "+10.0"]
    assert perfect_table(make_metrics()) is None and perfect_words(make_metrics()) == ""
    for _, found in perfect_stage(metrics):
        found["ecpm_gain"] = {**found["ecpm_gain"], "low": -0.1}
    assert says(perfect_words(metrics), "no stage", "significantly")


def test_an_arm_of_a_study_has_the_guardrails_that_were_measured():
    assert [change.guardrail.label for change in arm_changes_of(make_metrics(), "ltr")] == ["CPC"]
