import json
import math
from types import SimpleNamespace

import pytest

from cascade_sim.scenario.schema import resolved_arms
from cascade_sim.study.results import combine_seeds, references
from worlds.tiny_market import tiny_scenario

SHARES = ("rcs", "single_objective_rcs", "true_value_recall")
METRICS = {
    *(f"{name}{part}" for name in SHARES for part in ("", "_exposed", "_unexposed")),
    *("retrieval_rcs", "proxy_ece", "proxy_ece_relative", "proxy_pcoc"),
    *("ctr", "expected_ctr", "rpm", "expected_rpm", "revenue_per_request", "expected_revenue_per_request"),
    *(
        "cpc",
        "cpc_error",
        "cpc_bias",
        "revenue_pcoc",
        "payment_error_vs_oracle",
        "welfare_vs_oracle",
        "revenue_vs_oracle",
    ),
}


def test_every_arm_has_every_metric_with_an_interval_and_a_lift_over_the_baseline(study):
    for arm, row in study.metrics["arms"].items():
        assert set(row) >= METRICS, arm
        for name, entry in row.items():
            assert {"value", "low", "high"} <= set(entry), (arm, name)
            assert ("lift" in entry) == (arm != "logloss"), (arm, name)
            if entry["value"] is not None and entry["low"] is not None:
                assert entry["low"] <= entry["high"]


def test_the_interval_of_a_mean_over_requests_holds_the_mean(study):
    for row in study.metrics["arms"].values():
        for name in ("rcs", "expected_ctr", "expected_rpm"):
            assert row[name]["low"] <= row[name]["value"] <= row[name]["high"]


def test_a_lift_is_the_ratio_of_the_values_less_1(study):
    arms = study.metrics["arms"]
    for name in ("rcs", "expected_ctr", "expected_rpm", "payment_error_vs_oracle"):
        expected = arms["ltr"][name]["value"] / arms["logloss"][name]["value"] - 1
        assert arms["ltr"][name]["lift"]["value"] == pytest.approx(expected)


def test_the_metrics_are_plain_json_without_nan(study):
    text = json.dumps(study.metrics, allow_nan=False)
    assert json.loads(text) == study.metrics
    for key in ("name", "seed", "semantics", "version", "scenario_hash", "requests", "baseline"):
        assert key in study.metrics
    assert study.metrics["requests"] == 500 and study.metrics["baseline"] == "logloss"


def world(seed, rcs, lift, share, extra=None):
    arms = {"a": {"rcs": {"value": 0.5, "low": 0.4, "high": 0.6}}}
    arms["b"] = {"rcs": {"value": rcs, "low": 0, "high": 1, "lift": {"value": lift, "low": 0, "high": 1}}}
    metrics = {"name": "x", "seed": seed, "requests": 10, "arms": arms}
    metrics["attribution"] = {
        "a": {"stages": [{"stage": "retrieval", "share": share}], "ecpm_best": 2.0 * seed}
    }
    return {**metrics, "curves": {"density": extra or {"m": [1.0, 2.0]}}}


def test_several_worlds_are_combined_into_means_and_the_spread_between_them():
    found = combine_seeds([world(1, 0.6, 0.2, 0.3), world(2, 0.7, 0.4, 0.5), world(3, 0.8, 0.6, 0.1)])
    entry = found["arms"]["b"]["rcs"]
    assert entry["value"] == pytest.approx(0.7) and entry["sd"] == pytest.approx(0.1)
    half = 4.302652729911275 * 0.1 / math.sqrt(3)  # t with 2 degrees of freedom
    assert (entry["low"], entry["high"]) == pytest.approx((0.7 - half, 0.7 + half))
    assert entry["lift"]["value"] == pytest.approx(0.4) and entry["lift"]["sd"] == pytest.approx(0.2)
    assert "lift" not in found["arms"]["a"]["rcs"]
    assert found["seeds"] == {"n": 3, "seeds": [1, 2, 3]}
    assert found["attribution"]["a"]["ecpm_best"] == pytest.approx(4.0)
    assert found["attribution"]["a"]["stages"][0] == {"stage": "retrieval", "share": pytest.approx(0.3)}
    assert found["name"] == "x" and found["requests"] == 10


def test_a_metric_that_one_world_cannot_tell_does_not_stop_the_others():
    found = combine_seeds([world(1, None, None, None), world(2, 0.7, 0.4, 0.5), world(3, 0.8, 0.6, 0.1)])
    json.dumps(found, allow_nan=False)
    odd = combine_seeds([world(1, 0.6, 0.2, 0.3), world(2, 0.7, 0.4, 0.5, extra={"other": [3.0, 4.0]})])
    assert odd["curves"]["density"] == {}


def test_every_arm_is_contrasted_with_every_other_on_the_same_resamples(study):
    found, arms = study.metrics["contrasts"], study.metrics["arms"]
    assert set(found) == set(study.sim.scenario.arms)
    for arm, rivals in found.items():
        assert set(rivals) == set(arms) - {arm}
        for rival, row in rivals.items():
            assert set(row) == {"expected_revenue_per_request", "expected_rpm", "expected_ctr", "rcs"}
            for name, entry in row.items():
                expected = arms[arm][name]["value"] / arms[rival][name]["value"] - 1
                assert entry["value"] == pytest.approx(expected)
                if rival == "logloss":
                    assert entry == arms[arm][name]["lift"]


def test_each_ablation_row_says_what_it_replaces(study):
    rows = study.metrics["ablation"]
    assert [row["role"] for row in rows] == ["as it is", "bid", "model", "both"]
    assert rows[-1]["rcs"]["value"] == 1.0  # pre-ranking is ranking
    revenue = "expected_revenue_per_request"
    assert rows[0][revenue]["value"] == study.metrics["arms"]["logloss"][revenue]["value"]


def test_the_metrics_say_on_how_many_requests_dear_measures_rest(study):
    found = study.metrics["detail"]
    assert found["corpus_requests"] == study.evaluation.n_detail == 200
    assert found["quality_requests"] >= found["corpus_requests"]


def test_contrasts_of_several_worlds_are_the_spread_of_each_worlds_contrast():
    worlds = []
    for seed, value in ((1, 0.1), (2, 0.3)):
        contrasts = {"a": {"b": {"rcs": {"value": value, "low": 0.0, "high": 1.0}}}}
        worlds.append({**world(seed, 0.6, 0.2, 0.3), "contrasts": contrasts})
    entry = combine_seeds(worlds)["contrasts"]["a"]["b"]["rcs"]
    half = 12.706204736 * math.sqrt(0.02) / math.sqrt(2)  # t with 1 degree of freedom, sd of 0.1 and 0.3
    assert entry["value"] == pytest.approx(0.2) and entry["high"] == pytest.approx(0.2 + half)


def test_reliability_curves_of_different_lengths_are_pooled_over_the_worlds():
    worlds = []
    for seed, size in ((1, 2), (2, 3)):
        curve = {
            "predicted": [0.1 * i for i in range(1, size + 1)],
            "ranker": [0.1] * size,
            "count": [5] * size,
        }
        worlds.append({**world(seed, 0.6, 0.2, 0.3), "curves": {"proxy_reliability": {"m": curve}}})
    curve = combine_seeds(worlds)["curves"]["proxy_reliability"]["m"]
    assert sum(curve["count"]) == 5 * (2 + 3) and curve["worlds"] == 2
    assert max(curve["predicted"]) == pytest.approx(0.3)


def test_a_world_of_an_older_version_leaves_out_what_it_lacks():
    newer = {**world(2, 0.7, 0.4, 0.5), "contrasts": {}, "detail": {"corpus_requests": 5}}
    for worlds in ([newer, world(1, 0.6, 0.2, 0.3)], [world(1, 0.6, 0.2, 0.3), newer]):
        assert "contrasts" not in combine_seeds(worlds) and "arms" in combine_seeds(worlds)


def test_the_engines_own_arms_and_those_that_know_the_truth_are_references(study):
    assert set(study.metrics["references"]) == {"random", "bid_only", "pctr_only", "ranker"}
    arms = "arms={logloss: {}, wide: {pre_ranking: {size: 20}}, sees: {ranking: {model: truth}}}"
    scenario = tiny_scenario(arms)
    evaluation = SimpleNamespace(sim=SimpleNamespace(scenario=scenario), specs=resolved_arms(scenario))
    assert set(references(evaluation)) - set(study.metrics["references"]) == {"sees"}
    all_see = tiny_scenario("cascade.ranking.model=truth", arms)
    evaluation = SimpleNamespace(sim=SimpleNamespace(scenario=all_see), specs=resolved_arms(all_see))
    assert "sees" not in references(evaluation)
