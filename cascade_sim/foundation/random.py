"""Random numbers that belong to a purpose.

Every draw is a pure function of (seed, purpose, ids): a counter-based hash, not a generator with
hidden state. Who drew before, how requests were cut into blocks and how many workers there are
cannot change it, and two arms that show the same ad to the same request share the random draw.
"""

import hashlib

import numpy as np

from cascade_sim.foundation.limits import DRAWN_AT_ONCE

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
MIX_2 = np.uint64(0x94D049BB133111EB)
_TO_UNIT = 2.0**-52
_KEY = (GOLDEN, MIX_1, MIX_2), _TO_UNIT  # of the compiled loops
WORTH_COMPILED = 4_096  # draws; fewer are not worth loading numba for


def purpose_key(seed: int, purpose: str) -> np.uint64:
    """The 64-bit stream key of a purpose: blake2b of "seed/purpose"."""
    digest = hashlib.blake2b(f"{seed}/{purpose}".encode(), digest_size=8).digest()
    return np.uint64(int.from_bytes(digest, "little"))


def _mix(x: np.ndarray) -> np.ndarray:
    """The splitmix64 finaliser: every input bit reaches every output bit."""
    x = (x ^ (x >> np.uint64(30))) * MIX_1
    x = (x ^ (x >> np.uint64(27))) * MIX_2
    return x ^ (x >> np.uint64(31))


def bits(seed: int, purpose: str, *ids) -> np.ndarray:
    """64 random bits for each combination of ids (arrays that broadcast); uint64."""
    with np.errstate(over="ignore"):  # wrap-around is the point of the arithmetic
        state = np.atleast_1d(_mix(np.asarray(purpose_key(seed, purpose) + GOLDEN)))
        for part in ids:
            state = _mix((state ^ np.asarray(part).astype(np.uint64)) * GOLDEN + GOLDEN)
    return state


def uniform(seed: int, purpose: str, *ids) -> np.ndarray:
    """Uniform draws in the open interval (0, 1), float64, shape of the broadcast ids.

    52 bits and a half: with one bit more the largest would round to 1, whose normal is infinite.
    Many draws of an id, or of rows of ids that have one in common, take one pass.
    """
    first, *others = (np.asarray(part) for part in ids) if ids else (np.zeros(0),)
    if first.size >= WORTH_COMPILED and first.dtype.kind == "i":
        from cascade_sim.foundation import random_kernels  # numba is loaded when first needed

        start = bits(seed, purpose)[0]
        if not others and first.ndim == 1:
            return random_kernels.of_ids(start, first.astype(np.int64, copy=False), *_KEY)
        kinds = [(other.ndim, other.dtype.kind) for other in others]
        if kinds == [(2, "i")] and first.shape == (len(others[0]), 1):
            own = first[:, 0].astype(np.int64, copy=False)
            return random_kernels.of_pairs(start, own, others[0].astype(np.int64), *_KEY)
    return ((bits(seed, purpose, *ids) >> np.uint64(12)).astype(np.float64) + 0.5) * _TO_UNIT


def normal(seed: int, purpose: str, *ids) -> np.ndarray:
    """Standard normal draws (inverse CDF of `uniform`), float64."""
    from scipy.special import ndtri

    return ndtri(uniform(seed, purpose, *ids))


def exponential(seed: int, purpose: str, *ids) -> np.ndarray:
    """Exponential draws with mean 1, float64."""
    return -np.log(uniform(seed, purpose, *ids))


def parts(n: int) -> list[slice]:
    """Slices that cover ids 0 … n-1: tables drawn part by part need little room besides themselves."""
    return [slice(start, min(start + DRAWN_AT_ONCE, n)) for start in range(0, n, DRAWN_AT_ONCE)]
