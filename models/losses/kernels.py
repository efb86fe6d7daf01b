"""Pairwise logistic losses in fused loops: value and slope in one pass, memory of one row.

numba, without fastmath and without threads: sums run list by list in a written order, so results depend
neither on the number of threads nor on what else is in the batch. All kernels release the GIL.

sigma(s_j - s_i) = e_j / (e_i + e_j), so the exponential is taken per item, about the middle of the list.
The logarithm is taken of a product of many pairs' 1 + e_j / e_i: of as many as cannot overflow. Both hold
while a list's scores span at most SPAN; a wider list takes exponential and logarithm pair by pair.
"""

import numpy as np

from cascade_sim.foundation.compilation import kernel

SPAN = 80.0
LOG_LARGEST = 700.0  # e^700 is a float64 with room to spare


@kernel(error_model="numpy")
def bounds(values):
    """Least and greatest; both NaN where a value is not finite. (0, 0) of nothing."""
    if len(values) == 0:
        return 0.0, 0.0
    low = high = values[0]
    total = 0.0
    for v in values:
        low, high, total = min(low, v), max(high, v), total + v * 0.0
    return low + total, high + total


@kernel(error_model="numpy")
def longest_list(lists):
    """Greatest number of items of a list."""
    longest = 0
    for k in range(len(lists) - 1):
        longest = max(longest, lists[k + 1] - lists[k])
    return longest


@kernel(error_model="numpy")
def spoil(slope):
    """Put NaN everywhere into the slope; returns NaN, the value of such a list."""
    for i in range(len(slope)):
        slope[i] = np.nan
    return np.nan


@kernel(error_model="numpy")
def merge_sort(values, order):
    """Fill `order` with the items by growing value, ties in their order. Quicker to compile than argsort."""
    n, width = len(values), 1
    spare = np.empty(n, np.int64)
    for i in range(n):
        order[i] = i
    while width < n:
        for start in range(0, n, 2 * width):
            middle, stop = min(start + width, n), min(start + 2 * width, n)
            left, right = start, middle
            for k in range(start, stop):
                if left < middle and (right >= stop or not values[order[right]] < values[order[left]]):
                    spare[k] = order[left]
                    left += 1
                else:
                    spare[k] = order[right]
                    right += 1
        for i in range(n):
            order[i] = spare[i]
        width *= 2


@kernel(error_model="numpy")
def order_by(labels, order):
    """Fill `order` with the items by growing label, ties in their order. Few levels: without a sort."""
    n, n_levels = len(labels), 0
    levels, counts = np.empty(16), np.zeros(17, np.int64)
    for i in range(n):
        at = 0
        while at < n_levels and levels[at] < labels[i]:
            at += 1
        if at == n_levels or levels[at] != labels[i]:
            if n_levels == 16:
                merge_sort(labels, order)
                return
            for k in range(n_levels, at, -1):
                levels[k], counts[k] = levels[k - 1], counts[k - 1]
            levels[at], counts[at] = labels[i], 0
            n_levels += 1
        counts[at] += 1
    start = 0
    for k in range(n_levels):
        start, counts[k] = start + counts[k], start
    for i in range(n):
        at = 0
        while levels[at] < labels[i]:
            at += 1
        order[counts[at]] = i
        counts[at] += 1


@kernel(error_model="numpy")
def group_edges(labels, order, first, last):
    """Fill in, for each place in the order, where its group of equal labels starts and ends (exclusive)."""
    n = len(order)
    for k in range(n):
        is_new = k == 0 or labels[order[k]] != labels[order[k - 1]]
        first[k] = k if is_new else first[k - 1]
    for k in range(n - 1, -1, -1):
        is_end = k == n - 1 or labels[order[k]] != labels[order[k + 1]]
        last[k] = k + 1 if is_end else last[k + 1]


@kernel(error_model="numpy")
def row(e, factor, weight, slope, share, block):
    """sum_j log(1 + x_j) and sum_j x_j / (1 + x_j), x_j = e_j factor; slope_j += weight x_j / (1 + x_j).

    `share` is scratch as long as e. Three short loops, so that each is one the compiler vectorises.
    """
    n = len(e)
    for j in range(n):
        x = e[j] * factor
        share[j] = x / (1.0 + x)
    for j in range(n):
        slope[j] += weight * share[j]
    value = total = 0.0
    for start in range(0, n, block):
        stop = min(start + block, n)
        full = start + (stop - start) // 4 * 4
        p0 = p1 = p2 = p3 = 1.0
        t0 = t1 = t2 = t3 = 0.0
        for j in range(start, full, 4):
            t0, t1, t2, t3 = t0 + share[j], t1 + share[j + 1], t2 + share[j + 2], t3 + share[j + 3]
            p0, p1 = p0 * (1.0 + e[j] * factor), p1 * (1.0 + e[j + 1] * factor)
            p2, p3 = p2 * (1.0 + e[j + 2] * factor), p3 * (1.0 + e[j + 3] * factor)
        for j in range(full, stop):
            t0, p0 = t0 + share[j], p0 * (1.0 + e[j] * factor)
        value += np.log((p0 * p1) * (p2 * p3))
        total += (t0 + t1) + (t2 + t3)
    return value, total


@kernel(error_model="numpy")
def wide_row(s, s_i, weight, slope):
    """The same with x_j = exp(s_j - s_i) for scores however far apart."""
    value = total = 0.0
    for j in range(len(s)):
        d = s[j] - s_i
        small = np.exp(-abs(d))
        share = 1.0 / (1.0 + small) if d > 0 else small / (1.0 + small)
        value += max(d, 0.0) + np.log1p(small)
        total += share
        slope[j] += weight * share
    return value, total


@kernel(error_model="numpy")
def product_block(span):
    """How many factors 1 + e^d, d <= span, can be multiplied without overflow."""
    return int(LOG_LARGEST / (span + 0.7))


@kernel(error_model="numpy")
def logistic_pairs(scores, labels, lists, is_ordered):
    """sum a_ij log(1 + e^(s_j - s_i)) of each list and its slope in each score.  -> [L], [N]

    Ordered: a_ij = 1(y_i > y_j). Otherwise a_ij = y_i for every j other than i.
    """
    value, slope = np.zeros(len(lists) - 1), np.zeros(len(scores))
    longest = longest_list(lists)
    order, first, last = np.empty(longest, np.int64), np.empty(longest, np.int64), np.empty(longest, np.int64)
    s_sorted, e_sorted = np.empty(longest), np.empty(longest)
    g_sorted, scratch = np.empty(longest), np.empty(longest)
    for k in range(len(lists) - 1):
        a, b = lists[k], lists[k + 1]
        n = b - a
        low, high = bounds(scores[a:b])
        if np.isnan(low):
            value[k] = spoil(slope[a:b])
            continue
        if is_ordered:
            order_by(labels[a:b], order[:n])
            group_edges(labels[a:b], order[:n], first[:n], last[:n])
        middle, span = 0.5 * (low + high), high - low
        s, e, g = s_sorted[:n], e_sorted[:n], g_sorted[:n]
        is_narrow = span <= SPAN
        block = product_block(span)
        for i in range(n):
            if not is_ordered:
                order[i] = i
            s[i], g[i] = scores[a + order[i]] - middle, 0.0
            e[i] = np.exp(s[i]) if is_narrow else 0.0
        for i in range(n):
            weight = 1.0 if is_ordered else labels[a + i]
            if weight == 0.0:
                continue
            for part in range(1 if is_ordered else 2):
                start = 0 if part == 0 else i + 1
                stop = n if part == 1 else (first[i] if is_ordered else i)
                if start >= stop:
                    continue
                if is_narrow:
                    v, t = row(e[start:stop], 1.0 / e[i], weight, g[start:stop], scratch, block)
                else:
                    v, t = wide_row(s[start:stop], s[i], weight, g[start:stop])
                value[k] += weight * v
                g[i] -= weight * t
        for i in range(n):
            slope[a + order[i]] = g[i]
    return value, slope


@kernel(error_model="numpy")
def ordered_pair_counts(labels, lists):
    """How many pairs of each list have different labels.  [L] float64"""
    counts = np.zeros(len(lists) - 1)
    for k in range(len(lists) - 1):
        a, b = lists[k], lists[k + 1]
        order, first, last = np.empty(b - a, np.int64), np.empty(b - a, np.int64), np.empty(b - a, np.int64)
        order_by(labels[a:b], order)
        group_edges(labels[a:b], order, first, last)
        counts[k] = first.sum()
    return counts
