"""Softmax losses of float32 scores: exponentials in float32, as near to float64 as float32 can tell."""

import numpy as np
import pytest
import torch

from cascade_sim.models.losses import LOSSES, kernels_lists

EPS = float(np.finfo(np.float32).eps)


@pytest.mark.parametrize("y0", [0.0, 0.5])
@pytest.mark.parametrize("spread", [0.1, 3.0, 60.0])
@pytest.mark.parametrize("size", [1, 7, 8, 100, 20_000])
def test_values_and_slopes_are_those_of_float64_within_float32_rounding(size, spread, y0):
    generator = np.random.default_rng(size)
    lists = np.array([0, size, size, 3 * size])
    scores = generator.normal(5, spread, 3 * size).astype(np.float32)
    labels = generator.choice(5, 3 * size, p=(0.5, 0.3, 0.14, 0.04, 0.02)).astype(np.float32)
    value, slope = kernels_lists.softmax_lists_float32(scores, labels, lists, y0)
    exact, exact_slope = kernels_lists.softmax_lists(
        scores.astype(np.float64), labels.astype(np.float64), lists, y0
    )
    assert slope.dtype == np.float32 and value.dtype == np.float64
    assert value == pytest.approx(exact, rel=4 * EPS, abs=1e-6)
    share = np.abs(exact_slope + labels) + labels  # the two parts that a slope is the difference of
    rounded = 8 + np.ptp(scores)  # a difference of scores is rounded before its exponential
    assert (np.abs(slope - exact_slope) <= rounded * EPS * share + 1e-30).all()


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("y0", [0.0, 1.0])
def test_a_list_that_is_not_finite_spoils_no_other(wrong, y0):
    scores = np.array([1, wrong, 2, 0.5, 1.5], np.float32)
    labels, lists = np.array([1, 0, 0, 1, 0], np.float32), np.array([0, 3, 5])
    value, slope = kernels_lists.softmax_lists_float32(scores, labels, lists, y0)
    assert np.isnan(value[0]) and np.isnan(slope[:3]).all()
    assert np.isfinite(value[1]) and np.isfinite(slope[3:]).all()


def test_huge_scores_are_worked_in_float64():
    scores = np.array([3e38, -3e38, 0, 2e38], np.float32)
    value, slope = kernels_lists.softmax_lists_float32(
        scores, np.array([0, 0, 0, 1], np.float32), np.array([0, 4]), 0.0
    )
    assert value[0] == pytest.approx(1e38) and slope.tolist() == [1, 0, 0, -1]


@pytest.mark.parametrize("name", ["softmax", "calibrated_softmax", "list_ce", "rcr"])
def test_float32_losses_keep_near_the_formula_in_float64(name):
    generator = np.random.default_rng(1)
    scores = torch.from_numpy(generator.normal(0, 3, 120).astype(np.float32)).requires_grad_()
    wide = scores.detach().double().requires_grad_()
    labels = torch.from_numpy((generator.random(120) < 0.2).astype(np.float32))
    lists = np.array([0, 50, 50, 51, 120])
    value, exact = LOSSES[name](scores, labels, lists), LOSSES[name](wide, labels, lists, engine="torch")
    value.backward()
    exact.backward()
    assert value.dtype == scores.grad.dtype == torch.float32
    assert value.item() == pytest.approx(exact.item(), rel=1e-6)
    assert scores.grad.numpy() == pytest.approx(wide.grad.numpy(), rel=1e-5, abs=1e-6)
