"""Requests of any length in flat arrays: list offsets, the one sort, and per-request results.

`lists` = [0, n_1, n_1 + n_2, …] says which items belong together: request r owns the items
lists[r] .. lists[r + 1] − 1 of the flat arrays, possibly none. None stands for one list of everything.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cascade_sim.analysis.metrics.ratio import divide

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


class PerRequest(NamedTuple):
    """A metric of every request: its value (NaN where not valid), whether it counts, and its items.  [R]"""

    value: Floats
    valid: Bools
    items: Ints

    def mean(self, by: str = "requests") -> float:
        """Mean over the valid requests, each counting once or by its number of "items"; NaN without any."""
        if by not in ("requests", "items"):
            raise ValueError(f"by is 'requests' or 'items', not {by!r}")
        weight = self.items[self.valid] if by == "items" else np.ones(int(self.valid.sum()))
        return float(divide((self.value[self.valid] * weight).sum(), weight.sum()))

    @property
    def skipped(self) -> float:
        """Share of requests that do not count; NaN without requests."""
        return float(divide((~self.valid).sum(), self.valid.size))


def per_request(value: ArrayLike, valid: ArrayLike, items: Ints) -> PerRequest:
    """The values of requests, NaN where they do not count."""
    is_valid = np.asarray(valid, bool)
    return PerRequest(np.where(is_valid, np.asarray(value, np.float64), np.nan), is_valid, items)


def check_lists(lists: ArrayLike | None, n: int) -> Ints:
    """Offsets as int64, refused unless they rise from 0 to n."""
    if lists is None:
        return np.array([0, n], np.int64)
    offsets = np.asarray(lists)
    if offsets.ndim != 1 or offsets.size == 0 or not np.issubdtype(offsets.dtype, np.integer):
        raise ValueError("lists must be a flat array of whole offsets [0, n_1, n_1 + n_2, …]")
    if offsets[0] != 0 or offsets[-1] != n or (np.diff(offsets) < 0).any():
        raise ValueError(f"lists must rise from 0 to the number of items, {n}; got {offsets[[0, -1]]}")
    return offsets.astype(np.int64)


def flat(values: ArrayLike, name: str, n: int | None = None) -> Floats:
    """Values as a flat float64 array of n items; NaN is refused, for it has no place in an order or a sum."""
    array = np.asarray(values, np.float64)
    if array.ndim != 1 or (n is not None and array.size != n):
        raise ValueError(f"{name} must be flat{'' if n is None else f' with {n} items'}, not {array.shape}")
    if np.isnan(array).any():
        raise ValueError(f"{name} hold NaN, first at item {int(np.flatnonzero(np.isnan(array))[0])}")
    return array


def list_of_item(lists: Ints) -> Ints:
    """Which request an item belongs to.  [R + 1] -> [N]"""
    return np.repeat(np.arange(lists.size - 1), np.diff(lists))


def sum_lists(values: ArrayLike, lists: Ints) -> Floats:
    """Sum over each list, 0 for an empty one.  [N] -> [R]"""
    weights = np.asarray(values, np.float64)
    return np.asarray(np.bincount(list_of_item(lists), weights, lists.size - 1), np.float64)


def falling_order(values: Floats, lists: Ints) -> Ints:
    """Items by list, then by falling value: what np.lexsort((−values, list)) gives, equal values aside.

    One unstable sort of everything by value, then stable sorts by 16 bits of the list number at a time, for
    which numpy has a radix sort: about a third of lexsort's time.
    """
    order = np.argsort(-values)
    group = list_of_item(lists)
    for shift in range(0, max(int(lists.size - 2).bit_length(), 1), 16):
        digit = ((group[order] >> shift) & 0xFFFF).astype(np.uint16)
        order = order[np.argsort(digit, kind="stable")]
    return order


@dataclass(frozen=True)
class Ranking:
    """Every list sorted by falling score, and its runs of equal scores. One serves all metrics of a model."""

    lists: Ints  # [R + 1]
    order: Ints  # [N] item at each place; places of a list are contiguous
    is_first: Bools  # [N] whether a run of equal scores begins at this place

    @property
    def items(self) -> Ints:
        """Number of items of each list.  [R]"""
        return np.diff(self.lists)

    @cached_property
    def rank(self) -> Ints:
        """Place within its list, from 0.  [N]"""
        return np.arange(self.order.size) - np.repeat(self.lists[:-1], self.items)

    @cached_property
    def runs(self) -> tuple[Ints, Ints]:
        """Where each run begins and how long it is.  ([G], [G])"""
        first = np.flatnonzero(self.is_first)
        return first, np.diff(np.append(first, self.order.size))

    def tie_sum(self, by_place: Floats) -> Floats:
        """Sums over runs of equal scores.  [N] -> [G]"""
        first, _ = self.runs
        if first.size in (0, by_place.size):
            return by_place
        return np.asarray(np.add.reduceat(by_place, first))

    def tie_mean(self, by_place: Floats) -> Floats:
        """Each place's value averaged over the run it is in: its expectation over tie orders.  [N] -> [N]"""
        first, length = self.runs
        if first.size == by_place.size:
            return by_place
        return np.repeat(self.tie_sum(by_place) / length, length)


def rank_lists(scores: ArrayLike | Ranking, lists: ArrayLike | None = None) -> Ranking:
    """Sort every list by falling score. A Ranking passes through, if it is of the same lists."""
    if isinstance(scores, Ranking):
        same = lists is None or np.array_equal(np.asarray(lists), scores.lists)
        if not same:
            raise ValueError("the ranking was made for other lists")
        return scores
    score = flat(scores, "scores")
    offsets = check_lists(lists, score.size)
    order = falling_order(score, offsets)
    ranked = score[order]
    is_first = np.ones(score.size, bool)
    np.not_equal(ranked[1:], ranked[:-1], out=is_first[1:])
    is_first[offsets[:-1][np.diff(offsets) > 0]] = True
    return Ranking(offsets, order, is_first)
