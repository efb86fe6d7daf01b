"""The auction of ads whose pCTR is the sigmoid of a dot product: scores, order and prices in one pass.

What `kernels.dot_scores`, `kernels.sigmoid_inplace`, `rules.auction` and `rules.to_micros` do one after the
other for all requests is done here request by request, to the same bits: the numbers of a request then stay
in the nearest cache, and nothing is written but the page. Where all ads take part, eight are scored at once.
"""

import numpy as np
from numba import boolean, float32, float64, int32, int64, types

from cascade_sim.auction.kernels import (
    _BY_REQUEST,
    _EFFECTS,
    _PARAMETERS,
    _ROUNDING,
    _SHORT_REALS,
    FEW,
    _best_few,
    _best_of_many,
    _compiled,
    _score_all,
    price_listed,
    whole_micros,
)
from cascade_sim.foundation.kernels import AHEAD, _score_tiles, dot, sigmoid_row
from cascade_sim.foundation.limits import LANES
from cascade_sim.foundation.simd import prefetch_row

_TILES = types.Array(float32, 3, "C", readonly=True)
_SHORT_IDS = types.Array(int32, 2, "C", readonly=True)
_BIDS = types.Array(float64, 1, "C", readonly=True)


@_compiled(
    int64(
        *(_SHORT_REALS, _SHORT_REALS, _TILES, _SHORT_IDS, boolean, _BIDS),
        *(int64, _PARAMETERS, _BY_REQUEST, float64, _EFFECTS, _ROUNDING),
        *(int32[:, ::1], float32[:, ::1], float64[:, ::1], int64[:, ::1]),
    )
)
def rank_dots(
    code, ad_code, tiles, ids, are_all, bid_of, pricing, parameters, reserve_cpc, score_floor, slot_effects,
    rounding, ads, pctr, bid, cpc_micros,
):  # fmt: skip
    """Fill ads, pctr and bid [R, slots+1] and cpc_micros [R, slots]; the first odd request, or -1.

    code [R, D] and ad_code [A, D]: whose products are the logits; D a multiple of 8. bid_of [A].
    ids [R, n]: the candidates, ascending, -1 padding; with `are_all` all ads, and `tiles` hold ad_code
    without its padding. Odd is a logit that is no number, or a bid or a price that no auction takes.
    """
    n_requests, depth, width = len(code), ads.shape[1], code.shape[1]
    n = len(bid_of) if are_all else ids.shape[1]
    step = 1 if len(reserve_cpc) > 1 else 0
    room = np.empty(max(len(tiles) * LANES, n), np.float32)
    logit, below, turns, e = (
        room[:n],
        np.empty(n, np.float32),
        np.empty(n, np.float32),
        np.empty(n, np.float32),
    )
    quality, own_bid, score = np.empty((1, n), np.float32), np.empty((1, n)), np.empty(n)
    ranked, cpc = np.empty((1, depth), np.int64), np.empty(depth - 1)
    top_score, top_bid, top_quality = np.zeros(depth), np.zeros(depth), np.zeros(depth)
    keys, top_keys, exponents = score.view(np.int64), top_score.view(np.int64), logit.view(np.int32)
    own_quality = quality[0]
    if are_all:
        own_bid[0] = bid_of
    for r in range(n_requests):
        if are_all:
            _score_tiles(code, r, tiles, 0, len(tiles), room)
        else:
            for j in range(n):
                prefetch_row(ad_code, max(ids[r, min(j + AHEAD, n - 1)], 0))
                a = ids[r, j]
                logit[j] = dot(code, r, ad_code, a, width) if a >= 0 else np.float32(0.0)
                own_bid[0, j] = bid_of[np.uint64(max(a, 0))] if a >= 0 else 0.0
        most = np.int32(0)
        for j in range(n):  # as `is_finite`
            most = max(most, exponents[j] & np.int32(0x7F800000))
        if most == np.int32(0x7F800000):
            return r
        sigmoid_row(logit, below, turns, e, own_quality)
        reserve = reserve_cpc[r * step]
        if _score_all(own_bid, quality, 0, reserve, score_floor, score):
            return r
        if depth <= FEW:
            n_kept = _best_few(keys, ids, False, 0, ranked, top_keys)
        else:
            n_kept = _best_of_many(score, ids, False, 0, ranked, top_score)
        for place in range(n_kept):
            j = np.uint64(ranked[0, place])
            ads[r, place] = np.int32(j) if are_all else ids[r, j]
            top_bid[place] = bid[r, place] = own_bid[0, j]
            pctr[r, place] = quality[0, j]
            top_quality[place] = quality[0, j]
        for place in range(n_kept, depth):
            ads[r, place] = -1
            bid[r, place], pctr[r, place] = 0.0, np.float32(0.0)
        price_listed(
            top_bid, top_quality, top_score, n_kept,
            pricing, parameters, reserve, score_floor, slot_effects, rounding, cpc,
        )  # fmt: skip
        for place in range(depth - 1):
            micros = whole_micros(cpc[place], bid[r, place])
            if micros < 0:
                return r
            cpc_micros[r, place] = micros
    return -1
