"""What holds for every calibrator, by one list of properties."""

import numpy as np
import pytest
import torch

from answers.told import refused
from cascade_sim.models.calibrators import CALIBRATORS, PiecewiseLinear, calibrator_class, load, save

QUICK = {"piecewise_linear": {"hidden": (8,), "intervals": 20, "epochs": 3, "batch": 64}}
NEVER_TURNS = ["temperature", "isotonic", "beta", "piecewise_linear"]
STRICT = ["platt", "temperature", "beta", "piecewise_linear"]


def sample(n=400, seed=0):
    """Scores that are logits twice too large and off by one, with clicks."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(-1, 1, n)
    return 2 * truth + 1, (rng.random(n) < 1 / (1 + np.exp(-truth))).astype(float)


def fit(name, scores, labels):
    return CALIBRATORS[name].fit(scores, labels, **QUICK.get(name, {}))


def log_loss(p, y):
    p = np.clip(p, 1e-9, 1 - 1e-9)
    return -(y * np.log(p) + (1 - y) * np.log1p(-p)).mean()


@pytest.mark.parametrize("name", CALIBRATORS)
@pytest.mark.few(3)
def test_calibration_lowers_the_log_loss_of_a_miscalibrated_score(name):
    scores, labels = sample(4000)
    options = {"epochs": 20, "batch": 128} if name == "piecewise_linear" else {}
    found = CALIBRATORS[name].fit(scores, labels, **options)
    fresh, outcome = sample(4000, seed=1)
    before, after = log_loss(1 / (1 + np.exp(-fresh)), outcome), log_loss(found(fresh), outcome)
    assert after < before - (0.01 if name == "temperature" else 0.03)


@pytest.mark.parametrize("name", [name for name in CALIBRATORS if name != "temperature"])
@pytest.mark.few(3)
def test_the_mean_prediction_is_the_mean_label(name):
    scores, labels = sample(4000)
    options = {"epochs": 20, "batch": 128} if name == "piecewise_linear" else {}
    found = CALIBRATORS[name].fit(scores, labels, **options)
    assert found(scores).mean() == pytest.approx(labels.mean(), abs=0.01)


@pytest.mark.parametrize("name", CALIBRATORS)
def test_numpy_and_torch_agree_and_keep_shape_and_dtype(name):
    found = fit(name, *sample())
    scores = np.linspace(-6, 6, 60).reshape(3, 20)
    plain = found(scores)
    assert plain.dtype == np.float64 and plain.shape == (3, 20)
    np.testing.assert_array_equal(found(torch.tensor(scores)).numpy(), plain)
    single = found(torch.tensor(scores, dtype=torch.float32))
    assert single.dtype == torch.float32
    np.testing.assert_allclose(single.numpy(), plain, atol=0.06 if name == "histogram" else 1e-5)
    assert found(scores.tolist()).shape == (3, 20)


@pytest.mark.parametrize("name", NEVER_TURNS)
@pytest.mark.parametrize("kind", ["telling", "misleading", "random"])
def test_the_order_is_never_turned_round(name, kind):
    scores, labels = sample()
    labels = {"telling": labels, "misleading": 1 - labels, "random": np.tile([0.0, 1.0], 200)}[kind]
    found = fit(name, scores, labels)
    grid = np.sort(np.concatenate([np.linspace(-300, 300, 2001), scores, scores + 1e-9]))
    for inputs in (grid, torch.tensor(grid, dtype=torch.float32)):
        assert (np.diff(np.asarray(found(inputs))) >= 0).all()


@pytest.mark.parametrize("name", CALIBRATORS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equal_scores_get_equal_probabilities_wherever_they_stand(name, dtype):
    found = fit(name, *sample())
    for n in (1, 7, 67, 1001):
        assert len(found(torch.full((n,), 0.3, dtype=dtype)).unique()) == 1
    assert found(torch.zeros(0, dtype=dtype)).shape == (0,)


@pytest.mark.parametrize("name", STRICT)
def test_different_scores_stay_different(name):
    scores, labels = sample()
    found = fit(name, scores, labels)
    grid = np.unique(np.round(scores, 3))
    assert (np.diff(found(grid)) > 0).all() and len(grid) > 300


def test_misleading_scores_turn_round_platt_and_flatten_beta():
    scores, labels = sample()
    assert fit("platt", scores, 1 - labels).slope < 0
    beta = fit("beta", scores, 1 - labels)
    assert beta.a == beta.b == 0
    assert beta(scores) == pytest.approx(np.full(400, (1 - labels).mean()), abs=0.01)


@pytest.mark.parametrize("name", CALIBRATORS)
@pytest.mark.parametrize(
    ("scores", "labels"),
    [
        ([0.3, -2.0, 1.0], [0.0, 0.0, 0.0]),
        ([0.3, -2.0, 1.0], [1.0, 1.0, 1.0]),
        ([0.7] * 6, [0.0, 1.0, 0.0, 0.0, 1.0, 0.0]),
        ([0.0] * 4, [1.0, 0.0, 1.0, 1.0]),
        ([1.5], [1.0]),
        ([-200.0, 200.0, -200.0, 200.0, 0.0], [0.0, 1.0, 1.0, 1.0, 0.0]),
        ([-200.0, -100.0, 100.0, 200.0], [0.0, 0.0, 1.0, 1.0]),
        ([1e-300, 2e-300, 1e300], [0.0, 1.0, 1.0]),
    ],
    ids=["no click", "all clicks", "tied", "zero", "one", "extreme", "separated", "huge"],
)
def test_degenerate_samples_give_a_probability_everywhere(name, scores, labels):
    found = fit(name, scores, labels)
    p = found(np.array([-200.0, -1.0, 0.0, 1.0, 200.0, *scores]))
    assert np.isfinite(p).all() and (p >= 0).all() and (p <= 1).all()


@pytest.mark.parametrize("name", ["platt", "isotonic", "histogram", "beta"])
def test_equal_scores_or_one_class_give_about_the_mean(name):
    tied = fit(name, np.full(1000, 0.7), np.repeat([1.0, 0.0], [200, 800]))
    assert tied(np.array([-3.0, 0.7, 3.0])) == pytest.approx([0.2] * 3, abs=0.005)
    never = fit(name, np.linspace(-3, 3, 1000), np.zeros(1000))
    assert (never(np.array([-3.0, 0.0, 3.0])) < 0.002).all()


@pytest.mark.parametrize("name", CALIBRATORS)
@pytest.mark.parametrize(
    ("scores", "labels", "reason"),
    [
        ([], [], "no samples"),
        ([1.0], [1.0, 0.0], "1 scores and 2 labels"),
        ([np.inf], [1.0], "finite"),
        ([np.nan], [1.0], "finite"),
        ([1.0], [2.0], "in \\[0, 1\\]"),
        ([1.0], [np.nan], "in \\[0, 1\\]"),
    ],
)
def test_what_cannot_be_fitted_is_refused(name, scores, labels, reason):
    with pytest.raises(ValueError, match=reason):
        fit(name, scores, labels)


@pytest.mark.parametrize("name", CALIBRATORS)
def test_a_saved_calibrator_is_the_same_one(name, tmp_path):
    found = fit(name, *sample())
    save(found, tmp_path / "calibrator.safetensors")
    again = load(tmp_path / "calibrator.safetensors")
    assert type(again) is type(found) and again.name == name
    grid = np.linspace(-9, 9, 101)
    np.testing.assert_array_equal(again(grid), found(grid))
    assert all(isinstance(a, np.ndarray) and a.dtype.kind in "fi" for a in found.arrays().values())


def test_a_file_without_a_calibrator_is_refused(tmp_path):
    from safetensors.numpy import save_file

    save_file({"x": np.zeros(2)}, str(tmp_path / "other.safetensors"))
    with refused("calibrator", kind=ValueError):
        load(tmp_path / "other.safetensors")


@pytest.mark.parametrize("name", CALIBRATORS)
def test_calibrators_are_frozen_and_know_their_options(name):
    found = fit(name, *sample())
    with pytest.raises(AttributeError):
        found.anything = 1
    with pytest.raises(TypeError, match="no option colour"):
        CALIBRATORS[name].fit([1.0], [1.0], colour=3)
    assert calibrator_class(name) is type(found)
    assert found.uses_request == (name == "piecewise_linear")


def test_an_unknown_name_is_answered_with_the_known_ones():
    with refused("'plat'", "platt, temperature", kind=ValueError):
        calibrator_class("plat")


def test_soft_labels_are_the_average_over_clicks():
    scores, labels = sample(200)
    truth = 1 / (1 + np.exp(-(scores - 1) / 2))
    found = CALIBRATORS["isotonic"].fit(scores, truth)
    np.testing.assert_allclose(found(scores), truth, atol=1e-12)
    assert PiecewiseLinear.fit(scores, truth, epochs=1)(0.0) < 0.5
