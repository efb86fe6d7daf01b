"""The losses in plain torch on rows of equal length: for every device, and differentiable twice.

Each is its formula written down, with masks for the filling: [L, m, m] in memory where pairs are compared.
The fused kernels are checked against these, and measured against these by the bench.
"""

import torch
from torch.nn import functional

from cascade_sim.models.losses.lists import Batch, list_sums, to_padded
from cascade_sim.models.losses.phis import PHIS


def _working(batch: Batch) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Scores, labels [L, m] and the mask of real items; half precision is worked in float32."""
    scores, labels = batch.scores, batch.labels
    if scores.dtype in (torch.float16, torch.bfloat16):
        scores, labels = scores.float(), labels.float()
    mask = to_padded(torch.ones_like(labels), batch) > 0
    return to_padded(scores, batch), to_padded(labels, batch), mask


def ordered_pairs(batch: Batch, phi: str) -> torch.Tensor:
    """sum_{y_i > y_j} phi(s_i - s_j).  [L]"""
    s, y, mask = _working(batch)
    counts = (y.unsqueeze(2) > y.unsqueeze(1)) & mask.unsqueeze(2) & mask.unsqueeze(1)
    d = (s.unsqueeze(2) - s.unsqueeze(1)).masked_fill(~counts, 0)
    return (PHIS[phi].cost(d) * counts).sum((1, 2))


def valued_pairs(batch: Batch, phi: str) -> torch.Tensor:
    """sum_{i != j} y_i phi(s_i - s_j); for squared, sum_{i < j} (y_i - y_j - s_i + s_j)^2.  [L]"""
    s, y, mask = _working(batch)
    counts = mask.unsqueeze(2) & mask.unsqueeze(1)
    d = s.unsqueeze(2) - s.unsqueeze(1)
    if phi == "squared":
        gap = y.unsqueeze(2) - y.unsqueeze(1)
        return (gap - d).masked_fill(~counts, 0).square().sum((1, 2)) / 2
    weight = y.unsqueeze(2).expand_as(d) * (1 - torch.eye(s.shape[1], dtype=s.dtype, device=s.device))
    d = d.masked_fill(~counts | (weight == 0), 0)  # 0 times the overflow of an exponential is not 0
    return (PHIS[phi].cost(d) * weight.masked_fill(~counts, 0)).sum((1, 2))


def softmax_lists(batch: Batch) -> torch.Tensor:
    """-sum_i y_i log softmax(s)_i.  [L]"""
    s, y, mask = _working(batch)
    if s.shape[1] == 0:
        return s.sum(1)
    is_empty = ~mask.any(1, keepdim=True)
    log_share = torch.log_softmax(s.masked_fill(~mask & ~is_empty, -torch.inf), 1)
    return -(y * log_share.masked_fill(~mask | (y == 0), 0)).sum(1)


def approx_ndcg_lists(batch: Batch, beta: float) -> torch.Tensor:
    """-(1/ideal DCG) sum_i (2^y_i - 1) / log2(1 + r_i); 0 without a gain.  [L]"""
    s, y, mask = _working(batch)
    pairs = mask.unsqueeze(2) & mask.unsqueeze(1)
    d = (s.unsqueeze(1) - s.unsqueeze(2)).masked_fill(~pairs, 0)
    rank = 0.5 + (torch.sigmoid(beta * d) * pairs).sum(2)
    gain = torch.exp2(y) - 1
    places = torch.arange(1, s.shape[1] + 1, device=s.device, dtype=s.dtype)
    ideal = (gain.sort(1, descending=True).values / torch.log2(1 + places)).sum(1)
    reached = (gain / torch.log2(1 + rank)).sum(1)
    return -reached / torch.where(ideal > 0, ideal, torch.ones_like(ideal))


def logged_score_pairs(
    scores: torch.Tensor, labels: torch.Tensor, request: torch.Tensor, dump: Batch
) -> torch.Tensor:
    """Each sample against the dump of its request.  [S], [S], [S] -> [S]"""
    dumped, dumped_labels, mask = _working(dump)
    s, y = dumped[request], dumped_labels[request]
    d = scores.to(dumped.dtype).unsqueeze(1) - s
    own = labels.to(dumped.dtype).unsqueeze(1)
    won, lost = (own > y) & mask[request], (own < y) & mask[request]
    d = d.masked_fill(~(won | lost), 0)
    return -(functional.logsigmoid(d) * won + functional.logsigmoid(-d) * lost).sum(1)


def item_sums(values: torch.Tensor, batch: Batch) -> torch.Tensor:
    """Sum of the items' terms.  [N] -> [L]"""
    return list_sums(values.float() if values.dtype in (torch.float16, torch.bfloat16) else values, batch)
