"""The stages of a replayed log: candidates, bids and predictions are what was logged of (request, ad)."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cascade_sim.cascade.bids import Rates
from cascade_sim.foundation.compilation import kernel
from cascade_sim.foundation.errors import UserError
from cascade_sim.logs.replay.replay import LoggedWorld, Replay


class LoggedScorer:
    """A logged prediction as a scorer: the ranker's pCTR, the pre-ranking model's, or a further model's."""

    by_pair = True

    def __init__(self, name: str, replay: Replay, column: str, link: str = "sigmoid"):
        self.name, self.link, self.column, self._replay = name, link, column, replay

    def predict(self, block: Any, ids: np.ndarray) -> np.ndarray:
        """[R, m] in the log's own precision; 0 for padding. UserError where none was logged."""
        values = self._replay.values(block.requests, ids, self.column)
        is_bad = np.isnan(values)
        if is_bad.any():
            row, column = np.argwhere(is_bad)[0]
            store = self._replay.store
            request = store.name("requests", int(self._replay.rows(block.requests)[row]))
            raise UserError(
                f"request {request}, ad {store.name('ads', int(ids[row, column]))}: the log has no "
                f"{self.column} for it, as it did not come so far; the scores of all candidates would have "
                "to "
                "be logged"
            )
        return values


class LoggedBids:
    """Bids per click (or impression) as they were logged; padding bids 0.

    What an advertiser would do with other bids: `init_bid` [A] is the usual one of each ad, and a logged bid
    is that times a factor of the request. With another init-bid the factors stay.
    """

    def __init__(
        self, replay: Replay, world: LoggedWorld, cvr: Callable[[], NDArray[np.float64]] | None = None
    ):
        """`cvr` gives each ad's conversions after a click [A], as fitted to the log; None: a log has none."""
        self._replay, self._world, self._cvr = replay, world, cvr
        self._own = "init_bid" if replay.has("init_bid") else "bid"
        self._changed: NDArray[np.float64] | None = None

    @property
    def init_bid(self) -> NDArray[np.float64]:
        return self._world.init_bid if self._changed is None else self._changed

    @property
    def mean_pcvr(self) -> NDArray[np.float64]:
        """The share of clicks of each ad that convert.  [A]"""
        if self._cvr is not None:
            return self._cvr()
        raise UserError(
            "a log does not say how often users convert on average; nothing in a replay asks for it"
        )

    def pcvr(self, block: Any, ids: np.ndarray, rates: Rates | None = None) -> np.ndarray:
        """The logged prediction of a conversion after a click, else the fitted rate of the ad.  [R, m]"""
        if not self._replay.has("pcvr") and self._cvr is not None:
            return np.where(ids >= 0, self._cvr()[np.maximum(ids, 0)], 0.0)
        if not self._replay.has("pcvr"):
            raise UserError("a pCVR is asked for, and the log has none; it would have to be logged (pcvr)")
        return self._replay.values(block.requests, ids, "pcvr")

    def bid(
        self, kind: str, block: Any, ids: np.ndarray, rule: str, reach: float, rates: Rates | None = None
    ) -> np.ndarray:
        """Bids of the named kind ("init", "opt", or "none" = 1 for all).  [R, m] float64"""
        if kind == "none":
            return (ids >= 0).astype(np.float64)
        column = self._own if kind == "init" else "bid"
        logged = np.nan_to_num(self._replay.values(block.requests, ids, column, 0.0))
        if self._changed is None:
            return logged
        usual = np.where(ids >= 0, self._world.init_bid[ids], 0.0)
        other = np.where(ids >= 0, self._changed[ids], 0.0)
        factor = np.divide(logged, usual, out=np.zeros_like(logged), where=usual > 0)
        return np.where(other == usual, logged, other * factor)

    def with_bids(self, init_bid: np.ndarray) -> LoggedBids:
        """The same with other usual bids [A]."""
        other = copy.copy(self)
        other._changed = init_bid
        return other

    def with_bid(self, ad: int, bid: float) -> LoggedBids:
        """The same with another usual bid of one ad."""
        init_bid = self.init_bid.copy()
        init_bid[ad] = bid
        return self.with_bids(init_bid)


class LoggedRetrieval:
    """Retrieval of a replayed log: the candidates that were logged. It has no scores."""

    name = "logged"

    def __init__(self, replay: Replay, is_out: NDArray[np.bool_] | None = None):
        """`is_out` [A]: ads that take no part, as their advertisers have nothing left; None: all do."""
        self._replay, self._is_out = replay, is_out

    def retrieve(self, block: Any, size: int, lives: Any) -> NDArray[np.int32]:
        """All that were logged, whatever the size.  [R, n] ads ascending, -1 at the end"""
        ids = self._replay.candidates(block.requests)
        return ids if self._is_out is None else _without(ids, self._is_out)

    def score(self, block: Any, ids: np.ndarray) -> np.ndarray:
        raise UserError("the log has no score of retrieval; it would have to be logged")

    def without(self, is_out: NDArray[np.bool_]) -> LoggedRetrieval:
        """The same without these ads [A]."""
        return LoggedRetrieval(self._replay, is_out)


class GivenSets:
    """Retrieval of one block whose candidates are known already."""

    name = "given"

    def __init__(self, requests: np.ndarray, sets: NDArray[np.int32]):
        self._requests, self._sets = requests, sets

    def retrieve(self, block: Any, size: int, lives: Any) -> NDArray[np.int32]:
        """[R, n] as they were given, for requests of the block"""
        return self._sets[np.searchsorted(self._requests, block.requests)]

    def score(self, block: Any, ids: np.ndarray) -> np.ndarray:
        raise UserError("the candidates are given, and no retrieval has scored them")


@kernel
def _without(ids, is_out):
    """The ads that are not out, moved up.  [R, n]"""
    kept = np.full(ids.shape, -1, ids.dtype)
    for r in range(ids.shape[0]):
        at = 0
        for j in range(ids.shape[1]):
            if ids[r, j] >= 0 and not is_out[ids[r, j]]:
                kept[r, at] = ids[r, j]
                at += 1
    return kept


class LoggedSizes:
    """A size rule: as many ads are handed on as were ranked in the log."""

    def __init__(self, replay: Replay):
        self._replay = replay

    def sizes(self, requests: np.ndarray, pre_score: np.ndarray) -> np.ndarray:
        return self._replay.ranked[self._replay.rows(requests)]
