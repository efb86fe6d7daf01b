"""Fused loops over (request, candidate) pairs.

numba, without fastmath and without BLAS: the value of a pair depends on that pair alone, so results
are the same for every block size and number of threads. All kernels release the GIL. Sums run in
eight fixed lanes (`lanes`), the same on every processor.
Id -1 is padding: scores of padding are 0 and it is never selected.
"""

import numpy as np
from numba import njit

from cascade_sim.lanes import LANES, lane8, load8, prefetch_row, relu8, splat8, spread8, sum8

AHEAD = 8  # candidates ahead whose row is asked for, where a row is a cache line or two
SELECT_BINS = 512
ZERO, ONE, TWO, THREE, FOUR, FIVE, SIX, SEVEN = (np.uint64(i) for i in range(8))


def pad_lanes(matrix: np.ndarray) -> np.ndarray:
    """Float32 copy whose last axis is filled up with zeros to a multiple of 8."""
    width = -(-matrix.shape[-1] // LANES) * LANES
    padded = np.zeros((*matrix.shape[:-1], width), dtype=np.float32)
    padded[..., : matrix.shape[-1]] = matrix
    return padded


@njit(cache=True, nogil=True, inline="always")
def dot(a, row, b, column, width):
    """<a[row], b[column]> over `width` (a multiple of 8) in eight lanes, added pairwise at the end.

    Unsigned indices: numba then leaves out the wrap-around of negative ones.
    """
    i, j = np.uint64(row), np.uint64(column)
    total = splat8(np.float32(0.0))
    for d in range(0, width, LANES):
        e = np.uint64(d)
        total += load8(a, (i, e)) * load8(b, (j, e))
    return sum8(total)


@njit(cache=True, nogil=True)
def dot_scores(request_code, ad_code, ids):
    """logit[r, j] = <request_code[r], ad_code[ids[r, j]]>.  [R, D], [A, D], [R, n] -> [R, n] float32"""
    n_requests, n = ids.shape
    width = request_code.shape[1]
    out = np.zeros((n_requests, n), np.float32)
    for r in range(n_requests):
        for j in range(n):
            prefetch_row(ad_code, max(ids[r, min(j + AHEAD, n - 1)], 0))
            if ids[r, j] >= 0:
                out[r, j] = dot(request_code, r, ad_code, ids[r, j], width)
    return out


@njit(cache=True, nogil=True)
def hinge_scores(request_code, ad_code, ids, threshold):
    """max(0, <request_code[r], ad_code[i]> - threshold): the pair feature of the mismatch.  [R, n] float32"""
    out = dot_scores(request_code, ad_code, ids)
    n_requests, n = ids.shape
    for r in range(n_requests):
        for j in range(n):
            out[r, j] = max(np.float32(0.0), out[r, j] - np.float32(threshold)) if ids[r, j] >= 0 else 0.0
    return out


@njit(cache=True, nogil=True)
def coaction_scores(
    request_in, request_hidden, ad_matrix, ad_hidden, mix, pair_weight, out_weight, pair, ids
):
    """The co-action network on pairs, with everything that depends on one side computed beforehand.

    m = ad_matrix[a]^T request_in[r]                                                     [8]
    h = request_hidden[r] + ad_hidden[a] + pair * pair_weight + m @ mix                  [W]
    logit = <relu(h[:H]), out_weight> + h[H]           H = out_weight.shape[1], a multiple of 8; W > H
    Shapes: request_in [R, P], request_hidden [R, W], ad_matrix [A, P, 8], ad_hidden [A, W],
    mix [8, W], pair_weight [W], out_weight [1, H], pair [R, n].  -> [R, n] float32
    """
    n_requests, n = ids.shape
    n_in, width, n_hidden = ad_matrix.shape[1], mix.shape[1], out_weight.shape[1]
    out = np.zeros((n_requests, n), np.float32)
    for row in range(n_requests):
        r = np.uint64(row)
        for j in range(n):
            if ids[r, j] < 0:
                continue
            a = np.uint64(ids[r, j])
            following = max(ids[r, min(j + 1, n - 1)], 0)
            prefetch_row(ad_matrix, following)
            prefetch_row(ad_hidden, following)
            m = splat8(np.float32(0.0))
            for i in range(n_in):
                k = np.uint64(i)
                m += splat8(request_in[r, k]) * load8(ad_matrix, (a, k, ZERO))
            m0, m1, m2, m3 = spread8(m, 0), spread8(m, 1), spread8(m, 2), spread8(m, 3)
            m4, m5, m6, m7 = spread8(m, 4), spread8(m, 5), spread8(m, 6), spread8(m, 7)
            p = splat8(pair[r, np.uint64(j)])
            total = splat8(np.float32(0.0))
            linear = np.float32(0.0)
            for q in range(0, width, LANES):
                k = np.uint64(q)
                own = load8(request_hidden, (r, k)) + load8(ad_hidden, (a, k)) + p * load8(pair_weight, (k,))
                left = (m0 * load8(mix, (ZERO, k)) + m1 * load8(mix, (ONE, k))) + (
                    m2 * load8(mix, (TWO, k)) + m3 * load8(mix, (THREE, k))
                )
                right = (m4 * load8(mix, (FOUR, k)) + m5 * load8(mix, (FIVE, k))) + (
                    m6 * load8(mix, (SIX, k)) + m7 * load8(mix, (SEVEN, k))
                )
                h = own + left + right
                if q < n_hidden:
                    total += relu8(h) * load8(out_weight, (ZERO, k))
                elif q == n_hidden:
                    linear = lane8(h, 0)
            out[r, j] = sum8(total) + linear
    return out


@njit(cache=True, nogil=True)
def sigmoid_inplace(logit):
    """sigma(x) elementwise in float32; saturates without overflow.  [R, n]"""
    one = np.float32(1.0)
    for r in range(logit.shape[0]):
        for j in range(logit.shape[1]):
            logit[r, j] = one / (one + np.exp(-logit[r, j]))
    return logit


@njit(cache=True, nogil=True)
def _kth_largest(values, n, k):
    """The k-th largest of values[:n] (1 <= k <= n). Quickselect, median of three; reorders values."""
    left, right = 0, n - 1
    target = k - 1
    while left < right:
        mid = (left + right) >> 1
        a, b, c = values[left], values[mid], values[right]
        pivot = max(min(a, b), min(max(a, b), c))
        i, j = left, right
        while i <= j:
            while values[i] > pivot:
                i += 1
            while values[j] < pivot:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i += 1
                j -= 1
        if target <= j:
            right = j
        elif target >= i:
            left = i
        else:
            return values[target]
    return values[target]


@njit(cache=True, nogil=True)
def select_top(ids, score, c):
    """The c best of each row by (score, then smaller column), kept in column order; score float32.

    Rows of `ids` ascend, so a tie goes to the smaller ad id. Padding is never taken; short rows end
    in -1.  -> (chosen ids [R, c] int32, columns [R, c] int32, -1 where empty)

    Floats are compared as integers in the order of their bits. A histogram of those finds the bin
    with the last one taken, and only that bin is searched exactly.
    """
    n_requests, n = ids.shape
    chosen = np.full((n_requests, c), -1, np.int32)
    columns = np.full((n_requests, c), -1, np.int32)
    raw = score.view(np.int32)
    key, work = np.empty(n, np.int32), np.empty(n, np.int32)
    count = np.empty(SELECT_BINS, np.int32)
    for r in range(n_requests):
        low, high, size = np.int64(2**31 - 1), np.int64(-(2**31)), 0
        for j in range(n):
            key[j] = raw[r, j] ^ ((raw[r, j] >> 31) & np.int32(0x7FFFFFFF))
            if ids[r, j] >= 0:
                low, high = min(low, np.int64(key[j])), max(high, np.int64(key[j]))
                size += 1
        if size == 0:
            continue
        shift = 0
        while ((high - low) >> shift) >= SELECT_BINS:
            shift += 1
        for b in range(SELECT_BINS):
            count[b] = 0
        for j in range(n):
            if ids[r, j] >= 0:
                count[(np.int64(key[j]) - low) >> shift] += 1
        missing, last = min(c, size), SELECT_BINS - 1
        while count[last] < missing:
            missing -= count[last]
            last -= 1
        in_bin = 0
        for j in range(n):
            if ids[r, j] >= 0 and (np.int64(key[j]) - low) >> shift == last:
                work[in_bin] = key[j]
                in_bin += 1
        cut = _kth_largest(work, in_bin, missing)
        ties = missing
        for j in range(in_bin):
            ties -= work[j] > cut
        at = 0
        for j in range(n):
            if ids[r, j] >= 0 and key[j] >= cut:
                if key[j] == cut:
                    if ties == 0:
                        continue
                    ties -= 1
                chosen[r, at], columns[r, at] = ids[r, j], j
                at += 1
    return chosen, columns
