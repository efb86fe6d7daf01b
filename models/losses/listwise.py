"""Losses on a list as a whole, and those that join them with a loss on single items."""

from collections.abc import Callable
from typing import Unpack

import numpy as np
import torch
from torch.nn import functional

from cascade_sim.models.known import check_known
from cascade_sim.models.losses import engine as loss_engine
from cascade_sim.models.losses.call import Given, PerList, PerTerm, loss
from cascade_sim.models.losses.lists import (
    EACH,
    Batch,
    make_batch,
    reduce,
    reduce_terms,
)
from cascade_sim.models.losses.padded import item_sums
from cascade_sim.models.losses.pointwise import log_terms


@loss
def softmax(given: Given, *, engine: str = "auto", **how: Unpack[PerTerm]) -> torch.Tensor:
    """Value of a list: -sum_i y_i log softmax(s)_i; with each="mean" divided by sum_i y_i. Labels >= 0.

    0 for a list without positives, of one item or empty. Does not see s -> s + w.

    >>> round(softmax(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[1.0, 0.0, 0.0]])).item(), 3)
    0.408
    """
    return loss_engine.softmax_loss(make_batch(*given, low=0), engine, **how)


@loss
def calibrated_softmax(
    given: Given, *, y0: float = 1.0, engine: str = "auto", **how: Unpack[PerTerm]
) -> torch.Tensor:
    """Softmax with a virtual item of score 0 and label y0 > 0 in every list.

    Value of a list: -sum_i y_i s_i + (y0 + sum_i y_i) log(1 + sum_j e^(s_j)); with each="mean" divided by
    y0 + sum_i y_i. Labels >= 0. Least at y0 e^(s_i) = E[y_i]: its link is y0 e^s, not the sigmoid.
    Without positives it still pushes scores down; an empty list is 0.

    >>> scores, labels = torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[1.0, 0.0, 0.0]])
    >>> round(calibrated_softmax(scores, labels, y0=1.0).item(), 3)
    2.988
    """
    if not y0 > 0:
        raise ValueError(f"y0 must be greater than 0, not {y0}")
    return loss_engine.softmax_loss(make_batch(*given, low=0), engine, anchor=y0, **how)


def _log_softplus(scores: torch.Tensor) -> torch.Tensor:
    """log log(1 + e^s), which for very negative s is s - e^s / 2 and no longer log of an underflow."""
    is_low = scores < -15
    usual = torch.log(functional.softplus(scores.masked_fill(is_low, 0)))
    return torch.where(is_low, scores - 0.5 * torch.exp(scores.clamp(max=0)), usual)


LOG_TRANSFORMS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "exp": lambda scores: scores,
    "sigmoid": functional.logsigmoid,
    "softplus": _log_softplus,
}


def _logs(batch: Batch, transform: str) -> Batch:
    """The same lists with scores log T(s): a list_ce is a softmax loss of these."""
    check_known("transform", transform, LOG_TRANSFORMS)
    return Batch(LOG_TRANSFORMS[transform](batch.scores), batch.labels, batch.lists)


def _list_ce(batch: Batch, transform: str, engine: str, normalisation: str) -> torch.Tensor:
    """The lists' values, per unit of label unless the normalisation is "sum".  [L]"""
    check_known("normalisation", normalisation, EACH)
    values = loss_engine.softmax_lists(_logs(batch, transform), engine)
    return loss_engine.per_label(values, batch) if normalisation == "mean" else values


@loss
def list_ce(
    given: Given, *, transform: str = "sigmoid", engine: str = "auto", **how: Unpack[PerList]
) -> torch.Tensor:
    """Value of a list: -(1/C) sum_i y_i log(T(s_i) / sum_j T(s_j)), C = sum_i y_i. Labels >= 0.

    transform T: exp (then it is the softmax loss over C), sigmoid, softplus. Least where T(s) is
    proportional to E[y]. 0 for a list without positives, of one item or empty.

    >>> scores, labels = torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[1.0, 0.0, 0.0]])
    >>> round(list_ce(scores, labels, transform="sigmoid").item(), 3)
    0.874
    """
    batch = _logs(make_batch(*given, low=0), transform)
    return loss_engine.softmax_loss(batch, engine, each="mean", **how)


@loss
def approx_ndcg(
    given: Given, *, beta: float = 10.0, engine: str = "auto", **how: Unpack[PerList]
) -> torch.Tensor:
    """Value of a list: -(1/DCG_ideal) sum_i (2^y_i - 1) / log2(1 + r_i), smooth NDCG with a minus.

    r_i = 1 + sum_{j != i} sigma(beta (s_j - s_i)) is the smooth rank. The value is in [-1, 0];
    labels >= 0. Greater beta: nearer to NDCG, with fewer slopes. 0 for a list without positives or empty, -1
    for one positive item alone. Does not see s -> s + w.

    >>> scores, labels = torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[1.0, 0.0, 0.0]])
    >>> round(approx_ndcg(scores, labels, beta=10.0).item(), 3)
    -1.0
    """
    if not (beta > 0 and np.isfinite(beta)):
        raise ValueError(f"beta must be greater than 0, not {beta}")
    batch = make_batch(*given, low=0)
    values = loss_engine.approx_ndcg_lists(batch, beta, engine)
    return reduce(values, batch.scores.dtype, **how)


def check_alpha(alpha: float) -> None:
    if not 0 <= alpha <= 1:
        raise ValueError(f"alpha must be in [0, 1], not {alpha}")


@loss
def jrc(given: Given, *, alpha: float = 0.5, engine: str = "auto", **how: Unpack[PerTerm]) -> torch.Tensor:
    """Joint ranking and calibration with two logits per item: scores [N, 2] = f_0, f_1; p = sigma(f_1 - f_0).

    Value of a list: sum_i alpha LogLoss(p_i, y_i) - (1 - alpha) log softmax(f_y)_i, where the softmax of the
    logits of class y_i is over the list; each="mean": per item. Labels in [0, 1]; one between counts for
    both classes in that proportion.
    An empty list is 0. Adding one number to all f_0 and another to all f_1 moves the log loss alone.

    >>> logits, clicks = torch.tensor([[0.0, 2.0], [0.0, 1.0]]), torch.tensor([1.0, 0.0])
    >>> round(jrc(logits, clicks, torch.tensor([0, 2])).item(), 3)
    1.223
    """
    check_alpha(alpha)
    batch = make_batch(*given, low=0, high=1, columns=2)
    f_0, f_1 = batch.scores.unbind(1)
    point = item_sums(log_terms(f_1 - f_0, batch.labels), batch)
    clicked = loss_engine.softmax_lists(Batch(f_1, batch.labels, batch.lists), engine)
    skipped = loss_engine.softmax_lists(Batch(f_0, 1 - batch.labels, batch.lists), engine)
    values = alpha * point + (1 - alpha) * (clicked + skipped)
    return reduce_terms(values, batch.scores.dtype, lambda: batch.sizes, **how)


@loss
def rcr(
    given: Given,
    *,
    alpha: float = 0.5,
    normalisation: str = "mean",
    engine: str = "auto",
    **how: Unpack[PerList],
) -> torch.Tensor:
    """Regression compatible ranking. Value of a list: (1 - alpha) logistic + alpha list_ce(sigmoid).

    Labels in [0, 1]. Both parts are least at sigma(s_i) = E[y_i]. An empty list is 0.
    With normalisation="sum" the ranking part is not divided by C = sum_i y_i, as `softmax` is not.

    >>> round(rcr(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[1.0, 0.0, 0.0]]), alpha=0.5).item(), 3)
    1.504
    """
    check_alpha(alpha)
    batch = make_batch(*given, low=0, high=1)
    point = item_sums(log_terms(batch.scores, batch.labels), batch)
    values = (1 - alpha) * point + alpha * _list_ce(batch, "sigmoid", engine, normalisation)
    return reduce(values, batch.scores.dtype, **how)


@loss
def rcr_regression(
    given: Given,
    *,
    alpha: float = 0.5,
    normalisation: str = "mean",
    engine: str = "auto",
    **how: Unpack[PerList],
) -> torch.Tensor:
    """`rcr` for labels >= 0.

    Value of a list: (1 - alpha) sum_i (softplus(s_i) - y_i)^2 + alpha list_ce(softplus).

    Both parts are least at softplus(s_i) = E[y_i]. An empty list is 0. normalisation as for `rcr`.

    >>> scores, labels = torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[1.0, 0.0, 0.0]])
    >>> round(rcr_regression(scores, labels, alpha=0.5).item(), 3)
    2.07
    """
    check_alpha(alpha)
    batch = make_batch(*given, low=0)
    point = item_sums((functional.softplus(batch.scores) - batch.labels).square(), batch)
    values = (1 - alpha) * point + alpha * _list_ce(batch, "softplus", engine, normalisation)
    return reduce(values, batch.scores.dtype, **how)
