"""Losses of the training recipes, in the stable softplus form."""

import torch
from torch.nn import functional


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


def distill(logit: torch.Tensor, teacher_logit: torch.Tensor) -> torch.Tensor:
    """Mean squared difference of the logits."""
    return functional.mse_loss(logit, teacher_logit)


def chunked_ranknet(score: torch.Tensor, chunk: torch.Tensor) -> torch.Tensor:
    """RankNet between chunks: -sum_{y_i > y_j} log sigma(s_i - s_j) per ordered pair.  [L, m], [L, m] -> ()

    `chunk` grows with quality. Pairs within a chunk do not count; 0 where there is no ordered pair.
    """
    ordered = (chunk.unsqueeze(2) > chunk.unsqueeze(1)).to(score.dtype)
    difference = score.unsqueeze(2) - score.unsqueeze(1)
    return (ordered * functional.softplus(-difference)).sum() / ordered.sum().clamp_min(1)
