"""A log in place of a world: what was known of every (request, ad) that was logged, found by block.

Requests of the evaluation are those of the log, number by number. Columns of candidates are read from the
disk by ranges as blocks come, and the last few ranges are kept: memory does not grow with the log.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import cached_property
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cascade_sim.foundation.compilation import kernel
from cascade_sim.foundation.errors import UserError
from cascade_sim.logs.store.scenario import ranked_counts
from cascade_sim.logs.store.store import LogStore
from cascade_sim.world.world import World

KEPT = 1 << 25  # bytes of columns that are kept, for arms that ask again
MIN_KEPT = 16  # columns: those of a range that all arms ask for, however large


class Replay:
    """Columns of a store by (request, ad).  `first_request` is the id of the log's request 0."""

    def __init__(self, store: LogStore, first_request: int, block: int):
        self.store, self.first_request, self._block = store, first_request, block
        self._kept: OrderedDict[tuple[str, int], NDArray[Any]] = OrderedDict()
        self._lock = Lock()

    def rows(self, requests: np.ndarray) -> NDArray[np.int64]:
        """The log's own numbers of these requests.  [R]"""
        return np.asarray(requests, np.int64) - self.first_request

    def has(self, column: str) -> bool:
        return self.store.has(column)

    def candidates(self, requests: np.ndarray) -> NDArray[np.int32]:
        """The logged ads of each request, ascending, -1 at the end.  [R, n]"""
        rows, first = self.rows(requests), self.store.first
        if not len(rows):
            return np.empty((0, 0), np.int32)
        start, stop = self._range(rows)
        width = int((first[rows + 1] - first[rows]).max(initial=1))
        return _padded(self._flat("ad", start, stop), first, rows, first[start], max(width, 1))

    def places(self, requests: np.ndarray, ids: np.ndarray) -> NDArray[np.int64]:
        """Place of each ad among the logged candidates of the range; -1 if it is none.  [R, m]"""
        rows = self.rows(requests)
        if not ids.size:
            return np.full(ids.shape, -1, np.int64)
        start, stop = self._range(rows)
        return _find(self._flat("ad", start, stop), self.store.first, rows, self.store.first[start], ids)

    def n_places(self, requests: np.ndarray) -> int:
        """How many `places` there are for these requests."""
        if not len(requests):
            return 0
        start, stop = self._range(self.rows(requests))
        return int(self.store.first[stop] - self.store.first[start])

    def values(self, requests: np.ndarray, ids: np.ndarray, column: str, absent: Any = 0) -> NDArray[Any]:
        """A column for these ads of these requests, `absent` where an ad is no candidate.  [R, m]"""
        (found,) = self.several(requests, ids, {column: absent})
        return found

    def several(
        self, requests: np.ndarray, ids: np.ndarray, columns: dict[str, Any]
    ) -> tuple[NDArray[Any], ...]:
        """Several columns at once: {column: what stands for an absent ad}.  each [R, m]"""
        return self.at(requests, self.places(requests, ids), columns)

    def at(
        self, requests: np.ndarray, places: NDArray[np.int64], columns: dict[str, Any]
    ) -> tuple[NDArray[Any], ...]:
        """Several columns of the ads at these places (`places`) of the requests' range.  each [M, m]"""
        if not places.size:
            return tuple(np.full(places.shape, absent) for absent in columns.values())
        start, stop = self._range(self.rows(requests))
        return tuple(
            _taken(self._flat(name, start, stop), places, absent) for name, absent in columns.items()
        )

    def _range(self, rows: np.ndarray) -> tuple[int, int]:
        """The blocks that these requests lie in, as a range of requests."""
        start = int(rows.min()) // self._block * self._block
        stop = (int(rows.max()) // self._block + 1) * self._block
        return start, min(stop, self.store.n_requests)

    def _flat(self, column: str, start: int, stop: int) -> NDArray[Any]:
        """A column of a range of requests, a block's worth kept for who asks again."""
        if stop - start > self._block:  # not the blocks of a study: nothing to keep
            return self.store.candidates(start, stop, (column,))[column]
        key = (column, start)
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        values = self.store.candidates(start, stop, (column,))[column]
        with self._lock:
            self._kept[key] = values
            size = sum(kept.nbytes for kept in self._kept.values())
            while size > KEPT and len(self._kept) > MIN_KEPT:
                size -= self._kept.popitem(last=False)[1].nbytes
        return values

    def __getstate__(self) -> dict[str, Any]:
        """To another process goes where the log is, not what was read of it."""
        return {"store": self.store, "first_request": self.first_request, "block": self._block}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["store"], state["first_request"], state["block"])  # type: ignore[misc]

    @cached_property
    def ranked(self) -> NDArray[np.int64]:
        """How many candidates of each logged request were ranked.  [R of the log]"""
        counts: NDArray[np.int64] = ranked_counts(self.store)
        return counts

    @cached_property
    def shown(self) -> NDArray[np.int64]:
        """How many ads each logged request showed.  [R of the log]"""
        counts = np.zeros(self.store.n_requests, np.int64)
        for start, stop, columns in self.store.blocks(("slot",)):
            total = np.concatenate([[0], np.cumsum(columns["slot"] >= 0)])
            ends = self.store.first[start : stop + 1] - self.store.first[start]
            counts[start:stop] = total[ends[1:]] - total[ends[:-1]]
        return counts


class LoggedWorld(World):
    """What a log shows of users, ads and advertisers. It has no features to learn from."""

    def __init__(self, replay: Replay, seed: int, slot_effects: np.ndarray):
        store = replay.store
        super().__init__(
            seed=seed,
            user_features={},
            ad_features={},
            init_bid=np.empty(0),
            advertiser=store.advertiser,
            n_advertisers=max(store.n_advertisers, 1),
            activity=np.ones(1),
            slot_effects=slot_effects,
            mismatch_threshold=0.0,
            popularity=np.empty(0),
        )
        object.__setattr__(self, "replay", replay)
        del self.__dict__["init_bid"]  # computed again on demand

    def __getattr__(self, name: str) -> Any:
        if name == "init_bid":
            object.__setattr__(self, "init_bid", typical_bids(self.__dict__["replay"].store))
            return self.__dict__["init_bid"]
        raise AttributeError(name)

    @property
    def n_users(self) -> int:
        return int(self.__dict__["replay"].store.n_users)

    @property
    def n_ads(self) -> int:
        return len(self.advertiser)

    def view(self, features: Any) -> Any:
        raise UserError("a replayed log has no features to learn from; fit a world to the log (fit-world)")


def typical_bids(store: LogStore) -> NDArray[np.float64]:
    """The bid of each ad: the one that it always has or, where it changes, the mean; 0 without any.  [A]

    Of the advertiser's own bids where the log has them, else of the auction's.
    """
    column = "init_bid" if store.has("init_bid") else "bid"
    total, count = np.zeros(store.n_ads), np.zeros(store.n_ads, np.int64)
    low, high = np.full(store.n_ads, np.inf), np.full(store.n_ads, -np.inf)
    for _, _, part in store.blocks(("ad", column)):
        _tally_bids(part["ad"], part[column], total, count, low, high)
    mean = total / np.maximum(count, 1)
    return np.where(count == 0, 0.0, np.where(low == high, low, mean))


@kernel
def _tally_bids(ads, bids, total, count, low, high):
    for i in range(len(ads)):
        bid = bids[i]
        if bid == bid:  # a bid that was not logged is no number
            a = ads[i]
            total[a] += bid
            count[a] += 1
            low[a] = min(low[a], bid)
            high[a] = max(high[a], bid)


@kernel
def _padded(ads, first, rows, offset, width):
    out = np.full((len(rows), width), -1, np.int32)
    for r in range(len(rows)):
        begin, end = first[rows[r]] - offset, first[rows[r] + 1] - offset
        for j in range(end - begin):
            out[r, j] = ads[begin + j]
    return out


@kernel
def _find(ads, first, rows, offset, ids):
    """Places in `ads` by bisection, as those of a request ascend; runs of ascending ids are followed."""
    out = np.full(ids.shape, -1, np.int64)
    for r in range(ids.shape[0]):
        begin, end = first[rows[r]] - offset, first[rows[r] + 1] - offset
        at = begin
        for j in range(ids.shape[1]):
            ad = ids[r, j]
            if ad < 0:
                continue
            if at < end and ads[at] == ad:
                out[r, j] = at
                at += 1
                continue
            low, high = begin, end
            while low < high:
                middle = (low + high) // 2
                if ads[middle] < ad:
                    low = middle + 1
                else:
                    high = middle
            if low < end and ads[low] == ad:
                out[r, j] = low
                at = low + 1
    return out


def _taken(flat: NDArray[Any], place: NDArray[np.int64], absent: Any) -> NDArray[Any]:
    """flat[place], `absent` where there is none."""
    if not len(flat):
        return np.full(place.shape, absent, flat.dtype)
    return _take(flat, place, flat.dtype.type(absent))


@kernel
def _take(flat, place, absent):
    out = np.empty(place.shape, flat.dtype)
    for r in range(place.shape[0]):
        for j in range(place.shape[1]):
            out[r, j] = flat[place[r, j]] if place[r, j] >= 0 else absent
    return out
