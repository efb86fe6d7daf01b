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


MEANS = [("softmax", {}), ("softmax", {"each": "mean"}), ("list_ce", {"transform": "exp"}),
         ("calibrated_softmax", {"y0": 0.3}),
         ("calibrated_softmax", {"y0": 0.3, "each": "mean"})]  # fmt: skip


@pytest.mark.parametrize(("name", "options"), MEANS)
@pytest.mark.parametrize("factor", [1.0, 0.3])
def test_a_mean_made_in_one_step_has_the_slopes_of_the_mean_of_the_lists_to_the_bit(name, options, factor):
    generator = np.random.default_rng(3)
    lists = np.array([0, 9, 9, 10, 43, 90])
    start = torch.from_numpy(generator.normal(0, 3, 90).astype(np.float32))
    labels = torch.from_numpy(generator.random(90).astype(np.float32))
    labels[10:43] = 0
    whole, by_list = (start.clone().requires_grad_() for _ in range(2))
    value = LOSSES[name](whole, labels, lists, **options)
    weight = torch.ones(5)  # lists of weight 1 are put together by torch
    expected = LOSSES[name](by_list, labels, lists, weight=weight, **options)
    (value * factor).backward()
    (expected * factor).backward()
    assert value.dtype == torch.float32 and value.item() == pytest.approx(expected.item(), rel=2 * EPS)
    assert torch.equal(whole.grad, by_list.grad)


@pytest.mark.parametrize(("name", "options"), MEANS)
def test_nothing_of_torch_stands_between_the_scores_and_their_mean_loss(name, options):
    """Of a small batch those calls would take longer than the loss."""
    scores = torch.tensor([0.5, -1.0, 2.0], requires_grad=True)
    step = LOSSES[name](scores, torch.tensor([1.0, 0.0, 0.0]), [0, 2, 3], **options).grad_fn
    assert [before.name() for before, _ in step.next_functions if before] == [
        "torch::autograd::AccumulateGrad"
    ]


def test_a_mean_of_no_lists_is_0_and_one_that_is_not_finite_spoils_no_other():
    assert LOSSES["softmax"](torch.zeros(0), torch.zeros(0), [0]).item() == 0
    scores = torch.tensor([1.0, np.nan, 0.5, 1.5], requires_grad=True)
    value = LOSSES["softmax"](scores, torch.tensor([1.0, 0, 1, 0]), [0, 2, 4])
    value.backward()
    assert value.isnan() and scores.grad[:2].isnan().all() and scores.grad[2:].isfinite().all()


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("labels", "lists", "is_right"),
    [([0, 1, 0.5], [0, 1, 3], True), ([], [0], True), 
     ([0, 1, 1.5], [0, 3], False), ([0, -0.1], [0, 2], False),
     ([0, np.nan], [0, 2], False), ([np.inf, 0], [0, 2], False), ([0, 1], [0, 1], False),
     ([0, 1], [1, 2], False), ([0, 1], [0, 3, 1, 2], False), ([0, 1], [], False)],
)  # fmt: skip
def test_one_look_finds_every_fault_of_labels_and_offsets(labels, lists, is_right, kind):
    given = np.array(labels, kind), np.array(lists, np.int64)
    assert kernels_lists.is_sound(*given, 0.0, 1.0) is is_right


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_labels_without_bounds_are_finite_all_the_same(wrong):
    lists = np.array([0, 2])
    assert kernels_lists.is_sound(np.array([-3e38, 3e38], np.float32), lists, -np.inf, np.inf)
    assert not kernels_lists.is_sound(np.array([0, wrong], np.float32), lists, -np.inf, np.inf)
