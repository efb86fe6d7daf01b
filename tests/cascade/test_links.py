import numpy as np
import pytest
import torch

from cascade_sim.cascade.links import (
    calibrator_file,
    export_calibrator,
    load_calibrator,
    with_calibrator,
    with_link,
)
from cascade_sim.cascade.scorers import is_probability
from cascade_sim.foundation.errors import UserError
from cascade_sim.models.calibrators import CALIBRATORS
from cascade_sim.models.objectives import OBJECTIVES, make_objective
from cascade_sim.scenario.schema import ModelSpec
from cascade_sim.training.modules import build_module, make_scorer, served_scorer
from worlds.tiny_market import make_block

FEATURES = ("user", "context", "quality", "tier", "mismatch_pair", "G1", "G4")
RNG = np.random.default_rng(5)


@pytest.fixture(scope="module")
def block():
    return make_block(RNG.integers(0, 150, 40))


@pytest.fixture(scope="module")
def ids():
    return np.sort(np.stack([RNG.choice(600, 25, replace=False) for _ in range(40)]), axis=1).astype(np.int32)


def ranker(sim, kind="coaction", **spec):
    section = ModelSpec(kind=kind, features=FEATURES, hidden=16, dims=6, **spec)
    view = sim.view(section.features)
    module = build_module("rank", section, view, 7)
    with torch.no_grad():
        module.bias.fill_(-1.0)
    return section, view, module


@pytest.mark.parametrize("kind", ["coaction", "towers"])
@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_served_prediction_is_the_objectives_own(sim, block, ids, name, kind):
    """From the fused kernel, for the net of one head that serves."""
    section, view, module = ranker(
        sim, kind, objective=name, y0=0.2 if name == "calibrated_softmax" else None
    )
    scorer = served_scorer("rank", section, view, module)
    request = torch.from_numpy(view.request_features(block.users, block.context))
    with torch.no_grad():
        pair = torch.from_numpy(view.pair_features(block.users, ids))
        score = module(request, torch.from_numpy(view.ad_table[ids]), pair).reshape(-1, 1)
    objective = make_objective(name, **section.objective_options)
    expected = objective.predict(score) if objective.n_heads == 1 else torch.sigmoid(score[:, 0])
    assert scorer.predict(block, ids).ravel() == pytest.approx(expected.numpy(), rel=2e-4, abs=1e-7)
    assert is_probability(scorer)


def test_calibrated_softmax_is_served_as_y0_times_e_to_the_score_cut_at_1(sim, block, ids):
    _, view, module = ranker(sim)
    plain = make_scorer("rank", "logloss", view, module)
    scorer = with_link(plain, make_objective("calibrated_softmax", y0=3.0))
    score = plain.logit(block, ids).astype(np.float64)
    assert scorer.predict(block, ids) == pytest.approx(np.minimum(3.0 * np.exp(score), 1.0), rel=1e-5)
    assert (scorer.predict(block, ids) == 1.0).any() and (scorer.predict(block, ids) < 1.0).any()
    assert scorer.link == "capped_exp" and plain.link == "sigmoid"
    extreme = np.array([-1e4, 500.0], np.float32)
    assert make_objective("calibrated_softmax").probability(extreme).tolist() == [0.0, 1.0]
    softplus = make_objective("rcr_regression").probability(np.array([0.0, 90.0]))
    assert softplus.tolist() == [np.log(2), 1.0]


def test_an_objective_with_the_sigmoid_keeps_its_scorer(sim):
    _, view, module = ranker(sim)
    plain = make_scorer("rank", "logloss", view, module)
    for name in ("pointwise", "softmax", "rcr", "jrc", "sbcr"):
        assert with_link(plain, make_objective(name)) is plain


def fitted(name, scorer, block, ids):
    score = scorer.logit(block, ids).astype(np.float64)
    clicks = (RNG.random(score.shape) < 1 / (1 + np.exp(-2 * score))).astype(float)
    request = np.repeat(scorer.view.request_features(block.users, block.context), ids.shape[1], axis=0)
    options = {"hidden": (8,), "epochs": 2} if name == "piecewise_linear" else {}
    return CALIBRATORS[name].fit(score.ravel(), clicks.ravel(), request=request, **options)


@pytest.mark.parametrize("name", ["platt", "temperature", "isotonic", "beta", "piecewise_linear"])
def test_a_calibrator_keeps_the_order_within_every_request(sim, block, ids, name):
    _, view, module = ranker(sim)
    plain = make_scorer("rank", "logloss", view, module)
    scorer = with_calibrator(plain, fitted(name, plain, block, ids))
    score, predicted = plain.logit(block, ids), scorer.predict(block, ids)
    by_score = np.take_along_axis(predicted, np.argsort(score, axis=1), 1)
    assert (np.diff(by_score, axis=1) >= 0).all()
    assert np.abs(predicted - 1 / (1 + np.exp(-score))).max() > 0.01  # and it does change something
    assert predicted.dtype == np.float32 and scorer.module is module and scorer.name == "rank"


@pytest.mark.parametrize(("name", "rounding"), [("platt", 0), ("isotonic", 0), ("piecewise_linear", 1e-6)])
def test_a_score_is_mapped_whatever_else_is_in_its_block(sim, block, ids, name, rounding):
    """What looks at the request runs its features through a net, whose last bits follow the block's size."""
    _, view, module = ranker(sim)
    plain = make_scorer("rank", "logloss", view, module)
    scorer, score = with_calibrator(plain, fitted(name, plain, block, ids)), plain.logit(block, ids)
    rows = [slice(i, i + 1) for i in range(40)]
    alone = np.concatenate([scorer._probability(block.take(row), score[row]) for row in rows])
    assert alone == pytest.approx(scorer._probability(block, score), rel=rounding, abs=0)


def test_a_student_imitates_the_log_odds_of_what_is_served(sim, block, ids):
    _, view, module = ranker(sim)
    scorer = with_link(
        make_scorer("rank", "logloss", view, module), make_objective("calibrated_softmax", y0=0.2)
    )
    odds = scorer.log_odds(block, ids).astype(np.float64)
    assert 1 / (1 + np.exp(-odds)) == pytest.approx(scorer.predict(block, ids), rel=1e-5)


@pytest.mark.parametrize("name", CALIBRATORS)
def test_a_calibrator_comes_back_from_its_file_to_the_last_bit(sim, block, ids, name, tmp_path):
    _, view, module = ranker(sim)
    plain = make_scorer("rank", "logloss", view, module)
    made, path = fitted(name, plain, block, ids), tmp_path / "models" / "rank.calibrator.safetensors"
    export_calibrator(made, path)
    again = with_calibrator(plain, load_calibrator(path)).predict(block, ids)
    assert np.array_equal(again, with_calibrator(plain, made).predict(block, ids))
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    assert calibrator_file(tmp_path / "models" / "rank.safetensors") == path


def test_a_calibrator_that_is_missing_or_damaged_is_said_so(tmp_path):
    with pytest.raises(UserError, match="rank.calibrator.safetensors is missing"):
        load_calibrator(tmp_path / "rank.calibrator.safetensors")
    (tmp_path / "bad.safetensors").write_bytes(b"not a file of weights")
    with pytest.raises(UserError, match="bad.safetensors holds no calibrator"):
        load_calibrator(tmp_path / "bad.safetensors")
