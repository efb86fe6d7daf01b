"""Compiled loops of the import: hashes of names, and a table from hash to code."""

import numpy as np

from cascade_sim.foundation.compilation import kernel

EMPTY = np.uint64(0)


@kernel
def hash_texts(offsets, data, out):
    """64-bit hashes of texts, which are data[offsets[i]:offsets[i + 1]]; never 0.  [n+1], [bytes] -> out [n]

    FNV-1a over the bytes, then the mixing of MurmurHash3. Two of ten million names share one with a chance of
    about one in 400,000.
    """
    for i in range(len(out)):
        h = np.uint64(0xCBF29CE484222325)
        for j in range(offsets[i], offsets[i + 1]):
            h = (h ^ np.uint64(data[j])) * np.uint64(0x100000001B3)
        h ^= h >> np.uint64(33)
        h *= np.uint64(0xFF51AFD7ED558CCD)
        h ^= h >> np.uint64(33)
        h *= np.uint64(0xC4CEB9FE1A85EC53)
        h ^= h >> np.uint64(33)
        out[i] = h if h != np.uint64(0) else np.uint64(1)


@kernel
def find(keys, codes, hashes, out):
    """The codes of hashes, -1 where the table has none. The length of the table is a power of two."""
    mask = np.uint64(len(keys) - 1)
    for i in range(len(hashes)):
        h = hashes[i]
        at = h & mask
        code = np.int32(-1)
        while keys[at] != np.uint64(0):
            if keys[at] == h:
                code = codes[at]
                break
            at = (at + np.uint64(1)) & mask
        out[i] = code


@kernel
def insert(keys, codes, hashes, new):
    """Put hashes that the table does not have into it, with their codes."""
    mask = np.uint64(len(keys) - 1)
    for i in range(len(hashes)):
        at = hashes[i] & mask
        while keys[at] != np.uint64(0):
            at = (at + np.uint64(1)) & mask
        keys[at] = hashes[i]
        codes[at] = new[i]
