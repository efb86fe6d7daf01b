import numpy as np
import pytest
from scipy.optimize import minimize, minimize_scalar
from scipy.special import expit, log_expit
from sklearn.calibration import _sigmoid_calibration
from sklearn.linear_model import LogisticRegression

from cascade_sim.models.calibrators.logistic import Beta, Platt, Temperature, smoothed


def case(seed, n=500, scale=1.0):
    rng = np.random.default_rng(seed)
    scores = scale * np.round(rng.normal(size=n), 1)  # with ties
    return scores, (rng.random(n) < expit(0.7 * scores / scale - 1.5)).astype(float)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 200.0])
@pytest.mark.parametrize("seed", range(3))
def test_platt_is_the_smoothed_logistic_regression_of_scikit_learn(seed, scale):
    scores, labels = case(seed, scale=scale)
    found, targets = Platt.fit(scores, labels), smoothed(labels)
    # targets between the classes are samples of both, weighted
    regression = LogisticRegression(C=np.inf, solver="newton-cholesky", tol=1e-12).fit(
        np.tile(scores / scale, 2)[:, None], np.repeat([1, 0], 500), np.concatenate([targets, 1 - targets])
    )
    assert found.slope * scale == pytest.approx(regression.coef_[0, 0], abs=1e-8)
    assert found.intercept == pytest.approx(regression.intercept_[0], abs=1e-8)


@pytest.mark.parametrize("seed", range(3))
def test_platt_agrees_with_the_calibration_of_scikit_learn(seed):
    scores, labels = case(seed)
    found = Platt.fit(scores, labels)
    a, b = _sigmoid_calibration(scores, labels)
    np.testing.assert_allclose(found(scores), expit(-(a * scores + b)), atol=1e-6)

    def loss(slope, level):
        return -(
            smoothed(labels) * log_expit(z := slope * scores + level) + (1 - smoothed(labels)) * log_expit(-z)
        )

    assert loss(found.slope, found.intercept).sum() <= loss(-a, -b).sum() + 1e-9


def test_targets_are_smoothed_by_the_number_of_each_class():
    assert smoothed(np.array([1.0, 0, 0, 0])).tolist() == [2 / 3, 1 / 5, 1 / 5, 1 / 5]


def test_separated_classes_have_a_finite_steep_slope():
    found = Platt.fit([-2.0, -1.0, 1.0, 2.0], [0.0, 0.0, 1.0, 1.0])
    # targets 1/4 and 3/4
    assert 0.3 < found.slope < 3 and found(0.0) == pytest.approx(0.5)


@pytest.mark.parametrize("seed", range(3))
def test_the_temperature_has_the_least_log_loss(seed):
    scores, labels = case(seed)
    found = Temperature.fit(scores, labels)

    def loss(log_t):
        z = scores * np.exp(-log_t)
        return -(labels * log_expit(z) + (1 - labels) * log_expit(-z)).sum()

    best = minimize_scalar(loss, bounds=(-5, 5), method="bounded", options={"xatol": 1e-10})
    assert loss(np.log(found.temperature)) <= best.fun + 1e-9
    assert np.log(found.temperature) == pytest.approx(best.x, abs=1e-5)


def test_a_temperature_undoes_a_scale():
    scores, labels = case(1, n=400)
    labels = expit(scores)
    assert Temperature.fit(5 * scores, labels).temperature == pytest.approx(5)


def test_temperatures_stay_in_their_range():
    size = np.sqrt((1 + 4) / 2)
    assert Temperature.fit([-1.0, 2.0], [0.0, 1.0]).temperature == pytest.approx(size / 1e4)
    assert Temperature.fit([-1.0, 2.0], [1.0, 0.0]).temperature == pytest.approx(size * 1e4)
    assert Temperature.fit([0.0, 0.0], [1.0, 0.0]).temperature == 1.0


@pytest.mark.parametrize("seed", range(6))
def test_beta_has_the_least_log_loss_of_all_that_keep_the_order(seed):
    rng = np.random.default_rng(seed)
    scores = rng.normal(-1, 2, 600)
    kind = [scores**2 / 4 - 2, -(scores**2) / 4, scores / 3, 2 * scores + 2, -scores, np.tanh(scores)][seed]
    labels = (rng.random(600) < expit(kind)).astype(float)
    found, targets = Beta.fit(scores, labels), smoothed(labels)

    def loss(weights):
        a, b, level = weights
        z = a * log_expit(scores) - b * log_expit(-scores) + level
        return -(targets * log_expit(z) + (1 - targets) * log_expit(-z)).sum()

    best = minimize(
        loss,
        [0.5, 0.5, 0.0],
        bounds=[(0, None), (0, None), (None, None)],
        options={"gtol": 1e-9, "ftol": 1e-15},
    )
    assert loss([found.a, found.b, found.intercept]) <= best.fun + 1e-6
    assert found.a >= 0 and found.b >= 0


def test_beta_finds_its_own_parameters():
    scores = np.linspace(-4, 4, 20001)
    labels = Beta(0.5, 2.0, -1.0)(scores)
    found = Beta.fit(scores, labels)
    # smoothing pulls the targets towards one half by about one part in ten thousand
    assert [found.a, found.b, found.intercept] == pytest.approx([0.5, 2.0, -1.0], abs=0.01)
    assert Beta(1.0, 1.0, 0.0)(scores) == pytest.approx(expit(scores))
