"""Compiled loops of `draws.uniform`, which loads them when there are many draws.

`key` is what `random` mixes with: its constants GOLDEN, MIX_1 and MIX_2.
"""

import numpy as np
from numba import uint64

from cascade_sim.foundation.compilation import kernel


@kernel(forceinline=True)
def _mixed(state, part, key):
    x = (state ^ uint64(part)) * key[0] + key[0]
    x = (x ^ (x >> uint64(30))) * key[1]
    x = (x ^ (x >> uint64(27))) * key[2]
    return x ^ (x >> uint64(31))


@kernel
def of_ids(start, ids, key, to_unit):
    """A draw of each id.  [n] -> [n]"""
    out = np.empty(len(ids), np.float64)
    for i in range(len(ids)):
        out[i] = (np.float64(_mixed(start, ids[i], key) >> uint64(12)) + 0.5) * to_unit
    return out


@kernel
def of_pairs(start, first, second, key, to_unit):
    """Draws of ids with others of each.  [n], [n, m] -> [n, m]"""
    out = np.empty(second.shape, np.float64)
    for i in range(len(first)):
        state = _mixed(start, first[i], key)
        for j in range(second.shape[1]):
            out[i, j] = (np.float64(_mixed(state, second[i, j], key) >> uint64(12)) + 0.5) * to_unit
    return out
