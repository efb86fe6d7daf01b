"""Compiled loops of the auction: one pass per request, no sorting. Import only through `auction.rules`.

Compiled ahead for fixed types and kept on disk, so that a call never meets the compiler twice.
No fastmath: the order of a request's ads must not depend on the machine's vector width.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numba import boolean, float32, float64, int64, njit, types
from numba.np.unsafe.ndarray import to_fixed_tuple

from cascade_sim.auction.pricing import RULES, Pricing, Slot
from cascade_sim.foundation.compilation import kernel

# Declared read-only so that frozen inputs are taken as they are; writable ones convert for free.
_REALS = types.Array(float64, 2, "C", readonly=True)
_SHORT_REALS = types.Array(float32, 2, "C", readonly=True)  # as models predict: no copy is made of them
_IDS = types.Array(int64, 2, "C", readonly=True)
_EFFECTS = _BY_REQUEST = _PARAMETERS = _ROUNDING = types.Array(float64, 1, "C", readonly=True)
_inner: Any = partial(njit, nogil=True, error_model="numpy", forceinline=True)
_compiled: Any = partial(kernel, error_model="numpy")
MICROS = 1e6  # in a unit of money
MAX_MONEY = 9.0e12  # above it, micro-units no longer fit into 64 bits
SLACK = 1e-9  # of a number of units: what is nearer to a multiple was one before floats took it apart
MAX_SLACK = 1e-3  # and units at most
NEARLY_1 = 1 + 4 * np.finfo(float).eps  # two roundings away from an integer counts as that number
FEW = 12  # places of a list, up to which a pass for each is quicker than insertion
NAMES = tuple(RULES)  # the rules that are compiled: those registered when this module is first imported


def _with_parameters(rule: Pricing) -> Any:
    """A rule as a compiled function (slot, parameters [n]) -> price."""
    own, n = _inner(rule.price), len(rule.parameters)
    if n == 0:

        @_inner
        def plain(slot, parameters):
            return own(slot)

        return plain

    @_inner
    def with_own(slot, parameters):
        return own(slot, *to_fixed_tuple(parameters, n))

    return with_own


def _one_of(rules: Sequence[Pricing]) -> Any:
    """The rules as one compiled function (index, slot, parameters) -> price: a comparison for each before."""
    own = _with_parameters(rules[0])
    if len(rules) == 1:

        @_inner
        def last(index, slot, parameters):
            return own(slot, parameters)

        return last
    others = _one_of(rules[1:])

    @_inner
    def chosen(index, slot, parameters):
        return own(slot, parameters) if index == 0 else others(index - 1, slot, parameters)

    return chosen


_asked = _one_of(tuple(RULES.values()))


@_inner
def rounded(price, unit, way):
    """A price as a multiple of `unit` micro-units, the way as a place in `pricing.WAYS`. In money.

    A price that floats set apart from a multiple, or from the middle of two, by SLACK counts as that.
    """
    units = price * (MICROS / unit)
    slack = min(SLACK * max(units, 1.0), MAX_SLACK)
    half = 0.5 if way == 0.0 else 0.0
    whole = np.ceil(units - slack) if way == 1.0 else np.floor(units + slack + half)
    return whole * unit / MICROS


@_compiled(types.void(float64[::1], float64, float64, float64[::1]))
def all_rounded(price, unit, way, out):
    """Fill out [n] with `rounded` prices."""
    for i in range(len(price)):
        out[i] = rounded(price[i], unit, way)


@_inner
def price_listed(
    bid, quality, score, n_listed, pricing, parameters, reserve_cpc, score_floor, slot_effects, rounding, cpc
):
    """CPC of one ranked list. bid, quality, score: slots + 1 places, n_listed of them filled; cpc: per slot.

    pricing is the place of the rule among NAMES, parameters are its own. rounding [3]: unit in micro-units
    (0 none), way, and the increment over the runner-up.

    The reserves of an ad take the place of every lower score below it, as a bidder for each slot would.
    """
    slots = cpc.shape[0]
    for k in range(slots):
        if k >= n_listed:
            cpc[k] = 0.0
            continue
        next_score = score[k + 1] if k + 1 < n_listed else 0.0
        # Quality 0 (only when repricing) makes prices infinite, so the bid is paid; 0 / 0 must not arise.
        critical_bid = next_score / quality[k] + rounding[2] if next_score > 0.0 else 0.0
        min_score = max(score_floor, reserve_cpc * quality[k])
        externality = 0.0  # sum over j > k of (x_{j-1} - x_j) * max(s_j, least); x = 0 beyond the last slot
        effect_below = 0.0
        for j in range(slots - 1, k - 1, -1):
            met = max(score[j + 1], min_score) if j + 1 < n_listed else min_score
            externality += (slot_effects[j] - effect_below) * met
            effect_below = slot_effects[j]
        per_click = externality / slot_effects[k]
        per_click = per_click / quality[k] if per_click > 0.0 else 0.0
        least = max(score_floor / quality[k], reserve_cpc) if score_floor > 0.0 else reserve_cpc
        price = _asked(pricing, Slot(bid[k], critical_bid, per_click), parameters)
        price = min(max(price, least), bid[k])
        if rounding[0] > 0.0:
            price = min(rounded(price, rounding[0], rounding[1]), bid[k])
        cpc[k] = price


# Rows are named by their number: an array of a row by itself would have to be counted in and out.


@_inner
def _score_all(bid, quality, r, reserve, score_floor, score):
    """Fill score [c], -1 for ads that are not eligible; whether any input is bad. Without branches."""
    n_bad = 0
    for j in range(len(score)):
        b, q = bid[r, j], np.float64(quality[r, j])
        s = b * q
        # An infinite factor gives an infinite score, or NaN beside a zero: one comparison finds both.
        n_bad += not ((b >= 0.0) & (q >= 0.0) & (s < np.inf))
        score[j] = s if (b > 0.0) & (q > 0.0) & (b >= reserve) & (s >= score_floor) else -1.0
    return n_bad > 0


@_inner
def _first_bad(bid, quality, ids, has_ids, r, score):
    """The place of the first bad input that is no padding, -1 if there is none. Padding is not eligible."""
    for j in range(len(score)):
        b, q = bid[r, j], np.float64(quality[r, j])
        if has_ids and ids[r, j] < 0:
            score[j] = -1.0
        elif not (b >= 0.0 and q >= 0.0 and b * q < np.inf):
            return j
    return -1


@_inner
def _best_few(keys, ids, has_ids, r, ranked, top_score):
    """Fill ranked and top_score (as keys) with the best eligible ads, and return how many: a pass for each.

    keys [c]: the scores as integers. Floats from 0 on have the order of their bits, and those of -1.0
    are negative, so the maximum of several is found at once. Spoils them.
    """
    depth = ranked.shape[1]
    for place in range(depth):
        best = np.int64(-1)
        for j in range(len(keys)):
            best = max(best, keys[j])
        if best < 0:
            return place
        first = 0
        while keys[first] != best:
            first += 1
        if has_ids:
            for j in range(first + 1, len(keys)):
                if keys[j] == best and ids[r, j] < ids[r, first]:
                    first = j
        top_score[place] = best
        ranked[r, place] = first
        keys[first] = -1
    return depth


@_inner
def _best_of_many(score, ids, has_ids, r, ranked, top_score):
    """The same by insertion: most candidates only meet the worst one kept."""
    n_kept, depth = 0, ranked.shape[1]
    for j in range(len(score)):
        s = score[j]
        if s < 0.0 or (n_kept == depth and s < top_score[depth - 1]):
            continue
        place = n_kept
        while place > 0:
            ahead = top_score[place - 1]
            if ahead > s or (ahead == s and (not has_ids or ids[r, ranked[r, place - 1]] <= ids[r, j])):
                break
            place -= 1
        if place == depth:
            continue
        n_kept = min(n_kept + 1, depth)
        for move in range(n_kept - 1, place, -1):
            top_score[move] = top_score[move - 1]
            ranked[r, move] = ranked[r, move - 1]
        top_score[place] = s
        ranked[r, place] = j
    return n_kept


@_compiled(
    [
        int64(
            *(_REALS, quality, _IDS, boolean, int64, _PARAMETERS, _BY_REQUEST, float64, _EFFECTS, _ROUNDING),
            *(int64[:, ::1], float64[:, ::1], float64[:, ::1], float64[:, ::1]),
        )
        for quality in (_REALS, _SHORT_REALS)
    ]
)
def rank_and_price(
    bid, quality, ids, has_ids, pricing, parameters, reserve_cpc, score_floor, slot_effects, rounding, ranked,
    ranked_bid, ranked_quality, cpc,
):  # fmt: skip
    """Fill ranked, its bids and qualities [R, slots+1], and cpc [R, slots].

    Returns the flat index of the first bad input, or -1.

    reserve_cpc: [1] for all requests, or [R].
    """
    n_requests, n_candidates = bid.shape
    step = 1 if len(reserve_cpc) > 1 else 0
    depth = ranked.shape[1]
    score = np.empty(n_candidates)
    top_score, top_bid, top_quality = np.zeros(depth), np.zeros(depth), np.zeros(depth)
    keys, top_keys = score.view(np.int64), top_score.view(np.int64)
    for r in range(n_requests):
        reserve = reserve_cpc[r * step]
        is_any_bad = _score_all(bid, quality, r, reserve, score_floor, score)
        if is_any_bad or has_ids:
            bad = _first_bad(bid, quality, ids, has_ids, r, score)
            if bad >= 0:
                return r * n_candidates + bad
        if depth <= FEW:
            n_kept = _best_few(keys, ids, has_ids, r, ranked, top_keys)
        else:
            n_kept = _best_of_many(score, ids, has_ids, r, ranked, top_score)
        for place in range(n_kept):
            top_bid[place] = ranked_bid[r, place] = bid[r, ranked[r, place]]
            top_quality[place] = ranked_quality[r, place] = quality[r, ranked[r, place]]
        for place in range(n_kept, depth):
            ranked[r, place] = -1
            ranked_bid[r, place] = ranked_quality[r, place] = 0.0
        price_listed(
            top_bid, top_quality, top_score, n_kept,
            pricing, parameters, reserve, score_floor, slot_effects, rounding, cpc[r],
        )  # fmt: skip
    return -1


@_inner
def whole_micros(price, bid):
    """`rules.to_micros` of one price and its bid; -1 if one of them is no amount of money."""
    if not (0.0 <= price <= MAX_MONEY and 0.0 <= bid <= MAX_MONEY):
        return np.int64(-1)
    money, most = price * MICROS, bid * MICROS
    whole, nearest = np.floor(money), np.rint(most)
    charge = np.int64(whole) + (money - whole >= 0.5)
    return min(charge, np.int64(nearest) - (nearest > most * NEARLY_1))


@_compiled(boolean(float64[::1], float64[::1], int64[::1]))
def all_micros(price, bid, charges):
    """Fill charges [n] with `whole_micros`; False if some amount is none of money."""
    for i in range(len(price)):
        charges[i] = whole_micros(price[i], bid[i])
        if charges[i] < 0:
            return False
    return True


@_compiled(
    int64(_REALS, _REALS, int64, _PARAMETERS, _BY_REQUEST, float64, _EFFECTS, _ROUNDING, float64[:, ::1])
)
def price_in_order(bid, quality, pricing, parameters, reserve_cpc, score_floor, slot_effects, rounding, cpc):
    """Fill cpc [R, slots] for lists in rank order; return the flat index of the first bad input, or -1.

    A list ends at its first bid of 0; a positive bid after that counts as bad input.
    """
    n_requests, n_places = bid.shape
    step = 1 if len(reserve_cpc) > 1 else 0
    depth = cpc.shape[1] + 1
    top_score, top_bid, top_quality = np.zeros(depth), np.zeros(depth), np.zeros(depth)
    for r in range(n_requests):
        n_listed = 0
        for j in range(n_places):
            b = bid[r, j]
            if b == 0.0:
                continue
            q = quality[r, j]
            s = b * q
            if j > n_listed or not (b >= 0.0 and q >= 0.0 and s < np.inf):
                return r * n_places + j
            if j < depth:
                top_bid[j], top_quality[j], top_score[j] = b, q, s
            n_listed += 1
        n_listed, reserve = min(n_listed, depth), reserve_cpc[r * step]
        price_listed(
            top_bid, top_quality, top_score, n_listed,
            pricing, parameters, reserve, score_floor, slot_effects, rounding, cpc[r],
        )  # fmt: skip
    return -1
