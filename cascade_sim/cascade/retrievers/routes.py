"""Several retrievers at once: each brings its quota of ads, and an ad that several bring counts once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cascade_sim.cascade.cache import once
from cascade_sim.cascade.cost import added, cost_of
from cascade_sim.cascade.retrievers.similarity import Retriever
from cascade_sim.protocols import Availability, Cost, Scorer
from cascade_sim.storage.log_columns import ROUTE_COLUMN
from cascade_sim.world.availability import ascending


@dataclass(frozen=True)
class Quota:
    """A route: who brings ads, and how many at most."""

    name: str
    retriever: Retriever
    size: int


@dataclass(frozen=True)
class MergedRoutes:
    """The union of what routes bring, none of them more than its quota.

    score(u, a) = max over routes of 1 - rank / quota, where rank counts from 0 among the candidates that are
    scored, in the route's own order. So routes take turns, each at the pace of its quota, and of all ads that
    are there those above 0 are the union.
    """

    routes: tuple[Quota, ...]
    name: str = "routes"

    def retrieve(self, block: Any, size: int, lives: Availability | None) -> NDArray[np.int32]:
        """[R, sum of quotas] ids ascending, -1 at the end; `size` is that sum."""
        found = [_of_route(block, route.retriever, route.size, lives) for route in self._open]
        return union(found, size)

    def score(self, block: Any, ids: np.ndarray) -> NDArray[np.float32]:
        """[R, m]; 0 for padding"""
        best = np.full(ids.shape, -np.inf)
        for route in self._open:
            own = np.where(ids >= 0, -route.retriever.score(block, ids), np.inf)
            order = np.argsort(own, axis=1, kind="stable")
            rank = np.empty(ids.shape)
            np.put_along_axis(rank, order, np.broadcast_to(np.arange(ids.shape[1]), ids.shape), 1)
            best = np.maximum(best, 1.0 - rank / route.size)
        return np.where(ids >= 0, best, 0.0).astype(np.float32)

    def cost(self, size: int) -> Cost | None:
        """Of all routes; not known if that of one is not."""
        return added(cost_of(route.retriever, route.size) for route in self._open)

    def brought_by(
        self, block: Any, ids: np.ndarray, lives: Availability | None
    ) -> dict[str, NDArray[np.bool_]]:
        """Whether each route brings these ads; false for padding.  [R, m] -> {route: [R, m]}"""
        keys, is_ad = _row_keys(ids), ids >= 0
        found = {}
        for route in self._open:
            own = _of_route(block, route.retriever, route.size, lives)
            found[route.name] = is_ad & np.isin(keys, _row_keys(own))
        return found

    def with_bids(self, init_bid: np.ndarray) -> MergedRoutes:
        """The same routes at other bids; itself where none looks at them."""
        own = tuple(replace(one, retriever=_with_bids(one.retriever, init_bid)) for one in self.routes)
        return self if own == self.routes else replace(self, routes=own)

    @property
    def names(self) -> tuple[str, ...]:
        """The routes that bring ads, in their order."""
        return tuple(route.name for route in self._open)

    @property
    def _open(self) -> tuple[Quota, ...]:
        return tuple(route for route in self.routes if route.size > 0)


@once
def _of_route(block: Any, retriever: Retriever, size: int, lives: Availability | None) -> NDArray[np.int32]:
    return retriever.retrieve(block, size, lives)


def _row_keys(ids: np.ndarray) -> NDArray[np.int64]:
    """Numbers that are equal for the same ad in the same row alone.  [R, m]"""
    return (np.arange(len(ids), dtype=np.int64)[:, None] << 32) + ids


def at_bids(retriever: Retriever, bids: Any) -> Retriever:
    """The retriever at the init-bids of these rules (`BidRules`); itself where it does not look at bids."""
    return _with_bids(retriever, bids.init_bid) if hasattr(retriever, "with_bids") else retriever


def _with_bids(retriever: Retriever, init_bid: np.ndarray) -> Retriever:
    with_bids = getattr(retriever, "with_bids", None)
    return retriever if with_bids is None else with_bids(init_bid)


def looks_at_bids(retriever: Retriever) -> bool:
    """Whether another bid of an ad may change who is retrieved."""
    if isinstance(retriever, MergedRoutes):
        return any(looks_at_bids(one.retriever) for one in retriever.routes)
    return bool(getattr(retriever, "bid_weight", 0.0))


def models_of(retriever: Retriever) -> tuple[str, ...]:
    """The trained models that a retriever searches by."""
    if isinstance(retriever, MergedRoutes):
        return tuple(model for one in retriever.routes for model in models_of(one.retriever))
    return (retriever.name,) if hasattr(retriever, "with_scorer") else ()


def with_models(retriever: Retriever, scorers: Mapping[str, Scorer]) -> Retriever:
    """The retriever with these models in place of those of the same names."""
    if isinstance(retriever, MergedRoutes):
        own = (replace(one, retriever=with_models(one.retriever, scorers)) for one in retriever.routes)
        return replace(retriever, routes=tuple(own))
    with_scorer = getattr(retriever, "with_scorer", None)
    found: Retriever = retriever
    if with_scorer is not None and retriever.name in scorers:
        found = with_scorer(scorers[retriever.name])
    return found


def route_names(retriever: Retriever) -> tuple[str, ...]:
    """The routes that a retriever merges, in their order; none of any other retriever."""
    return retriever.names if isinstance(retriever, MergedRoutes) else ()


def brought_by(
    retriever: Retriever, block: Any, ids: np.ndarray, lives: Availability | None
) -> dict[str, NDArray[np.bool_]]:
    """Whether each route of a retriever brings these ads.  [R, m] -> {route: [R, m]}, {} without routes"""
    return retriever.brought_by(block, ids, lives) if isinstance(retriever, MergedRoutes) else {}


def route_column(name: str) -> str:
    """The column of a log table that says whether a route brought the ad."""
    return f"{ROUTE_COLUMN}{name}"


def union(parts: list[np.ndarray], width: int) -> NDArray[np.int32]:
    """The different ads of several sets, each row ascending and padded.  [R, n_i] -> [R, width] int32

    >>> union([np.array([[1, 4]]), np.array([[2, 4]])], 4)
    array([[ 1,  2,  4, -1]], dtype=int32)
    """
    ids = ascending(np.concatenate(parts, axis=1))
    twice = ids[:, 1:] == ids[:, :-1]
    ids[:, 1:][twice] = -1
    made = np.full((len(ids), width), -1, np.int32)
    made[:, : ids.shape[1]] = ascending(ids)
    return made
