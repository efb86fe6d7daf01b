"""Ranking consistency: which ads the ranking stage would have chosen, and how many of them it got to see."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cascade_sim.analysis.metrics.ratio import divide

_ROWS = 1024  # rows per pass: keeps the extra memory small
_FEW = 16  # ids of a request that are looked up one by one; more are worth sorting the pool


def membership(ids: NDArray, pool: NDArray) -> NDArray[np.bool_]:
    """Whether each of a request's ids is in that request's pool.  ids [R, a], pool [R, b] -> bool [R, a]

    Padding (-1) is never a member, not even of a padded pool. Order and duplicates do not matter.
    """
    ids, pool = np.asarray(ids), np.asarray(pool)
    if ids.ndim != 2 or pool.ndim != 2 or len(ids) != len(pool):
        raise ValueError(f"membership needs [R, a] and [R, b], not {ids.shape} and {pool.shape}")
    is_in_pool = np.zeros(ids.shape, bool)
    if is_in_pool.size == 0 or pool.size == 0:
        return is_in_pool
    if ids.shape[1] <= _FEW:
        from cascade_sim.analysis.metrics.kernels import in_rows

        return in_rows(ids, pool)
    span = int(max(ids.max(), pool.max())) + 2  # ids + 1 lie in [0, span), so rows never overlap in the keys
    for start in range(0, len(ids), _ROWS):
        rows = slice(start, start + _ROWS)
        n = len(ids[rows])
        offset = np.arange(n, dtype=np.int64)[:, None] * span + 1
        keys = (np.sort(pool[rows], axis=1) + offset).ravel()  # sorted rows, growing offsets: sorted overall
        wanted = (ids[rows] + offset).ravel()
        place = np.minimum(np.searchsorted(keys, wanted), keys.size - 1)
        is_in_pool[rows] = (keys[place] == wanted).reshape(n, -1) & (ids[rows] >= 0)
    return is_in_pool


def rcs(ideal_win_set: NDArray, competitive_set: NDArray) -> NDArray[np.float64]:
    """Share of each request's ideal winners that reached ranking, |K ∩ C| / |K|; NaN without any.  [R]"""
    hit = membership(ideal_win_set, competitive_set)
    return divide(hit.sum(axis=1), (np.asarray(ideal_win_set) >= 0).sum(axis=1))


def rcs_shares(
    ideal_win_set: NDArray, competitive_set: NDArray, is_exposed: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """RCS over all ideal winners, over the exposed and over the unexposed.  is_exposed [n_ads] -> [R] each

    NaN for a request without any such ideal winner.
    """
    ideal = np.asarray(ideal_win_set)
    return hit_shares(ideal, membership(ideal, competitive_set), is_exposed)


def hit_shares(
    ideal_win_set: NDArray, hit: NDArray[np.bool_], is_exposed: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """`rcs_shares` where it is known which of the ideal winners reached ranking.  hit [R, k]"""
    ideal = np.asarray(ideal_win_set)
    is_real = ideal >= 0
    exposed = np.asarray(is_exposed, bool)[np.where(is_real, ideal, 0)]
    whole, shown, unseen = (
        divide((hit & part).sum(1), part.sum(1)) for part in (is_real, is_real & exposed, is_real & ~exposed)
    )
    return whole, shown, unseen


def rcs_split(
    ideal_win_set: NDArray, competitive_set: NDArray, is_exposed: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """RCS over the exposed and over the unexposed ideal winners.  is_exposed [n_ads] -> ([R], [R])

    NaN for a request whose ideal winners are all of the other kind.
    """
    return rcs_shares(ideal_win_set, competitive_set, is_exposed)[1:]


def among_top(wanted: NDArray, ids: NDArray, score: NDArray, k: NDArray | int) -> NDArray[np.bool_]:
    """membership(wanted, top_ids(ids, score, k)), without finding them all; k may differ by request [R]."""
    from cascade_sim.analysis.metrics.kernels import among_best

    sizes = np.ascontiguousarray(np.broadcast_to(k, len(ids)), np.int64)
    return among_best(np.asarray(wanted, np.int32), np.asarray(ids, np.int32), np.asarray(score), sizes)


def top_ids(ids: NDArray, score: NDArray, k: int) -> NDArray[np.int32]:
    """The k best ids of each request by (score descending, ad id ascending).  [R, n] -> int32 [R, k]

    Padding and ads scored -inf or NaN are never chosen; places that stay empty hold -1.
    """
    ids, score = np.asarray(ids), np.asarray(score)
    if ids.shape != score.shape or ids.ndim != 2:
        raise ValueError(f"top_ids needs ids and score of one shape [R, n], not {ids.shape}, {score.shape}")
    from cascade_sim.analysis.metrics.kernels import best_of_rows

    return best_of_rows(np.asarray(ids, np.int32), np.asarray(score, np.float64), k)
