"""Listwise losses and the pair loss on dumped scores in fused loops. Conventions as in `kernels`."""

import numpy as np

from cascade_sim.foundation.compilation import kernel
from cascade_sim.foundation.kernels import exp_float32
from cascade_sim.models.losses.kernels import (
    SPAN,
    bounds,
    longest_list,
    order_by,
    product_block,
    row,
    spoil,
    wide_row,
)

WIDEST = 600.0  # e^600 and its inverse are float64, and so is their quotient with 1


@kernel(error_model="numpy")
def softmax_list(scores, labels, y0, slope):
    """-sum_i y_i log softmax(s)_i of one list; its slopes go to `slope`.

    y0 > 0 is the label of a virtual item of score 0 after the last. A list that is not finite is NaN.
    """
    n, value = len(scores), 0.0
    _, high = bounds(scores)
    if y0 > 0.0:
        high = max(high, 0.0) + 0.0 * high
    mass = total = 0.0
    for i in range(n):
        slope[i] = np.exp(scores[i] - high)
        mass += slope[i]
        total += labels[i]
    if y0 > 0.0:
        mass += np.exp(-high)
        total += y0
    level = high + np.log(mass)
    for i in range(n):
        if labels[i] != 0.0:
            value += labels[i] * (level - scores[i])
        slope[i] = total * (slope[i] / mass) - labels[i]
    return value + y0 * level if y0 > 0.0 else value


@kernel(error_model="numpy")
def softmax_lists(scores, labels, lists, y0):
    """`softmax_list` of each list.  -> [L], [N]"""
    value, slope = np.zeros(len(lists) - 1), np.zeros(len(scores))
    for k in range(len(lists) - 1):
        a, b = lists[k], lists[k + 1]
        if b > a:
            value[k] = softmax_list(scores[a:b], labels[a:b], y0, slope[a:b])
    return value, slope


@kernel(error_model="numpy")
def high_and_size(s):
    """The greatest number and the sum of squares, which is not finite where a number is not or is huge."""
    n = len(s)
    h0 = h1 = h2 = h3 = s[0]
    q0 = q1 = q2 = q3 = np.float32(0.0)
    full = n // 4 * 4
    for i in range(0, full, 4):
        a, b, c, d = s[i], s[i + 1], s[i + 2], s[i + 3]
        h0 = a if a > h0 else h0
        h1 = b if b > h1 else h1
        h2 = c if c > h2 else h2
        h3 = d if d > h3 else h3
        q0, q1, q2, q3 = q0 + a * a, q1 + b * b, q2 + c * c, q3 + d * d
    for i in range(full, n):
        h0 = s[i] if s[i] > h0 else h0
        q0 += s[i] * s[i]
    return max(max(h0, h1), max(h2, h3)), (q0 + q1) + (q2 + q3)


@kernel(error_model="numpy")
def costs_of(labels, level, scores):
    """sum_i y_i (level - s_i), four sums side by side."""
    n = len(labels)
    t0 = t1 = t2 = t3 = 0.0
    full = n // 4 * 4
    for i in range(0, full, 4):
        t0 += labels[i] * (level - scores[i])
        t1 += labels[i + 1] * (level - scores[i + 1])
        t2 += labels[i + 2] * (level - scores[i + 2])
        t3 += labels[i + 3] * (level - scores[i + 3])
    for i in range(full, n):
        t0 += labels[i] * (level - scores[i])
    return (t0 + t1) + (t2 + t3)


@kernel(error_model="numpy")
def softmax_lists_float32(scores, labels, lists, y0):
    """`softmax_lists` of float32 numbers: exponentials and slopes in float32, sums in float64."""
    value, slope = np.zeros(len(lists) - 1), np.zeros(len(scores), np.float32)
    longest = longest_list(lists)
    below, turns = np.empty(longest, np.float32), np.empty(longest, np.float32)
    for k in range(len(lists) - 1):
        a, b = lists[k], lists[k + 1]
        if a == b:
            continue
        s, y, g = scores[a:b], labels[a:b], slope[a:b]
        high, size = high_and_size(s)
        if not size < np.inf:
            wide = np.empty(b - a)
            value[k] = softmax_list(s.astype(np.float64), y.astype(np.float64), y0, wide)
            g[:] = wide
            continue
        if y0 > 0.0:
            high = max(high, np.float32(0.0))
        d = below[: b - a]
        for i in range(b - a):
            d[i] = s[i] - high
        exp_float32(d, turns[: b - a], g)
        mass, total = sum_of(g), sum_of(y)
        if y0 > 0.0:
            mass += np.exp(-np.float64(high))
            total += y0
        level = np.log(mass)
        value[k] = costs_of(y, level, d)
        if y0 > 0.0:
            value[k] += y0 * (level + high)
        scale = np.float32(total / mass)
        for i in range(b - a):
            g[i] = g[i] * scale - y[i]
    return value, slope


@kernel(error_model="numpy")
def is_sound(labels, lists, low, high):
    """Whether labels are finite and in [low, high], and offsets go from 0 to their end without a fall."""
    if len(lists) == 0 or lists[0] != 0 or lists[-1] != len(labels):
        return False
    wrong = np.int64(0)  # counted without a branch, so that several are looked at in one step
    for k in range(len(lists) - 1):
        wrong += np.int64(lists[k + 1] < lists[k])
    for i in range(len(labels)):
        y = labels[i]
        wrong += np.int64(not y >= low) + np.int64(not y <= high) + np.int64(not abs(y) < np.inf)
    return wrong == 0


@kernel(error_model="numpy")
def mean_of_lists(values, labels, lists, y0, is_per_label):
    """Mean of the lists' values, each over its sum of labels with y0 if so asked.  -> mean, divisors [L]"""
    n, total = len(lists) - 1, 0.0
    divisor = list_totals(labels, lists) if is_per_label else np.zeros(n)
    for k in range(n):
        divisor[k] = divisor[k] + y0 if is_per_label and divisor[k] + y0 > 0.0 else 1.0
        total += values[k] / divisor[k]
    return total / n if n > 0 else 0.0, divisor


@kernel(error_model="numpy")
def softmax_mean_float32(scores, labels, lists, y0, is_per_label):
    """Mean of `softmax_lists_float32`.  -> mean [], divisors of the lists [L], slopes of their values [N]"""
    value, slope = softmax_lists_float32(scores, labels, lists, y0)
    mean, divisor = mean_of_lists(value, labels, lists, y0, is_per_label)
    return np.full((), mean, np.float32), divisor, slope


@kernel(error_model="numpy")
def slopes_of_mean(slope, divisor, grad, lists, out):
    """out_i = slope_i times what a mean with this slope hands down to its list.  [N], [L] -> [N]"""
    n = len(lists) - 1
    for k in range(n):
        factor = grad / n / divisor[k]
        from_slope, to = slope[lists[k] : lists[k + 1]], out[lists[k] : lists[k + 1]]
        for i in range(len(to)):
            to[i] = from_slope[i] * factor
    return out


@kernel(error_model="numpy")
def list_totals(values, lists):
    """Sum of each list's values, in float64 and in the order of the items.  [N] -> [L]"""
    total = np.zeros(len(lists) - 1)
    for k in range(len(lists) - 1):
        for i in range(lists[k], lists[k + 1]):
            total[k] += values[i]
    return total


@kernel(error_model="numpy")
def times_of_lists(slope, grad, lists, out):
    """out_i = slope_i times the number of its list.  [N], [L] -> [N]"""
    for k in range(len(lists) - 1):
        for i in range(lists[k], lists[k + 1]):
            out[i] = slope[i] * grad[k]
    return out


@kernel(error_model="numpy")
def ideal_dcg(labels, order):
    """DCG of the labels in their best order, gains 2^y - 1, discounts 1 / log2(1 + rank)."""
    order_by(labels, order)
    n, total = len(labels), 0.0
    for rank in range(1, n + 1):
        total += (2.0 ** labels[order[n - rank]] - 1.0) / np.log2(1.0 + rank)
    return total


@kernel(error_model="numpy")
def sum_of(values):
    """Their sum: every fourth value by itself, then the four sums. Quicker than one after the other."""
    n = len(values)
    t0 = t1 = t2 = t3 = 0.0
    full = n // 4 * 4
    for j in range(0, full, 4):
        t0, t1, t2, t3 = t0 + values[j], t1 + values[j + 1], t2 + values[j + 2], t3 + values[j + 3]
    for j in range(full, n):
        t0 += values[j]
    return (t0 + t1) + (t2 + t3)


@kernel(error_model="numpy")
def shares(s, e, i, is_narrow, out):
    """out_j = sigma(s_j - s_i); returns their sum."""
    n = len(s)
    if is_narrow:
        e_i = e[i]
        for j in range(n):
            out[j] = e[j] / (e_i + e[j])
    else:
        for j in range(n):
            small = np.exp(-abs(s[j] - s[i]))
            out[j] = 1.0 / (1.0 + small) if s[j] > s[i] else small / (1.0 + small)
    return sum_of(out)


@kernel(error_model="numpy")
def approx_ndcg_lists(scores, labels, lists, beta):
    """-(1/ideal DCG) sum_i (2^y_i - 1) / log2(1 + r_i) of each list and its slopes.  -> [L], [N]

    r_i = 1/2 + sum_j sigma(beta (s_j - s_i)) is needed for items with a gain only: one row each.
    """
    value, slope = np.zeros(len(lists) - 1), np.zeros(len(scores))
    longest = longest_list(lists)
    order, out = np.empty(longest, np.int64), np.empty(longest)
    s_list, e_list = np.empty(longest), np.empty(longest)
    for k in range(len(lists) - 1):
        a, b = lists[k], lists[k + 1]
        n = b - a
        low, high = bounds(scores[a:b])
        if np.isnan(low):
            value[k] = spoil(slope[a:b])
            continue
        ideal = ideal_dcg(labels[a:b], order[:n])
        if ideal <= 0.0:
            continue
        s, e, g, q = s_list[:n], e_list[:n], slope[a:b], out[:n]
        is_narrow = beta * (high - low) <= WIDEST
        for i in range(n):
            s[i] = beta * (scores[a + i] - 0.5 * (low + high))
            e[i] = np.exp(s[i]) if is_narrow else 0.0
        for i in range(n):
            if labels[a + i] <= 0.0:
                continue
            gain = (2.0 ** labels[a + i] - 1.0) / ideal
            rank = 0.5 + shares(s, e, i, is_narrow, q)
            discount = np.log2(1.0 + rank)
            value[k] -= gain / discount
            push = beta * gain / (discount * discount * (1.0 + rank) * np.log(2.0))
            for j in range(n):
                q[j] = push * (q[j] * (1.0 - q[j]))
            q[i] = 0.0
            for j in range(n):
                g[j] += q[j]
            g[i] -= sum_of(q)
    return value, slope


@kernel(error_model="numpy")
def logged_score_pairs(scores, labels, request, dumped, dumped_labels, lists):
    """Each sample against the dump of its request: value and slope of each sample.  -> [S], [S]

    sum_j 1(y > y_j) log(1 + e^(s_j - s)) + 1(y_j > y) log(1 + e^(s - s_j)), j over dumped[lists[request]].
    The exponentials of a dump are taken once for all samples of the request.
    """
    n_lists, n = len(lists) - 1, len(dumped)
    value, slope = np.zeros(len(scores)), np.zeros(len(scores))
    s, y, e, inverse = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    low, high = np.zeros(n_lists), np.zeros(n_lists)
    ignored, scratch = np.zeros(n), np.empty(n)
    for k in range(n_lists):
        a, b = lists[k], lists[k + 1]
        order = np.empty(b - a, np.int64)
        order_by(dumped_labels[a:b], order)
        low[k], high[k] = bounds(dumped[a:b])
        for i in range(b - a):
            s[a + i], y[a + i] = dumped[a + order[i]], dumped_labels[a + order[i]]
            e[a + i] = np.exp(s[a + i] - 0.5 * (low[k] + high[k]))
            inverse[a + i] = 1.0 / e[a + i]
    for t in range(len(scores)):
        k = request[t]
        a, b = lists[k], lists[k + 1]
        lower = a + np.searchsorted(y[a:b], labels[t], side="left")
        higher = a + np.searchsorted(y[a:b], labels[t], side="right")
        span = max(high[k], scores[t]) - min(low[k], scores[t])
        if not (scores[t] - scores[t] == 0 and low[k] - low[k] == 0):
            value[t] = slope[t] = np.nan
        elif span <= SPAN:
            own, block = np.exp(scores[t] - 0.5 * (low[k] + high[k])), product_block(span)
            won = row(e[a:lower], 1.0 / own, 0.0, ignored[a:lower], scratch, block)
            lost = row(inverse[higher:b], own, 0.0, ignored[higher:b], scratch, block)
            value[t], slope[t] = won[0] + lost[0], lost[1] - won[1]
        else:
            won = wide_row(s[a:lower], scores[t], 0.0, ignored[a:lower])
            lost = wide_row(-s[higher:b], -scores[t], 0.0, ignored[higher:b])
            value[t], slope[t] = won[0] + lost[0], lost[1] - won[1]
    return value, slope
