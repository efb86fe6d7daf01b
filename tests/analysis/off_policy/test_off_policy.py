import inspect
import itertools
import math
from functools import cache

import numpy as np
import pytest

from answers.told import refused, tells
from cascade_sim.analysis import off_policy
from cascade_sim.analysis.off_policy import (
    ESTIMATORS,
    NEEDS,
    clipped_ips,
    difference,
    direct_method,
    doubly_robust,
    evaluate,
    ips,
    lift,
    snips,
    switch_dr,
)
from cascade_sim.analysis.off_policy.noise import standard_error

# two contexts, three actions
CONTEXT = np.array([0.4, 0.6])
LOGGING = np.array([[0.5, 0.3, 0.2], [0.25, 0.25, 0.5]])
TARGET = np.array([[0.2, 0.3, 0.5], [0.5, 0.3, 0.2]])
CLICK = np.array([[0.2, 0.5, 0.7], [0.6, 0.3, 0.4]])
RATIO = TARGET / LOGGING
TRUTH = float(CONTEXT @ (TARGET * CLICK).sum(axis=1))
LOGGED = float(CONTEXT @ (LOGGING * CLICK).sum(axis=1))
WRONG = np.array([[0.9, 0.1, 0.3], [0.2, 0.8, 0.5]])  # a model of clicks
GOOD = CLICK + 0.02


def columns(x, a, r, model):
    """The arguments of every estimator for contexts, actions and rewards [R]."""
    return {
        "reward": np.asarray(r, float),
        "weights": RATIO[x, a],
        "predicted_logged": model[x, a],
        "predicted_target": (TARGET * model).sum(axis=1)[x],
    }


def outcomes():
    """Everything that can happen in one request: probability, context, action, reward."""
    for x, a, r in itertools.product(range(2), range(3), (0, 1)):
        yield CONTEXT[x] * LOGGING[x, a] * (CLICK[x, a] if r else 1 - CLICK[x, a]), x, a, r


def expected(name, model=WRONG, requests=1, **settings):
    """Mean of an estimator over all logs of so many requests, each with its probability."""
    total = 0.0
    for log in itertools.product(outcomes(), repeat=requests):
        p, x, a, r = zip(*log, strict=True)
        total += math.prod(p) * evaluate(name, **columns(list(x), list(a), r, model), **settings).value
    return total


@cache
def draw(shape, seed, scale=1.0):
    rng = np.random.default_rng(seed)
    x = (rng.random(shape) < CONTEXT[1]).astype(int)
    a = (rng.random(shape)[..., None] > np.cumsum(LOGGING, axis=1)[x][..., :2]).sum(axis=-1)
    return x, a, (rng.random(shape) < scale * CLICK[x, a]).astype(float)


def test_the_probabilities_of_all_outcomes_sum_to_one():
    assert sum(p for p, *_ in outcomes()) == pytest.approx(1, abs=1e-15)


@pytest.mark.parametrize("requests", [1, 2])
@pytest.mark.parametrize("name", ["ips", "doubly_robust"])
def test_weighting_is_unbiased_whatever_the_model(name, requests):
    assert expected(name, requests=requests) == pytest.approx(TRUTH, abs=1e-12)
    assert abs(TRUTH - LOGGED) > 0.02


def test_the_direct_method_is_unbiased_only_with_the_right_model():
    assert expected("direct_method", CLICK) == pytest.approx(TRUTH, abs=1e-12)
    assert abs(expected("direct_method", WRONG) - TRUTH) > 0.05


def test_doubly_robust_with_wrong_propensities_needs_the_right_model():
    by_model = {}
    for name, model in (("right", CLICK), ("wrong", WRONG)):
        total = 0.0
        for p, x, a, r in outcomes():
            log = columns([x], [a], [r], model)
            log["weights"] = log["weights"] * (1.5 if a == 0 else 0.8)
            total += p * evaluate("doubly_robust", **log).value
        by_model[name] = total
    assert by_model["right"] == pytest.approx(TRUTH, abs=1e-12)
    assert abs(by_model["wrong"] - TRUTH) > 0.01


def test_clipping_hides_the_reward_beyond_the_clip():
    hidden = CONTEXT @ (LOGGING * np.maximum(RATIO - 1.5, 0) * CLICK).sum(axis=1)
    assert hidden > 0.05
    assert expected("clipped_ips", clip=1.5) == pytest.approx(TRUTH - hidden, abs=1e-12)


def test_switching_is_biased_by_the_model_beyond_the_threshold():
    beyond = RATIO > 1.5
    bias = CONTEXT @ (TARGET * beyond * (WRONG - CLICK)).sum(axis=1)
    assert abs(bias) > 0.05
    assert expected("switch_dr", threshold=1.5) == pytest.approx(TRUTH + bias, abs=1e-12)
    assert expected("switch_dr", CLICK, threshold=1.5) == pytest.approx(TRUTH, abs=1e-12)


def test_switch_dr_ends_at_doubly_robust_and_at_the_direct_method():
    log = columns(*draw(2000, 1), WRONG)
    robust, switched = doubly_robust(**log), switch_dr(**log, threshold=math.inf)
    assert switched == off_policy.OffPolicyEstimate("switch_dr", *list(vars(robust).values())[1:])
    model, switched = direct_method(log["predicted_target"]), switch_dr(**log, threshold=0)
    for figure in ("value", "low", "high", "standard_error"):
        assert getattr(switched, figure) == getattr(model, figure)
    assert switched.diagnostics.bias_unknown and model.diagnostics.bias_unknown
    assert switched.diagnostics.clipped_mass == 1
    between = switch_dr(**log, threshold=1.5).diagnostics
    beyond = (RATIO > 1.5) * TARGET
    assert between.clipped_mass == pytest.approx(CONTEXT @ beyond.sum(axis=1), rel=0.1)
    assert between.bias_unknown and between.verdict == "warn"


def test_figures_of_a_small_log():
    reward, weights = [1.0, 0, 2, 1], [0.5, 2, 1, 0.5]
    assert ips(reward, weights).value == (0.5 + 0 + 2 + 0.5) / 4
    assert clipped_ips(reward, weights, 0.75).value == (0.5 + 0 + 0.75 * 2 + 0.5) / 4
    assert snips(reward, weights).value == (0.5 + 0 + 2 + 0.5) / (0.5 + 2 + 1 + 0.5)
    logged, target = [0.5, 0.5, 1, 1], [1, 0.5, 1, 0.5]
    assert direct_method(target).value == 3 / 4
    corrections = np.array([0.5 * 0.5, 2 * -0.5, 1 * 1, 0.5 * 0])
    assert doubly_robust(reward, weights, logged, target).value == (3 + corrections.sum()) / 4
    assert switch_dr(reward, weights, logged, target, 1).value == (3 + corrections[[0, 2, 3]].sum()) / 4
    assert difference("ips", reward, weights).value == 3 / 4 - 4 / 4
    assert lift("snips", reward, weights).value == (3 / 4) / (4 / 4) - 1


@pytest.mark.parametrize("factor", [0.01, 3.0, 1e6])
def test_snips_does_not_mind_a_factor_in_the_weights(factor):
    log = columns(*draw(1000, 2), WRONG)
    once, scaled = (snips(log["reward"], log["weights"] * by) for by in (1.0, factor))
    for figure in ("value", "low", "high", "standard_error"):
        assert getattr(scaled, figure) == pytest.approx(getattr(once, figure), rel=1e-12)
    assert once.diagnostics.verdict == "ok" and scaled.diagnostics.verdict == "warn"
    assert ips(log["reward"], log["weights"] * factor).low is None


def test_snips_stays_within_the_rewards_and_ips_need_not():
    reward, weights = np.ones(100), np.repeat([0.5, 1.9], [60, 40])
    assert snips(reward, weights).value == pytest.approx(1, rel=1e-15)
    assert ips(reward, weights).value == pytest.approx(0.6 * 0.5 + 0.4 * 1.9)


def test_snips_of_equal_weights_is_the_mean_with_its_usual_error():
    reward = draw(200, 3)[2]
    found = snips(reward, np.ones(200))
    assert found.value == pytest.approx(reward.mean())
    assert found.standard_error == pytest.approx(reward.std(ddof=1) / math.sqrt(200))


def test_snips_has_the_linearised_variance():
    log = columns(*draw(5000, 4), WRONG)
    w, r = log["weights"], log["reward"]
    found = snips(r, w)
    spread = w * (r - found.value) / w.mean()
    assert found.standard_error == pytest.approx(math.sqrt((spread**2).sum()) / 5000, rel=1e-3)


def test_snips_without_any_weight_has_no_value():
    found = snips(np.ones(30), np.zeros(30))
    assert found.value is None and found.diagnostics.verdict == "refuse"


def test_a_good_model_cuts_the_error():
    x, a, reward = draw(4000, 5)
    log = columns(x, a, reward, GOOD)
    plain, robust = ips(reward, log["weights"]), doubly_robust(**log)
    of_ips = CONTEXT @ (LOGGING * RATIO**2 * CLICK).sum(axis=1) - TRUTH**2
    within = CONTEXT @ (LOGGING * RATIO**2 * CLICK * (1 - CLICK)).sum(axis=1)
    between = CONTEXT @ (TARGET * CLICK).sum(axis=1) ** 2 - TRUTH**2
    assert plain.standard_error == pytest.approx(math.sqrt(of_ips / 4000), rel=0.05)
    assert robust.standard_error == pytest.approx(math.sqrt((within + between) / 4000), rel=0.05)
    assert robust.standard_error < 0.9 * plain.standard_error
    assert doubly_robust(**columns(x, a, reward, WRONG)).standard_error > robust.standard_error


COVERED = {
    "ips": (lambda log: ips(log["reward"], log["weights"]), TRUTH),
    "snips": (lambda log: snips(log["reward"], log["weights"]), TRUTH),
    "doubly robust, good model": (lambda log: doubly_robust(**log), TRUTH),
    "difference of doubly robust": (lambda log: difference("doubly_robust", **log), TRUTH - LOGGED),
    "lift of snips": (lambda log: lift("snips", **log), TRUTH / LOGGED - 1),
}


@pytest.mark.drill
@pytest.mark.parametrize("case", COVERED)
def test_where_the_gate_says_ok_the_truth_is_covered_95_times_in_100(case):
    estimator, truth = COVERED[case]
    _, among_ok, share = coverage(estimator, truth, *draw((2000, 400), 6))
    assert share > 0.9 and 0.929 <= among_ok <= 0.971


def test_a_mean_weight_that_warns_points_at_the_logs_that_miss():
    # where weights average too much or too little by chance, so does w r − r: without the logs that warn,
    # the intervals of the others hold the truth a little more often than 95 times in 100 (97.2 of 6,000)
    found = [difference("ips", **columns(*rows, GOOD)) for rows in zip(*draw((2000, 400), 6), strict=True)]
    shown = [e for e in found if e.low is not None]
    holds = np.array([e.low <= TRUTH - LOGGED <= e.high for e in shown])
    is_ok = np.array([e.diagnostics.verdict == "ok" for e in shown])
    assert 0.929 <= holds.mean() <= 0.971
    assert holds[~is_ok].mean() < 0.85 < 0.95 < holds[is_ok].mean()


@pytest.mark.drill
@pytest.mark.parametrize("name", ["ips", "snips", "doubly_robust"])
def test_rare_clicks_are_covered_too(name):
    # rewards of about 4 %: a symmetric interval covers less on the upper side
    x, a, r = draw((2000, 1500), 7, 0.1)
    _, among_ok, share = coverage(lambda log: evaluate(name, **log), TRUTH / 10, x, a, r, GOOD / 10)
    assert share > 0.9 and 0.929 <= among_ok <= 0.971


def coverage(estimator, truth, x, a, r, model=GOOD):
    """Share of intervals that hold the truth: of all that are shown, and of the ok ones; share of ok logs."""
    found = [estimator(columns(*rows, model)) for rows in zip(x, a, r, strict=True)]
    shown = [e for e in found if e.low is not None]
    holds = np.array([e.low <= truth <= e.high for e in shown])
    is_ok = np.array([e.diagnostics.verdict == "ok" for e in shown])
    assert len(shown) >= 0.99 * len(found)
    return holds.mean(), holds[is_ok].mean(), is_ok.sum() / len(found)


def test_users_who_differ_are_covered_with_clusters_only():
    rng = np.random.default_rng(8)
    users = np.repeat(np.arange(100), 8)
    x, a, _ = draw((600, 800), 9)
    taste = rng.choice([0.25, 1.75], size=(600, 100))[:, users]
    # a user's context is the same in all requests
    x = np.repeat(x[:, ::8], 8, axis=1)
    a = (rng.random(x.shape)[..., None] > np.cumsum(LOGGING, axis=1)[x][..., :2]).sum(axis=-1)
    r = (rng.random(x.shape) < np.minimum(CLICK[x, a] * 0.5 * taste, 1)).astype(float)
    covered = {}
    for name, clusters in (("users", users), ("requests", None)):
        covered[name], *_ = coverage(
            lambda log, ids=clusters: ips(log["reward"], log["weights"], clusters=ids), TRUTH / 2, x, a, r
        )
    assert 0.929 <= covered["users"] <= 0.971
    assert covered["requests"] < 0.9


def test_differences_are_paired():
    log = columns(*draw(1000, 10), WRONG)
    w, r = log["weights"], log["reward"]
    found = difference("ips", **log)
    assert found.value == pytest.approx((w * r - r).mean())
    assert found.standard_error == pytest.approx((w * r - r).std(ddof=1) / math.sqrt(1000))
    unpaired = math.hypot(ips(r, w).standard_error, r.std(ddof=1) / math.sqrt(1000))
    assert found.standard_error < 0.9 * unpaired


@pytest.mark.parametrize("compare", [difference, lift])
@pytest.mark.parametrize("name", ["ips", "snips"])
def test_a_policy_differs_from_itself_by_nothing(compare, name):
    found = compare(name, draw(500, 11)[2], np.ones(500))
    assert (found.value, found.low, found.high) == pytest.approx((0, 0, 0), abs=1e-12)


def test_a_lift_has_the_error_of_a_ratio():
    log = columns(*draw(4000, 12), WRONG)
    w, r = log["weights"], log["reward"]
    found = lift("ips", **log)
    ratio = (w * r).mean() / r.mean()
    assert found.value == pytest.approx(ratio - 1)
    error, _ = standard_error((w * r - ratio * r) / r.mean())
    assert found.standard_error == pytest.approx(error)


def test_a_lift_over_nothing_is_refused():
    found = lift("direct_method", np.zeros(50), predicted_target=np.ones(50))
    assert found.value is found.low is None
    assert tells(found.diagnostics.reason, "logged reward", "zero")


def test_the_direct_method_says_that_its_bias_is_unknown():
    found = direct_method(np.linspace(0, 1, 100))
    assert found.low < 0.5 < found.high
    assert (found.diagnostics.verdict, found.diagnostics.bias_unknown) == ("warn", True)
    assert tells(found.diagnostics.reason, "bias", "model")
    assert found.diagnostics.ess is found.diagnostics.mean_weight is found.diagnostics.clipped_mass is None


def test_the_direct_methods_interval_misses_the_truth_with_a_wrong_model():
    x, a, r = draw((200, 400), 13)
    found = [direct_method(columns(*rows, WRONG)["predicted_target"]) for rows in zip(x, a, r, strict=True)]
    assert np.mean([e.low <= TRUTH <= e.high for e in found]) < 0.1


def test_missing_exploration_is_refused():
    # one of twenty actions, uniformly logged, is all that the target does
    a = np.random.default_rng(14).integers(0, 20, 2000)
    weights = np.where(a == 0, 20.0, 0.0)
    reward = np.random.default_rng(15).random(2000)
    for name in ("ips", "snips", "doubly_robust"):
        found = evaluate(
            name, reward=reward, weights=weights, predicted_logged=reward, predicted_target=reward
        )
        assert found.value is not None and found.low is found.high is found.standard_error is None
        assert found.diagnostics.verdict == "refuse"
        assert "exploration is missing" in found.diagnostics.reason


def test_clipping_warns_where_what_it_hides_outweighs_the_noise():
    x, a, r = draw(40_000, 16)
    weights = RATIO[x, a]
    largest = RATIO.max()
    found = clipped_ips(r, weights, largest - 0.03)  # takes away less than 1 % of the weight
    assert found.diagnostics.clipped_mass < 0.01
    assert found.diagnostics.verdict == "warn" and "clipping hides about" in found.diagnostics.reason
    few = clipped_ips(r[:1000], weights[:1000], largest - 0.03)
    assert few.diagnostics.verdict == "ok"


def test_a_table_holds_every_estimator_with_its_arguments():
    assert list(ESTIMATORS) == list(NEEDS)
    for name, function in ESTIMATORS.items():
        parameters = [
            p.name for p in inspect.signature(function).parameters.values() if p.kind != p.KEYWORD_ONLY
        ]
        assert parameters == list(NEEDS[name])
        log = {**columns(*draw(300, 17), GOOD), "clip": 2.0, "threshold": 2.0}
        called = function(**{key: log[key] for key in NEEDS[name]})
        assert called == evaluate(name, **log) and called.estimator == name


def test_what_is_missing_or_unknown_is_named():
    with refused("'isp'", "ips, clipped_ips", kind=ValueError):
        evaluate("isp", reward=[1], weights=[1])
    with pytest.raises(ValueError, match="switch_dr needs predicted_target, threshold"):
        difference("switch_dr", [1], [1], predicted_logged=[1])
    with pytest.raises(ValueError, match=r"reward\[1\] is nan"):
        ips([1, np.nan], [1, 1])
    with pytest.raises(ValueError, match=r"weights\[0\] is -1.0"):
        snips([1, 1], [-1, 1])
    with pytest.raises(ValueError, match=r"predicted_target has shape \(3,\); expected \(2,\)"):
        doubly_robust([1, 1], [1, 1], [1, 1], [1, 1, 1])
    with refused("threshold", 0, -1, kind=ValueError):
        switch_dr([1, 1], [1, 1], [1, 1], [1, 1], -1)
