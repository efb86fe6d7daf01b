"""Losses on pairs of a list: one engine, a phi for what a pair costs, a virtual item for the scale.

An empty list, a list of one item and a list of equal labels have no pair: their value and slopes are 0.
"""

from typing import Unpack

import numpy as np
import torch

from cascade_sim.models.losses import engine as loss_engine
from cascade_sim.models.losses.call import Given, PerTerm, loss
from cascade_sim.models.losses.lists import (
    Batch,
    Offsets,
    check_labels,
    make_batch,
    reduce_terms,
    with_anchor,
)


def _ordered(batch: Batch, phi: str, engine: str, **how: Unpack[PerTerm]) -> torch.Tensor:
    values = loss_engine.pairs(batch, phi, is_ordered=True, engine=engine)
    return reduce_terms(values, batch.scores.dtype, lambda: loss_engine.ordered_pair_counts(batch), **how)


@loss
def ordered_pairs(
    given: Given, *, phi: str = "logistic", engine: str = "auto", **how: Unpack[PerTerm]
) -> torch.Tensor:
    """Value of a list: sum over y_i > y_j of phi(s_i - s_j); with each="mean" per such pair.

    phi(d): logistic log(1 + e^-d), exponential e^-d, squared (1 - d)^2, squared_hinge max(0, 1 - d)^2.
    All but the logistic take O(n log n) on the CPU. The exponential overflows to inf where its value does:
    from a difference of 88 on in float32, of 709 in float64.

    >>> scores, labels = torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[1.0, 0.0, 0.0]])
    >>> round(ordered_pairs(scores, labels, phi="squared").item(), 3)
    1.0
    """
    return _ordered(make_batch(*given), phi, engine, **how)


@loss
def ranknet(given: Given, *, engine: str = "auto", **how: Unpack[PerTerm]) -> torch.Tensor:
    """Value of a list: -sum over y_i > y_j of log sigma(s_i - s_j); with each="mean" per such pair.

    Does not see s -> s + w: a pure ranking loss, its scores have no scale.

    >>> round(ranknet(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[1.0, 0.0, 0.0]])).item(), 3)
    0.44
    """
    return _ordered(make_batch(*given), "logistic", engine, **how)


@loss
def chunked_ranknet(given: Given, *, engine: str = "auto", **how: Unpack[PerTerm]) -> torch.Tensor:
    """RankNet between chunks of a teacher's order; the labels are chunk numbers that grow with quality.

    Pairs within a chunk do not count. Value of a list: the sum over pairs of different chunks; with
    each="mean" per such pair.

    >>> round(chunked_ranknet(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[2.0, 1.0, 1.0]])).item(), 3)
    0.44
    """
    return ranknet(*given, engine=engine, **how)


@loss
def calibrated_ranknet(
    given: Given, *, y0: float = 0.5, engine: str = "auto", **how: Unpack[PerTerm]
) -> torch.Tensor:
    """RankNet with a virtual item of score 0 and label y0 in every list.

    Value of a list: RankNet - sum 1(y_i > y0) log sigma(s_i) - sum 1(y_i < y0) log sigma(-s_i); for
    0 <= y0 < 1 and labels 0 and 1 it is RankNet + log loss, at y0 = 0 of the positives alone.
    each="mean": per pair, those with the virtual item included.

    >>> scores, labels = torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[1.0, 0.0, 0.0]])
    >>> round(calibrated_ranknet(scores, labels, y0=0.5).item(), 3)
    2.574
    """
    batch = with_anchor(make_batch(*given), y0)
    return _ordered(batch, "logistic", engine, **how)


def self_boosted_pair(
    scores: torch.Tensor,
    labels: torch.Tensor,
    lists: Offsets,
    *,
    dumped_scores: torch.Tensor,
    dumped_labels: torch.Tensor,
    request: torch.Tensor | None = None,
    weight: torch.Tensor | None = None,
    reduction: str = "mean",
    each: str = "sum",
    engine: str = "auto",
) -> torch.Tensor:
    """Single samples against what the deployed model said of the rest of their request.

    Value of a sample: -sum_j 1(y > y_j) log sigma(s - s_j) - sum_j 1(y_j > y) log sigma(s_j - s), where
    s_j, y_j are the dumped scores and labels of its request; with each="mean" per such pair. The sample's own
    entry in the dump has its label and so does not count. No gradient goes to the dump.

    scores, labels [S]: samples of any requests in any order. dumped_scores, dumped_labels [M] with their
    offsets `lists` [Q + 1]: the dumps of Q requests. request [S]: the dump of each sample; None if sample k
    belongs to dump k. Here `weight` [S] and `reduction` are over samples.

    >>> samples, clicks = torch.tensor([2.0, 0.0]), torch.tensor([1.0, 0.0])  # one of each of two requests
    >>> theirs = dict(dumped_scores=torch.tensor([1.0, 0.5]), dumped_labels=torch.tensor([0.0, 1.0]))
    >>> round(self_boosted_pair(samples, clicks, torch.tensor([0, 1, 2]), **theirs).item(), 3)
    0.394
    """
    dump = make_batch(dumped_scores.detach().to(scores.dtype), dumped_labels, lists)
    if scores.dim() != 1 or scores.shape != labels.shape:
        raise ValueError(
            f"scores {list(scores.shape)} and labels {list(labels.shape)} must be of the same [S]"
        )
    if labels.device.type == "cpu":
        check_labels(labels)
    owner = _owner(request, len(scores), dump)
    labels = labels.detach().to(scores.dtype)
    values = loss_engine.logged_score_pairs(scores, labels, owner, dump, engine)
    return reduce_terms(
        values,
        scores.dtype,
        lambda: _dumped_pair_counts(labels, owner, dump),
        weight=weight,
        reduction=reduction,
        each=each,
    )


def _owner(request: torch.Tensor | None, n_samples: int, dump: Batch) -> torch.Tensor:
    if request is None:
        if n_samples != dump.n_lists:
            raise ValueError(f"{n_samples} samples and {dump.n_lists} dumps: pass `request`")
        return torch.arange(n_samples, device=dump.scores.device)
    if request.shape != (n_samples,) or request.is_floating_point():
        raise ValueError(f"request must be {n_samples} integers, not {request.dtype} {list(request.shape)}")
    is_seen = request.device.type == "cpu"  # a look at another device would wait for it
    if is_seen and n_samples and (int(request.min()) < 0 or int(request.max()) >= dump.n_lists):
        raise ValueError(f"request must be in 0..{dump.n_lists - 1}, the dumps there are")
    return request.to(dump.scores.device, torch.int64)


def _dumped_pair_counts(labels: torch.Tensor, owner: torch.Tensor, dump: Batch) -> np.ndarray:
    """Logged labels that differ from the sample's.  [S] float64"""
    offsets, theirs = dump.lists, loss_engine.as_float64(dump.labels.cpu())
    own, of = loss_engine.as_float64(labels.cpu()), owner.cpu().numpy()
    sizes = np.diff(offsets)[of]
    starts = np.repeat(offsets[of] - np.concatenate([[0], np.cumsum(sizes)[:-1]]), sizes)
    differs = theirs[np.arange(sizes.sum()) + starts] != np.repeat(own, sizes)
    return np.bincount(np.repeat(np.arange(len(own)), sizes), differs, minlength=len(own))
