"""Nearest ads of users: an answer is computed when its user comes and kept for the next visit.

For a retriever whose answer depends on the user alone; as many answers are kept as there is room for.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any

import numpy as np

from cascade_sim.cascade.retrievers.inner_product import AdIndex
from cascade_sim.foundation.kernels import select_top
from cascade_sim.foundation.limits import KEPT_IDS
from cascade_sim.protocols import Availability, Cost
from cascade_sim.world.availability import ascending

ASKED = 64  # users by whom the share found is measured
SPARE = 4.0  # standard deviations of how many of the nearest ads are there


class UserRetrieval:
    """The ads with the largest inner product with a user's vector. Ties go to the smaller ad id."""

    name = "inner product"

    def __init__(self, users: np.ndarray, index: AdIndex):
        """users: [U, D] float32, a vector of each."""
        self._user, self.index, self._n_ads = users, index, index.n_ads
        self._kept: dict[int, _Kept] = {}  # by size
        self._in_order: dict[int, _Kept] = {}  # most similar first, where ads come and go

    def retrieve(self, block: Any, size: int, lives: Availability | None) -> np.ndarray:
        """Of the ads that are there, the nearest.  [R, n] ids ascending"""
        if lives is None:
            return self(block.users, size)
        return self.among_available(block.users, size, block.times, lives)

    def score(self, block: Any, ids: np.ndarray) -> np.ndarray:
        """How near these ads are; 0 for padding.  [R, m] float32"""
        return self._similarities(block.users, ids)

    def cost(self, size: int) -> Cost:
        """Of a search; answers are kept per user."""
        return self.index.cost(size, is_kept=True)

    def __deepcopy__(self, memo: dict[int, Any]) -> UserRetrieval:
        """Itself: an index does not change, and what it keeps of answers may be shared."""
        return self

    def __call__(self, users: np.ndarray, size: int) -> np.ndarray:
        """The pre-ranking set of each user, ad ids ascending.  [R] -> [R, min(size, A)] int32

        Where that is all ads, the rows are one and the same in memory, and read-only.
        """
        size = min(size, self._n_ads)
        if size == self._n_ads and self.index.is_exact:
            return np.broadcast_to(np.arange(size, dtype=np.int32), (len(users), size))
        kept = self._kept.get(size)
        if kept is None:
            sizes = list(self._kept)
            larger = min((other for other in sizes if other > size), default=None)
            left = KEPT_IDS - sum(self._kept[other].answers.size for other in sizes)
            if larger is not None and left < len(self._user) * size:
                return self._best_of(users, self(users, larger), size)
            kept = self._keeper(self._kept, size, left)
        return kept(users, lambda new: self.nearest(new, size))

    def among_available(
        self, users: np.ndarray, size: int, times: np.ndarray, lives: Availability
    ) -> np.ndarray:
        """As a call, of the ads that are there at each request's time.  [R], [R] -> [R, size], -1 at the end

        Kept are somewhat more of the nearest than mostly do, most similar first: the first `size` that are
        there are the nearest. Where they are too few, the search goes on for twice as many, to the last ad.
        """
        size = min(size, self._n_ads)
        width = min(self._n_ads, available_width(size, lives.share))
        found = np.full((len(users), size), -1, np.int32)
        left = np.arange(len(users))
        ids = self._most_similar(users, width)
        while True:
            there = lives.is_available(ids, times[left, None])
            place = np.argsort(~there, axis=1, kind="stable")[:, :size]
            nearest = np.take_along_axis(np.where(there, ids, np.int32(-1)), place, 1)
            is_done = (nearest[:, -1] >= 0) | (width == self._n_ads)
            found[left[is_done]] = nearest[is_done]
            left = left[~is_done]
            if not len(left):
                return ascending(found)
            width = min(2 * width, self._n_ads)
            ids = self.nearest_first(users[left], self.nearest(users[left], width))

    def _most_similar(self, users: np.ndarray, width: int) -> np.ndarray:
        """The nearest ads, most similar first, kept for the next visit.  [R] -> [R, width] int32"""
        kept = self._in_order.get(width)
        if kept is None:
            left = KEPT_IDS - sum(other.answers.size for other in list(self._in_order.values()))
            kept = self._keeper(self._in_order, width, left)
        return kept(users, lambda new: self.nearest_first(new, self.nearest(new, width)))

    def _keeper(self, by_size: dict[int, _Kept], size: int, left: int) -> _Kept:
        """A new table for answers of this size, among those that are there."""
        # A quarter of the room at least: sizes that came before do not take it all.
        rows = min(len(self._user), max(left, KEPT_IDS // 4) // size)
        # Of two threads that come here at once, one's table is used by both.
        return by_size.setdefault(size, _Kept(len(self._user), rows, size))

    def nearest(self, users: np.ndarray, size: int) -> np.ndarray:
        """The answers themselves, from the corpus.  [m] -> [m, size] int32, ids ascending, -1 at the end"""
        return self.index.nearest(self._user[users], size)

    def exactly_nearest(self, users: np.ndarray, size: int) -> np.ndarray:
        """The same, from the whole corpus.  [m] -> [m, size] int32, ids ascending"""
        return self.index.exactly_nearest(self._user[users], size)

    def share_found(self, size: int) -> float | None:
        """The share of the nearest ads that approximate answers hold, by a few users; None: exact."""
        if self.index.is_exact:
            return None
        users = np.linspace(0, len(self._user) - 1, min(ASKED, len(self._user))).astype(np.int32)
        return self.index.recall(self._user[users], size)

    def nearest_first(self, users: np.ndarray, ids: np.ndarray) -> np.ndarray:
        """The same ads, most similar first; of equals the smaller id.  [R], [R, m] ascending -> [R, m]"""
        distance = np.where(ids >= 0, -self._similarities(users, ids), np.inf)
        order = np.argsort(distance, axis=1, kind="stable")
        return np.take_along_axis(ids, order, 1)

    def similarity(self, user: int) -> np.ndarray:
        """How near every ad is to this user.  [A] float32"""
        return self.index.all_scores(self._user[user])

    def _best_of(self, users: np.ndarray, ids: np.ndarray, size: int) -> np.ndarray:
        """The `size` nearest of those; ids ascending, none padded."""
        return select_top(ids, self._similarities(users, ids), size)[0]

    def _similarities(self, users: np.ndarray, ids: np.ndarray) -> np.ndarray:
        """How near these ads are; 0 for padding.  [R], [R, m] -> [R, m] float32"""
        return self.index.scores(self._user[users], ids)


def available_width(size: int, share: float) -> int:
    """How many of the nearest ads nearly always hold `size` that are there."""
    return int((size + SPARE * size**0.5) / share) + 1


class _Kept:
    """Answers for users who come again: `n_rows` of them, those longest away give way to new ones.

    What is not in use is not touched, so memory grows with the users that come. Threads may ask at once.
    """

    def __init__(self, n_users: int, n_rows: int, size: int):
        self.answers = np.empty((n_rows, size), np.int32)
        self._row = np.full(n_users, -1, np.int32)  # of each user, -1: none
        self._owner = np.full(n_rows, -1, np.int32)  # user of each row, -1: none
        self._visit = np.zeros(n_rows, np.int64)  # the last call that asked for it
        self._free = np.arange(n_rows, dtype=np.int32)[::-1]  # rows of no user, the next one last
        self._calls = 0
        self._lock = Lock()

    def __call__(self, users: np.ndarray, compute: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """The answers of these users; `compute` is asked for those that are not known.  [R] -> [R, size]"""
        with self._lock:
            self._calls += 1
            row = self._row[users]
            is_known = row >= 0
            self._visit[row[is_known]] = self._calls
            if is_known.all():
                return self.answers[row]
            out = np.empty((len(users), self.answers.shape[1]), np.int32)
            out[is_known] = self.answers[row[is_known]]
        new, place = np.unique(users[~is_known], return_inverse=True)
        answers = compute(new)  # without the lock: this is what takes time
        out[~is_known] = answers[place]
        with self._lock:
            self._keep(new, answers)
        return out

    def _keep(self, users: np.ndarray, answers: np.ndarray) -> None:
        is_new = self._row[users] < 0  # another thread may have computed the same
        users, answers = users[is_new], answers[is_new]
        if len(users) > len(self._free):
            self._make_room(len(users))
        n = min(len(users), len(self._free))
        rows, self._free = self._free[len(self._free) - n :], self._free[: len(self._free) - n]
        self.answers[rows] = answers[:n]
        self._row[users[:n]], self._owner[rows], self._visit[rows] = rows, users[:n], self._calls

    def _make_room(self, n: int) -> None:
        """Frees the rows of those longest away: n, and a good part more, not to search again at once."""
        n_free = min(len(self._owner), max(n, len(self._owner) // 8))
        if n_free == 0:
            return
        taken = np.flatnonzero(self._owner >= 0)
        n_more = min(n_free - len(self._free), len(taken))
        oldest = taken[np.argsort(self._visit[taken], kind="stable")[:n_more]].astype(np.int32)
        self._row[self._owner[oldest]] = -1
        self._owner[oldest] = -1
        self._free = np.concatenate([self._free, oldest])
