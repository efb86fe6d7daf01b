"""Clicks need an examined slot: what outputs for a fully examined slot say of the slot that was shown.

P(click) = x · p with x the chance that the slot is looked at. A loss compares clicks of one page, so it is
given outputs that predict x · p, and what is learnt then means p, whatever slots the log showed. Which map
does that follows from the objective's link (`Objective.slot_maps` names it, one for each output):

| link | outputs of the slot | exact for |
|---|---|---|
| sigmoid | log-odds of x σ(s): s + log x − log(1 + (1 − x) e^s) | log loss, ListCE(σ), pairs |
| exponential, or an order alone | s + log x | softmax: e^s x in proportion to x p; keeps s → s + w unseen |
| softplus | s' with softplus(s') = x softplus(s) | squared error, ListCE(softplus) |
| sigmoid of f_1 − f_0 | f_1 + log x and log(e^f_0 + (1 − x) e^f_1): unseen clicks are no clicks | jrc |

An order alone could also be judged by log-odds, but those see the scale through the ceiling x: the losses
without a scale would get a little of one from the slots. x = 1 changes nothing.
"""

from __future__ import annotations

from cascade_sim.models.lazy import torch


def slot_log_odds(score: torch.Tensor, examination: torch.Tensor) -> torch.Tensor:
    """Log-odds of x σ(s).  [N], [N] in (0, 1] -> [N]"""
    log_unseen = torch.log1p(-examination)  # -inf where x = 1: its softplus and the slope of that are 0
    return score + torch.log(examination) - torch.nn.functional.softplus(score + log_unseen)


def slot_log_share(score: torch.Tensor, examination: torch.Tensor) -> torch.Tensor:
    """s + log x: the score of a share that is x times as large.  [N], [N] -> [N]"""
    return score + torch.log(examination)


def slot_softplus(score: torch.Tensor, examination: torch.Tensor) -> torch.Tensor:
    """s' with softplus(s') = x softplus(s).  [N], [N] -> [N]"""
    value = examination * torch.nn.functional.softplus(score)
    exact = value + torch.log(-torch.expm1(-value.clamp_min(1e-30)))  # log(e^v − 1)
    low = score + torch.log(examination)  # softplus is the exponential there, and 1e-30 would cut it off
    return torch.where(score < -15, low, torch.where(examination < 1, exact, score))


def slot_two_logits(outputs: torch.Tensor, examination: torch.Tensor) -> torch.Tensor:
    """(f_0, f_1) for the slot: e^f_0 + e^f_1 stays as it is, the unexamined part of e^f_1 goes to e^f_0.

    [N, 2], [N] -> [N, 2]
    """
    none, click = outputs.unbind(1)
    unseen = click + torch.log1p(-examination)
    return torch.stack([torch.logaddexp(none, unseen), click + torch.log(examination)], dim=1)
