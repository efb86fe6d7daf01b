"""Losses of a stage that hands on a set, against plain loops in numpy, their gradients, and their limits."""

import math

import numpy as np
import pytest
import torch

from cascade_sim.models.losses import stages

RNG = np.random.default_rng(3)
SCORE, TARGET = RNG.normal(0, 2, (4, 9)), RNG.normal(0, 1, (4, 9))
LABEL = RNG.integers(1, 5, (4, 9))
BEST = np.sort(TARGET, axis=1)[:, [-3]] <= TARGET


def tensor(values):
    return torch.tensor(values, dtype=torch.float64, requires_grad=values.dtype == np.float64)


def by_hand_listwise(s, t, temperature):
    share = np.exp(t / temperature) / np.exp(t / temperature).sum()
    return sum(p * (math.log(np.exp(s).sum()) - s_j) for p, s_j in zip(share, s, strict=True))


def by_hand_infonce(s, best):
    others = np.exp(s[~best]).sum()
    return [math.log(others + math.exp(s_j)) - s_j for s_j in s[best]]


def by_hand_top_k(s, best, quota, temperature):
    ranked = np.sort(s)[::-1]
    theta = (ranked[quota - 1] + ranked[quota]) / 2
    inside = 1 / (1 + np.exp(-(s - theta) / temperature))
    return np.where(best, -np.log(inside), -np.log(1 - inside))


def by_hand_ndcg(s, label):
    gain = 2.0**label
    order = np.argsort(-s, kind="stable")
    discount = np.empty(len(s))
    discount[order] = 1 / np.log2(np.arange(len(s)) + 2)
    ideal = ((np.sort(gain)[::-1] - 2) / np.log2(np.arange(len(s)) + 2)).sum()
    total = 0.0
    for i in range(len(s)):
        for j in range(len(s)):
            if label[i] > label[j]:
                moved = abs(gain[i] - gain[j]) * abs(discount[i] - discount[j])
                total += moved * math.log1p(math.exp(s[j] - s[i]))
    return total / ideal


def by_hand_places(s, temperature):
    m = len(s)
    rows = []
    for k in range(1, m + 1):
        logit = np.array([(m + 1 - 2 * k) * s[j] - sum(abs(s - s[j])) for j in range(m)]) / temperature
        rows.append(np.exp(logit - logit.max()) / np.exp(logit - logit.max()).sum())
    return np.array(rows)


def by_hand_arf(s, target, k, quota, temperature, w):
    p, m = by_hand_places(s, temperature), len(s)
    a, b = p[:quota].sum(0) / (p.sum(0) + 1e-6), p[quota:].sum(0) / (p.sum(0) + 1e-6)
    order = np.argsort(-target)
    best = np.isin(np.arange(m), order[:k])
    relax = -np.where(best, np.log(a + 1e-6), np.log(b + 1e-6)).mean()
    whole = -sum(math.log(p[rank, order[rank]] + 1e-6) for rank in range(m)) / m**2
    return relax + whole / (2 * w * w) + math.log(w)


CASES = {
    "listwise": (
        lambda s: stages.listwise(s, tensor(TARGET), 0.7),
        lambda: np.mean([by_hand_listwise(*row, 0.7) for row in zip(SCORE, TARGET, strict=True)]),
    ),
    "infonce": (
        lambda s: stages.infonce(s, torch.tensor(BEST)),
        lambda: np.mean([by_hand_infonce(*row) for row in zip(SCORE, BEST, strict=True)]),
    ),
    "soft_top_k": (
        lambda s: stages.soft_top_k(s, torch.tensor(BEST), 4, 0.6),
        lambda: np.mean([by_hand_top_k(*row, 4, 0.6) for row in zip(SCORE, BEST, strict=True)]),
    ),
    "ndcg_pairs": (
        lambda s: stages.ndcg_pairs(s, torch.tensor(LABEL)),
        lambda: np.mean([by_hand_ndcg(*row) for row in zip(SCORE, LABEL, strict=True)]),
    ),
    "relaxed_recall": (
        lambda s: stages.relaxed_recall(s, tensor(TARGET), torch.tensor(math.log(1.7)), 3, 5, 8.0),
        lambda: np.mean([by_hand_arf(*row, 3, 5, 8.0, 1.7) for row in zip(SCORE, TARGET, strict=True)]),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_loss_is_its_formula(name):
    loss, by_hand = CASES[name]
    assert loss(tensor(SCORE)).item() == pytest.approx(float(by_hand()), rel=1e-6)


@pytest.mark.parametrize("name", ["listwise", "infonce", "soft_top_k"])
def test_a_gradient_is_that_of_the_value(name):
    """Where nothing is held fixed; of NDCG's weights and survival's sums a part is, on purpose."""
    assert torch.autograd.gradcheck(CASES[name][0], tensor(SCORE))


@pytest.mark.parametrize("name", CASES)
def test_a_step_against_the_gradient_lowers_a_loss(name):
    loss, score = CASES[name][0], tensor(SCORE)
    (slope,) = torch.autograd.grad(loss(score), score)
    assert torch.isfinite(slope).all() and slope.abs().max() > 0
    assert loss(score - 1e-3 * slope) < loss(score)


@pytest.mark.parametrize("name", CASES)
def test_no_loss_sees_a_shift_of_all_scores_of_a_list(name):
    loss = CASES[name][0]
    shift = torch.tensor([[3.0], [-2.0], [0.5], [40.0]])
    assert float(loss(tensor(SCORE) + shift)) == pytest.approx(float(loss(tensor(SCORE))), rel=1e-9)


def test_a_soft_permutation_becomes_the_order_of_the_scores_when_it_is_cold():
    places = stages.neural_sort(tensor(SCORE), 1e-4).detach().numpy()
    assert np.array_equal(places.argmax(axis=2), np.argsort(-SCORE, axis=1))
    assert places.sum(axis=2) == pytest.approx(1.0)
    inside, behind = stages.survival(torch.tensor(places), 4)
    rank = np.argsort(np.argsort(-SCORE, axis=1), axis=1)
    assert inside.numpy() == pytest.approx((rank < 4).astype(float), abs=1e-5)
    assert (inside + behind).numpy() == pytest.approx(1.0, abs=1e-5)


def test_extreme_scores_and_lists_without_a_choice_stay_finite():
    far = torch.tensor([[1e4, -1e4, 0.0, 3.0]], requires_grad=True)
    best = torch.tensor([[True, False, False, False]])
    for value in (
        stages.listwise(far, far.detach(), 1e-3),
        stages.infonce(far, best),
        stages.infonce(far, ~best | True),  # all of them are the best: no others
        stages.soft_top_k(far, best, 4),
        stages.soft_top_k(far, best, 1, 1e-3),
        stages.ndcg_pairs(far, torch.tensor([[127, 1, 1, 1]], dtype=torch.int8)),
        stages.ndcg_pairs(far, torch.ones((1, 4), dtype=torch.int8)),
        stages.relaxed_recall(far, far.detach(), torch.zeros(()), 1, 2, 1.0),
    ):
        (slope,) = torch.autograd.grad(value, far, retain_graph=True)
        assert torch.isfinite(value) and torch.isfinite(slope).all()
    assert float(stages.infonce(far, ~best | True)) == 0.0


def test_the_best_are_as_many_as_asked_also_where_targets_are_equal():
    equal = torch.zeros((3, 6))
    assert stages.best_of(equal, 2).sum(dim=1).tolist() == [2, 2, 2]
    assert stages.best_of(equal, 99).all()
