import json
import math

import numpy as np
import pytest
from scipy import stats

from answers.told import refused
from cascade_sim.analysis.metrics.calibration import bin_sums, ece_of_bins
from cascade_sim.analysis.statistics import bootstrap as intervals
from cascade_sim.analysis.statistics.bootstrap import (
    STRETCHES,
    function_differences,
    function_gaps,
    function_intervals,
    paired_function_intervals,
    quantile_intervals,
    ratio_contrasts,
    ratio_differences,
    ratio_intervals,
    resample_counts,
    seed_spread,
    sum_groups,
    variance_ratio,
    variance_reduction,
)

RATIOS = {"ctr": ("clicks", "views"), "rcs": ("rcs", None)}


def arm(seed, n=400, rate=0.1):
    rng = np.random.default_rng(seed)
    views = rng.integers(1, 6, n).astype(float)
    rcs = rng.integers(0, 6, n) / 5
    rcs[rng.random(n) < 0.1] = np.nan
    return {"views": views, "clicks": rng.binomial(views.astype(int), rate).astype(float), "rcs": rcs}


def test_a_resample_draws_as_many_requests_as_there_are():
    counts = np.concatenate(list(resample_counts(300, 50, seed=1)))
    assert counts.shape == (50, 300)
    assert (counts.sum(1) == 300).all()
    assert abs(counts.var() - (1 - 1 / 300)) < 0.05


def test_values_are_ratios_of_sums_and_missing_requests_are_left_out():
    columns = {"a": arm(0)}
    result = ratio_intervals(columns, RATIOS, "a", 200, seed=1)["a"]
    assert result["ctr"]["value"] == pytest.approx(columns["a"]["clicks"].sum() / columns["a"]["views"].sum())
    assert result["rcs"]["value"] == pytest.approx(np.nanmean(columns["a"]["rcs"]))
    assert all(m["low"] < m["value"] < m["high"] for m in result.values())
    assert all("lift" not in m for m in result.values())


def test_a_missing_denominator_takes_its_numerator_out_too():
    columns = {"a": {"x": np.array([1.0, 2, 3, np.nan]), "y": np.array([2.0, np.nan, 4, 8])}}
    result = ratio_intervals(columns, {"m": ("x", "y")}, "a", 0, seed=1)
    assert result["a"]["m"] == {"value": (1 + 3) / (2 + 4), "low": None, "high": None}


def test_intervals_agree_with_resampling_by_hand():
    columns = {"a": arm(0, n=50), "b": arm(1, n=50)}
    result = ratio_intervals(columns, RATIOS, "a", 100, seed=3)
    counts = np.concatenate(list(resample_counts(50, 100, seed=3)))
    ctr = {name: (counts @ c["clicks"]) / (counts @ c["views"]) for name, c in columns.items()}
    low, high = np.percentile(ctr["b"], [2.5, 97.5])
    assert (result["b"]["ctr"]["low"], result["b"]["ctr"]["high"]) == pytest.approx((low, high), rel=1e-12)
    low, high = np.percentile(ctr["b"] / ctr["a"] - 1, [2.5, 97.5])
    lift = result["b"]["ctr"]["lift"]
    assert (lift["low"], lift["high"]) == pytest.approx((low, high), rel=1e-12)


def test_identical_arms_have_a_lift_of_exactly_zero():
    result = ratio_intervals({"a": arm(0), "b": arm(0)}, RATIOS, "a", 300, seed=1)
    assert all(result["b"][m]["lift"] == {"value": 0.0, "low": 0.0, "high": 0.0} for m in RATIOS)


def test_a_scaled_arm_has_a_certain_lift_because_resamples_are_paired():
    doubled = {**arm(0), "clicks": 2 * arm(0)["clicks"]}
    lift = ratio_intervals({"a": arm(0), "b": doubled}, RATIOS, "a", 300, seed=1)["b"]["ctr"]["lift"]
    assert lift == {"value": 1.0, "low": 1.0, "high": 1.0}


def test_an_arm_does_not_depend_on_the_others_nor_on_the_chunking():
    both = ratio_intervals({"a": arm(0), "b": arm(1), "c": arm(2)}, RATIOS, "a", 157, seed=5)
    again = ratio_intervals({"b": arm(1), "a": arm(0)}, RATIOS, "a", 157, seed=5)
    assert json.dumps(both["b"]) == json.dumps(again["b"])
    counts = np.concatenate(list(resample_counts(400, 157, seed=5)))
    columns = np.random.default_rng(0).lognormal(size=(400, 7))
    whole = intervals._ExactSums(columns)(counts)
    for step in (1, 3, 64):
        parts = [intervals._ExactSums(columns[:, 2:3])(counts[i : i + step]) for i in range(0, 157, step)]
        assert (np.concatenate(parts)[:, 0] == whole[:, 2]).all()


@pytest.mark.parametrize("scale", [1e-300, 1e-9, 1.0, 1e12])
def test_sums_are_exact_to_the_last_bit(scale):
    rng = np.random.default_rng(0)
    columns = scale * rng.lognormal(sigma=3, size=(999, 4)) * rng.choice([-1, 1], (999, 4))
    counts = np.concatenate(list(resample_counts(999, 20, seed=2)))
    sums = intervals._ExactSums(columns)(counts)
    for row in range(20):
        for column in range(4):
            exact = math.fsum(np.repeat(columns[:, column], counts[row].astype(int)))
            assert sums[row, column] == pytest.approx(exact, rel=1e-14)


def test_repetition_gives_the_same_bytes_and_another_seed_does_not():
    columns = {"a": arm(0), "b": arm(1)}
    texts = [json.dumps(ratio_intervals(columns, RATIOS, "a", 100, seed)) for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]


def test_undefined_becomes_null_and_stays_valid_json():
    columns = {"a": {"x": np.zeros(5), "y": np.zeros(5)}, "b": {"x": np.ones(5), "y": np.ones(5)}}
    result = ratio_intervals(columns, {"m": ("x", "y")}, "a", 50, seed=1)
    assert result["a"]["m"] == {"value": None, "low": None, "high": None}
    assert result["b"]["m"]["value"] == 1 and result["b"]["m"]["lift"]["value"] is None
    json.dumps(result, allow_nan=False)


def test_a_metric_an_arm_has_no_columns_for_is_null_there_and_a_typo_is_refused():
    columns = {"a": arm(0), "b": {"views": arm(1)["views"]}}
    result = ratio_intervals(columns, RATIOS, "a", 50, seed=1)
    assert result["b"]["ctr"]["value"] is None and result["b"]["ctr"]["lift"]["low"] is None
    with pytest.raises(ValueError, match="klicks"):
        ratio_intervals(columns, {"ctr": ("klicks", "views")}, "a", 50, seed=1)


def test_an_interval_needs_the_metric_defined_in_nearly_all_resamples():
    rare = np.zeros(100)
    rare[0] = 1.0  # absent from about a third of the resamples
    result = ratio_intervals({"a": {"x": rare, "y": rare}}, {"m": ("x", "y")}, "a", 200, seed=1)
    assert result["a"]["m"] == {"value": 1.0, "low": None, "high": None}


@pytest.mark.parametrize(
    "columns, message",
    [
        ({"a": {"x": np.ones(3), "y": np.ones(4)}}, "one length"),
        ({"b": {"x": np.ones(3), "y": np.ones(3)}}, "baseline"),
        ({"a": {"x": np.array([1.0, np.inf]), "y": np.ones(2)}}, "infinite"),
    ],
)
def test_malformed_columns_are_refused(columns, message):
    with pytest.raises(ValueError, match=message):
        ratio_intervals(columns, {"m": ("x", "y")}, "a", 10, seed=1)


def test_no_requests_at_all_is_undefined():
    result = ratio_intervals({"a": {"x": np.zeros(0)}}, {"m": ("x", None)}, "a", 10, seed=1)
    assert result["a"]["m"]["value"] is None


@pytest.mark.drill
def test_intervals_cover_the_truth_about_nineteen_times_in_twenty():
    replications, n = 600, 250
    covered = {"ratio": 0, "lift": 0}
    for replication in range(replications):
        rng = np.random.default_rng([11, replication])
        shared = rng.gamma(4, 0.25, n)  # what a request brings to both arms; mean 1
        views = rng.integers(1, 6, n).astype(float)
        columns = {
            name: {"revenue": level * views * shared * rng.gamma(2, 0.5, n), "views": views}
            for name, level in (("a", 2.0), ("b", 2.2))
        }
        result = ratio_intervals(columns, {"rpv": ("revenue", "views")}, "a", 200, seed=replication)
        metric = result["b"]["rpv"]
        covered["ratio"] += metric["low"] <= 2.2 <= metric["high"]
        covered["lift"] += metric["lift"]["low"] <= 2.2 / 2.0 - 1 <= metric["lift"]["high"]
    # percentile intervals of skewed data from 250 requests fall short of 95 % by one or two points
    margin = 3 * math.sqrt(0.95 * 0.05 / replications)
    for hits in covered.values():
        assert 0.93 - margin < hits / replications < 0.95 + margin


def test_groups_are_consecutive_and_keep_the_total():
    x = np.arange(20.0).reshape(10, 2)
    groups = sum_groups(x, 3)
    assert groups.shape == (3, 2)
    assert groups.sum(0).tolist() == x.sum(0).tolist()
    assert groups[0].tolist() == x[:3].sum(0).tolist()
    assert sum_groups(x, 99).tolist() == x.tolist()


def bins(seed, shift):
    rng = np.random.default_rng(seed)
    p = rng.random((500, 20)) * 0.5
    return bin_sums(p + shift, p, bins=50)


def test_vector_statistics_are_summed_before_the_function():
    sums = bins(0, 0.1)
    result = function_intervals(sum_groups(sums, 100), ece_of_bins, 200, seed=1)
    assert result["value"] == pytest.approx(float(ece_of_bins(sums.sum(0))), rel=1e-12)
    assert result["low"] <= result["value"] <= result["high"]
    assert result["value"] == pytest.approx(0.1)


def test_a_function_of_one_ratio_agrees_with_the_ratio_framework():
    a = arm(0)
    pairs = np.stack([a["clicks"], a["views"]], axis=1)
    by_function = function_intervals(pairs, lambda s: s[..., 0] / s[..., 1], 100, seed=4)
    assert (
        by_function == ratio_intervals({"a": a}, {"ctr": ("clicks", "views")}, "a", 100, seed=4)["a"]["ctr"]
    )


def test_paired_functions_give_lifts_and_identical_arms_none():
    sums = {
        "a": sum_groups(bins(0, 0.1), 100),
        "b": sum_groups(bins(0, 0.2), 100),
        "c": sum_groups(bins(0, 0.1), 100),
    }
    result = paired_function_intervals(sums, ece_of_bins, "a", 100, seed=1)
    assert "lift" not in result["a"]
    assert result["b"]["lift"]["value"] == pytest.approx(0.2 / 0.1 - 1)
    assert result["c"]["lift"] == {"value": 0.0, "low": 0.0, "high": 0.0}
    alone = paired_function_intervals({"b": sums["b"]}, ece_of_bins, "a", 100, seed=1)["b"]
    assert {k: alone[k] for k in ("value", "low", "high")} == {
        k: result["b"][k] for k in ("value", "low", "high")
    }
    assert alone["lift"] == {"value": None, "low": None, "high": None}


def test_a_gap_keeps_only_what_two_do_not_share():
    """a and b share their draws and differ by 2 in every group: the gap is certain. Each pair comes once."""
    draw = np.random.default_rng(1).normal(0, 5, (60, 1))
    sums = {"a": draw + 2, "b": draw, "c": np.random.default_rng(2).normal(0, 5, (60, 1))}
    found = function_gaps(sums, lambda s: s[:, 0] / 60, 100, 1)
    assert [(one, other) for one in found for other in found[one]] == [("a", "b"), ("a", "c"), ("b", "c")]
    assert list(found["a"]["b"].values()) == pytest.approx([2, 2, 2])
    apart = (sums["a"] - sums["c"]).mean()
    assert found["a"]["c"]["low"] < apart < found["a"]["c"]["high"]
    assert found["a"]["c"]["value"] == pytest.approx(apart)


def test_a_gap_needs_two_of_the_same_shape():
    assert function_gaps({"a": np.ones((3, 1))}, lambda s: s[:, 0], 10, 1) == {}
    with pytest.raises(ValueError, match="shape"):
        function_gaps({"a": np.ones((3, 1)), "b": np.ones((4, 1))}, lambda s: s[:, 0], 10, 1)


def test_seed_spread_is_a_student_t_interval():
    values = [1.0, 2.0, 4.0]
    spread = seed_spread(values)
    low, high = stats.t.interval(0.95, 2, np.mean(values), stats.sem(values))
    assert [spread[k] for k in ("value", "low", "high", "sd")] == pytest.approx(
        [7 / 3, low, high, np.std(values, ddof=1)]
    )


def test_several_functions_of_the_same_sums_are_each_as_alone_and_summed_once(monkeypatch):
    sums = {"a": sum_groups(bins(0, 0.1), 100), "b": sum_groups(bins(1, 0.2), 100)}
    functions = {"ece": intervals.Function(ece_of_bins, centred=True), "count": intervals.Function(total)}
    alone = {
        name: paired_function_intervals(sums, one.of_sums, "a", 100, seed=1, centred=one.centred)
        for name, one in functions.items()
    }
    made = counted_sums(monkeypatch)
    assert intervals.paired_functions_intervals(sums, functions, "a", 100, seed=1) == alone
    assert len(made) == 2  # one of each arm


def total(sums):
    return sums[:, 0].sum(-1)


def counted_sums(monkeypatch):
    """The widths of the tables that are summed from now on."""
    made = []

    class Counted(intervals._ExactSums):
        def __init__(self, columns):
            made.append(columns.shape[1])
            super().__init__(columns)

    monkeypatch.setattr(intervals, "_ExactSums", Counted)
    return made


def test_a_column_that_an_arm_shares_with_the_first_is_summed_once(monkeypatch):
    shared = np.random.default_rng(0).lognormal(size=(200, 5))
    own = {name: np.random.default_rng(i + 1).lognormal(size=(200, 3)) for i, name in enumerate("abc")}
    tables = {name: np.concatenate([table, shared], axis=1) for name, table in own.items()}

    def gap(sums):
        return np.abs(sums[:, :3]).sum(-1) / sums[:, 3:].sum(-1)

    alone = {name: function_intervals(table, gap, 60, seed=3) for name, table in tables.items()}
    made = counted_sums(monkeypatch)
    found = paired_function_intervals(tables, gap, "a", 60, seed=3)
    assert made == [8, 3, 3]
    for name, row in found.items():
        assert {key: row[key] for key in ("value", "low", "high")} == alone[name]


def test_arms_with_columns_of_their_own_are_summed_by_themselves():
    columns = {"a": arm(0), "b": {**arm(0), "extra": arm(1)["views"]}}
    ratios = {**RATIOS, "own": ("extra", None)}
    found = ratio_intervals(columns, ratios, "a", 50, seed=2)
    alone = ratio_intervals({"b": columns["b"]}, ratios, "b", 50, seed=2)["b"]
    assert found["a"]["own"]["value"] is None
    for metric, row in alone.items():
        assert {key: found["b"][metric][key] for key in ("value", "low", "high")} == row


def test_one_sample_of_ratios_answers_all_questions():
    columns = {"a": arm(0), "b": arm(1), "c": arm(2)}
    sample = intervals.RatioSample.of(columns, RATIOS, 80, seed=4)
    assert sample.intervals("a") == ratio_intervals(columns, RATIOS, "a", 80, seed=4)
    assert sample.differences("a") == intervals.ratio_differences(columns, RATIOS, "a", 80, seed=4)
    metric = next(iter(RATIOS))
    contrasts = sample.contrasts(["b"], ["a", "b"], [metric])
    assert contrasts == {"b": {"a": {metric: sample.intervals("a")["b"][metric]["lift"]}}}


def test_one_seed_has_no_spread_and_undefined_seeds_are_left_out():
    assert seed_spread([0.7]) == {"value": 0.7, "low": None, "high": None, "sd": None}
    assert seed_spread([0.7, None, float("nan")]) == seed_spread([0.7])
    assert seed_spread([None])["value"] is None


def test_a_contrast_is_the_lift_with_the_rival_as_baseline():
    generator = np.random.default_rng(4)
    columns = {arm: {"x": generator.random(60), "y": 1 + generator.random(60)} for arm in "abc"}
    ratios = {"mean": ("x", None), "ratio": ("x", "y")}
    found = ratio_contrasts(columns, ratios, ["a", "b"], 40, 7)
    assert {arm: set(rivals) for arm, rivals in found.items()} == {"a": {"b", "c"}, "b": {"a", "c"}}
    for rival in "bc":
        lifts = ratio_intervals(columns, ratios, rival, 40, 7)["a"]
        assert found["a"][rival] == {metric: lifts[metric]["lift"] for metric in ratios}


def test_arms_that_share_their_draws_are_told_apart_where_their_levels_are_not():
    generator = np.random.default_rng(5)
    draw = generator.exponential(1.0, 400)
    columns = {"a": {"x": 1.02 * draw}, "b": {"x": draw}}
    found = ratio_contrasts(columns, {"mean": ("x", None)}, ["a"], 100, 1)["a"]["b"]["mean"]
    assert found["low"] == pytest.approx(0.02) and found["high"] == pytest.approx(0.02)
    levels = ratio_intervals(columns, {"mean": ("x", None)}, "b", 100, 1)
    assert levels["a"]["mean"]["low"] < levels["b"]["mean"]["high"]


CTR_AND_MEAN = {"ctr": ("clicks", "shown"), "mean": ("clicks", None)}


@pytest.fixture
def tables():
    draw = np.random.default_rng(5)
    shown = draw.integers(1, 4, 400) * 1.0
    base = draw.binomial(3, 0.3, 400) * 1.0
    return {
        "a": {"clicks": base, "shown": shown},
        "b": {"clicks": base + (draw.uniform(size=400) < 0.05), "shown": shown},
        "c": {"clicks": base, "shown": shown},
    }


def test_the_difference_is_that_of_the_values(tables):
    found = ratio_differences(tables, CTR_AND_MEAN, "a", 100, 1)
    values = ratio_intervals(tables, CTR_AND_MEAN, "a", 100, 1)
    assert set(found) == {"b", "c"}
    more = tables["b"]["clicks"].sum() - tables["a"]["clicks"].sum()
    assert found["b"]["mean"]["value"] == pytest.approx(more / 400)
    assert found["b"]["ctr"]["value"] == values["b"]["ctr"]["value"] - values["a"]["ctr"]["value"]


def test_what_arms_have_in_common_cancels(tables):
    found = ratio_differences(tables, CTR_AND_MEAN, "a", 400, 1)
    own = ratio_intervals(tables, CTR_AND_MEAN, "a", 400, 1)["b"]["mean"]
    gap = found["b"]["mean"]
    assert gap["high"] - gap["low"] < 0.3 * (own["high"] - own["low"])
    assert gap["low"] > 0  # 5 % more clicks, surely
    assert found["c"]["ctr"] == {"value": 0.0, "low": 0.0, "high": 0.0}


def test_an_undefined_metric_has_no_difference(tables):
    tables["b"] = {"clicks": tables["b"]["clicks"]}
    found = ratio_differences(tables, CTR_AND_MEAN, "a", 50, 1)
    assert found["b"]["ctr"] == {"value": None, "low": None, "high": None}
    assert found["c"]["ctr"]["value"] == 0.0


def test_differences_of_functions_of_vectors():
    draw = np.random.default_rng(6)
    sums = {"a": draw.uniform(1, 2, (64, 2)), "b": draw.uniform(1, 2, (64, 2))}

    def share(s):
        return s[:, 0] / s.sum(axis=1)

    found = function_differences(sums, share, "a", 200, 1)
    a, b = (table.sum(axis=0) for table in sums.values())
    assert found["b"]["value"] == pytest.approx(b[0] / b.sum() - a[0] / a.sum())
    assert found["b"]["low"] < found["b"]["value"] < found["b"]["high"] and set(found) == {"b"}
    assert function_differences({"b": sums["b"]}, share, "a", 20, 1) == {}
    with refused("shape", kind=ValueError):
        function_differences({"a": sums["a"], "b": sums["b"][:5]}, share, "a", 20, 1)


def quantile(values, request, n, level, resamples=200, seed=1):
    (found,) = quantile_intervals(np.asarray(values, float), np.asarray(request), n, [level], resamples, seed)
    return found


def test_the_value_is_the_least_that_so_large_a_share_does_not_exceed():
    values, request = [3.0, 1.0, 2.0, 4.0], [0, 1, 2, 3]
    assert [quantile(values, request, 4, level)["value"] for level in (0.25, 0.5, 0.51, 0.9)] == [1, 2, 3, 4]


def test_the_interval_covers_the_median_about_as_often_as_it_says():
    rng = np.random.default_rng(5)
    hits = 0
    for seed in range(200):
        values = rng.exponential(size=300)
        found = quantile(values, np.arange(300), 300, 0.5, seed=seed)
        hits += found["low"] <= np.log(2) <= found["high"]
    assert 0.9 <= hits / 200 <= 0.99


def test_requests_are_resampled_with_all_their_values():
    """Values that come in fives say no more than one each."""
    values = np.random.default_rng(2).normal(size=100)
    single = quantile(values, np.arange(100), 100, 0.5, resamples=500)
    fives = quantile(np.repeat(values, 5), np.repeat(np.arange(100), 5), 100, 0.5, resamples=500)
    assert single == fives


def test_requests_without_values_count_as_requests():
    values = np.random.default_rng(2).normal(size=50)
    dense, thin = quantile(values, np.arange(50), 50, 0.5), quantile(values, 2 * np.arange(50), 100, 0.5)
    assert dense["value"] == thin["value"] and dense != thin


def test_the_order_of_the_values_does_not_matter_and_repetition_gives_the_same():
    rng = np.random.default_rng(3)
    values, request = rng.normal(size=60), rng.integers(0, 20, 60)
    mixed = rng.permutation(60)
    assert quantile(values, request, 20, 0.9) == quantile(values[mixed], request[mixed], 20, 0.9)


def test_nothing_gives_nothing():
    assert quantile([], np.zeros(0, int), 10, 0.5) == {"value": None, "low": None, "high": None}


def test_a_constant_has_an_interval_without_width():
    found = quantile([0.5] * 8, np.arange(8), 8, 0.9)
    assert found == {"value": 0.5, "low": 0.5, "high": pytest.approx(0.5)}


def by_shifting(a, b):
    """Arm b on every other stretch than arm a, one shift after another."""
    shifted = [np.var(np.roll(b, h) - a, ddof=1) for h in range(1, len(a))]
    return np.mean(shifted) / np.var(b - a, ddof=1)


def test_the_worth_is_that_of_serving_the_second_arm_on_every_other_stretch():
    draw = np.random.default_rng(1)
    for _ in range(20):
        a = draw.normal(size=11)
        b = 0.8 * a + 0.3 * draw.normal(size=11)
        assert variance_ratio(a, b, np.ones((1, 11)))[0] == pytest.approx(by_shifting(a, b), rel=1e-12)


def test_arms_that_share_nothing_gain_nothing_and_those_that_share_most_gain_much():
    draw = np.random.default_rng(2)
    common, own, other = draw.normal(size=(3, 128 * 400))
    alone = variance_reduction(own, other, 200, 1)
    assert 0.7 < alone["low"] < alone["value"] < alone["high"] < 1.4
    # Var(a) = Var(b) = 1 + 0.01 and Var(b - a) = 0.01: (1.01 + 1.00) / 0.01 = 201
    near = variance_reduction(common, common + 0.1 * own, 200, 1)
    assert near["low"] < 201 < near["high"] and near["value"] == pytest.approx(201, rel=0.35)


def test_a_stretch_counts_by_its_mean_however_long_it_is():
    a, b = np.arange(20.0), np.arange(20.0) ** 1.1
    found = variance_reduction(np.repeat(a, 3), np.repeat(b, 3), 50, 1, stretches=20)
    assert found["value"] == pytest.approx(by_shifting(a, b), rel=1e-12)


def test_arms_that_never_differ_or_too_few_requests_have_no_worth():
    nothing = {"value": None, "low": None, "high": None}
    x = np.arange(300.0)
    assert variance_reduction(x, x, 20, 1) == nothing
    assert variance_reduction(x[:7], x[:7] + 1, 20, 1) == nothing


def test_a_constant_difference_leaves_no_variance():
    """d_g is the same on every stretch: the ratio has no end, which is no number."""
    x = np.random.default_rng(3).integers(0, 9, STRETCHES) * 1.0
    assert variance_reduction(x, x + 2.0, 20, 1)["value"] is None


def test_the_same_numbers_give_the_same_interval():
    draw = np.random.default_rng(4)
    a, b = draw.normal(size=(2, 500))
    assert variance_reduction(a, b, 50, 9) == variance_reduction(a, b, 50, 9)
    assert variance_reduction(a, b, 50, 9)["low"] != variance_reduction(a, b, 50, 8)["low"]


def absolute_gaps(sums):
    """Like the payment error: [..., 2, n] -> the sum of |first - second| over that of the second."""
    return np.abs(sums[..., 0, :] - sums[..., 1, :]).sum(-1) / sums[..., 1, :].sum(-1)


@pytest.mark.parametrize("gap, noise", [(0.0, 0.3), (0.3, 0.2), (0.4, 0.1)])
@pytest.mark.drill
def test_the_interval_of_absolute_gaps_holds_their_mean_as_often_as_it_says(gap, noise):
    """150 advertisers pay 1 to the oracle, and to the arm 1 + their own gap + the noise of so much traffic.

    The truth is known: |N(m, s²)| has the mean s·√(2/π)·exp(−m²/2s²) + m·erf(m/s√2). Without centring none
    of the first hold it.
    """
    groups, n, worlds = 100, 150, 300
    rng = np.random.default_rng(7)
    own = gap * rng.standard_normal(n)
    truth = np.mean(
        [
            noise * math.sqrt(2 / math.pi) * math.exp(-((m / noise) ** 2) / 2)
            + m * math.erf(m / noise / math.sqrt(2))
            for m in own
        ]
    )
    hits = 0
    for world in range(worlds):
        draw = noise / math.sqrt(groups) * rng.standard_normal((groups, n))
        paid = np.stack([(1 + own) / groups + draw, np.full((groups, n), 1 / groups)], axis=1)
        made = function_intervals(paid, absolute_gaps, 100, seed=world, centred=True)
        assert 0 <= made["low"] <= made["value"] <= made["high"]
        hits += made["low"] <= truth <= made["high"]
    least, most = stats.binom.interval(0.998, worlds, 0.95)
    assert least <= hits
    # Where all is noise a resample has twice the data's, so the interval is wider than it need be.
    assert hits <= (most if gap else worlds)


def test_centred_lifts_and_differences_hold_their_values():
    rng = np.random.default_rng(3)
    oracle = np.full((60, 80), 1 / 60)
    sums = {
        arm: np.stack([oracle + sd * rng.standard_normal((60, 80)), oracle], axis=1)
        for arm, sd in (("a", 0.004), ("b", 0.04), ("c", 0.01))
    }
    plain = paired_function_intervals(sums, absolute_gaps, "a", 100, 1)
    assert all(not row["low"] <= row["value"] <= row["high"] for row in plain.values())
    rows = paired_function_intervals(sums, absolute_gaps, "a", 100, 1, centred=True)
    entries = [*rows.values(), rows["b"]["lift"], rows["c"]["lift"]]
    entries += function_differences(sums, absolute_gaps, "a", 100, 1, centred=True).values()
    entries += [gap for later in function_gaps(sums, absolute_gaps, 100, 1, centred=True).values()
                for gap in later.values()]  # fmt: skip
    assert all(entry["low"] < entry["value"] < entry["high"] for entry in entries)
    assert [row["value"] for row in rows.values()] == [row["value"] for row in plain.values()]


def test_a_centred_interval_does_not_go_below_what_is_possible():
    """One advertiser, no gap: |noise| of a resample is anything from 0 on, the median far above the value."""
    draw = np.random.default_rng(5).normal(0, 4, (50, 1))
    paid = np.stack([1.001 + draw - draw.mean(), np.ones((50, 1))], axis=1)
    made = function_intervals(paid, absolute_gaps, 200, seed=1, centred=True)
    assert made["low"] == 0 <= made["value"] <= made["high"]
