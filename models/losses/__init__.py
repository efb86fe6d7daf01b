"""Losses: loss(scores, labels, lists, *, weight=None, reduction="mean", ...).

scores [N] and labels [N] are flat, `lists` [L + 1] = [0, n_1, n_1 + n_2, ...] says where each list starts and
the last ends; without `lists` each row of [L, m] is one. `from_padded` makes them from rows and a mask.

- What one list's value is, each loss says: by default the sum of its terms; each="mean" is the mean of them.
- reduction: none (the lists' values [L]), sum, mean over lists. The mean of no lists is 0.
- weight [L] >= 0: a list of weight k counts as k such lists. Weights of items belong in the labels.
- Labels and weights must be finite and offsets whole: ValueError otherwise, which names the fault. A NaN
  score makes NaN of the value of its own list and touches no other.
- engine: auto, fused, torch. On the CPU the losses on pairs and lists run in fused kernels, in float64 and in
  an order that depends on nothing else, and are differentiable once; torch works on every device, and is
  differentiable twice.

Two lists, of three items and of two:

>>> scores = torch.tensor([2.0, 1.0, 0.0, 1.0, 1.0], requires_grad=True)
>>> clicks, lists = torch.tensor([1.0, 0.0, 0.0, 0.0, 1.0]), torch.tensor([0, 3, 5])
>>> [round(value, 3) for value in softmax(scores, clicks, lists, reduction="none").tolist()]
[0.408, 0.693]
>>> loss = softmax(scores, clicks, lists)
>>> loss.backward()
>>> round(loss.item(), 3), [round(slope, 3) for slope in scores.grad.tolist()]
(0.55, [-0.167, 0.122, 0.045, 0.25, -0.25])
>>> round(LOSSES["logistic"](scores, clicks, lists, each="mean").item(), 3)
0.762
"""

from collections.abc import Callable

import torch

from cascade_sim.models.losses.lists import from_padded
from cascade_sim.models.losses.listwise import (
    approx_ndcg,
    calibrated_softmax,
    jrc,
    list_ce,
    rcr,
    rcr_regression,
    softmax,
)
from cascade_sim.models.losses.pairwise import (
    calibrated_ranknet,
    chunked_ranknet,
    ordered_pairs,
    ranknet,
    self_boosted_pair,
)
from cascade_sim.models.losses.pointwise import distill, examined_logloss, logistic, squared
from cascade_sim.models.losses.templates import (
    bregman,
    pairwise_exponential,
    pairwise_logistic,
    pairwise_squared,
    pointwise_differentiable_hinge,
    pointwise_exponential,
    pointwise_logistic,
    pointwise_square_hinge,
    pointwise_squared,
)

LOSSES: dict[str, Callable[..., torch.Tensor]] = {
    "squared": squared,
    "logistic": logistic,
    "ranknet": ranknet,
    "softmax": softmax,
    "approx_ndcg": approx_ndcg,
    "list_ce": list_ce,
    "calibrated_softmax": calibrated_softmax,
    "calibrated_ranknet": calibrated_ranknet,
    "jrc": jrc,  # scores [N, 2]
    "rcr": rcr,
    "rcr_regression": rcr_regression,
    "self_boosted_pair": self_boosted_pair,  # needs dumped_scores and dumped_labels
    "distill": distill,
    "chunked_ranknet": chunked_ranknet,
    "ordered_pairs": ordered_pairs,
    "pointwise_squared": pointwise_squared,
    "pointwise_logistic": pointwise_logistic,
    "pointwise_exponential": pointwise_exponential,
    "pointwise_square_hinge": pointwise_square_hinge,
    "pointwise_differentiable_hinge": pointwise_differentiable_hinge,
    "pairwise_squared": pairwise_squared,
    "pairwise_logistic": pairwise_logistic,
    "pairwise_exponential": pairwise_exponential,
    "bregman": bregman,
}

__all__ = ["LOSSES", "examined_logloss", "from_padded", *LOSSES]
