import math

import numpy as np
import pytest
import torch
from torch.nn import functional

from cascade_sim.models.losses import chunked_ranknet, distill, examined_logloss


def doubles(*values):
    return torch.tensor(values, dtype=torch.float64)


def naive_logloss(s, y, x):
    p = 1 / (1 + math.exp(-s))
    return -(y * math.log(p) + (1 - y) * math.log(1 - x * p))


def test_the_examined_log_loss_is_its_formula():
    rng = np.random.default_rng(0)
    s, y, x = rng.normal(0, 3, 50), rng.integers(0, 2, 50), rng.uniform(0.05, 1, 50)
    found = examined_logloss(*(torch.from_numpy(np.asarray(a, np.float64)) for a in (s, y, x)))
    assert found.item() == pytest.approx(np.mean([naive_logloss(*t) for t in zip(s, y, x, strict=True)]))


@pytest.mark.parametrize("scale", [1.0, 200.0])
def test_in_a_fully_examined_slot_it_is_the_ordinary_log_loss_and_so_is_its_gradient(scale):
    s = scale * torch.linspace(-1, 1, 41)
    y = torch.arange(41).remainder(2).float()
    a, b = s.clone().requires_grad_(), s.clone().requires_grad_()
    mine, theirs = examined_logloss(a, y, torch.ones(41)), functional.binary_cross_entropy_with_logits(b, y)
    mine.backward()
    theirs.backward()
    assert mine.item() == pytest.approx(theirs.item(), rel=1e-5)
    assert a.grad.numpy() == pytest.approx(b.grad.numpy(), abs=1e-7)


@pytest.mark.parametrize("s", [-200.0, 200.0])
@pytest.mark.parametrize("y", [0.0, 1.0])
@pytest.mark.parametrize("x", [1.0, 0.6, 1e-6])
def test_extreme_logits_give_finite_losses_and_gradients(s, y, x):
    logit = torch.tensor([s], requires_grad=True)
    loss = examined_logloss(logit, torch.tensor([y]), torch.tensor([x]))
    loss.backward()
    assert math.isfinite(loss.item()) and math.isfinite(logit.grad.item())


def test_a_sure_prediction_that_is_wrong_still_has_a_slope():
    logit = torch.tensor([80.0], requires_grad=True)
    loss = examined_logloss(logit, torch.zeros(1), torch.ones(1))
    loss.backward()
    assert loss.item() == pytest.approx(80.0) and logit.grad.item() == pytest.approx(1.0)


def test_the_gradient_of_the_examined_log_loss():
    rng = np.random.default_rng(1)
    s = torch.from_numpy(rng.normal(0, 4, 12)).requires_grad_()
    y, x = torch.from_numpy(rng.integers(0, 2, 12).astype(float)), torch.from_numpy(rng.uniform(0.1, 1, 12))
    x[:3] = 1.0
    assert torch.autograd.gradcheck(lambda t: examined_logloss(t, y, x), s)


def test_the_log_loss_is_least_at_the_true_ctr_whatever_slots_were_shown():
    """Clicks at rate x * 0.2: the best constant logit is that of 0.2, not of the slots' click rate."""
    x = doubles(1.0, 0.5, 0.25)
    grid = torch.linspace(-4, 2, 601, dtype=torch.float64)
    y = 0.2 * x  # the expected loss is linear in the click, so expected clicks will do
    best = grid[torch.stack([examined_logloss(s.expand(3), y, x) for s in grid]).argmin()]
    assert torch.sigmoid(best).item() == pytest.approx(0.2, abs=0.002)


def test_distillation_is_the_squared_difference_of_logits():
    student, teacher = doubles(1, 2, 5), doubles(1, 0, 2)
    assert distill(student, teacher, [0, 3]).item() == 0 + 4 + 9
    assert distill(student, teacher, [0, 3], each="mean").item() == pytest.approx((0 + 4 + 9) / 3)
    rows = distill(student.expand(2, 3), teacher.expand(2, 3), reduction="none")
    assert rows.tolist() == [13, 13]


def test_ranknet_between_chunks_counts_pairs_of_different_chunks_once():
    score, chunk = doubles(0, 0, 0, 0), torch.tensor([1, 1, 2, 5], dtype=torch.int8)
    assert chunked_ranknet(score, chunk, [0, 4]).item() == pytest.approx((4 + 1) * math.log(2))
    assert chunked_ranknet(score, chunk, [0, 4], each="mean").item() == pytest.approx(math.log(2))


def test_without_an_ordered_pair_ranknet_between_chunks_is_0():
    torch.manual_seed(1)
    for shape in [(3, 1), (3, 4), (0, 4)]:
        tied = torch.ones(shape, dtype=torch.int8)
        assert chunked_ranknet(torch.randn(shape), tied).item() == 0
        assert chunked_ranknet(torch.randn(shape), tied, each="mean").item() == 0


def test_a_pair_in_the_wrong_order_costs_its_distance_however_far():
    extreme = torch.tensor([[200.0, -200.0]], requires_grad=True)
    loss = chunked_ranknet(extreme, torch.tensor([[1, 2]]))
    loss.backward()
    assert loss.item() == pytest.approx(400) and extreme.grad.tolist() == [[1.0, -1.0]]
