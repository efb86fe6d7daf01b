"""Compiled loops of `parquet`: runs of equal values, and few different ones.

Values are bits, of 4 or 8 bytes.
"""

import numpy as np

from cascade_sim.foundation.compilation import kernel

SLOTS = 1024  # of the table in which values are looked up: four for each value that it may hold


@kernel
def count(values):
    """How many runs of equal values there are; a row at least."""
    n_runs = 1
    for i in range(1, len(values)):
        n_runs += values[i] != values[i - 1]
    return n_runs


@kernel
def coded(values, n_runs, index_bytes):
    """The values of the runs, and the runs as Parquet's hybrid has them: 2 * length, and which run it is."""
    first = np.empty(n_runs, values.dtype)
    out = np.empty(n_runs * (1 + index_bytes) + 5 + len(values) // 64, np.uint8)
    at, run, start = 0, 0, 0
    for i in range(1, len(values) + 1):
        if i < len(values) and values[i] == values[start]:
            continue
        first[run] = values[start]
        length = (i - start) << 1
        while length > 127:
            out[at] = length & 127 | 128
            at += 1
            length >>= 7
        out[at] = length
        at += 1
        index = run
        for _ in range(index_bytes):
            out[at] = index & 255
            at += 1
            index >>= 8
        run, start = run + 1, i
    return first, out[:at]


@kernel
def few(values, most):
    """The different values in the order they come, and the place of each value among them.

    None where there are more than `most`. A value is looked for from a slot that its bits say.
    """
    known, places = np.empty(most, values.dtype), np.empty(len(values), np.uint8)
    slots = np.full(SLOTS, -1, np.int16)
    n_known = 0
    for i in range(len(values)):
        value = values[i]
        slot = np.int64((np.uint64(value) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(54))
        while True:
            place = slots[slot]
            if place < 0:
                if n_known == most:
                    return known[:0], places
                place = np.int16(n_known)
                known[n_known], slots[slot] = value, place
                n_known += 1
                break
            if known[place] == value:
                break
            slot = (slot + 1) & (SLOTS - 1)
        places[i] = place
    return known[:n_known], places


@kernel
def packed(places, bits):
    """Places of so many bits (1, 2, 4 or 8) each, the first in the lowest; filled up to whole groups of 8."""
    n, each = len(places), 8 // bits
    out = np.zeros(-(-n // 8) * bits, np.uint8)
    whole = n // each
    if bits == 8:
        out[:n] = places
    elif bits == 4:
        for b in range(whole):
            out[b] = places[2 * b] | places[2 * b + 1] << 4
    elif bits == 2:
        for b in range(whole):
            out[b] = places[4 * b] | places[4 * b + 1] << 2 | places[4 * b + 2] << 4 | places[4 * b + 3] << 6
    else:
        for b in range(whole):
            byte = 0
            for k in range(8):
                byte |= places[8 * b + k] << k
            out[b] = byte
    for i in range(whole * each, n):
        out[whole] |= places[i] << (bits * (i - whole * each))
    return out
