"""Compiled sums over the pages that can be drawn from a list, one ad after another without replacement.

A page's first slots are a set of ads in some order; what follows depends on the set alone. So sums run over
sets, as bit masks of places in the list: 2^d of them instead of d! / (d - k)! pages.
Odds are exp(log score / temperature) up to a factor, 0 for padding. Import through `slates`.
"""

from functools import partial
from typing import Any

import numpy as np
from numba import float64, int64, types, void

from cascade_sim.foundation.compilation import kernel

_REALS = types.Array(float64, 2, "C", readonly=True)
_PLACES = types.Array(int64, 2, "C", readonly=True)
_EFFECTS = types.Array(float64, 1, "C", readonly=True)
_compiled: Any = partial(kernel, error_model="numpy")


@_compiled(int64[::1](int64))
def _set_sizes(depth):
    """How many ads each set holds.  [2^d]"""
    sizes = np.zeros(1 << depth, np.int64)
    for mask in range(1, 1 << depth):
        sizes[mask] = sizes[mask >> 1] + (mask & 1)
    return sizes


@_compiled(void(_REALS, _PLACES, float64[:, ::1]))
def marginals(odds, places, out):
    """P(the ad drawn for slot k is there | list): places [R, K] -> out [R, K]; 1 where the slot is empty."""
    n_requests, depth = odds.shape
    slots = places.shape[1]
    sizes = _set_sizes(depth)
    reached, at_slot = np.zeros(1 << depth), np.zeros((slots, depth))
    for r in range(n_requests):
        reached[:] = 0.0
        at_slot[:] = 0.0
        reached[0] = 1.0
        for mask in range(1 << depth):  # a set comes after all that it holds
            k = sizes[mask]
            if k >= slots or reached[mask] == 0.0:
                continue
            left = 0.0
            for a in range(depth):
                if not mask >> a & 1:
                    left += odds[r, a]
            if left <= 0.0:
                continue
            for a in range(depth):
                if not mask >> a & 1 and odds[r, a] > 0.0:
                    p = reached[mask] * odds[r, a] / left
                    at_slot[k, a] += p
                    reached[mask | 1 << a] += p
        for k in range(slots):
            out[r, k] = 1.0 if places[r, k] < 0 else at_slot[k, places[r, k]]


@_compiled(void(_REALS, _REALS, _EFFECTS, _PLACES, float64[:, ::1], float64[:, ::1]))
def values(odds, gain, effects, places, of_slot, of_rest):
    """Expected gains of slots from k on, sum_j>=k effect_j * gain of slot j, under the drawing policy.

    of_slot [R, K]: given the ads drawn above k and in k; of_rest [R, K]: given those above k. 0 where empty.
    With K columns of -1 in places, of_rest[:, 0] is the value of the whole page.
    """
    n_requests, depth = odds.shape
    slots = places.shape[1]
    sizes = _set_sizes(depth)
    value = np.zeros(1 << depth)
    for r in range(n_requests):
        for mask in range((1 << depth) - 1, -1, -1):
            k = sizes[mask]
            value[mask] = 0.0
            if k >= slots:
                continue
            left, total = 0.0, 0.0
            for a in range(depth):
                if not mask >> a & 1 and odds[r, a] > 0.0:
                    left += odds[r, a]
                    total += odds[r, a] * (effects[k] * gain[r, a] + value[mask | 1 << a])
            if left > 0.0:
                value[mask] = total / left
        mask = 0
        for k in range(slots):
            of_rest[r, k] = value[mask] if sizes[mask] == k else 0.0
            of_slot[r, k] = 0.0
            place = places[r, k]
            if place >= 0:
                mask |= 1 << place
                of_slot[r, k] = effects[k] * gain[r, place] + value[mask]
