"""Losses of several stages at once, against plain loops in numpy, and what they reduce to."""

import math

import numpy as np
import pytest
import torch

from cascade_sim.models.losses import stages

RNG = np.random.default_rng(11)
N_LISTS, M = 3, 9
SCORES = RNG.normal(0, 2, (3, N_LISTS, M))
TARGET = RNG.normal(0, 1, (N_LISTS, M))
K, QUOTAS, TEMPERATURE, WEIGHTS = 2, (6, 4, 3), 8.0, (1.0, 1.7, 0.6)


def tensors(values=SCORES):
    return [torch.tensor(each, dtype=torch.float64, requires_grad=True) for each in values]


def best(target, k):
    return np.isin(np.arange(len(target)), np.argsort(-target)[:k])


def places(s):
    rows = []
    for rank in range(1, M + 1):
        logit = np.array([(M + 1 - 2 * rank) * s[j] - sum(abs(s - s[j])) for j in range(M)]) / TEMPERATURE
        rows.append(np.exp(logit - logit.max()) / np.exp(logit - logit.max()).sum())
    return np.array(rows)


def by_hand_lcron(scores, target):
    """One list: log loss of the product over stages, and each stage's own, weighted."""
    y, total = best(target, K), 0.0
    passed, not_stopped = np.ones(M), np.ones(M)
    for s, quota, w in zip(scores, QUOTAS, WEIGHTS, strict=True):
        p = places(s)
        for j in range(M):
            inside = sum(p[r, j] for r in range(quota)) / (sum(p[r, j] for r in range(M)) + 1e-6)
            behind = sum(p[r, j] for r in range(quota, M)) / (sum(p[r, j] for r in range(M)) + 1e-6)
            passed[j] *= inside
            not_stopped[j] *= 1 - behind
            own = -math.log((inside if y[j] else behind) + 1e-6)
            total += own / M / (2 * w * w)
        total += math.log(w)
    for j in range(M):
        total -= math.log(passed[j] + 1e-6) / M if y[j] else math.log(1 - not_stopped[j] + 1e-6) / M
    return total


def bce(s, y):
    return [
        math.log1p(math.exp(-s_j)) if y_j else math.log1p(math.exp(s_j))
        for s_j, y_j in zip(s, y, strict=True)
    ]


def by_hand_imitation(s, later, positives, negatives, weight):
    order = np.argsort(-later)
    gap = s[order[:positives]].mean() - s[order[-negatives:]].mean()
    return np.mean((s - later) ** 2) + weight * math.log1p(math.exp(-gap))


def by_hand_rankflow(scores, target, positives, negatives, weight):
    """One list: what a stage hands on is what the next one learns from."""
    y, listed, total = best(target, K), list(range(M)), 0.0
    for at, quota in enumerate(QUOTAS):
        s = scores[at][listed]
        total += np.mean(bce(s, y[listed]))
        if at + 1 < len(QUOTAS):
            listed = [listed[place] for place in np.argsort(-s)[:quota]]
            later = scores[at + 1][listed]
            total += by_hand_imitation(scores[at][listed], later, positives, negatives, weight)
    return total


def lcron(scores, quotas=QUOTAS, weights=WEIGHTS):
    log_weights = [torch.tensor(math.log(w), dtype=torch.float64) for w in weights]
    options = {"k": K, "temperature": TEMPERATURE, "log_weights": log_weights}
    return stages.lcron(scores, torch.tensor(TARGET), quotas, **options)


def rankflow(scores, quotas=QUOTAS, weight=0.7):
    options = {"k": K, "positives": 2, "negatives": 3, "weight": weight}
    return stages.rankflow(scores, torch.tensor(TARGET), quotas, **options)


def test_lcron_is_its_formula():
    expected = np.mean([by_hand_lcron(SCORES[:, i], TARGET[i]) for i in range(N_LISTS)])
    assert lcron(tensors()).item() == pytest.approx(float(expected), rel=1e-9)


def test_rankflow_is_its_formula():
    expected = np.mean([by_hand_rankflow(SCORES[:, i], TARGET[i], 2, 3, 0.7) for i in range(N_LISTS)])
    assert rankflow(tensors()).item() == pytest.approx(float(expected), rel=1e-9)


def test_a_stage_of_rankflow_learns_by_what_is_there_of_it_in_the_whole():
    first, second = tensors(SCORES[:2])
    whole = rankflow([first, second], QUOTAS[:2])
    part = stages.rankflow_of_stage(first, second, torch.tensor(TARGET), QUOTAS[0], K, 2, 3, 0.7)
    kept = first.topk(QUOTAS[0], dim=1).indices
    y = stages.best_of(torch.tensor(TARGET), K).gather(1, kept).double()
    last = torch.nn.functional.binary_cross_entropy_with_logits(second.gather(1, kept), y)
    assert whole.item() == pytest.approx((part + last).item(), rel=1e-12)


def test_the_teacher_of_a_stage_is_not_moved_by_it():
    first, second, _ = scores = tensors()
    (slope,) = torch.autograd.grad(rankflow(scores, weight=0.0), second, retain_graph=True)
    own = stages.rankflow([second.gather(1, first.topk(6, dim=1).indices)], torch.tensor(TARGET).gather(
        1, first.topk(6, dim=1).indices), [4], k=K, positives=2, negatives=3, weight=0.0)  # fmt: skip
    assert torch.isfinite(slope).all() and own.item() > 0
    left_out = torch.ones_like(slope, dtype=torch.bool).scatter(1, first.topk(6, dim=1).indices, False)
    assert slope[left_out].abs().max() == 0 < slope[~left_out].abs().min()  # nothing of what it is not handed


def test_of_a_single_stage_lcron_is_twice_its_soft_recall_with_weights_of_one():
    (score,) = tensors(SCORES[:1])
    is_best = stages.best_of(torch.tensor(TARGET), K)
    recall = stages.soft_recall(stages.neural_sort(score, TEMPERATURE), is_best, QUOTAS[0])
    assert lcron([score], QUOTAS[:1], (1.0,)).item() == pytest.approx(1.5 * recall.item(), rel=1e-4)


@pytest.mark.parametrize("loss", [lcron, rankflow])
def test_a_step_against_the_gradient_lowers_the_loss_of_every_stage(loss):
    for at in range(3):
        scores = tensors()
        (slope,) = torch.autograd.grad(loss(scores), scores[at])
        assert torch.isfinite(slope).all() and slope.abs().max() > 0
        moved = [score - 1e-3 * slope if i == at else score for i, score in enumerate(scores)]
        assert loss(moved) < loss(scores)


def test_what_another_stage_stops_need_not_be_stopped_here():
    """The product: of ads that are none of the best it is enough if one stage stops them."""
    target = torch.tensor([[5.0, 4.0, 1.0, 0.0]])
    good, bad = torch.tensor([[3.0, 2.0, -2.0, -3.0]]), torch.tensor([[-3.0, -2.0, 2.0, 3.0]])
    is_best = stages.best_of(target, 2)
    pushes = []
    for other in (good, bad):
        own = bad.clone().requires_grad_()
        weights = [torch.zeros(()), torch.zeros(())]
        loss = stages.lcron([own, other], target, (2, 2), k=2, temperature=6.0, log_weights=weights)
        recall = sum(stages.soft_recall(stages.neural_sort(score, 6.0), is_best, 2) for score in (own, other))
        passed = stages.survival(stages.neural_sort(own, 6.0), 2)[0]
        of_best = -torch.log(passed[is_best] + 1e-6).sum() / 4  # what the product says of those
        (slope,) = torch.autograd.grad(loss - 0.5 * recall - of_best, own)
        pushes.append(slope.abs().sum().item())
    assert 0 < pushes[0] < 0.5 * pushes[1]
