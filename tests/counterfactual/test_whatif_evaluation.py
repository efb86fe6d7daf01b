"""The evaluation served again: an untouched arm to the last bit, a changed one as the study's own arm."""

from dataclasses import replace

import pytest

from cascade_sim.counterfactual.whatif import WhatIfEvaluation
from cascade_sim.foundation.progress import Progress
from worlds.tiny_market import tiny_scenario

ENDS = ("value", "low", "high")

OF_CORPUS = ("retrieval_rcs", "ideal_page_", "best_page_", "corpus_")


def is_asked(metric):
    return not metric.startswith((*OF_CORPUS, "revenue_share_of_top_1pct"))


def again(study, arms, folder=None, n_requests=0):
    evaluation = WhatIfEvaluation(
        study.sim, folder or study.folder, arms, study.evaluation.baseline, n_requests
    )
    evaluation.serve(Progress(quiet=True))
    return evaluation


def plain(entry):
    return {key: entry[key] for key in ENDS}


def test_an_untouched_arm_gets_what_the_run_measured_to_the_last_bit(study):
    arms = study.evaluation.arms
    assert len(arms) == 7
    for name in arms:
        found = again(study, {"current": arms[name]}).metrics("current")["current"]
        own = study.metrics["arms"][name]
        there = {metric for metric in own if own[metric]["value"] is not None and is_asked(metric)}
        assert there <= set(found) and set(found) - set(own) == {"fill_rate"}
        for metric in there:
            assert found[metric] == plain(own[metric]), (name, metric)


def test_another_model_in_the_seat_gives_the_arm_that_has_it_and_its_lift(study):
    arms = study.evaluation.arms
    found = again(study, {"current": arms["logloss"], "variant": arms["distill-pre"]}).metrics("current")[
        "variant"
    ]
    own = study.metrics["arms"]["distill-pre"]
    for metric in own:
        if is_asked(metric):
            assert plain(found[metric]) == plain(own[metric]), metric
            assert found[metric]["lift"] == own[metric]["lift"], metric
            before = study.metrics["arms"]["logloss"][metric]["value"]
            assert found[metric]["difference"]["value"] == pytest.approx(own[metric]["value"] - before)


def test_welfare_is_held_against_the_run_s_oracle_whatever_arm_is_asked(study):
    """An arm with a high reserve is not excused by an oracle that has it too."""
    base = study.evaluation.baseline
    for name, arm in (("logloss", base), ("dear", replace(base, reserve_cpc=1.2))):
        columns = again(study, {name: arm}).tallies[name].columns
        assert (
            columns["oracle_welfare"].sum()
            == study.evaluation.tallies["logloss"].columns["oracle_welfare"].sum()
        )


def test_slots_are_counted_for_each_arm_by_its_own_number(study):
    base = study.evaluation.baseline
    fewer = replace(base, slots=2)
    dear = replace(base, reserve_cpc=2.5)
    found = again(study, {"current": base, "two": fewer, "dear": dear}).metrics("current")
    assert found["current"]["fill_rate"]["value"] == 1.0
    assert found["current"]["impressions_per_request"]["value"] == 3.0
    assert found["two"]["impressions_per_request"]["value"] == 2.0
    assert found["two"]["fill_rate"]["value"] == 1.0
    shown = found["dear"]["impressions_per_request"]["value"]
    assert shown < 3.0 and found["dear"]["fill_rate"]["value"] == pytest.approx(shown / 3.0)
    assert found["dear"]["fill_rate"]["difference"]["value"] == pytest.approx(shown / 3.0 - 1.0)


def test_a_part_of_the_evaluation_is_whole_blocks(study):
    """Blocks of 128: 130 requests are two of them, and what they brought is what the log has of them."""
    from cascade_sim.storage.tables import read_table

    evaluation = again(study, {"current": study.evaluation.baseline}, n_requests=130)
    assert evaluation.n_requests == 256
    found = evaluation.metrics("current")["current"]
    log = read_table(study.folder, "evaluate-logloss", ["request", "charge_micros"])
    first = log["request"] < study.sim.arrivals.first_request("evaluate") + 256
    assert found["revenue_per_request"]["value"] == pytest.approx(
        log["charge_micros"][first].sum() / 1e6 / 256
    )
    assert again(study, {}, n_requests=10**6).n_requests == 500


def test_without_the_log_what_is_split_by_exposure_is_left_out(study, tmp_path):
    evaluation = again(study, {"current": study.evaluation.baseline}, folder=tmp_path)
    found = evaluation.metrics("current")["current"]
    assert not evaluation.has_exposure and not any(metric.endswith("exposed") for metric in found)
    assert found["rcs"] == plain(study.metrics["arms"]["logloss"]["rcs"])
    assert tiny_scenario().phases.log > 0


def test_the_worth_of_pairing_is_large_for_a_small_change_and_undefined_for_none(study):
    base = study.evaluation.baseline
    arms = {
        "current": base,
        "same": base,
        "small": replace(base, reserve_cpc=0.5),
        "random": study.evaluation.arms["random"],
    }
    evaluation = again(study, arms)
    assert evaluation.variance_reduction("current", "same")["realised"] == {
        "value": None,
        "low": None,
        "high": None,
    }
    small, large = (
        evaluation.variance_reduction("current", name)["expected"]["value"] for name in ("small", "random")
    )
    assert small > 20 * large > 0


def test_a_reserve_change_of_a_tenth_is_at_least_fifty_times_surer_on_the_same_requests(study):
    """A reserve that sets prices and bars few ads; scenarios/whatif_reserve.yaml measures it at full size."""
    arms = {name: replace(study.evaluation.baseline, reserve_cpc=float(name)) for name in ("0.5", "0.55")}
    found = again(study, arms).variance_reduction("0.5", "0.55")
    assert found["realised"]["value"] > 50 and found["expected"]["value"] > 50
