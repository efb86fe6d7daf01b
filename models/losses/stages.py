"""Losses of a stage that hands on a set: on rows of lists, scores [L, m] against the order of a later stage.

`score` is the logarithm of what the stage selects by (bid times prediction), `target` that of what the later
stage ranks by. `is_best` [L, m] marks the ads of the list that the stage has to hand on. Each value is the
mean over the lists; those on all pairs of a list take O(m^2) of memory.
"""

import math
from collections.abc import Sequence

import torch
from torch.nn import functional

TINY = 1e-6
MIN_CHANCE = 1e-9  # of an ad to be in a batch


def best_of(target: torch.Tensor, k: int) -> torch.Tensor:
    """Whether an ad is one of the k with the highest target.  [L, m] -> [L, m] bool

    >>> best_of(torch.tensor([[0.3, 0.1, 0.7]]), 1).tolist()
    [[False, False, True]]
    """
    k = min(k, target.shape[1])
    is_best = torch.zeros_like(target, dtype=torch.bool)
    return is_best.scatter(1, target.topk(k, dim=1).indices, True)


def listwise(score: torch.Tensor, target: torch.Tensor, temperature: float = 1.0) -> torch.Tensor:
    """ListNet: -sum_j t_j log softmax(s)_j with t = softmax(target / temperature).

    Least where the scores differ as the targets do. Does not see s -> s + w.

    >>> round(listwise(torch.tensor([[2.0, 1.0]]), torch.tensor([[0.0, 0.0]])).item(), 3)
    0.813
    """
    share = torch.softmax(target / temperature, dim=1)
    return -(share * torch.log_softmax(score, dim=1)).sum(dim=1).mean()


def infonce(score: torch.Tensor, is_best: torch.Tensor) -> torch.Tensor:
    """InfoNCE: -(1/k) sum_{j best} (s_j - logsumexp over j and all that are not best). 0 without any best.

    >>> score, best = torch.tensor([[1.0, 0.0, 0.0]]), torch.tensor([[True, True, False]])
    >>> round(infonce(score, best).item(), 3)
    0.503
    """
    others = torch.logsumexp(score.masked_fill(is_best, -torch.inf), dim=1, keepdim=True)
    lost = torch.logaddexp(score, others) - score
    return (lost * is_best).sum() / is_best.sum().clamp_min(1)


def in_batch(
    score: torch.Tensor,
    is_same: torch.Tensor,
    log_chance: torch.Tensor | None = None,
    correct_own: bool = True,
) -> torch.Tensor:
    """Sampled softmax: -mean_i log [exp s_ii / sum_j exp s_ij], of rows whose own ad is that of column i.

    `is_same` [B, C] marks columns that hold the ad of their row once more (accidental hits), which are left
    out. With `log_chance` [C], s_ij - log Q_j stand for s_ij, so that an ad is not punished for being in many
    batches (logQ correction). The own ad is always there, so no draw: without `correct_own`, s_ii stays
    and the others are s_ij - log((C - 1) Q_j), which estimates the sum over all ads.

    >>> score, same = torch.tensor([[1.0, 0.0, 5.0]]), torch.tensor([[False, False, True]])
    >>> round(in_batch(score, same).item(), 3)
    0.313
    """
    own = torch.arange(len(score), device=score.device)
    if log_chance is not None:
        corrected = score - log_chance
        if not correct_own:
            is_own = own[:, None] == torch.arange(score.shape[1], device=score.device)
            corrected = torch.where(is_own, score, corrected - math.log(max(score.shape[1] - 1, 1)))
        score = corrected
    return functional.cross_entropy(score.masked_fill(is_same, -torch.inf), own)


def log_chance(share: torch.Tensor, drawn: int, uniform: int, n_ads: int) -> torch.Tensor:
    """log Q*, by which a sampled softmax is corrected: how likely a column holds an ad, of B + B' columns.

    Q* = (B p + B' / M) / (B + B'): B = `drawn` columns hold ads by their shares p, B' = `uniform` any of the
    M = `n_ads` ads alike. Shares are cut at MIN_CHANCE.

    >>> log_chance(torch.tensor([0.5]), 2, 2, 4).exp().tolist()
    [0.375]
    """
    chance = (drawn * share + uniform / n_ads) / (drawn + uniform)
    return torch.log(chance.clamp(MIN_CHANCE, 1.0))


def soft_top_k(
    score: torch.Tensor, is_best: torch.Tensor, quota: int, temperature: float = 1.0
) -> torch.Tensor:
    """DFTopK: log loss of `is_best` against sigma((s - theta) / temperature), per ad of a list.

    theta, halfway between the scores of ranks quota and quota + 1, moves with the scores: only who is inside
    counts, not by how much. A quota of the whole list leaves nothing out: 0 then.

    >>> score, best = torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[True, False, False]])
    >>> round(soft_top_k(score, best, 1).item(), 3)
    0.383
    """
    if quota >= score.shape[1]:
        return score.sum() * 0.0
    edge = score.topk(quota + 1, dim=1).values[:, -2:].mean(dim=1, keepdim=True)
    inside = (score - edge) / temperature
    return functional.binary_cross_entropy_with_logits(inside, is_best.to(score.dtype))


def neural_sort(score: torch.Tensor, temperature: float) -> torch.Tensor:
    """NeuralSort: row k is a soft choice of the ad with rank k, best first.  [L, m] -> [L, m, m]

    P_k = softmax_j(((m + 1 - 2k) s_j - sum_i |s_j - s_i|) / temperature). Rows sum to 1, columns need not.
    With scores that spread evenly over S, ranks w apart blur at a temperature of about S w^2 / m.

    >>> neural_sort(torch.tensor([[0.0, 2.0]]), 0.1)[0].argmax(dim=1).tolist()
    [1, 0]
    """
    m = score.shape[1]
    distance = (score.unsqueeze(2) - score.unsqueeze(1)).abs().sum(dim=2)
    factor = m + 1 - 2 * torch.arange(1, m + 1, device=score.device, dtype=score.dtype)
    logit = factor[None, :, None] * score.unsqueeze(1) - distance.unsqueeze(1)
    return torch.softmax(logit / temperature, dim=2)


def survival(places: torch.Tensor, quota: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Soft shares of each ad within and behind the first `quota` ranks of a soft permutation.  [L, m] each

    Columns of a soft permutation need not sum to 1: both are of their sum, which is held fixed.
    """
    whole = places.sum(dim=1).detach() + TINY
    return places[:, :quota].sum(dim=1) / whole, places[:, quota:].sum(dim=1) / whole


def soft_recall(places: torch.Tensor, is_best: torch.Tensor, quota: int) -> torch.Tensor:
    """-mean_j[y_j log a_j + (1 - y_j) log b_j], with `survival`'s shares a and b at the quota."""
    inside, behind = survival(places, quota)
    return -torch.where(is_best, torch.log(inside + TINY), torch.log(behind + TINY)).mean()


def relaxed_recall(
    score: torch.Tensor,
    target: torch.Tensor,
    log_weight: torch.Tensor,
    k: int,
    quota: int,
    temperature: float,
) -> torch.Tensor:
    """ARF: log loss of who of the k best survives, and of the whole order, with a learned weight.

    `soft_recall` + order / (2 w^2) + log w, where order = -mean_kj P*_kj log P_kj with the permutation P* of
    the target.
    """
    places = neural_sort(score, temperature)
    relax = soft_recall(places, best_of(target, k), quota)
    ideal = target.argsort(dim=1, descending=True, stable=True)
    order = -torch.log(places.gather(2, ideal.unsqueeze(2)) + TINY).mean() / score.shape[1]
    return relax + 0.5 * order * torch.exp(-2 * log_weight) + log_weight


def lcron(
    scores: Sequence[torch.Tensor],
    target: torch.Tensor,
    quotas: Sequence[int],
    *,
    k: int,
    temperature: float,
    log_weights: Sequence[torch.Tensor],
) -> torch.Tensor:
    """LCRON: log loss of who of the k best survives all stages, and each of them, with learned weights.

    With `survival`'s shares a^t and b^t of stage t at its quota, p_j = prod_t a^t_j, q_j = prod_t(1 - b^t_j):
    -mean_j[y_j log p_j + (1 - y_j) log(1 - q_j)] + sum_t soft_recall_t / (2 w_t^2) + log w_t.
    """
    is_best = best_of(target, k)
    passed, kept, alone = torch.ones_like(target), torch.ones_like(target), target.new_zeros(())
    for score, quota, log_weight in zip(scores, quotas, log_weights, strict=True):
        places = neural_sort(score, temperature)
        inside, behind = survival(places, quota)
        passed, kept = passed * inside, kept * (1 - behind)
        alone = alone + 0.5 * soft_recall(places, is_best, quota) * torch.exp(-2 * log_weight) + log_weight
    both = torch.where(is_best, torch.log(passed + TINY), torch.log(1 - kept + TINY))
    return alone - both.mean()


def rankflow(
    scores: Sequence[torch.Tensor],
    target: torch.Tensor,
    quotas: Sequence[int],
    *,
    k: int,
    positives: int,
    negatives: int,
    weight: float,
) -> torch.Tensor:
    """RankFlow: the sum of `rankflow_of_stage`, where each stage is given what the one before hands on.

    The last stage has no later one: its log loss alone. No gradient goes through what is handed on.
    """
    is_best, total = best_of(target, k), target.new_zeros(())
    listed = torch.arange(target.shape[1], device=target.device).expand(target.shape)
    for at, (score, quota) in enumerate(zip(scores, quotas, strict=True)):
        own = score.gather(1, listed)
        y = is_best.gather(1, listed).to(own.dtype)
        total = total + functional.binary_cross_entropy_with_logits(own, y)
        if at + 1 < len(scores):
            kept = own.topk(min(quota, own.shape[1]), dim=1).indices
            listed = listed.gather(1, kept)
            later = scores[at + 1].gather(1, listed)
            total = total + imitation(own.gather(1, kept), later, positives, negatives, weight)
    return total


def rankflow_of_stage(
    score: torch.Tensor,
    later: torch.Tensor,
    target: torch.Tensor,
    quota: int,
    k: int,
    positives: int,
    negatives: int,
    weight: float,
) -> torch.Tensor:
    """The part of one stage: log loss of the k best of its list, and `imitation` on its best `quota`."""
    y = best_of(target, k).to(score.dtype)
    kept = score.topk(quota, dim=1).indices
    own = functional.binary_cross_entropy_with_logits(score, y)
    return own + imitation(score.gather(1, kept), later.gather(1, kept), positives, negatives, weight)


def imitation(
    score: torch.Tensor, later: torch.Tensor, positives: int, negatives: int, weight: float
) -> torch.Tensor:
    """What RankFlow's stage learns of the later one, whose scores are held fixed.

    mean (s - s')^2 + weight * mean softplus(-(mean s of the `positives` best by s' - mean s of the worst)).

    >>> round(imitation(torch.tensor([[1.0, 0.0]]), torch.tensor([[2.0, 0.0]]), 1, 1, 1.0).item(), 3)
    0.813
    """
    later, n = later.detach(), score.shape[1]
    best = score.gather(1, later.topk(min(positives, n), dim=1).indices).mean(dim=1)
    worst = score.gather(1, later.topk(min(negatives, n), dim=1, largest=False).indices).mean(dim=1)
    return functional.mse_loss(score, later) + weight * functional.softplus(worst - best).mean()


def ndcg_pairs(score: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
    """Pairs of different labels, weighted by what their exchange moves NDCG.

    sum over y_i > y_j of |dNDCG_ij| softplus(s_j - s_i), with gains 2^y and discounts by the ranks of the
    scores as they are.

    >>> round(ndcg_pairs(torch.tensor([[0.0, 0.0]]), torch.tensor([[2, 1]])).item(), 3)
    0.256
    """
    m = score.shape[1]
    top = label.amax(dim=1, keepdim=True)
    gain = torch.exp2((label - top).to(score.dtype)) - torch.exp2((1 - top).to(score.dtype))
    discount = 1.0 / torch.log2(torch.arange(m, device=score.device, dtype=score.dtype) + 2.0)
    place = score.detach().argsort(dim=1, descending=True, stable=True).argsort(dim=1)
    at = discount[place]
    ideal = (gain.sort(dim=1, descending=True).values * discount).sum(dim=1).clamp_min(TINY)
    moved = (gain.unsqueeze(2) - gain.unsqueeze(1)).clamp_min(0) * (at.unsqueeze(2) - at.unsqueeze(1)).abs()
    lost = functional.softplus(score.unsqueeze(1) - score.unsqueeze(2))
    return ((moved * lost).sum(dim=(1, 2)) / ideal).mean()
