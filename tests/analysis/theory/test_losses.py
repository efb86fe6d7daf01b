import numpy as np
import pytest
from scipy.optimize import minimize

from cascade_sim.analysis.theory.losses import HINGE_MARGIN, HINGE_WIDTH, LOSSES
from cascade_sim.analysis.theory.measures import Distribution

ETA = 3.0


def case(seed, n=4):
    rng = np.random.default_rng(seed)
    return Distribution(rng.uniform(0, 2.9, (5, n)), rng.dirichlet(np.ones(5)))


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("seed", range(3))
def test_the_stated_minimiser_has_the_least_risk(name, seed):
    distribution, loss = case(seed), LOSSES[name]
    best = loss.best(distribution.mean(distribution.support), ETA)

    def risk(s):
        return float(loss.risk(distribution, distribution.support, s, ETA))

    found = minimize(risk, np.zeros(4), method="BFGS")
    assert risk(best) <= found.fun + 1e-9
    assert risk(best) == pytest.approx(found.fun, abs=1e-6)


@pytest.mark.parametrize("name", LOSSES)
def test_the_minimiser_is_ordered_like_expected_utility(name):
    u = np.array([0.3, 2.1, 1.4, 1.6, 0.31, 1.5])
    assert np.argsort(LOSSES[name].best(u, ETA)).tolist() == np.argsort(u).tolist()


@pytest.mark.parametrize("name", LOSSES)
def test_two_scores_the_wrong_way_round_cost_at_least_what_the_constant_says(name):
    # for two items the bound is |U_1 − U_2| <= c · sqrt(risk − least risk), over all s_1 <= s_2
    rng, loss = np.random.default_rng(3), LOSSES[name]
    nearest = 0.0
    for _ in range(40):
        u = np.sort(rng.uniform(0.05, 2.95, 2))[::-1]
        certain = Distribution(u[None], np.ones(1))
        low = rng.uniform(-3, 3, (400, 1))
        wrong = np.concatenate(
            [low, low + rng.exponential(0.3, (400, 1)) * rng.integers(0, 2, (400, 1))], axis=1
        )
        wrong = np.concatenate([wrong, np.repeat(loss.best(np.full(1, u.mean()), ETA), 2)[None]])
        gap = loss.risk(certain, u[None], wrong, ETA) - loss.risk(certain, u[None], loss.best(u, ETA), ETA)
        share = (u[0] - u[1]) / (loss.constant(u, ETA) * np.sqrt(gap))
        nearest = max(nearest, float(share.max()))
    assert nearest <= 1 + 1e-6
    assert nearest > (0.3 if "hinge" in name or "Bregman" in name else 0.9)


@pytest.mark.parametrize("name", [name for name in LOSSES if not name.startswith("Bregman")])
def test_risks_are_convex(name):
    rng, loss, distribution = np.random.default_rng(4), LOSSES[name], case(4)
    a, b = rng.normal(size=(2, 50, 4))
    risk = [loss.risk(distribution, distribution.support, s, ETA) for s in (a, b, (a + b) / 2)]
    assert (risk[2] <= (risk[0] + risk[1]) / 2 + 1e-12).all()


def test_forms_are_as_written():
    v, s = np.array([2.0, 0.5]), np.array([0.3, -0.2])
    d, (a, b) = s[0] - s[1], v
    expected = {
        "pointwise squared": ((v - s) ** 2).sum(),
        "pointwise logistic": (v * np.log(1 + np.exp(-s)) + (ETA - v) * np.log(1 + np.exp(s))).sum(),
        "pointwise exponential": (v * np.exp(-s) + (ETA - v) * np.exp(s)).sum(),
        "pointwise square hinge": 2 * (1 - 0.3) ** 2 + 1 * 0.3**2 + 0.5 * (1 + 0.2) ** 2,
        "pointwise differentiable hinge": 2 * (0.7 - 0.2) + 1 * 0.3**2 / 0.8 + 0.5 * (1.2 - 0.2),
        "pairwise squared": (a - b - d) ** 2,
        "pairwise logistic": a * np.log(1 + np.exp(-d)) + b * np.log(1 + np.exp(d)),
        "pairwise exponential": a * np.exp(-d) + b * np.exp(d),
        "Bregman, x log x": sum(
            x * np.log(x / g) - x + g for x, g in zip(v, ETA / (1 + np.exp(-s)), strict=True)
        ),
    }
    assert (HINGE_MARGIN, HINGE_WIDTH) == (1.0, 0.4)
    assert set(expected) == set(LOSSES)
    for name, value in expected.items():
        assert LOSSES[name].value(v, s, ETA) == pytest.approx(value), name


def test_the_risk_is_the_expected_loss():
    distribution, s = case(5), np.random.default_rng(5).normal(size=(3, 4))
    for loss in LOSSES.values():
        pairs = zip(distribution.probability, distribution.support, strict=True)
        expected = sum(p * loss.value(v, s, ETA) for p, v in pairs)
        np.testing.assert_allclose(loss.risk(distribution, distribution.support, s, ETA), expected)
