import itertools

import numpy as np
import pytest

from answers.told import refused
from cascade_sim.analysis.off_policy.slates import (
    SLATE_ESTIMATORS,
    cascade_dr,
    independent_ips,
    reward_interaction_ips,
    slate_ips,
)

# three slots are filled from four items without repetition, drawn by strength from what is left
SLATES = list(itertools.permutations(range(4), 3))
LOGGING, TARGET = np.array([1.0, 1.5, 1.2, 0.8]), np.array([1.6, 1.0, 0.9, 0.8])
CLICK = np.array([0.6, 0.35, 0.2, 0.1])


def conditional(strength, slate):
    """π(a_k | a_<k) of each slot."""
    left = [strength.sum() - sum(strength[i] for i in slate[:k]) for k in range(3)]
    return np.array([strength[slate[k]] / left[k] for k in range(3)])


def probability(strength, slate):
    return conditional(strength, slate).prod()


def marginal(strength, slate):
    """P(a_k at slot k)."""
    return np.array([sum(probability(strength, s) for s in SLATES if s[k] == slate[k]) for k in range(3)])


RHO = {s: conditional(TARGET, s) / conditional(LOGGING, s) for s in SLATES}
MARGINAL = {s: marginal(TARGET, s) / marginal(LOGGING, s) for s in SLATES}


def own(slate):
    """A slot's click depends on its own item only."""
    return np.array([CLICK[slate[k]] / (k + 1) for k in range(3)])


def cascade(slate):
    """... and on the items above it."""
    seen = np.cumprod([1.0, *(1 - CLICK[list(slate[:2])])])
    return CLICK[list(slate)] * seen


def whole(slate):
    """... and on the item of the last slot."""
    return cascade(slate) * (0.4 + 0.3 * slate[2])


def truth(click):
    return sum(probability(TARGET, s) * click(s).sum() for s in SLATES)


def expected(estimator, click):
    """Sum over all slates and click patterns of probability times the estimate of that one request."""
    total = 0.0
    for slate in SLATES:
        rates = click(slate)
        for clicks in itertools.product((0, 1), repeat=3):
            chance = np.prod([p if c else 1 - p for p, c in zip(rates, clicks, strict=True)])
            total += probability(LOGGING, slate) * chance * estimator(slate, np.array([clicks], float)).value
    return total


def model_of(q):
    """q̂_k and v̂_k of each slate, [1, 3], from Q̂_k given by the prefix up to k."""
    logged, target = {}, {}
    for slate in SLATES:
        logged[slate] = np.array([[q[slate[: k + 1]] for k in range(3)]])
        values = []
        for k in range(3):
            rest = [i for i in range(4) if i not in slate[:k]]
            strength = np.array([TARGET[i] for i in rest])
            values.append(sum(strength * [q[(*slate[:k], i)] for i in rest]) / strength.sum())
        target[slate] = np.array([values])
    return logged, target


def true_q(click):
    """Expected reward from slot k on under the target, given the slots up to k."""
    q = {}
    for prefix in {s[: k + 1] for s in SLATES for k in range(3)}:
        fitting = [s for s in SLATES if s[: len(prefix)] == prefix]
        chance = np.array([probability(TARGET, s) for s in fitting])
        q[prefix] = float(chance @ [click(s)[len(prefix) - 1 :].sum() for s in fitting] / chance.sum())
    return q


NUMBERS = np.random.default_rng(0)
WRONG = {s[: k + 1]: float(NUMBERS.uniform(0, 2)) for s in SLATES for k in range(3)}


def by_slate(slate, r):
    return slate_ips(r, RHO[slate][None])


def by_prefix(slate, r):
    return reward_interaction_ips(r, RHO[slate][None])


def by_slot(slate, r):
    return independent_ips(r, MARGINAL[slate][None])


def with_model(q):
    logged, target = model_of(q)
    return lambda slate, r: cascade_dr(r, RHO[slate][None], logged[slate], target[slate])


def test_the_policies_differ_and_are_policies():
    for strength in (LOGGING, TARGET):
        assert sum(probability(strength, s) for s in SLATES) == pytest.approx(1, abs=1e-15)
    for click in (own, cascade, whole):
        logged = sum(probability(LOGGING, s) * click(s).sum() for s in SLATES)
        assert abs(logged - truth(click)) > 0.01


@pytest.mark.parametrize("click", [own, cascade, whole])
def test_whole_slates_are_unbiased_whatever_rewards_depend_on(click):
    assert expected(by_slate, click) == pytest.approx(truth(click), abs=1e-12)


def test_prefixes_are_unbiased_if_rewards_depend_on_what_is_above():
    for click in (own, cascade):
        assert expected(by_prefix, click) == pytest.approx(truth(click), abs=1e-12)
    assert abs(expected(by_prefix, whole) - truth(whole)) > 0.001


def test_slots_are_unbiased_if_rewards_depend_on_the_slot_alone():
    assert expected(by_slot, own) == pytest.approx(truth(own), abs=1e-12)
    assert abs(expected(by_slot, cascade) - truth(cascade)) > 0.001


@pytest.mark.parametrize("q", [WRONG, true_q(cascade)], ids=["wrong model", "right model"])
@pytest.mark.parametrize("click", [own, cascade])
def test_cascade_dr_is_unbiased_whatever_the_model(click, q):
    assert expected(with_model(q), click) == pytest.approx(truth(click), abs=1e-12)


def test_a_model_does_not_mend_rewards_that_look_below():
    assert abs(expected(with_model(WRONG), whole) - truth(whole)) > 0.001


def spread(estimator, click):
    """Variance of one request's term, over all slates and click patterns."""

    class Squared:
        def __init__(self, value):
            self.value = value**2

    return expected(lambda s, r: Squared(estimator(s, r).value), click) - truth(click) ** 2


def test_each_assumption_and_a_right_model_cut_the_variance():
    right = spread(with_model(true_q(cascade)), cascade)
    prefix, slate = spread(by_prefix, cascade), spread(by_slate, cascade)
    assert right < 0.95 * prefix < prefix < slate
    assert spread(with_model(WRONG), cascade) > right


def test_the_recursion_is_the_sum_over_slots():
    rng = np.random.default_rng(1)
    r, rho, q, v = rng.random((4, 50, 4))
    w = np.cumprod(rho, axis=1)
    before = np.concatenate([np.ones((50, 1)), w[:, :-1]], axis=1)
    assert cascade_dr(r, rho, q, v).value == pytest.approx((before * v + w * (r - q)).sum(axis=1).mean())


def test_without_a_model_cascade_dr_weights_prefixes():
    rng = np.random.default_rng(2)
    r, rho = rng.random((2, 200, 3))
    nothing = np.zeros((200, 3))
    found, plain = cascade_dr(r, rho, nothing, nothing), reward_interaction_ips(r, rho)
    assert found.value == pytest.approx(plain.value, rel=1e-14)


def test_figures_of_one_page():
    r, ratio = [[1.0, 2.0]], [[0.5, 3.0]]
    assert slate_ips(r, ratio).value == 0.5 * 3 * (1 + 2)
    assert reward_interaction_ips(r, ratio).value == 0.5 * 1 + 0.5 * 3 * 2
    assert independent_ips(r, ratio).value == 0.5 * 1 + 3 * 2
    assert cascade_dr(r, ratio, [[2, 1]], [[3, 4]]).value == 3 + 0.5 * (1 - 2) + 0.5 * 4 + 1.5 * (2 - 1)


def test_a_short_page_is_padded_with_nothing():
    rng = np.random.default_rng(3)
    r, rho, q, v = rng.random((4, 60, 2))
    more = [np.c_[x, np.full(60, pad)] for x, pad in ((r, 0), (rho, 1), (q, 0), (v, 0))]
    for name, columns in (("slate_ips", 2), ("reward_interaction_ips", 2), ("cascade_dr", 4)):
        function = SLATE_ESTIMATORS[name]
        assert function(*more[:columns]).value == pytest.approx(function(*(r, rho, q, v)[:columns]).value)


@pytest.mark.drill
@pytest.mark.parametrize("case", ["slate", "prefix", "slot", "cascade"])
def test_where_the_gate_says_ok_the_truth_is_covered_95_times_in_100(case):
    rng = np.random.default_rng(4)
    click = own if case == "slot" else cascade
    logged, target = model_of(WRONG)
    tables = {
        "rho": np.array([RHO[s] for s in SLATES]),
        "marginal": np.array([MARGINAL[s] for s in SLATES]),
        "q": np.concatenate([logged[s] for s in SLATES]),
        "v": np.concatenate([target[s] for s in SLATES]),
    }
    rates = np.array([click(s) for s in SLATES])
    pages = rng.choice(24, p=[probability(LOGGING, s) for s in SLATES], size=(1000, 400))
    covered, right = [], truth(click)
    for page, u in zip(pages, rng.random((1000, 400, 3)), strict=True):
        r = (u < rates[page]).astype(float)
        rho, m, q, v = (tables[name][page] for name in ("rho", "marginal", "q", "v"))
        found = {
            "slate": lambda r=r, rho=rho: slate_ips(r, rho),
            "prefix": lambda r=r, rho=rho: reward_interaction_ips(r, rho),
            "slot": lambda r=r, m=m: independent_ips(r, m),
            "cascade": lambda r=r, rho=rho, q=q, v=v: cascade_dr(r, rho, q, v),
        }[case]()
        if found.diagnostics.verdict == "ok":
            covered.append(found.low <= right <= found.high)
    assert len(covered) > 900 and 0.929 <= np.mean(covered) <= 0.971


def test_the_worst_slot_decides():
    rng = np.random.default_rng(5)
    rho = np.ones((2000, 3))
    rho[:, 1] = np.where(rng.random(2000) < 0.05, 20.0, 0.0)
    found = reward_interaction_ips(rng.random((2000, 3)), rho)
    assert found.low is None and found.diagnostics.verdict == "refuse"
    assert found.diagnostics.reason.startswith("slot 2: ")
    assert "exploration is missing" in found.diagnostics.reason
    assert reward_interaction_ips(rng.random((2000, 3)), np.ones((2000, 3))).diagnostics.verdict == "ok"


def test_bad_tables_are_named():
    with refused("conditional[1, 0]", "-1.0", kind=ValueError):
        slate_ips([[1, 1], [1, 1]], [[1, 1], [-1, 1]])
    with refused("v_target[0, 1]", "nan", kind=ValueError):
        cascade_dr([[1, 1]], [[1, 1]], [[1, -1]], [[1, np.nan]])
    with refused("marginal", "(1, 3)", "(1, 2)", "reward", kind=ValueError):
        independent_ips([[1, 1]], [[1, 1, 1]])
    with pytest.raises(ValueError, match=r"expected \(R, K\)"):
        slate_ips([1, 1], [1, 1])
