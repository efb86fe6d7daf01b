"""Uniform draws of ads from the corpus, without a score of every ad."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cascade_sim.foundation import random as draws
from cascade_sim.protocols import Availability

DENSE = 0.25  # share of the corpus from which on every ad is given a draw of its own
MAX_TRIES = 4  # draws per ad of the corpus before that is done after all


def uniform_ads(
    requests: NDArray[np.int64],
    size: int,
    n_ads: int,
    seed: int,
    purpose: str,
    times: NDArray[np.float64] | None = None,
    lives: Availability | None = None,
) -> NDArray[np.int32]:
    """A uniform draw of different ads for each request, in random order; of those that are there.

    What a request is given depends on it alone, not on the others of its block.

    Args:
        requests: [R] ids, by which draws are keyed.
        size: ads of each request.
        n_ads: ads of the corpus.
        times: [R] seconds at which ads have to be there, with `lives`; without it all are.

    Returns:
        [R, size] int32, -1 at the end of a row where fewer are there.

    >>> uniform_ads(np.arange(2), 2, 5, seed=1, purpose="doc").shape
    (2, 2)
    """
    share = 1.0 if lives is None else lives.share
    if size >= DENSE * share * n_ads:
        return _dense(requests, size, n_ads, seed, purpose, times, lives)
    out = np.empty((len(requests), size), np.int32)
    left, tries = np.arange(len(requests)), _tries(size, share)
    while len(left):
        draw = draws.uniform(seed, purpose, requests[left, None], np.arange(tries)[None, :])
        ids = (draw * n_ads).astype(np.int32)
        is_good = ~_is_repeated(ids)
        if lives is not None and times is not None:
            is_good &= lives.is_available(ids, times[left, None])
        place = np.argsort(~is_good, axis=1, kind="stable")[:, :size]
        out[left] = np.take_along_axis(ids, place, 1)
        left, tries = left[~np.take_along_axis(is_good, place, 1).all(axis=1)], 2 * tries
        if len(left) and tries > MAX_TRIES * n_ads:  # fewer are there than were asked for
            at = None if times is None else times[left]
            out[left] = _dense(requests[left], size, n_ads, seed, purpose, at, lives)
            break
    return out


def _tries(size: int, share: float) -> int:
    """Draws among which nearly always enough are different ads that are there."""
    return int((size + 4.0 * size**0.5 + 8.0) / (share * (1.0 - DENSE)))


def _is_repeated(ids: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Which ids are in their row already.  [R, m]"""
    order = np.argsort(ids, axis=1, kind="stable")
    ascending = np.take_along_axis(ids, order, 1)
    is_repeated = np.zeros(ids.shape, bool)
    again = np.pad(ascending[:, 1:] == ascending[:, :-1], ((0, 0), (1, 0)))
    np.put_along_axis(is_repeated, order, again, 1)
    return is_repeated


def _dense(
    requests: NDArray[np.int64],
    size: int,
    n_ads: int,
    seed: int,
    purpose: str,
    times: NDArray[np.float64] | None,
    lives: Availability | None,
) -> NDArray[np.int32]:
    """The same by a draw for every ad."""
    ids = np.tile(np.arange(n_ads, dtype=np.int32), (len(requests), 1))
    if lives is not None and times is not None:
        ids = np.where(lives.is_available(ids, times[:, None]), ids, np.int32(-1))
    draw = draws.uniform(seed, purpose, requests[:, None], np.arange(n_ads)[None, :])
    least = np.argsort(np.where(ids >= 0, draw, 2.0), axis=1, kind="stable")[:, :size]
    found = np.take_along_axis(ids, least, 1)
    return np.pad(found, ((0, 0), (0, size - found.shape[1])), constant_values=-1)
