"""Ragged lists: flat values with offsets `lists` = [0, n_1, n_1 + n_2, ...], checked once for every loss.

Padding never hides in labels: `from_padded` drops what a mask leaves out, and from then on it is not there.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from cascade_sim.models.known import check_known

Offsets = torch.Tensor | np.ndarray | Sequence[int]
REDUCTIONS = ("none", "sum", "mean")
EACH = ("sum", "mean")
COMPILED = (torch.float32, torch.float64)  # what the kernels take


@dataclass(frozen=True)
class Batch:
    """Checked input of a loss. N items in L lists."""

    scores: torch.Tensor  # [N] or [N, columns]
    labels: torch.Tensor  # [N], same device and type as the scores
    lists: np.ndarray  # [L + 1] int64

    @property
    def n_lists(self) -> int:
        return len(self.lists) - 1

    @property
    def sizes(self) -> np.ndarray:
        """Items per list.  [L] int64"""
        return np.diff(self.lists)

    def owner(self) -> torch.Tensor:
        """The list of each item.  [N] int64"""
        owner = np.repeat(np.arange(self.n_lists), self.sizes)
        return torch.from_numpy(owner).to(self.scores.device)


def make_batch(
    scores: torch.Tensor,
    labels: torch.Tensor,
    lists: Offsets | None,
    *,
    low: float = -np.inf,
    high: float = np.inf,
    columns: int = 0,
) -> Batch:
    """Check the input of a loss. ValueError names the fault and the first item that has it.

    `lists` None: the scores are [L, m] and each row is a list.
    `low`, `high`: the labels the loss is made for. `columns`: scores have this many columns, 0 for none.
    Scores may be anything: a NaN there makes NaN of its own list's value and of no other's. Labels on another
    device than the CPU are not looked at.
    """
    if not isinstance(scores, torch.Tensor) or not scores.is_floating_point():
        raise ValueError(f"scores must be a floating-point tensor, not {_kind(scores)}")
    if lists is None:
        scores, labels, lists = _rows(scores, labels, columns)
    if scores.dim() != 1 + (columns > 0) or (columns and scores.shape[1] != columns):
        wanted = f"[N, {columns}]" if columns else "[N]"
        raise ValueError(f"scores must have shape {wanted}, not {list(scores.shape)}")
    if not isinstance(labels, torch.Tensor) or labels.device != scores.device:
        labels = torch.as_tensor(labels, device=scores.device)
    if labels.shape != scores.shape[:1]:
        raise ValueError(f"labels have shape {list(labels.shape)}, the scores are of {len(scores)} items")
    offsets = _sound(labels, lists, low, high)
    if offsets is None:
        offsets = check_offsets(lists, len(scores))
        if labels.device.type == "cpu":  # a look at another device would wait for it, batch after batch
            check_labels(labels, low, high)
    return Batch(scores, labels.detach().to(scores.dtype), offsets)


def _sound(labels: torch.Tensor, lists: Offsets, low: float, high: float) -> np.ndarray | None:
    """The offsets, if one compiled look finds nothing wrong; None where it does, or cannot look.

    The checks that follow then name the fault. They take as long as the loss of a small batch.
    """
    if labels.dtype not in COMPILED or labels.device.type != "cpu":
        return None
    if isinstance(lists, torch.Tensor) and lists.dtype == torch.int64 and lists.device.type == "cpu":
        lists = lists.detach().numpy()
    if not isinstance(lists, np.ndarray) or lists.dtype != np.int64 or lists.ndim != 1:
        return None
    from cascade_sim.models.losses.kernels_lists import is_sound

    offsets = np.ascontiguousarray(lists)
    return (
        offsets
        if is_sound(np.ascontiguousarray(labels.detach().numpy()), offsets, float(low), float(high))
        else None
    )


def _kind(value: object) -> str:
    return str(value.dtype) if isinstance(value, torch.Tensor) else type(value).__name__


def _rows(
    scores: torch.Tensor, labels: torch.Tensor, columns: int
) -> tuple[torch.Tensor, torch.Tensor, np.ndarray]:
    if scores.dim() != 2 + (columns > 0):
        raise ValueError(f"scores of shape {list(scores.shape)} need list offsets: pass `lists`")
    labels = torch.as_tensor(labels)
    if labels.shape != scores.shape[:2]:
        raise ValueError(f"labels have shape {list(labels.shape)}, the scores {list(scores.shape)}")
    n, m = scores.shape[:2]
    return scores.flatten(0, 1), labels.flatten(), np.arange(n + 1) * m


def check_offsets(lists: Offsets, n_items: int) -> np.ndarray:
    """Offsets as int64, or a ValueError: they start at 0, never fall and end at the number of items."""
    offsets = lists.detach().cpu().numpy() if isinstance(lists, torch.Tensor) else np.asarray(lists)
    if offsets.ndim != 1 or len(offsets) == 0:
        raise ValueError(f"lists must be offsets [0, n_1, n_1 + n_2, ...], not of shape {offsets.shape}")
    if offsets.dtype.kind not in "iu":
        raise ValueError(f"lists must be integers, not {offsets.dtype}")
    offsets = np.ascontiguousarray(offsets, dtype=np.int64)
    if offsets[0] != 0:
        raise ValueError(f"lists must start at 0, not at {offsets[0]}")
    is_fall = offsets[1:] < offsets[:-1]
    if is_fall.any():
        at = int(is_fall.argmax())
        raise ValueError(f"lists must not fall: {offsets[at]} is followed by {offsets[at + 1]} at {at + 1}")
    if offsets[-1] != n_items:
        raise ValueError(f"lists end at {offsets[-1]}, but there are {n_items} items")
    return offsets


def check_labels(labels: torch.Tensor, low: float = -np.inf, high: float = np.inf) -> None:
    """ValueError for the first label that is not finite or not in [low, high]."""
    if labels.numel() == 0:
        return
    if labels.dtype == torch.bool:
        labels = labels.to(torch.uint8)
    least, greatest = (float(bound) for bound in torch.aminmax(labels))  # NaN where a label is NaN
    if low <= least and greatest <= high and np.isfinite(least) and np.isfinite(greatest):
        return
    wrong = ~torch.isfinite(labels) | (labels < low) | (labels > high)
    at = int(wrong.nonzero()[0])
    value = float(labels[at])
    if not np.isfinite(value):
        raise ValueError(f"the label of item {at} is {value}")
    raise ValueError(f"the label of item {at} is {value:g}: this loss is for labels in [{low:g}, {high:g}]")


def reduce(
    values: torch.Tensor, dtype: torch.dtype, weight: torch.Tensor | None = None, reduction: str = "mean"
) -> torch.Tensor:
    """From the lists' values [L] to the loss, in the scores' type.

    weight [L] >= 0: a list of weight k counts as k such lists. So none is w_l v_l, sum is
    sum_l w_l v_l and mean is sum_l w_l v_l / sum_l w_l; the mean of nothing (no list, no weight) is 0.
    """
    check_known("reduction", reduction, REDUCTIONS)
    if weight is None and reduction == "mean":
        return (values.mean() if len(values) else values.sum()).to(dtype)
    total = values.new_full((), float(len(values)))
    if weight is not None:
        weight = torch.as_tensor(weight, device=values.device).to(values.dtype)
        if weight.shape != values.shape:
            raise ValueError(f"weight has shape {list(weight.shape)}, one per list is {list(values.shape)}")
        if not bool(((weight >= 0) & torch.isfinite(weight)).all()):
            raise ValueError("weight must be finite and not negative")
        values, total = values * weight, weight.sum()
    if reduction == "none":
        return values.to(dtype)
    value = values.sum()
    if reduction == "mean":
        value = value / torch.where(total > 0, total, torch.ones_like(total))
    return value.to(dtype)


def reduce_terms(
    values: torch.Tensor,
    dtype: torch.dtype,
    count: Callable[[], np.ndarray | torch.Tensor],
    *,
    weight: torch.Tensor | None = None,
    reduction: str = "mean",
    each: str = "sum",
) -> torch.Tensor:
    """The same where a list's value is a sum of `count()` terms [L]; each="mean" makes it their mean."""
    check_known("each", each, EACH)
    if each == "mean":
        values = per_term(values, count())
    return reduce(values, dtype, weight, reduction)


def per_term(values: torch.Tensor, terms: np.ndarray | torch.Tensor) -> torch.Tensor:
    """The values [L] divided by the lists' numbers of terms [L]; as they are where there are none."""
    if isinstance(terms, torch.Tensor):
        return values / torch.where(terms > 0, terms, torch.ones_like(terms)).to(values.dtype)
    divisor = np.where(terms > 0, terms, 1.0)
    return values / torch.from_numpy(divisor).to(values.dtype).to(values.device)


def list_sums(values: torch.Tensor, batch: Batch) -> torch.Tensor:
    """Sum of each list's items, in float64 on the CPU and always in the order of the items.  [N] -> [L]"""
    if values.device.type == "cpu":
        values = values.double()
    return values.new_zeros(batch.n_lists).index_add(0, batch.owner(), values)


def from_padded(
    scores: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Flat scores, labels and offsets of the items that the mask keeps.  [L, m(, columns)], [L, m], [L, m]

    `mask` is True for an item, wherever in its row it is; what is masked may hold anything, NaN too.
    """
    if mask.dim() != 2 or mask.shape != scores.shape[:2] or mask.shape != labels.shape:
        shapes = f"{list(scores.shape)}, {list(labels.shape)}, {list(mask.shape)}"
        raise ValueError(f"scores, labels and mask must share [L, m], not {shapes}")
    kept = mask.bool()
    sizes = kept.sum(1)
    return scores[kept], labels[kept], torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])


def to_padded(values: torch.Tensor, batch: Batch) -> torch.Tensor:
    """Rows of equal length, filled up with 0.  [N] -> [L, longest]"""
    longest = int(batch.sizes.max(initial=0))
    owner = batch.owner()
    starts = torch.from_numpy(batch.lists[:-1]).to(values.device)
    column = torch.arange(len(values), device=values.device) - starts[owner]
    return values.new_zeros((batch.n_lists, longest)).index_put((owner, column), values)


def with_anchor(batch: Batch, y0: float) -> Batch:
    """Each list with one virtual item of score 0 and label y0 after its last."""
    if not np.isfinite(y0):
        raise ValueError(f"y0 must be finite, not {y0}")
    shifted = batch.lists + np.arange(batch.n_lists + 1)
    place = torch.arange(len(batch.scores), device=batch.scores.device) + batch.owner()
    n = int(shifted[-1])
    scores = batch.scores.new_zeros(n).index_put((place,), batch.scores)
    labels = batch.labels.new_full((n,), y0).index_put((place,), batch.labels)
    return Batch(scores, labels, shifted)
