"""Compiled loops of `draws.uniform`, which loads them when there are many draws."""

import numpy as np
from numba import njit, uint64

from cascade_sim.draws import GOLDEN, MIX_1, MIX_2, TO_UNIT


@njit(cache=True, nogil=True, forceinline=True)
def _mixed(state, part):
    x = (state ^ uint64(part)) * GOLDEN + GOLDEN
    x = (x ^ (x >> uint64(30))) * MIX_1
    x = (x ^ (x >> uint64(27))) * MIX_2
    return x ^ (x >> uint64(31))


@njit(cache=True, nogil=True)
def of_ids(start, ids):
    """A draw of each id.  [n] -> [n]"""
    out = np.empty(len(ids), np.float64)
    for i in range(len(ids)):
        out[i] = (np.float64(_mixed(start, ids[i]) >> uint64(12)) + 0.5) * TO_UNIT
    return out


@njit(cache=True, nogil=True)
def of_pairs(start, first, second):
    """Draws of ids with others of each.  [n], [n, m] -> [n, m]"""
    out = np.empty(second.shape, np.float64)
    for i in range(len(first)):
        state = _mixed(start, first[i])
        for j in range(second.shape[1]):
            out[i, j] = (np.float64(_mixed(state, second[i, j]) >> uint64(12)) + 0.5) * TO_UNIT
    return out
