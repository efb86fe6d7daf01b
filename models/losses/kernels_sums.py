"""Pairwise losses whose sum over pairs has an exact form in O(N log N): squared, exponential, squared hinge.

Value and slope in one pass per list, in a written order, without threads. Scores are taken about the middle
of their list, so that squares and exponentials are as small as they can be.
"""

import numpy as np

from cascade_sim.foundation.compilation import kernel
from cascade_sim.models.losses.kernels import bounds, group_edges, merge_sort, order_by, spoil

WIDEST = 1380.0  # half of it on either side of the middle still has an exponential in float64


@kernel(error_model="numpy")
def sorted_list(scores, labels):
    """Items by label, where their groups start and end, their scores about the middle, and the scores' span.

    The span is NaN where a score is not finite.
    """
    n = len(scores)
    order, first, last = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64)
    s = np.empty(n)
    low, high = bounds(scores)
    order_by(labels, order)
    group_edges(labels, order, first, last)
    for i in range(n):
        s[i] = scores[order[i]] - 0.5 * (low + high)
    return order, first, last, s, high - low


@kernel(error_model="numpy")
def exponential_sums(s, v, below, above, starts, ends, g):
    """sum_i v_i e^(-s_i) B_i, B_i = sum of e^(s_j) over j < starts_i and j >= ends_i; slopes into g.

    `below`, `above` [n + 1] are scratch for sums from either end.
    """
    n = len(s)
    below[0] = above[n] = 0.0
    for j in range(n):
        below[j + 1] = below[j] + np.exp(s[j])
    for j in range(n - 1, -1, -1):
        above[j] = above[j + 1] + np.exp(s[j])
    value = 0.0
    for i in range(n):
        term = v[i] * (np.exp(-s[i]) * (below[starts[i]] + above[ends[i]])) if v[i] != 0.0 else 0.0
        value += term
        g[i] = -term
    return value


@kernel(error_model="numpy")
def exponential_wide(s, v, starts, ends, g):
    """The same pair by pair, for scores farther apart than exponentials reach."""
    value = 0.0
    for i in range(len(s)):
        for j in range(len(s)):
            if v[i] != 0.0 and (j < starts[i] or j >= ends[i]):
                term = v[i] * np.exp(s[j] - s[i])
                value += term
                g[i] -= term
                g[j] += term
    return value


@kernel(error_model="numpy")
def exponential_pairs(scores, labels, lists, is_ordered):
    """sum a_ij e^(s_j - s_i) of each list and its slopes; a_ij as in logistic_pairs.  -> [L], [N]"""
    value, slope = np.zeros(len(lists) - 1), np.zeros(len(scores))
    for k in range(len(lists) - 1):
        a, b = lists[k], lists[k + 1]
        n = b - a
        v, g, back = np.ones(n), np.zeros(n), np.zeros(n)
        order, first, last, s, span = sorted_list(scores[a:b], labels[a:b])
        if np.isnan(span):
            value[k] = spoil(slope[a:b])
            continue
        for i in range(n):
            if is_ordered:  # j of lower labels: before the group of i
                last[i] = n
            else:  # every other j
                first[i], last[i], v[i] = i, i + 1, labels[a + order[i]]
        if span > WIDEST:
            value[k] = exponential_wide(s, v, first, last, g)
        else:
            below, above = np.empty(n + 1), np.empty(n + 1)
            value[k] = exponential_sums(s, v, below, above, first, last, g)
            # The slope in s_j: e^(s_j) times the sum of v_i e^(-s_i) over the i that have j in their pairs.
            below[0] = above[n] = 0.0
            for i in range(n):
                back[i] = v[i] * np.exp(-s[i])
                below[i + 1] = below[i] + back[i]
            for i in range(n - 1, -1, -1):
                above[i] = above[i + 1] + back[i]
            if is_ordered:
                group_edges(labels[a:b], order, first, last)
            for j in range(n):
                g[j] += np.exp(s[j]) * (above[last[j]] + (0.0 if is_ordered else below[first[j]]))
        for i in range(n):
            slope[a + order[i]] = g[i]
    return value, slope


@kernel(error_model="numpy")
def squared_ordered(scores, labels, lists):
    """sum_{y_i > y_j} (1 - s_i + s_j)^2 of each list and its slopes.  -> [L], [N]"""
    value, slope = np.zeros(len(lists) - 1), np.zeros(len(scores))
    for k in range(len(lists) - 1):
        a, b = lists[k], lists[k + 1]
        n = b - a
        order, first, last, s, span = sorted_list(scores[a:b], labels[a:b])
        if np.isnan(span):
            value[k] = spoil(slope[a:b])
            continue
        sums, squares = np.zeros(n + 1), np.zeros(n + 1)
        for i in range(n):
            sums[i + 1], squares[i + 1] = sums[i] + s[i], squares[i] + s[i] * s[i]
        for i in range(n):
            lower, higher, short = first[i], n - last[i], 1.0 - s[i]
            value[k] += lower * short * short + 2.0 * short * sums[lower] + squares[lower]
            fall = lower * short + sums[lower]
            rise = higher * (1.0 + s[i]) - (sums[n] - sums[last[i]])
            slope[a + order[i]] = 2.0 * (rise - fall)
    return value, slope


@kernel(error_model="numpy")
def squared_valued(scores, labels, lists):
    """sum_{i<j} (z_i - z_j)^2 = n sum_i (z_i - mean z)^2, z = y - s, and its slopes.  -> [L], [N]"""
    value, slope = np.zeros(len(lists) - 1), np.zeros(len(scores))
    for k in range(len(lists) - 1):
        a, b = lists[k], lists[k + 1]
        total = 0.0
        for i in range(a, b):
            total += labels[i] - scores[i]
        mean = total / max(b - a, 1)
        for i in range(a, b):
            z = labels[i] - scores[i] - mean
            value[k] += (b - a) * z * z
            slope[i] = -2.0 * (b - a) * z
    return value, slope


@kernel(error_model="numpy")
def tree_add(tree, at, s):
    """Fenwick tree of (count, sum, sum of squares): put a score in at place `at`."""
    at += 1
    while at < len(tree):
        tree[at, 0] += 1.0
        tree[at, 1] += s
        tree[at, 2] += s * s
        at += at & -at


@kernel(error_model="numpy")
def tree_sum(tree, stop):
    """Count, sum and sum of squares of the places before `stop`."""
    count = total = squares = 0.0
    while stop > 0:
        count += tree[stop, 0]
        total += tree[stop, 1]
        squares += tree[stop, 2]
        stop -= stop & -stop
    return count, total, squares


@kernel(error_model="numpy")
def squared_hinge_ordered(scores, labels, lists):
    """sum_{y_i > y_j} max(0, 1 - s_i + s_j)^2 of each list and its slopes.  -> [L], [N]

    Labels are met in order, scores are kept in a tree: the pairs of i that count are those with s_j > s_i - 1
    among the labels met so far. Once upwards for value and falls, once downwards for rises.
    """
    value, slope = np.zeros(len(lists) - 1), np.zeros(len(scores))
    for k in range(len(lists) - 1):
        a, b = lists[k], lists[k + 1]
        n = b - a
        order, first, last, s, span = sorted_list(scores[a:b], labels[a:b])
        if np.isnan(span):
            value[k] = spoil(slope[a:b])
            continue
        by_score, ladder, place = np.empty(n, np.int64), np.empty(n), np.empty(n, np.int64)
        merge_sort(s, by_score)
        for i in range(n):
            ladder[i], place[by_score[i]] = s[by_score[i]], i
        tree = np.zeros((n + 1, 3))
        for i in range(n):
            if first[i] == i:  # a new group: the one before it is lower
                for j in range(first[i - 1] if i else 0, i):
                    tree_add(tree, place[j], s[j])
            short = 1.0 - s[i]
            below = tree_sum(tree, np.searchsorted(ladder, s[i] - 1.0, side="right"))
            every = tree_sum(tree, n)
            count, total, squares = every[0] - below[0], every[1] - below[1], every[2] - below[2]
            if count > 0:
                value[k] += max(0.0, count * short * short + 2.0 * short * total + squares)
                slope[a + order[i]] -= 2.0 * (count * short + total)
        tree = np.zeros((n + 1, 3))
        for j in range(n - 1, -1, -1):
            if last[j] == j + 1:
                for i in range(j + 1, last[j + 1] if j + 1 < n else n):
                    tree_add(tree, place[i], s[i])
            count, total, squares = tree_sum(tree, np.searchsorted(ladder, s[j] + 1.0, side="left"))
            slope[a + order[j]] += 2.0 * (count * (1.0 + s[j]) - total)
    return value, slope
