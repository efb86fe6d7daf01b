"""Where a loss is computed: by a fused kernel on the CPU, or in plain torch anywhere.

A fused kernel gives the lists' values and their slopes in every score in one pass; the slopes wait for
backward, and nothing of the size of pairs is kept. It works in float64 whatever the type of the scores; only
the softmax losses of float32 scores take their exponentials in float32, and sum in float64.
engine="auto" takes it for float32 and float64 scores on the CPU and plain torch for everything else.
The fused form can be differentiated once; engine="torch" where a gradient of a gradient is needed.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from cascade_sim.models.known import check_known
from cascade_sim.models.losses import padded as loss_torch
from cascade_sim.models.losses.lists import (
    COMPILED,
    EACH,
    Batch,
    list_sums,
    per_term,
    reduce,
    with_anchor,
)
from cascade_sim.models.losses.phis import phi_named

ENGINES = ("auto", "fused", "torch")


class _Fused(torch.autograd.Function):
    """values [L] float64 of scores [N], and backward from the slopes found on the way."""

    @staticmethod
    def forward(
        ctx: Any, scores: torch.Tensor, lists: np.ndarray | None, kernel: Callable[..., Any], *rest: Any
    ) -> torch.Tensor:
        value, slope = kernel(scores, *rest)
        ctx.save_for_backward(torch.from_numpy(slope))
        ctx.lists, ctx.dtype, ctx.n_others = lists, scores.dtype, 2 + len(rest)
        return torch.from_numpy(value)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
        _require_first()
        (slope,) = ctx.saved_tensors
        if ctx.lists is None:
            return ((slope * grad).to(ctx.dtype), *[None] * ctx.n_others)
        from cascade_sim.models.losses import kernels_lists as loss_kernels_lists

        out = torch.empty(len(slope), dtype=ctx.dtype)
        loss_kernels_lists.times_of_lists(slope.numpy(), as_float64(grad), ctx.lists, out.numpy())
        return (out, *[None] * ctx.n_others)


class _FusedMean(torch.autograd.Function):
    """The mean of the lists' values in float32, with nothing of torch on the way.

    Of a few thousand items the calls of torch would take several times as long as the numbers.
    """

    @staticmethod
    def forward(
        ctx: Any, scores: torch.Tensor, batch: Batch, kernel: Callable[..., Any], *rest: Any
    ) -> torch.Tensor:
        mean, ctx.divisor, slope = kernel(_array(scores), _array(batch.labels), batch.lists, *rest)
        ctx.save_for_backward(torch.from_numpy(slope))
        ctx.lists, ctx.n_others = batch.lists, 2 + len(rest)
        return torch.from_numpy(mean)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
        _require_first()
        from cascade_sim.models.losses import kernels_lists as loss_kernels_lists

        slope = ctx.saved_tensors[0].numpy()
        out = np.empty_like(slope)
        loss_kernels_lists.slopes_of_mean(slope, ctx.divisor, grad.item(), ctx.lists, out)
        return (torch.from_numpy(out), *[None] * ctx.n_others)


def _require_first() -> None:
    """RuntimeError with create_graph: the slopes would silently count as constants."""
    if torch.is_grad_enabled():
        raise RuntimeError("a fused loss can be differentiated once; pass engine='torch' to do so twice")


def as_float64(values: torch.Tensor) -> np.ndarray:
    """A contiguous float64 array of a CPU tensor, without a copy where it already is one."""
    return np.ascontiguousarray(values.detach().to(torch.float64).numpy())  # numpy knows no bfloat16


def is_fused(scores: torch.Tensor, engine: str) -> bool:
    """Whether the fused kernels compute this loss; ValueError if they are asked for and cannot."""
    check_known("engine", engine, ENGINES)
    can = scores.device.type == "cpu" and scores.dtype in COMPILED
    if engine == "fused" and not can:
        raise ValueError(
            f"the fused kernels take float32 or float64 on the CPU, not {scores.dtype} on {scores.device}"
        )
    return can and engine != "torch"


def fused(batch: Batch, kernel: Callable[..., Any], *rest: Any) -> torch.Tensor:
    """kernel(scores, labels, lists, *rest) -> values [L], slopes [N], as a differentiable function."""
    return _Fused.apply(
        batch.scores, batch.lists, _widened(kernel), as_float64(batch.labels), batch.lists, *rest
    )


def fused_float32(batch: Batch, kernel: Callable[..., Any], *rest: Any) -> torch.Tensor:
    """The same with a kernel that takes float32 scores and labels as they are."""
    return _Fused.apply(batch.scores, batch.lists, _as_is(kernel), _array(batch.labels), batch.lists, *rest)


def _array(values: torch.Tensor) -> np.ndarray:
    return np.ascontiguousarray(values.detach().numpy())


def _as_is(kernel: Callable[..., Any]) -> Callable[..., Any]:
    return lambda scores, *rest: kernel(_array(scores), *rest)


def _widened(kernel: Callable[..., Any]) -> Callable[..., Any]:
    return lambda scores, *rest: kernel(as_float64(scores), *rest)


def pairs(batch: Batch, phi: str, *, is_ordered: bool, engine: str) -> torch.Tensor:
    """The one pairwise engine: sum a_ij phi(s_i - s_j) of each list.  [L]

    Ordered pairs: a_ij = 1(y_i > y_j), every phi. Valued pairs: a_ij = y_i for all j other than i,
    logistic and exponential; with phi "squared" they are sum_{i<j} (y_i - y_j - s_i + s_j)^2.
    """
    kernel = phi_named(phi, is_ordered=is_ordered).kernel
    if kernel is None and engine == "fused":
        raise ValueError(f"phi {phi!r} has no fused kernel; leave engine out, or use torch")
    if is_fused(batch.scores, engine) and kernel is not None:
        return fused(batch, *kernel(is_ordered))
    form = loss_torch.ordered_pairs if is_ordered else loss_torch.valued_pairs
    return form(batch, phi)


def softmax_lists(batch: Batch, engine: str, anchor: float = 0.0) -> torch.Tensor:
    """-sum_i y_i log softmax(s)_i of each list.  [L]

    anchor > 0: with a virtual item of score 0 and this label in every list.
    """
    anchor = _finite_anchor(anchor)
    if not is_fused(batch.scores, engine):
        return loss_torch.softmax_lists(with_anchor(batch, anchor) if anchor > 0 else batch)
    from cascade_sim.models.losses import kernels_lists as loss_kernels_lists

    if batch.scores.dtype == torch.float32:
        return fused_float32(batch, loss_kernels_lists.softmax_lists_float32, anchor)
    return fused(batch, loss_kernels_lists.softmax_lists, anchor)


def softmax_loss(
    batch: Batch,
    engine: str,
    *,
    anchor: float = 0.0,
    weight: torch.Tensor | None = None,
    reduction: str = "mean",
    each: str = "sum",
) -> torch.Tensor:
    """`softmax_lists` as a loss; each="mean": of every list per unit of its labels, the anchor's among them.

    The mean of float32 lists, which is what a training asks for, is made in one step.
    """
    check_known("each", each, EACH)
    is_mean = weight is None and reduction == "mean"
    if is_mean and batch.scores.dtype == torch.float32 and is_fused(batch.scores, engine):
        from cascade_sim.models.losses import kernels_lists as loss_kernels_lists

        kernel = loss_kernels_lists.softmax_mean_float32
        return _FusedMean.apply(batch.scores, batch, kernel, _finite_anchor(anchor), each == "mean")
    values = softmax_lists(batch, engine, anchor)
    if each == "mean":
        values = per_label(values, batch, anchor)
    return reduce(values, batch.scores.dtype, weight, reduction)


def per_label(values: torch.Tensor, batch: Batch, anchor: float = 0.0) -> torch.Tensor:
    """The lists' values over the sums of their labels, the anchor's among them.  [L]"""
    return per_term(values, list_totals(batch.labels, batch) + anchor)


def _finite_anchor(anchor: float) -> float:
    if not np.isfinite(anchor):
        raise ValueError(f"y0 must be finite, not {anchor}")
    return float(anchor)


def approx_ndcg_lists(batch: Batch, beta: float, engine: str) -> torch.Tensor:
    """Smooth NDCG of each list, negative.  [L]"""
    if not is_fused(batch.scores, engine):
        return loss_torch.approx_ndcg_lists(batch, beta)
    from cascade_sim.models.losses import kernels_lists as loss_kernels_lists

    return fused(batch, loss_kernels_lists.approx_ndcg_lists, float(beta))


def logged_score_pairs(
    scores: torch.Tensor, labels: torch.Tensor, request: torch.Tensor, dump: Batch, engine: str
) -> torch.Tensor:
    """Each sample against the dump of its request.  [S], [S], [S] -> [S]"""
    if not is_fused(scores, engine):
        return loss_torch.logged_score_pairs(scores, labels, request, dump)
    from cascade_sim.models.losses import kernels_lists as loss_kernels_lists

    return _Fused.apply(
        scores,
        None,
        _widened(loss_kernels_lists.logged_score_pairs),
        as_float64(labels),
        np.ascontiguousarray(request.numpy(), dtype=np.int64),
        as_float64(dump.scores),
        as_float64(dump.labels),
        dump.lists,
    )


def list_totals(values: torch.Tensor, batch: Batch) -> np.ndarray | torch.Tensor:
    """Sum of each list's values [N], in float64 and in the order of the items.  [L] float64

    On another device than the CPU they are summed there, in their own type, without a wait.
    """
    if values.device.type != "cpu":
        return list_sums(values, batch)
    from cascade_sim.models.losses import kernels_lists as loss_kernels_lists

    return loss_kernels_lists.list_totals(as_float64(values), batch.lists)


def ordered_pair_counts(batch: Batch) -> np.ndarray:
    """Pairs of different labels in each list.  [L] float64"""
    from cascade_sim.models.losses import kernels as loss_kernels

    return loss_kernels.ordered_pair_counts(as_float64(batch.labels.cpu()), batch.lists)
