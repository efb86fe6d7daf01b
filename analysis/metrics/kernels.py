"""Loops over ranked lists: one pass, nothing held but the result, each list's value from that list alone.

All take item values, `order` (the item on each place, list after list), `is_first` (whether a run of
equal scores begins at a place) and `lists` (offsets).
"""

import numpy as np

from cascade_sim.foundation.compilation import kernel
from cascade_sim.foundation.kernels import kth_largest

FEW = 16  # so many of a row are chosen by insertion, which for more takes longer than a selection


@kernel
def positional_sums(utility, weight, order, is_first, lists):
    """Σ weight[rank] · utility per list, in expectation over the orders of tied items.  [N], [longest] -> [R]

    A run of equal scores has the mean of its places' weights.
    """
    n_lists = lists.size - 1
    value = np.zeros(n_lists)
    for r in range(n_lists):
        begin, end = lists[r], lists[r + 1]
        i = begin
        while i < end:
            j = i
            total = shared = 0.0
            while j == i or (j < end and not is_first[j]):
                total += utility[order[j]]
                shared += weight[j - begin]
                j += 1
            value[r] += total * (shared if j == i + 1 else shared / (j - i))
            i = j
    return value


@kernel
def pairs_won(label, order, is_first, lists):
    """Weight of the pairs p_i (1 − p_j), i ≠ j, that are in order, ties one half, and of all.  ([R], [R])"""
    n_lists = lists.size - 1
    won, total = np.zeros(n_lists), np.zeros(n_lists)
    for r in range(n_lists):
        begin, end = lists[r], lists[r + 1]
        above = negatives = own = 0.0  # positives on earlier places
        i = begin
        while i < end:
            j = i
            tied_positive = tied_negative = 0.0
            while j == i or (j < end and not is_first[j]):
                p = label[order[j]]
                tied_positive += p
                tied_negative += 1.0 - p
                own += p * (1.0 - p)  # an item against itself is no pair
                j += 1
            won[r] += tied_negative * (above + 0.5 * tied_positive)
            above += tied_positive
            negatives += tied_negative
            i = j
        won[r] -= 0.5 * own
        total[r] = above * negatives - own
    return won, total


@kernel
def expected_reciprocal_stop(stop, order, is_first, lists, depth):
    """E[1 / rank of the stop] of a reader who may stop at every item, and of tie orders.  [N] -> [R]

    stop: the chance of stopping at an item once it is reached; nothing after `depth` is read.
    Within a run of m items with q = 1 − stop, the chance of passing the first j in random order is the mean
    of all products of j of the q's, E_j = ((t − j) E_j + j q_t E_{j−1}) / t built up item by item; the chance
    of stopping at its place j is E_{j−1} − E_j. A run costs m · min(m, depth).
    """
    n_lists = lists.size - 1
    value = np.zeros(n_lists)
    for r in range(n_lists):
        begin, end = lists[r], lists[r + 1]
        reach = 1.0
        i = begin
        while i < end and i - begin < depth and reach > 0.0:
            j = i + 1
            can_stop = stop[order[i]] > 0.0
            while j < end and not is_first[j]:
                can_stop = can_stop or stop[order[j]] > 0.0
                j += 1
            if can_stop:
                reach = _run(stop, order, i, j, i - begin, depth, reach, value, r)
            i = j
    return value


@kernel
def _run(stop, order, i, j, rank, depth, reach, value, r):
    """Add the run's share of list r's value; returns the chance of getting past it."""
    if j - i == 1:
        value[r] += reach * stop[order[i]] / (rank + 1)
        return reach * (1.0 - stop[order[i]])
    top = min(j - i, depth - rank)
    passed = np.zeros(top + 1)
    passed[0] = 1.0
    for t in range(1, j - i + 1):
        q = 1.0 - stop[order[i + t - 1]]
        for d in range(min(t, top), 0, -1):
            passed[d] = ((t - d) * passed[d] + d * q * passed[d - 1]) / t
    for d in range(1, top + 1):
        value[r] += reach * (passed[d - 1] - passed[d]) / (rank + d)
    return reach * passed[top]  # past the depth nothing is read, so a cut run needs no more


@kernel
def best_of_rows(ids, score, k):
    """The k best ids of each row by (score descending, id ascending).  int32, float64 [R, n] -> int32 [R, k]

    Negative ids and scores of -inf or NaN are never chosen; places that stay empty hold -1.
    """
    n_rows, n = ids.shape
    result = np.full((n_rows, k), -1, np.int32)
    own, worth, work = np.empty(n, np.int32), np.empty(n), np.empty(n)
    for r in range(n_rows):
        size = np.int64(0)  # a literal would be a type of its own, compiled besides
        for j in range(n):
            if ids[r, j] >= 0 and score[r, j] > -np.inf:  # which no NaN is
                own[size], worth[size] = ids[r, j], score[r, j]
                size += 1
        if k <= FEW and k < size:
            size = _insert_best(own, worth, size, k)
        elif k < size:  # what lies below the k-th best score is out; the sort settles ties with it
            work[:size] = worth[:size]
            least = kth_largest(work, size, k)
            kept = 0
            for j in range(size):
                own[kept], worth[kept] = own[j], worth[j]
                kept += worth[j] >= least
            size = kept
        _sort_best_first(own, worth, size)
        for j in range(min(k, size)):
            result[r, j] = own[j]
    return result


@kernel
def _insert_best(ids, score, n, k):
    """Move the k best of the first n to the front, best first: most only meet the worst one kept."""
    kept = 0
    for j in range(n):
        own, worth = ids[j], score[j]
        if kept == k and (worth < score[k - 1] or (worth == score[k - 1] and own > ids[k - 1])):
            continue
        place = kept if kept < k else k - 1
        while place > 0 and (
            score[place - 1] < worth or (score[place - 1] == worth and ids[place - 1] > own)
        ):
            ids[place], score[place] = ids[place - 1], score[place - 1]
            place -= 1
        ids[place], score[place] = own, worth
        kept = min(kept + 1, k)
    return kept


@kernel
def in_rows(ids, pool):
    """Whether each id of a row is in the same row of the pool; negative ids never are.  -> bool [R, a]"""
    n_rows, n = ids.shape
    result = np.zeros((n_rows, n), np.bool_)
    for r in range(n_rows):
        for i in range(n):
            if ids[r, i] >= 0:
                for j in range(pool.shape[1]):
                    if pool[r, j] == ids[r, i]:
                        result[r, i] = True
                        break
    return result


@kernel
def among_best(wanted, ids, score, k):
    """Whether each wanted id is among the k[r] best of its row, as `best_of_rows` has them.  -> bool [R, a]

    It is if fewer than k[r] are better, and counting them takes no sorting.
    """
    n_rows, n = ids.shape
    result = np.zeros(wanted.shape, np.bool_)
    for r in range(n_rows):
        for i in range(wanted.shape[1]):
            own, at = wanted[r, i], 0
            if own < 0:
                continue
            while at < n and ids[r, at] != own:
                at += 1
            if at == n or not score[r, at] > -np.inf:
                continue
            worth, better = score[r, at], 0
            for j in range(n):
                is_better = (score[r, j] > worth) | ((score[r, j] == worth) & (ids[r, j] < own))
                better += is_better & (ids[r, j] >= 0)
            result[r, i] = better < k[r]
    return result


@kernel
def _sort_best_first(ids, score, n):
    """The first n by (score descending, id ascending), in place: Shell's sort."""
    gap = 1
    while gap < n // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(gap, n):
            own, worth = ids[i], score[i]
            j = i
            while j >= gap and (score[j - gap] < worth or (score[j - gap] == worth and ids[j - gap] > own)):
                ids[j], score[j] = ids[j - gap], score[j - gap]
                j -= gap
            ids[j], score[j] = own, worth
        gap //= 3


@kernel
def bucket_sums(prediction, reference, is_real, bins):
    """Count, Σ prediction and Σ reference by bucket [i/bins, (i+1)/bins) of the prediction.  -> [R, 3, bins]

    [R, n] each; what is below 0 is in the first bucket, 1 and above in the last.
    """
    n_rows, n = prediction.shape
    sums = np.zeros((n_rows, 3, bins))
    for r in range(n_rows):
        for j in range(n):
            if not is_real[r, j]:
                continue
            p = prediction[r, j]
            at = min(int(min(max(p, 0.0), 1.0) * bins), bins - 1)
            # The product alone puts 0.58 * 50 into 28.
            if p >= (at + 1) / bins and at < bins - 1:
                at += 1
            if p < at / bins and at > 0:
                at -= 1
            sums[r, 0, at] += 1.0
            sums[r, 1, at] += p
            sums[r, 2, at] += reference[r, j]
    return sums
