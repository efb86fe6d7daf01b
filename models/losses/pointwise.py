"""Losses that judge each item by itself. A list's value is the sum over its items."""

from typing import Unpack

import torch
from torch.nn import functional

from cascade_sim.models.losses.call import Given, PerTerm, loss
from cascade_sim.models.losses.lists import Batch, make_batch, reduce_terms
from cascade_sim.models.losses.padded import item_sums


def examined_logloss(logit: torch.Tensor, click: torch.Tensor, examination: torch.Tensor) -> torch.Tensor:
    """Log loss of a click that needs an examined slot: P(click) = x * sigma(s); mean over samples.

    -[ y log sigma(s) + (1-y) log(1 - x sigma(s)) ], with
    log(1 - x sigma(s)) = softplus(s + log(1-x)) - softplus(s).  x = 1 is the ordinary log loss.
    The logit then means the CTR of a fully examined slot, whatever slots the log showed.
    """
    log_unseen = torch.log1p(-examination)  # -inf where x = 1: its softplus and the slope of that are 0
    clicked = functional.softplus(-logit)
    skipped = functional.softplus(logit) - functional.softplus(logit + log_unseen)
    return (click * clicked + (1 - click) * skipped).mean()


def from_items(terms: torch.Tensor, batch: Batch, **how: Unpack[PerTerm]) -> torch.Tensor:
    """The loss from its items' terms [N]."""
    return reduce_terms(item_sums(terms, batch), batch.scores.dtype, lambda: batch.sizes, **how)


def log_terms(scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """-[ y log sigma(s) + (1-y) log sigma(-s) ] of each item, exact in either tail.  [N]"""
    return -labels * functional.logsigmoid(scores) - (1 - labels) * functional.logsigmoid(-scores)


@loss
def squared(given: Given, **how: Unpack[PerTerm]) -> torch.Tensor:
    """Value of a list: 1/2 sum_i (y_i - s_i)^2; with each="mean" per item. Least at s_i = E[y_i].

    An empty list is 0.

    >>> round(squared(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[1.0, 0.0, 0.0]])).item(), 3)
    1.0
    """
    batch = make_batch(*given)
    terms = 0.5 * (batch.labels - batch.scores).square()
    return from_items(terms, batch, **how)


@loss
def logistic(given: Given, **how: Unpack[PerTerm]) -> torch.Tensor:
    """Value of a list: -sum_i y_i log sigma(s_i) + (1 - y_i) log sigma(-s_i); each="mean": per item.

    Labels in [0, 1], also between. Least at sigma(s_i) = E[y_i]. An empty list is 0.

    >>> round(logistic(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[1.0, 0.0, 0.0]])).item(), 3)
    2.133
    """
    batch = make_batch(*given, low=0, high=1)
    return from_items(log_terms(batch.scores, batch.labels), batch, **how)


@loss
def distill(given: Given, **how: Unpack[PerTerm]) -> torch.Tensor:
    """Value of a list: sum_i (s_i - t_i)^2 with the teacher's logits t as labels; each="mean": per item.

    An empty list is 0.

    >>> round(distill(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[1.5, 1.0, -1.0]])).item(), 3)
    1.25
    """
    batch = make_batch(*given)
    return from_items((batch.scores - batch.labels).square(), batch, **how)
