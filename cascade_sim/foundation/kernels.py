"""Fused loops over (request, candidate) pairs.

numba, without fastmath and without BLAS: the value of a pair depends on that pair alone, so results
are the same for every block size and number of threads. All kernels release the GIL. Sums run in
eight fixed lanes (`simd`), the same on every processor.
Id -1 is padding: scores of padding are 0 and it is never selected.
"""

import numpy as np

from cascade_sim.foundation.compilation import kernel
from cascade_sim.foundation.limits import LANES, SEARCHED_AT_ONCE
from cascade_sim.foundation.simd import (
    is_any_least8,
    lane8,
    load8,
    prefetch_row,
    relu8,
    splat8,
    spread8,
    store8,
    sum8,
)

AHEAD = 8  # candidates ahead whose row is asked for, where a row is a cache line or two
PASSES, MIN_COLUMNS = 8, 16  # how wide tables are read: in so many passes of at least so many candidates
SELECT_BINS = 512
TILES_AT_ONCE = 256  # tiles that stay in the cache while every request of a group looks at them
# Of e^x in float32: the range, log 2 in two parts (the first has few digits, so that k times it is exact),
# 1.5 * 2^23, and the polynomial.
LEAST, UNIT, MAGIC = np.float32(-87.0), np.float32(1.0), np.float32(12582912.0)
LOG2_E, LN2_HIGH, LN2_LOW = np.float32(1.44269504), np.float32(0.693359375), np.float32(-2.12194440e-4)
C5, C4, C3 = np.float32(1.9875691500e-4), np.float32(1.3981999507e-3), np.float32(8.3334519073e-3)
C2, C1, C0 = np.float32(4.1665795894e-2), np.float32(1.6666665459e-1), np.float32(5.0000001201e-1)
ZERO, ONE, TWO, THREE, FOUR, FIVE, SIX, SEVEN = (np.uint64(i) for i in range(8))


def pad_lanes(matrix: np.ndarray) -> np.ndarray:
    """Float32 copy whose last axis is filled up with zeros to a multiple of 8."""
    width = -(-matrix.shape[-1] // LANES) * LANES
    padded = np.zeros((*matrix.shape[:-1], width), dtype=np.float32)
    padded[..., : matrix.shape[-1]] = matrix
    return padded


@kernel(inline="always")
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


@kernel
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


@kernel
def hinge_scores(request_code, ad_code, ids, threshold):
    """max(0, <request_code[r], ad_code[i]> - threshold): the pair feature of the mismatch.  [R, n] float32"""
    out = dot_scores(request_code, ad_code, ids)
    n_requests, n = ids.shape
    for r in range(n_requests):
        for j in range(n):
            out[r, j] = max(np.float32(0.0), out[r, j] - np.float32(threshold)) if ids[r, j] >= 0 else 0.0
    return out


@kernel
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
    out = np.zeros((n_requests, n), np.float32)
    # Some columns of all requests at a time: ids ascend, so the requests meet near each other in the tables.
    step = max(MIN_COLUMNS, n // PASSES)
    for first in range(0, n, step):
        last = min(first + step, n)
        for row in range(n_requests):
            _coaction_row(
                request_in, request_hidden, ad_matrix, ad_hidden,
                mix, pair_weight, out_weight, pair, ids, row, first, last, out,
            )  # fmt: skip
    return out


@kernel
def _coaction_row(
    request_in, request_hidden, ad_matrix, ad_hidden,
    mix, pair_weight, out_weight, pair, ids, row, first, last, out,
):  # fmt: skip
    """out[row, first:last] of `coaction_scores`."""
    n_in, width, n_hidden = ad_matrix.shape[1], mix.shape[1], out_weight.shape[1]
    r = np.uint64(row)
    for j in range(first, last):
        if ids[r, j] < 0:
            continue
        a = np.uint64(ids[r, j])
        following = max(ids[r, min(j + 1, last - 1)], 0)
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


@kernel(forceinline=True, error_model="numpy")
def exp_float32(x, turns, out):
    """out = e^x in float32 for x <= 0, within two units in the last place; e^-87 below -87.

    e^x = 2^k e^r, k = round(x / log 2), |r| <= log(2) / 2, e^r by a polynomial (Cephes' expf). Adding MAGIC
    rounds to an integer and leaves it in the last bits, from where it is shifted to the exponent.
    Every step is one rounded operation on each number by itself: the compiler does several at once, and the
    bits do not depend on how many. `turns` is room for as many numbers.
    """
    for i in range(len(x)):
        v = max(x[i], LEAST)
        turn = v * LOG2_E + MAGIC
        k = turn - MAGIC
        r = (v - k * LN2_HIGH) - k * LN2_LOW
        p = ((((C5 * r + C4) * r + C3) * r + C2) * r + C1) * r + C0
        turns[i] = turn
        out[i] = (p * (r * r) + r) + UNIT
    bits, shifts = out.view(np.int32), turns.view(np.int32)
    for i in range(len(x)):
        bits[i] += shifts[i] << np.int32(23)


@kernel(forceinline=True, error_model="numpy")
def sigmoid_row(logit, below, turns, e, out):
    """Of one row, into `out`, which may be the same; the others are room for as many numbers."""
    for j in range(len(logit)):
        below[j] = -abs(logit[j])
    exp_float32(below, turns, e)
    for j in range(len(logit)):
        top = UNIT if logit[j] >= 0 else e[j]
        out[j] = top / (UNIT + e[j])


@kernel(error_model="numpy")
def sigmoid_inplace(logit):
    """sigma(x) elementwise in float32, of finite numbers; saturates without overflow.  [R, n]

    With e = e^-|x|: 1 / (1 + e) above 0, e / (1 + e) below.
    """
    n = logit.shape[1]
    below, turns, e = np.empty(n, np.float32), np.empty(n, np.float32), np.empty(n, np.float32)
    for r in range(logit.shape[0]):
        sigmoid_row(logit[r], below, turns, e, logit[r])
    return logit


def is_full(ids: np.ndarray) -> bool:
    """Whether no place of [R, n] is padding."""
    return bool(_is_full(ids[:1].copy() if is_one_row(ids) else ids))


def n_filled(ids: np.ndarray) -> np.ndarray:
    """Ads per row, without padding.  [R, n] -> [R] int64"""
    return np.full(len(ids), _n_filled(ids[:1].copy())[0]) if is_one_row(ids) else _n_filled(ids)


def is_one_row(ids: np.ndarray) -> bool:
    """Whether all rows of [R, n] are one and the same in memory, as where all requests meet the same ads."""
    return len(ids) > 1 and ids.strides[0] == 0


@kernel
def _is_full(ids):
    least = np.int32(0)
    for r in range(ids.shape[0]):
        for j in range(ids.shape[1]):
            least = min(least, np.int32(ids[r, j]))
    return least >= 0


@kernel
def _n_filled(ids):
    out = np.empty(ids.shape[0], np.int64)
    for r in range(ids.shape[0]):
        count = 0
        for j in range(ids.shape[1]):
            count += ids[r, j] >= 0
        out[r] = count
    return out


@kernel
def take_columns(values, columns, empty):
    """values[r, columns[r, j]], `empty` where a column is -1.  [R, n], [R, k] -> [R, k]"""
    out = np.empty(columns.shape, values.dtype)
    for r in range(columns.shape[0]):
        for j in range(columns.shape[1]):
            column = columns[r, j]
            out[r, j] = values[r, column] if column >= 0 else empty
    return out


@kernel
def smallest_per_row(ids, draw, k):
    """The k ids of the least draws, least first; of equals the first column.  [R, n], [R, n] -> [R, k] int32

    Draws are above 0. Padding is never taken; short rows end in -1. Floats above 0 have the order of their
    bits, so the minimum of several is found at once.
    """
    n_rows, n = ids.shape
    out = np.full((n_rows, k), -1, np.int32)
    taken = np.int64(2**63 - 1)
    keys = np.empty(n, np.int64)
    bits = draw.view(np.int64)
    for r in range(n_rows):
        for j in range(n):
            keys[j] = bits[r, j] if ids[r, j] >= 0 else taken
        for place in range(k):
            least = taken
            for j in range(n):
                least = min(least, keys[j])
            if least == taken:
                break
            first = 0
            while keys[first] != least:
                first += 1
            out[r, place] = ids[r, first]
            keys[first] = taken
    return out


@kernel
def guided_search(cdf, guide, u):
    """The first place of `cdf` above u, the last one if there is none.  [U], [G], [R] -> [R] int32

    guide[g] is that of g / G.
    """
    out, last = np.empty(len(u), np.int32), len(cdf) - 1
    for i in range(len(u)):
        place = np.int64(guide[np.int64(u[i] * len(guide))])
        while place < last and cdf[place] <= u[i]:
            place += 1
        out[i] = place
    return out


@kernel
def is_finite(values):
    """Whether no float32 of [R, n] is infinite or NaN: none has all bits of the exponent set."""
    bits, most = values.view(np.int32), np.int32(0)
    for r in range(bits.shape[0]):
        for j in range(bits.shape[1]):
            most = max(most, bits[r, j] & np.int32(0x7F800000))
    return most < np.int32(0x7F800000)


@kernel
def kth_largest(values, n, k):
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


@kernel
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
        in_bin = np.int64(0)  # a literal would be a type of its own, compiled besides
        for j in range(n):
            if ids[r, j] >= 0 and (np.int64(key[j]) - low) >> shift == last:
                work[in_bin] = key[j]
                in_bin += 1
        cut = kth_largest(work, in_bin, missing)
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


@kernel
def admitted_worth(ids, ctr, bid, quality, reserve, floor):
    """ctr * bid, and -inf for what an auction with these reserves would not admit.  [R, m] float64"""
    worth = np.full(ids.shape, -np.inf)
    for r in range(ids.shape[0]):
        for j in range(ids.shape[1]):
            score = bid[r, j] * quality[r, j]
            if ids[r, j] >= 0 and score > 0 and bid[r, j] >= reserve and score >= floor:
                worth[r, j] = ctr[r, j] * bid[r, j]
    return worth


def tiled(matrix: np.ndarray) -> np.ndarray:
    """The rows in tiles of eight: tile[t, d, i] = matrix[8 t + i, d].  [A, D] -> [T, D, 8] float32

    Rows that fill up the last tile are zeros.
    """
    n, width = matrix.shape
    tiles = np.zeros((-(-n // LANES), width, LANES), np.float32)
    whole = n // LANES
    tiles[:whole] = matrix[: whole * LANES].reshape(whole, LANES, width).transpose(0, 2, 1)
    if whole < len(tiles):
        tiles[whole, :, : n - whole * LANES] = matrix[whole * LANES :].T
    return tiles


@kernel(forceinline=True)
def _score_tiles(code, row, tiles, first, last, out):
    """`dot` of a row with the rows of some tiles, to the same bits: out[:8 (last - first)].

    Lane i is of row i of a tile; what are lanes in `dot` are eight sums here. Its zeros at the end are left
    out: a sum that began with +0 is never -0, so they change nothing.
    """
    r, width, zero = np.uint64(row), tiles.shape[1], splat8(np.float32(0.0))
    whole = width - width % LANES
    for tile in range(first, last):
        t = np.uint64(tile)
        s0, s1, s2, s3, s4, s5, s6, s7 = zero, zero, zero, zero, zero, zero, zero, zero
        for d in range(0, whole, LANES):
            e = np.uint64(d)
            s0 += splat8(code[r, e]) * load8(tiles, (t, e, ZERO))
            s1 += splat8(code[r, e + ONE]) * load8(tiles, (t, e + ONE, ZERO))
            s2 += splat8(code[r, e + TWO]) * load8(tiles, (t, e + TWO, ZERO))
            s3 += splat8(code[r, e + THREE]) * load8(tiles, (t, e + THREE, ZERO))
            s4 += splat8(code[r, e + FOUR]) * load8(tiles, (t, e + FOUR, ZERO))
            s5 += splat8(code[r, e + FIVE]) * load8(tiles, (t, e + FIVE, ZERO))
            s6 += splat8(code[r, e + SIX]) * load8(tiles, (t, e + SIX, ZERO))
            s7 += splat8(code[r, e + SEVEN]) * load8(tiles, (t, e + SEVEN, ZERO))
        e = np.uint64(whole)
        if width > whole:
            s0 += splat8(code[r, e]) * load8(tiles, (t, e, ZERO))
        if width > whole + 1:
            s1 += splat8(code[r, e + ONE]) * load8(tiles, (t, e + ONE, ZERO))
        if width > whole + 2:
            s2 += splat8(code[r, e + TWO]) * load8(tiles, (t, e + TWO, ZERO))
        if width > whole + 3:
            s3 += splat8(code[r, e + THREE]) * load8(tiles, (t, e + THREE, ZERO))
        if width > whole + 4:
            s4 += splat8(code[r, e + FOUR]) * load8(tiles, (t, e + FOUR, ZERO))
        if width > whole + 5:
            s5 += splat8(code[r, e + FIVE]) * load8(tiles, (t, e + FIVE, ZERO))
        if width > whole + 6:
            s6 += splat8(code[r, e + SIX]) * load8(tiles, (t, e + SIX, ZERO))
        score = ((s0 + s4) + (s1 + s5)) + ((s2 + s6) + (s3 + s7))
        store8(out, (np.uint64((tile - first) * LANES),), score)


@kernel
def tile_scores(code, tiles, n):
    """<code[r], row j> for all n rows of the tiles.  [R, D], [T, D, 8] -> [R, n] float32"""
    out = np.empty((len(code), len(tiles) * LANES), np.float32)
    for r in range(len(code)):
        _score_tiles(code, r, tiles, 0, len(tiles), out[r])
    return out[:, :n]


@kernel
def nearest_rows(code, tiles, n, c):
    """The c of n rows with the largest <code[r], row>, of equals the smaller; ascending.  -> [R, c] int32

    What `select_top` says of `dot_scores`, 1 <= c <= n, finite numbers. The rows are read once for a group of
    requests, some tiles at a time.
    """
    n_requests = len(code)
    out = np.empty((n_requests, c), np.int32)
    group = min(SEARCHED_AT_ONCE, n_requests)
    found = np.empty((group, 2 * c + LANES), np.int32)
    score = np.empty((group, 2 * c + LANES), np.float32)
    size = np.empty(group, np.int64)
    for first in range(0, n_requests, group):
        last = min(first + group, n_requests)
        _collect(code[first:last], tiles, n, c, True, found, score, size)
        for r in range(first, last):
            g = r - first
            if size[g] < c:  # the rows at the front were no fair sample
                one = slice(g, g + 1)
                _collect(code[r : r + 1], tiles, n, c, False, found[one], score[one], size[one])
            out[r] = found[g, :c]
    return out


@kernel
def _collect(code, tiles, n, c, is_sampled, found, score, size):
    """found[r, :c]: the c nearest of each request; with a bar that was set too high, size[r] < c.

    A request collects the rows that reach its bar. The bar begins where, by the rows at the front, somewhat
    more than c will; whenever 2 c places are full, the c best stay and the last of them is the new bar.
    """
    n_tiles, most = len(tiles), TILES_AT_ONCE * LANES
    bar = np.full(len(code), -np.inf, np.float32)
    near, work = np.empty(most, np.float32), np.empty(max(most, 2 * c + LANES), np.float32)
    count = np.empty(SELECT_BINS, np.int32)
    size[:] = 0
    for start in range(0, n_tiles, TILES_AT_ONCE):
        end = min(start + TILES_AT_ONCE, n_tiles)
        before = start * LANES
        here = min(end * LANES, n) - before
        for r in range(len(code)):
            _score_tiles(code, r, tiles, start, end, near)
            if start == 0 and is_sampled:
                place = _sampled_place(here, n, c)
                if place <= here:
                    bar[r] = _kth_of(near, here, place, work, count)
            at, least = size[r], bar[r]
            for j in range(0, here, LANES):
                if is_any_least8(load8(near, (np.uint64(j),)), splat8(least)):
                    for i in range(j, min(j + LANES, here)):  # writes first, asks later: no branch to guess
                        found[r, at], score[r, at] = before + i, near[i]
                        at += near[i] >= least
                    if at >= 2 * c:
                        least = _keep_best(found[r], score[r], at, c, work, count)
                        at = c
            size[r], bar[r] = at, least
    for r in range(len(code)):
        if size[r] >= c:
            _keep_best(found[r], score[r], size[r], c, work, count)


@kernel
def _sampled_place(m, n, c):
    """Which of m sampled rows, best first, is surely not above the c-th of all n.

    With rows in any order of chance, that is: four deviations and more below what is expected.
    """
    if m == n:
        return c
    expected = c * m / n
    return int(np.ceil(1.3 * expected + 4.0 * np.sqrt(expected) + 4.0))


@kernel
def _keep_best(found, score, n, c, work, count):
    """Moves the c best of the first n to the front, in their order, of equals the first. -> the last score"""
    cut = _kth_of(score, n, c, work, count)
    ties = c
    for j in range(n):
        ties -= score[j] > cut
    at = 0
    for j in range(n):
        is_tie = score[j] == cut and ties > 0
        is_kept = score[j] > cut or is_tie
        ties -= is_tie
        found[at], score[at] = found[j], score[j]
        at += is_kept
    return cut


@kernel
def _kth_of(values, n, k, work, count):
    """The k-th largest of values[:n] (1 <= k <= n), which stay as they are; `work` has room for n.

    A histogram finds its bin, and only that bin is searched.
    """
    low, high = values[0], values[0]
    for j in range(n):
        low, high = min(low, values[j]), max(high, values[j])
    if low == high:
        return low
    scale = np.float32(SELECT_BINS - 1) / (high - low)
    if not np.isfinite(scale):  # too near each other for bins
        work[:n] = values[:n]
        return kth_largest(work, n, k)
    count[:] = 0
    for j in range(n):
        count[int((values[j] - low) * scale)] += 1
    missing, last = k, SELECT_BINS - 1
    while count[last] < missing:
        missing -= count[last]
        last -= 1
    in_bin = np.int64(0)
    for j in range(n):
        work[in_bin] = values[j]
        in_bin += int((values[j] - low) * scale) == last
    return kth_largest(work, in_bin, missing)
