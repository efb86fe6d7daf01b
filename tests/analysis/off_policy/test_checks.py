import numpy as np
import pytest

from answers.told import refused, tells
from cascade_sim.analysis.off_policy.checks import (
    column,
    diagnose,
    diagnose_kept,
    weight_column,
    without_weights,
    worst_of,
)


def logged(n=4000, seed=0, target=(0.5, 0.3, 0.2), logging=(0.3, 0.4, 0.3)):
    """Weights of n requests of a policy with three actions."""
    actions = np.random.default_rng(seed).choice(3, p=logging, size=n)
    return (np.array(target) / np.array(logging))[actions]


def test_the_effective_sample_size_is_the_squared_sum_over_the_sum_of_squares():
    found = diagnose([1.0, 2, 3])
    assert found.n == 3
    assert found.ess == pytest.approx((1 + 2 + 3) ** 2 / (1 + 4 + 9))
    assert found.ess_share == pytest.approx(36 / 14 / 3)
    assert found.mean_weight == 2
    assert found.largest_share == 3 / 6
    assert found.clipped_mass == 0


def test_a_log_of_the_policy_itself_is_ok():
    found = diagnose(np.ones(100))
    assert (found.verdict, found.reason, found.bias_unknown) == ("ok", "", False)
    assert (found.ess, found.ess_share, found.largest_share) == (100, 1, 1 / 100)
    assert found.mean_weight_low == found.mean_weight_high == 1


def test_a_policy_close_to_the_log_is_ok():
    found = diagnose(logged())
    assert found.verdict == "ok"
    assert found.ess_share == pytest.approx(1 / (0.5**2 / 0.3 + 0.3**2 / 0.4 + 0.2**2 / 0.3), rel=0.03)
    assert found.mean_weight_low < 1 < found.mean_weight_high


@pytest.mark.parametrize(
    ("share", "verdict"), [(0.52, "ok"), (0.48, "warn"), (0.11, "warn"), (0.09, "refuse")]
)
def test_ess_below_half_warns_and_below_a_tenth_refuses(share, verdict):
    # of 10,000 requests this share has the weight 1 / share, the others none: ESS / n = share, mean 1
    n = 10_000
    weights = np.zeros(n)
    weights[: int(n * share)] = 1 / share
    found = diagnose(weights)
    assert found.ess_share == pytest.approx(share)
    assert found.verdict == verdict
    assert ("exploration is missing" in found.reason) == (verdict == "refuse")
    if verdict != "ok":
        assert tells(found.reason, f"{100 * share:.3g} %", 10000)


def test_one_weight_above_a_twentieth_of_the_total_refuses():
    weights = np.ones(1000)
    weights[17] = 999 * 0.05 / 0.95 * 1.01
    found = diagnose(weights)
    assert found.verdict == "refuse"
    assert tells(found.reason, "5.05 %", "5 %")
    weights[17] = 999 * 0.05 / 0.95 * 0.99
    assert diagnose(weights).verdict != "refuse"


def test_twenty_requests_are_the_least():
    assert diagnose(np.ones(20)).verdict == "ok"
    assert diagnose(np.ones(19)).verdict == "refuse"


def test_wrong_propensities_show_in_the_mean_weight():
    right = logged()
    # the third action is logged with 0.2 instead of 0.3
    wrong = np.where(right == 0.2 / 0.3, 0.2 / 0.2, right)
    found = diagnose(wrong)
    assert found.mean_weight == pytest.approx(0.5 + 0.3 + 0.3 * 0.2 / 0.2, rel=0.02)
    assert found.verdict == "refuse" and tells(found.reason, "propensities")
    assert diagnose(wrong, self_normalised=True).verdict == "warn"


def test_an_action_that_was_never_logged_shows_in_the_mean_weight():
    # the target gives a third of its traffic to an action without a single example
    found = diagnose(logged() * 2 / 3)
    assert found.verdict == "refuse"
    assert tells(found.reason, "exploration")


def test_a_mean_weight_off_by_chance_only_warns():
    verdicts = [diagnose(logged(400, seed)).verdict for seed in range(1000)]
    assert verdicts.count("refuse") <= 5
    assert 0.03 <= verdicts.count("warn") / 1000 <= 0.07


def test_a_sure_but_small_error_of_the_mean_weight_warns():
    found = diagnose(np.full(1000, 1.005))
    assert found.verdict == "warn" and tells(found.reason, "chance", "propensities")
    assert diagnose(np.full(1000, 1.02)).verdict == "refuse"
    assert diagnose(np.full(1000, 1 + 1e-12)).verdict == "ok"


def test_many_slots_are_allowed_more_chance():
    weights = next(w for w in (logged(400, seed) for seed in range(100)) if diagnose(w).verdict == "warn")
    assert diagnose(weights, comparisons=1000).verdict == "ok"


def test_users_make_the_mean_weight_less_certain():
    rng = np.random.default_rng(0)
    users = np.repeat(np.arange(40), 25)
    weights = np.where(rng.random(40) < 0.5, 0.5, 1.5)[users]
    alone, together = diagnose(weights), diagnose(weights, clusters=users)
    width, wider = (d.mean_weight_high - d.mean_weight_low for d in (alone, together))
    assert wider == pytest.approx(width * 5, rel=0.1)


def test_clipped_mass_is_the_share_of_the_weight_cut_off():
    found = diagnose([1.0, 1, 4], clip=2)
    assert found.clipped_mass == pytest.approx((4 - 2) / 6)
    assert found.ess == pytest.approx((1 + 1 + 2) ** 2 / (1 + 1 + 4))
    assert found.largest_share == 2 / 4
    assert found.mean_weight == 2  # of the weights as logged


@pytest.mark.parametrize(("clip", "verdict"), [(1.9, "ok"), (1.7, "warn"), (1.0, "refuse")])
def test_clipping_above_a_hundredth_warns_and_above_a_tenth_refuses(clip, verdict):
    # 0.5 and 1.9 at 9 : 5 have the mean 1; of 1400 the part above the clip is 500 (1.9 − clip)
    weights = np.repeat([0.5, 1.9], [900, 500])
    found = diagnose(weights, clip)
    assert found.clipped_mass == pytest.approx(500 * (1.9 - clip) / 1400)
    assert found.verdict == verdict
    assert ("clipping takes away" in found.reason) is (verdict != "ok")


def test_a_target_that_does_nothing_of_what_was_logged_is_refused():
    found = diagnose(np.zeros(50))
    assert (found.ess, found.verdict) == (0, "refuse")
    assert tells(found.reason, "exploration", "nothing")


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, -0.1])
def test_a_bad_weight_is_named_by_its_row(bad):
    weights = np.ones(30)
    weights[[12, 20]] = bad
    with pytest.raises(ValueError, match=rf"weights\[12\] is {bad}"):
        diagnose(weights)


def test_bad_arguments_are_refused():
    with pytest.raises(ValueError, match="weights is empty"):
        diagnose([])
    with refused("clip", 0, kind=ValueError):
        diagnose([1.0], clip=0)
    with pytest.raises(ValueError, match=r"shape \(1, 2\)"):
        diagnose([[1.0, 2]])
    with refused("reward", "(2,)", "(3,)", kind=ValueError):
        column([1, 2], "reward", 3)
    with refused("ratio[1]", "-1.0", kind=ValueError):
        weight_column([1, -1], name="ratio")


def test_of_a_switched_log_only_what_is_kept_is_judged():
    weights = np.array([0.5] * 100 + [1.5] * 60 + [10.0] * 1)
    is_kept = weights <= 2
    found = diagnose_kept(weights, is_kept)
    kept = weights[is_kept]
    assert found.ess == pytest.approx(kept.sum() ** 2 / (kept**2).sum())
    assert found.ess_share == pytest.approx(found.ess / 160)
    assert found.clipped_mass == pytest.approx(10 / (50 + 90 + 10))
    assert found.verdict == "warn" and found.bias_unknown
    assert tells(found.reason, "6.67 %")
    assert diagnose(weights).verdict == "refuse"  # as one weight has more than 5 %


def test_a_log_kept_in_full_is_judged_as_ever():
    for weights in (logged(400, 3), np.repeat([0.0, 8], [700, 100]), np.full(50, 1.3)):
        assert diagnose_kept(weights, np.ones(len(weights), bool)) == diagnose(weights)


def test_nothing_kept_leaves_all_to_the_model():
    found = diagnose_kept(np.ones(50), np.zeros(50, bool))
    assert (found.verdict, found.bias_unknown, found.clipped_mass) == ("warn", True, 1)


def test_worst_reasons_come_first():
    found = without_weights(10).with_findings([("ok", "x"), ("warn", "a"), ("refuse", "b"), ("warn", "c")])
    assert (found.verdict, found.reason) == ("refuse", "b; a; c")


def test_the_worst_slot_speaks_for_the_slate():
    fine, poor = diagnose(np.ones(100)), diagnose(np.ones(10))
    assert worst_of([fine, poor, fine], "slot") == worst_of([fine, poor], "slot")
    reason = worst_of([fine, poor], "slot").reason
    assert reason.startswith("slot 2: ") and tells(reason, "exploration")
    assert worst_of([diagnose(np.ones(200)), fine], "slot") == fine
