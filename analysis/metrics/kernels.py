"""Loops over ranked lists: one pass, nothing held but the result, each list's value from that list alone.

All take item values, `order` (the item on each place, list after list), `is_first` (whether a run of
equal scores begins at a place) and `lists` (offsets).
"""

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
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
