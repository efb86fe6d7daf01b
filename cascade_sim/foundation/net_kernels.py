"""Nets of medium cost on pairs, with everything that depends on one side computed beforehand.

As in `kernels`: the value of a pair depends on that pair alone, to the last bit; sums run in eight fixed
lanes. Scores of padding are 0.
"""

import numpy as np

from cascade_sim.foundation.compilation import kernel
from cascade_sim.foundation.kernels import (
    AHEAD,
    FIVE,
    FOUR,
    MIN_COLUMNS,
    ONE,
    PASSES,
    SEVEN,
    SIX,
    THREE,
    TWO,
    ZERO,
    sigmoid_row,
)
from cascade_sim.foundation.limits import LANES
from cascade_sim.foundation.net_shapes import COLD_GROUPS
from cascade_sim.foundation.simd import (
    lane8,
    load8,
    max8,
    prefetch_row,
    relu8,
    splat8,
    spread8,
    store8,
    sum8,
)


@kernel
def inttower_scores(request_codes, request_line, ad_rows, out_weight, ids):
    """Interaction towers: every code of the request with the best of four codes of the ad.

    logit = Σ_l out_weight[l] max_h <request_codes[r, :, l], code h of ad a> + request_line[r] + line of a
    Shapes: request_codes [R, D, 8], request_line [R], out_weight [8], ids [R, n]; a row of ad_rows
    [A, 4 D + 1] has the four codes number by number, then the ad's line.  -> [R, n] float32
    """
    n_requests, n = ids.shape
    dims = request_codes.shape[1]
    last = np.uint64(4 * dims)
    out = np.zeros((n_requests, n), np.float32)
    for row in range(n_requests):
        r = np.uint64(row)
        for j in range(n):
            prefetch_row(ad_rows, max(ids[row, min(j + AHEAD, n - 1)], 0))
            if ids[row, j] < 0:
                continue
            a = np.uint64(ids[row, j])
            m0 = m1 = m2 = m3 = splat8(np.float32(0.0))
            for i in range(dims):
                k, first = np.uint64(i), np.uint64(4 * i)
                code = load8(request_codes, (r, k, ZERO))
                m0 += code * splat8(ad_rows[a, first])
                m1 += code * splat8(ad_rows[a, first + ONE])
                m2 += code * splat8(ad_rows[a, first + TWO])
                m3 += code * splat8(ad_rows[a, first + THREE])
            best = max8(max8(m0, m1), max8(m2, m3)) * load8(out_weight, (ZERO,))
            out[row, j] = sum8(best) + (request_line[r] + ad_rows[a, last])
    return out


@kernel
def cold_scores(request_rows, ad_rows, cross_weight, pair_weight, shift, out_weight, pair, ids):
    """The gated net of crosses.  c = request * ad, s = sigmoid(gates), and with the groups' parts gated

        h = s_0 request + s_1 ad + s_2 (c @ cross) + s_3 pair + shift,   logit = <relu(h[1:]), out> + h[0]
    Rows of the request [R, C + 8 + H] and of the ad [A, C + 8 + H] are [cross, gates, hidden]; cross_weight
    [C, 8 + H], pair_weight [8 + H] and shift [8 + H] are [gates, hidden]: four gates, h[0], three zeros, and
    the rest of h. H = len(out_weight) and C are multiples of 8, filled up with zeros. pair and ids [R, n].
    -> [R, n] float32
    """
    n_requests, n = ids.shape
    out = np.zeros((n_requests, n), np.float32)
    step = min(n, max(MIN_COLUMNS, n // PASSES))
    cross = np.empty((step, cross_weight.shape[0]), np.float32)
    line = np.empty(step, np.float32)
    room = np.empty((4, step * COLD_GROUPS + LANES), np.float32)  # what is stored has lanes that are no gates
    for first in range(0, n, max(step, 1)):
        last = min(first + step, n)
        size = (last - first) * COLD_GROUPS
        gates, below, turns, e = room[0][:size], room[1][:size], room[2][:size], room[3][:size]
        for row in range(n_requests):
            _cross_row(
                request_rows, ad_rows, cross_weight, pair_weight,
                pair, ids, row, first, last, cross, line, room,
            )  # fmt: skip
            sigmoid_row(gates, below, turns, e, gates)
            _gated_row(
                request_rows, ad_rows, cross_weight, pair_weight, shift, out_weight,
                pair, ids, row, first, last, cross, line, gates, out,
            )  # fmt: skip
    return out


@kernel(inline="always")
def _eight_rows(given, row, first, weight, column):
    """Σ_i given[row, first + i] * weight[first + i, column : column + 8] over eight, added pairwise."""
    values = load8(given, (row, first))
    w0, w1 = load8(weight, (first, column)), load8(weight, (first + ONE, column))
    w2, w3 = load8(weight, (first + TWO, column)), load8(weight, (first + THREE, column))
    w4, w5 = load8(weight, (first + FOUR, column)), load8(weight, (first + FIVE, column))
    w6, w7 = load8(weight, (first + SIX, column)), load8(weight, (first + SEVEN, column))
    left = (spread8(values, 0) * w0 + spread8(values, 1) * w1) + (
        spread8(values, 2) * w2 + spread8(values, 3) * w3
    )
    right = (spread8(values, 4) * w4 + spread8(values, 5) * w5) + (
        spread8(values, 6) * w6 + spread8(values, 7) * w7
    )
    return left + right


@kernel
def _cross_row(
    request_rows, ad_rows, cross_weight, pair_weight,
    pair, ids, row, first, last, cross, line, room,
):  # fmt: skip
    """Of some columns the crosses, what they add to h[0], and in room[0] their gates before the sigmoid."""
    r, width = np.uint64(row), cross_weight.shape[0]
    gate_at = np.uint64(width)
    for j in range(first, last):
        at, gate_of = np.uint64(j - first), np.uint64((j - first) * COLD_GROUPS)
        if ids[r, j] < 0:
            store8(room, (ZERO, gate_of), splat8(np.float32(0.0)))
            continue
        a = np.uint64(ids[r, j])
        prefetch_row(ad_rows, max(ids[r, min(j + AHEAD, last - 1)], 0))
        for q in range(0, width, LANES):
            k = np.uint64(q)
            store8(cross, (at, k), load8(request_rows, (r, k)) * load8(ad_rows, (a, k)))
        of_cross = splat8(np.float32(0.0))
        for d in range(0, width, LANES):
            of_cross += _eight_rows(cross, at, np.uint64(d), cross_weight, ZERO)
        line[at] = lane8(of_cross, 4)
        gate = load8(request_rows, (r, gate_at)) + load8(ad_rows, (a, gate_at))
        gate += splat8(pair[r, np.uint64(j)]) * load8(pair_weight, (ZERO,))
        store8(room, (ZERO, gate_of), gate + of_cross)


@kernel
def _gated_row(
    request_rows, ad_rows, cross_weight, pair_weight, shift, out_weight,
    pair, ids, row, first, last, cross, line, gates, out,
):  # fmt: skip
    """out[row, first:last] of `cold_scores`, of crosses and gates that are there."""
    r, width = np.uint64(row), cross_weight.shape[0]
    line_at = np.uint64(width + COLD_GROUPS)
    for j in range(first, last):
        if ids[r, j] < 0:
            continue
        a, at, g = np.uint64(ids[r, j]), np.uint64(j - first), np.uint64((j - first) * COLD_GROUPS)
        s0, s1, s2 = gates[g], gates[g + ONE], gates[g + TWO]
        p = gates[g + THREE] * pair[r, np.uint64(j)]
        h0 = (s0 * request_rows[r, line_at] + s1 * ad_rows[a, line_at]) + (p * pair_weight[4] + shift[4])
        of_request, of_ad, of_cross, of_pair = splat8(s0), splat8(s1), splat8(s2), splat8(p)
        total = splat8(np.float32(0.0))
        for q in range(LANES, cross_weight.shape[1], LANES):
            k, own = np.uint64(q), np.uint64(width + q)
            left = of_request * load8(request_rows, (r, own)) + of_ad * load8(ad_rows, (a, own))
            right = of_pair * load8(pair_weight, (k,)) + load8(shift, (k,))
            crossed = splat8(np.float32(0.0))
            for d in range(0, width, LANES):
                crossed += _eight_rows(cross, at, np.uint64(d), cross_weight, k)
            h = (left + right) + of_cross * crossed
            total += relu8(h) * load8(out_weight, (np.uint64(q - LANES),))
        out[row, j] = sum8(total) + (h0 + s2 * line[at])
