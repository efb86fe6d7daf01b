"""Are likelier clicks scored higher? AUC with soft labels, per request and pooled.

With p_i the probability (or the click itself, 0 or 1) of item i, the pair (i, j) weighs p_i (1 − p_j): the
chance that i is clicked and j is not. AUC is the weighted share of pairs, i ≠ j, in which i is scored above
j; ties count one half. Hard labels are the special case.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cascade_sim.analysis.metrics.ratio import divide


def group_auc(
    score: ArrayLike, label: ArrayLike, valid: ArrayLike | None = None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """AUC within each request and its number of candidates.  score, label [R, n] -> (auc [R], weight [R])

    One sort for all requests. AUC is NaN and the weight 0 where no pair weighs anything (fewer than two
    candidates, or labels all 0 or all 1). Entries not `valid`, and NaN scores or labels, are padding.
    """
    score, label = np.broadcast_arrays(np.asarray(score), np.asarray(label, np.float64))
    is_real = ~(np.isnan(score) | np.isnan(label))
    if valid is not None:
        is_real = is_real & np.asarray(valid, bool)
    n_rows, n = score.shape
    if n_rows == 0 or n == 0:
        return np.full(n_rows, np.nan), np.zeros(n_rows)
    # padding weighs nothing as a positive and as a negative, so it may stand anywhere in the order
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
    won = np.bincount(first // n, weights=tied_positive * (below + 0.5 * tied_negative), minlength=n_rows)

    own = (positive * negative).sum(1)  # an item paired with itself: always a tie, and not a pair
    auc_per_request = divide(won - 0.5 * own, positive.sum(1) * negative.sum(1) - own)
    return auc_per_request, np.where(np.isnan(auc_per_request), 0, is_real.sum(1)).astype(np.float64)


def gauc(auc_per_request: ArrayLike, weight: ArrayLike) -> float:
    """Mean of the requests' AUC weighted by their number of candidates; undefined requests are left out."""
    auc_per_request, weight = np.asarray(auc_per_request, np.float64), np.asarray(weight, np.float64)
    is_defined = ~np.isnan(auc_per_request)
    return float(divide((auc_per_request * weight)[is_defined].sum(), weight[is_defined].sum()))


def auc(score: ArrayLike, label: ArrayLike, valid: ArrayLike | None = None) -> float:
    """AUC over all items together, whatever the shape: exact, with ties.  NaN where no pair weighs."""
    rows = [None if a is None else np.asarray(a).reshape(1, -1) for a in (score, label, valid)]
    return float(group_auc(rows[0], rows[1], rows[2])[0][0])  # type: ignore[arg-type]


def score_histogram(
    score: ArrayLike, label: ArrayLike, edges: ArrayLike, valid: ArrayLike | None = None
) -> NDArray[np.float64]:
    """Per-request sums of p, 1 − p and p(1 − p) by score bin.  [R, n], inner edges [B − 1] -> [R, 3, B]

    A score equal to an edge falls into the bin above. Additive over requests; feeds `auc_from_histogram`.
    """
    score, label = np.broadcast_arrays(np.asarray(score, np.float64), np.asarray(label, np.float64))
    is_real = ~(np.isnan(score) | np.isnan(label))
    if valid is not None:
        is_real = is_real & np.asarray(valid, bool)
    edges = np.asarray(edges, np.float64)
    n_rows, n_bins = len(score), len(edges) + 1
    y = label[is_real]
    slot = np.nonzero(is_real)[0] * n_bins + np.searchsorted(edges, score[is_real], side="right")
    sums = [np.bincount(slot, weights=w, minlength=n_rows * n_bins) for w in (y, 1.0 - y, y * (1.0 - y))]
    return np.stack([part.reshape(n_rows, n_bins) for part in sums], axis=1)


def auc_from_histogram(pos: ArrayLike, neg: ArrayLike, own: ArrayLike | None = None) -> NDArray[np.float64]:
    """AUC from sums by rising score bin, items of one bin counted as tied.  [..., B] -> [...]

    pos and neg are the sums of p and of 1 − p. `own`, the sums of p(1 − p), takes out the pairs of a
    soft-labelled item with itself; without it they stay in as ties, a difference that fades as 1/n. Exact
    if no bin mixes scores.
    """
    pos, neg = np.asarray(pos, np.float64), np.asarray(neg, np.float64)
    below = np.cumsum(neg, axis=-1) - neg
    won = (pos * (below + 0.5 * neg)).sum(-1)
    self_pairs = 0.0 if own is None else np.asarray(own, np.float64).sum(-1)
    return divide(won - 0.5 * self_pairs, pos.sum(-1) * neg.sum(-1) - self_pairs)
