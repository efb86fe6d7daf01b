"""Is each list in a good order? Metrics of scores against labels.

Most take flat arrays and give a value per request. `scores` are flat scores, or a `Ranking` made of them
once for several metrics. Tied scores count with their expectation over all orders of the tied items, unless
said otherwise. Places count from 1, the highest score first; `k` cuts the list, None takes it whole. A list
without positives (no label above `above`, or no gain) has no order to get right: it is not valid, unless
`no_positives` gives the value it shall count with. An empty list is never valid.

AUC with soft labels: with p_i the probability (or the click itself, 0 or 1) of item i, the pair (i, j)
weighs p_i (1 − p_j), the chance that i is clicked and j is not. AUC is the weighted share of pairs, i ≠ j, in
which i is scored above j; ties count one half. Hard labels are the special case. Besides `auc` there are two
forms for requests that come in blocks of padded tables [R, n]: `table_auc`, and sums by score bin that add up
over blocks (`score_histogram`, `auc_from_histogram`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from cascade_sim.analysis.metrics.lists import (
    Bools,
    Floats,
    PerRequest,
    Ranking,
    falling_order,
    flat,
    per_request,
    rank_lists,
    sum_lists,
)
from cascade_sim.analysis.metrics.ratio import divide

Scores = ArrayLike | Ranking
Lists = ArrayLike | None
Gain = Literal["exp2", "linear"] | Callable[[Floats], Floats]


def auc(scores: Scores, labels: ArrayLike, lists: Lists = None) -> PerRequest:
    """Share of (positive, negative) pairs in which the positive is scored higher; a tie counts one half.

    Labels are 0 or 1, or probabilities p: the pair (i, j), i ≠ j, then weighs p_i (1 − p_j). Not valid where
    no pair weighs anything: fewer than two items, or labels all 0 or all 1. One list of everything (lists
    None) gives the pooled AUC.

    >>> round(auc([3.0, 2.0, 1.0], [0, 1, 0]).mean(), 3)
    0.5
    """
    from cascade_sim.analysis.metrics import kernels

    ranking, label = _inputs(scores, labels, lists)
    if label.size and not (label.min() >= 0 and label.max() <= 1):
        raise ValueError("AUC needs labels in [0, 1]; cut graded ones first, e.g. labels > 0")
    won, total = kernels.pairs_won(label, ranking.order, ranking.is_first, ranking.lists)
    value = divide(won, total)
    return per_request(value, ~np.isnan(value), ranking.items)


def gauc(scores: Scores, labels: ArrayLike, lists: Lists = None, *, weight: ArrayLike | None = None) -> float:
    """Mean AUC of the valid requests weighted by their candidates, or by `weight` [R]; NaN without any."""
    per_list = auc(scores, labels, lists)
    weight = np.asarray(per_list.items if weight is None else weight, np.float64)
    return float(divide((per_list.value * weight)[per_list.valid].sum(), weight[per_list.valid].sum()))


def table_auc(score: ArrayLike, label: ArrayLike, valid: ArrayLike | None = None) -> tuple[Floats, Floats]:
    """AUC within each request and its number of candidates.  score, label [R, n] -> (auc [R], weight [R])

    One sort for all requests. AUC is NaN and the weight 0 where no pair weighs anything (fewer than two
    candidates, or labels all 0 or all 1). Entries not `valid`, and NaN scores or labels, are padding. Equal
    to `auc` but for the last digits, as the sums run over the padding and from the lowest score up.
    """
    score, label, is_real = _table(score, label, valid)
    n_rows, n = score.shape
    if n_rows == 0 or n == 0:
        return np.full(n_rows, np.nan), np.zeros(n_rows)
    # padding weighs nothing as a positive and as a negative, so it may be anywhere in the order
    s = np.where(is_real, score, 0)
    order = np.argsort(s, axis=1, kind="stable") + np.arange(n_rows)[:, None] * n
    s = s.ravel()[order]
    positive = np.where(is_real, label, 0.0).ravel()[order]
    negative = np.where(is_real, 1.0 - label, 0.0).ravel()[order]

    # the first item of each run of equal scores; runs end with their row
    is_first = np.ones((n_rows, n), bool)
    np.not_equal(s[:, 1:], s[:, :-1], out=is_first[:, 1:])
    first = np.flatnonzero(is_first)
    below = (np.cumsum(negative, axis=1) - negative).ravel()[first]
    has_ties = first.size < s.size
    tied_positive = np.add.reduceat(positive.ravel(), first) if has_ties else positive.ravel()
    tied_negative = np.add.reduceat(negative.ravel(), first) if has_ties else negative.ravel()
    pairs_won = tied_positive * (below + 0.5 * tied_negative)
    won = np.bincount(first // n, pairs_won, n_rows).astype(np.float64)

    value = _share_won(won, positive, negative, (positive * negative).sum(1))
    return value, np.where(np.isnan(value), 0, is_real.sum(1)).astype(np.float64)


def score_histogram(
    score: ArrayLike, label: ArrayLike, edges: ArrayLike, valid: ArrayLike | None = None
) -> Floats:
    """Per-request sums of p, 1 − p and p(1 − p) by score bin.  [R, n], inner edges [B − 1] -> [R, 3, B]

    A score equal to an edge falls into the bin above. Additive over requests; feeds `auc_from_histogram`.
    """
    score, label, is_real = _table(score, label, valid)
    edges = np.asarray(edges, np.float64)
    n_rows, n_bins = len(score), len(edges) + 1
    y = label[is_real]
    slot = np.nonzero(is_real)[0] * n_bins + np.searchsorted(edges, score[is_real], side="right")
    sums = [np.bincount(slot, weights=w, minlength=n_rows * n_bins) for w in (y, 1.0 - y, y * (1.0 - y))]
    return np.stack([part.reshape(n_rows, n_bins) for part in sums], axis=1)


def auc_from_histogram(pos: ArrayLike, neg: ArrayLike, own: ArrayLike | None = None) -> Floats:
    """AUC from sums by rising score bin, items of one bin counted as tied.  [..., B] -> [...]

    pos and neg are the sums of p and of 1 − p. `own`, the sums of p(1 − p), takes out the pairs of a
    soft-labelled item with itself; without it they stay in as ties, a difference that fades as 1/n. Exact
    if no bin mixes scores.
    """
    pos, neg = np.asarray(pos, np.float64), np.asarray(neg, np.float64)
    below = np.cumsum(neg, axis=-1) - neg
    won = (pos * (below + 0.5 * neg)).sum(-1)
    return _share_won(won, pos, neg, 0.0 if own is None else np.asarray(own, np.float64).sum(-1))


def dcg(
    scores: Scores,
    labels: ArrayLike,
    lists: Lists = None,
    *,
    k: int | None = None,
    gain: Gain = "exp2",
    no_positives: float | None = None,
) -> PerRequest:
    """Σ_{i ≤ k} gain(y_i) / log2(1 + i).  gain: "exp2" 2^y − 1, "linear" y, or a function of the labels.

    >>> round(dcg([3.0, 2.0, 1.0], [0, 1, 1], k=2).mean(), 3)
    0.631
    """
    ranking, label = _inputs(scores, labels, lists)
    gains = _gains(label, gain)
    value = _dcg(ranking, gains, k)
    return _with_positives(ranking, value, sum_lists(gains, ranking.lists) > 0, no_positives)


def ndcg(
    scores: Scores,
    labels: ArrayLike,
    lists: Lists = None,
    *,
    k: int | None = None,
    gain: Gain = "exp2",
    no_positives: float | None = None,
) -> PerRequest:
    """DCG@k over the DCG@k of the best order. Gains as for `dcg`, none below 0.

    >>> round(ndcg([3.0, 2.0, 1.0], [0, 1, 1], k=2).mean(), 3)
    0.387
    """
    ranking, label = _inputs(scores, labels, lists)
    gains = _gains(label, gain)
    best = falling_order(gains, ranking.lists)
    ideal = _dcg(Ranking(ranking.lists, best, np.ones(best.size, bool)), gains, k)
    value = divide(_dcg(ranking, gains, k), ideal)
    return _with_positives(ranking, value, ideal > 0, no_positives)


def precision(
    scores: Scores,
    labels: ArrayLike,
    lists: Lists = None,
    *,
    k: int | None = None,
    above: float = 0.0,
    no_positives: float | None = None,
) -> PerRequest:
    """Positives among the first k, over k (also where a list is shorter); k None: over the list's length.

    >>> round(precision([3.0, 2.0, 1.0], [0, 1, 1], k=2).mean(), 3)
    0.5
    """
    ranking, label = _inputs(scores, labels, lists)
    seen, total = _positives(ranking, label > above, k)
    value = divide(seen, ranking.items if k is None else k)
    return _with_positives(ranking, value, total > 0, no_positives)


def recall(
    scores: Scores,
    labels: ArrayLike,
    lists: Lists = None,
    *,
    k: int | None = None,
    above: float = 0.0,
    no_positives: float | None = None,
) -> PerRequest:
    """Positives among the first k, over all positives of the list.

    >>> round(recall([3.0, 2.0, 1.0], [0, 1, 1], k=2).mean(), 3)
    0.5
    """
    ranking, label = _inputs(scores, labels, lists)
    seen, total = _positives(ranking, label > above, k)
    return _with_positives(ranking, divide(seen, total), total > 0, no_positives)


def average_precision(
    scores: Scores,
    labels: ArrayLike,
    lists: Lists = None,
    *,
    above: float = 0.0,
    ties: Literal["mean", "threshold"] = "mean",
    no_positives: float | None = None,
) -> PerRequest:
    """Mean over the positives of the precision at their place.

    ties: "mean", the expectation over the orders of tied items; "threshold", every item of a run gets the
    precision at its end, as if the run were taken whole (scikit-learn's choice).

    >>> round(average_precision([3.0, 2.0, 1.0], [0, 1, 1]).mean(), 3)
    0.583
    """
    if ties not in ("mean", "threshold"):
        raise ValueError(f"ties is 'mean' or 'threshold', not {ties!r}")
    ranking, label = _inputs(scores, labels, lists)
    positive = (label > above)[ranking.order].astype(np.float64)
    first, length = ranking.runs
    tied = np.repeat(ranking.tie_sum(positive), length)  # positives of the run a place is in
    size = np.repeat(length, length)
    begin = np.repeat(first, length)
    before = (np.cumsum(positive) - positive)[begin]  # positives on earlier places, of earlier lists too
    total = sum_lists(positive, ranking.lists)
    before -= np.repeat(np.cumsum(total) - total, ranking.items)
    if ties == "threshold":
        run_end = ranking.rank[begin] + size
        at_place = positive * (before + tied) / run_end
    else:
        # chance tied/size of a positive on this place; then the run's other positives precede evenly
        preceding = (ranking.rank - ranking.rank[begin]) * divide(tied - 1, np.maximum(size - 1, 1))
        at_place = tied / size * (before + 1 + preceding) / (ranking.rank + 1)
    value = divide(sum_lists(at_place, ranking.lists), total)
    return _with_positives(ranking, value, total > 0, no_positives)


def auc_pr(predictions: ArrayLike, labels: ArrayLike, *, above: float = 0.0) -> float:
    """Area under the curve of precision against recall, of all items together; NaN without positives.

    Thresholds run over the predictions, items of equal prediction are taken whole, and the curve is a
    staircase: its area is the average precision over thresholds. Lists play no part: it tells whether a
    prediction means the same in one list as in another.

    >>> round(auc_pr([0.9, 0.8, 0.7], [1, 0, 1]), 4)
    0.8333
    """
    return float(average_precision(predictions, labels, above=above, ties="threshold").mean())


def err(
    scores: Scores,
    labels: ArrayLike,
    lists: Lists = None,
    *,
    k: int | None = None,
    max_grade: float = 4.0,
    no_positives: float | None = None,
) -> PerRequest:
    """Expected reciprocal rank Σ_{i ≤ k} R_i/i Π_{j<i} (1 − R_j), R = (2^y − 1) / 2^max_grade.

    Labels are in [0, max_grade]; for clicks take max_grade=1, where a click stops one reader in two.

    >>> round(err([3.0, 2.0, 1.0], [0, 1, 1], max_grade=1).mean(), 3)
    0.333
    """
    ranking, label = _inputs(scores, labels, lists)
    if label.size and not (label.min() >= 0 and label.max() <= max_grade):
        raise ValueError(f"labels must be in [0, max_grade = {max_grade:g}]")
    return _reciprocal(ranking, (2.0**label - 1.0) / 2.0**max_grade, k, no_positives)


def mrr(
    scores: Scores,
    labels: ArrayLike,
    lists: Lists = None,
    *,
    k: int | None = None,
    above: float = 0.0,
    no_positives: float | None = None,
) -> PerRequest:
    """1 / place of the first positive; 0 if it comes after k. The mean over requests is the MRR.

    >>> round(mrr([3.0, 2.0, 1.0], [0, 1, 1]).mean(), 3)
    0.5
    """
    ranking, label = _inputs(scores, labels, lists)
    return _reciprocal(ranking, (label > above).astype(np.float64), k, no_positives)


def spearman(scores: ArrayLike, labels: ArrayLike, lists: Lists = None) -> PerRequest:
    """Correlation of the ranks of scores and labels; equal values share the mean of their ranks.

    Not valid where a rank correlation does not exist: fewer than two items, or either side constant.

    >>> round(spearman([3.0, 2.0, 1.0], [0.9, 0.1, 0.5]).mean(), 3)
    0.5
    """
    by_score, label = _inputs(scores, labels, lists)
    by_label = rank_lists(label, by_score.lists)
    sides = []
    for ranking in (by_score, by_label):
        rank = np.empty(label.size)
        rank[ranking.order] = ranking.tie_mean(ranking.rank.astype(np.float64))
        sides.append(rank - np.repeat((ranking.items - 1) / 2.0, ranking.items))
    x, y = sides
    offsets = by_score.lists
    spread = np.sqrt(sum_lists(x * x, offsets)) * np.sqrt(sum_lists(y * y, offsets))
    value = divide(sum_lists(x * y, offsets), spread)
    return per_request(value, spread > 0, by_score.items)


def _inputs(scores: Scores, labels: ArrayLike, lists: Lists) -> tuple[Ranking, Floats]:
    ranking = rank_lists(scores, lists)
    return ranking, flat(labels, "labels", ranking.order.size)


def _table(score: ArrayLike, label: ArrayLike, valid: ArrayLike | None) -> tuple[Floats, Floats, Bools]:
    """Scores and labels of one shape, and which entries are not padding."""
    score, label = np.broadcast_arrays(np.asarray(score, np.float64), np.asarray(label, np.float64))
    is_real = ~(np.isnan(score) | np.isnan(label))
    return score, label, is_real if valid is None else is_real & np.asarray(valid, bool)


def _share_won(won: Floats, positive: Floats, negative: Floats, own: Floats | float) -> Floats:
    """Won over all pairs, less those of an item with itself (`own`), which are always ties and no pairs."""
    return divide(won - 0.5 * own, positive.sum(-1) * negative.sum(-1) - own)


def _gains(label: Floats, gain: Gain) -> Floats:
    if callable(gain):
        gains = np.asarray(gain(label), np.float64)
    elif gain == "exp2":
        gains = np.exp2(label) - 1.0
    elif gain == "linear":
        gains = label
    else:
        raise ValueError(f"gain is 'exp2', 'linear' or a function, not {gain!r}")
    if gains.size and gains.min() < 0:
        raise ValueError("gains must not be negative: a best order would then leave items out")
    return gains


def _depth(ranking: Ranking, k: int | None) -> int:
    """How many places count: k, at most the longest list."""
    if k is not None and k < 1:
        raise ValueError(f"k must be at least 1, not {k}")
    longest = int(ranking.items.max(initial=0))
    return longest if k is None else min(k, longest)


def _positional(ranking: Ranking, utility: Floats, weight: Floats) -> Floats:
    """Σ_i weight_i u_(item on place i) per list; places past the weights given do not count.  [R]"""
    from cascade_sim.analysis.metrics import kernels

    by_rank = np.zeros(int(ranking.items.max(initial=0)))
    by_rank[: weight.size] = weight
    return np.asarray(
        kernels.positional_sums(utility, by_rank, ranking.order, ranking.is_first, ranking.lists)
    )


def _dcg(ranking: Ranking, gains: Floats, k: int | None) -> Floats:
    return _positional(ranking, gains, 1.0 / np.log2(np.arange(_depth(ranking, k)) + 2.0))


def _positives(ranking: Ranking, positive: Bools, k: int | None) -> tuple[Floats, Floats]:
    """Positives expected among the first k, and all of them.  ([R], [R])"""
    seen = _positional(ranking, positive.astype(np.float64), np.ones(_depth(ranking, k)))
    return seen, sum_lists(positive, ranking.lists)


def _reciprocal(ranking: Ranking, stop: Floats, k: int | None, no_positives: float | None) -> PerRequest:
    from cascade_sim.analysis.metrics import kernels

    value = kernels.expected_reciprocal_stop(
        stop, ranking.order, ranking.is_first, ranking.lists, _depth(ranking, k)
    )
    return _with_positives(ranking, value, sum_lists(stop, ranking.lists) > 0, no_positives)


def _with_positives(
    ranking: Ranking, value: Floats, has_positives: Bools, no_positives: float | None
) -> PerRequest:
    if no_positives is None:
        return per_request(value, has_positives, ranking.items)
    return per_request(np.where(has_positives, value, no_positives), ranking.items > 0, ranking.items)
