"""A retriever of the user's: what it is given, what it gives, and how the engine asks it.

    class Popular:
        def __init__(self, visible, bid=1.0):  # the rest comes from `options`
            self.value = (visible.popularity + bid * np.log(visible.init_bid)).astype(np.float32)

        def score(self, requests, ids):  # [R, m] -> [R, m], higher is better
            return self.value[ids]

        def retrieve(self, requests, size, available):  # -> [R, n <= size] ids
            return best_ads(np.tile(self.value, (len(requests), 1)), size, available)

It sees what a platform sees (`Visible`), never the truth. Several threads may ask it at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from cascade_sim.cascade.cost import cost_of
from cascade_sim.foundation.errors import UserError
from cascade_sim.foundation.kernels import select_top
from cascade_sim.protocols import Availability, Cost
from cascade_sim.scenario.plugins import RETRIEVER_KINDS, errors_of, find_class
from cascade_sim.world.availability import ascending
from cascade_sim.world.world import World

# Which of these ads are there when each request comes: ids [m] or [R, m] -> [R, m].
Available = Callable[[np.ndarray], NDArray[np.bool_]]


@dataclass(frozen=True)
class Visible:
    """What a platform sees of its users and ads. Row i of a user's array is user i; likewise for ads."""

    user_features: Mapping[str, NDArray[np.float32]]  # name -> [U, d]
    ad_features: Mapping[str, NDArray[np.float32]]  # name -> [A, d]
    init_bid: NDArray[np.float64]  # [A] per click
    advertiser: NDArray[np.int32]  # [A]
    popularity: NDArray[np.float64]  # [A] standardised log popularity
    history: NDArray[np.int32] | None  # [U, L] ads that each user clicked before; None: not kept

    @property
    def n_users(self) -> int:
        return len(next(iter(self.user_features.values())))

    @property
    def n_ads(self) -> int:
        return len(self.init_bid)

    @classmethod
    def of(cls, world: World) -> Self:
        """What is to be seen of a world; none of it can be written to."""
        return cls(
            _all_locked(world.user_features),
            _all_locked(world.ad_features),
            locked(world.init_bid),
            locked(world.advertiser),
            locked(world.popularity),
            None if world.history is None else locked(world.history),
        )


@dataclass(frozen=True)
class Requests:
    """Requests that are served together. Arrays of one length R, which cannot be written to."""

    ids: NDArray[np.int64]
    users: NDArray[np.int32]
    context: NDArray[np.float32]
    times: NDArray[np.float64]  # seconds of simulated time

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def of(cls, block: Any) -> Self:
        """Those of a block, without what is known of its candidates."""
        return cls(*map(locked, (block.requests, block.users, block.context, block.times)))


class CustomRetriever(Protocol):
    """Built as `Class(visible, **options)`; the same requests have the same answers, in whatever company.

    `best_ads` gives `retrieve` for a class that scores the whole corpus.
    """

    def retrieve(self, requests: Requests, size: int, available: Available) -> np.ndarray:
        """Of the ads that are there, at most `size` a request.  [R, n] ids ascending, -1 at the end"""
        ...

    def score(self, requests: Requests, ids: np.ndarray) -> np.ndarray:
        """What it chooses by, the higher the better; finite.  [R, m] ids -> [R, m]"""
        ...


def best_ads(scores: np.ndarray, size: int, available: Available | None = None) -> NDArray[np.int32]:
    """The `size` ads of the corpus with the highest scores; of equals the smaller id.

    Args:
        scores: [R, A] of every ad of the corpus.
        size: ads of each request at most.
        available: which ads are there, as `retrieve` is given it; None: all.

    Returns:
        [R, size] int32 ids ascending, -1 at the end.

    >>> best_ads(np.array([[0.1, 0.9, 0.5]]), 2)
    array([[1, 2]], dtype=int32)
    """
    corpus = np.arange(scores.shape[1], dtype=np.int32)
    if available is None:
        ids = np.tile(corpus, (len(scores), 1))
    else:  # padding is never taken
        ids = np.where(available(corpus), corpus, np.int32(-1))
    chosen, _ = select_top(ids, np.ascontiguousarray(scores, np.float32), min(size, scores.shape[1]))
    return ascending(chosen)


class CustomRetrieval:
    """A retriever of the user's among those of the engine. What it answers is checked each time."""

    def __init__(self, kind: str, own: type[Any], options: Mapping[str, Any], world: World):
        self.name, self._n_ads = kind, world.n_ads
        call = ", ".join(("visible", *options))
        with errors_of(f"retriever {kind!r}: {own.__name__}({call}) failed", kind):
            self._own: CustomRetriever = own(Visible.of(world), **options)

    def retrieve(self, block: Any, size: int, lives: Availability | None) -> NDArray[np.int32]:
        """[R, n <= size] ids ascending, -1 at the end"""
        requests, most = Requests.of(block), min(size, self._n_ads)
        available = availability(requests, lives)
        with self._errors(requests):
            found = self._own.retrieve(requests, most, available)
        fault = retrieved_fault(found, len(requests), most, self._n_ads, available)
        if fault:
            raise UserError(f"retriever {self.name!r}: {fault}")
        return np.ascontiguousarray(found, np.int32)

    def score(self, block: Any, ids: np.ndarray) -> NDArray[np.float32]:
        """[R, m]; 0 for padding"""
        requests = Requests.of(block)
        with self._errors(requests):
            said = self._own.score(requests, locked(np.maximum(ids, 0)))
        fault = score_fault(said, ids.shape)
        if fault:
            raise UserError(f"retriever {self.name!r}: {fault}")
        return np.where(ids >= 0, said, 0.0).astype(np.float32)

    def cost(self, size: int) -> Cost | None:
        """What the class says itself; None: it does not."""
        return cost_of(self._own, size)

    def _errors(self, requests: Requests) -> Any:
        first = f" at request {requests.ids[0]}" if len(requests) else ""
        return errors_of(f"retriever {self.name!r} failed{first}", self.name)

    def __deepcopy__(self, memo: dict[int, Any]) -> CustomRetrieval:
        """Itself: its answers do not depend on what was asked before."""
        return self


def find_retriever(kind: str, home: Path = Path(".")) -> type[Any]:
    """The class of a retriever's kind (cascade_sim/scenario/plugins.py)."""
    own = find_class(RETRIEVER_KINDS, kind, home)
    missing = [name for name in RETRIEVER_KINDS.methods if not callable(getattr(own, name, None))]
    if missing:
        raise UserError(f"retriever {kind!r}: expected the methods retrieve and score, found no {missing[0]}")
    return own


def availability(requests: Requests, lives: Availability | None) -> Available:
    """Which ads are there, as a retriever is told."""

    def available(ids: np.ndarray) -> NDArray[np.bool_]:
        wide = np.broadcast_to(ids, (len(requests), np.shape(ids)[-1]))
        return wide >= 0 if lives is None else lives.is_available(wide, requests.times[:, None])

    return available


def retrieved_fault(found: Any, n_requests: int, size: int, n_ads: int, available: Available) -> str:
    """What is wrong with what `retrieve` gave; empty if nothing is."""
    expected = f"expected retrieve to give ids of shape [R, n] with R = {n_requests} and n <= {size}"
    if not isinstance(found, np.ndarray):
        return f"{expected}, found {type(found).__name__}"
    if found.ndim != 2 or len(found) != n_requests or found.shape[1] > size:
        return f"{expected}, found shape {list(found.shape)}"
    if not np.issubdtype(found.dtype, np.integer):
        return f"{expected}, found dtype {found.dtype}; give int32"
    is_bad = (found < -1) | (found >= n_ads)
    if is_bad.any():
        return f"expected ids of the {n_ads} ads, or -1 for none, found {found[is_bad][0]}"
    ids = found.astype(np.int32)
    for is_bad, words in (
        (~_in_order(ids) & (ids[:, :-1] < 0), "-1 at the end of a row alone"),
        (~_in_order(ids) & (ids[:, :-1] == ids[:, 1:]), "each ad once"),
        (~_in_order(ids), "ids ascending within each row"),
    ):
        if is_bad.any():
            row, column = np.argwhere(is_bad)[0]
            pair = f"{ids[row, column]} before {ids[row, column + 1]}"
            return f"expected {words}, found {pair} in row {row}; sort them, or use best_ads"
    is_gone = (ids >= 0) & ~available(ids)
    if is_gone.any():
        row, column = np.argwhere(is_gone)[0]
        gone = f"ad {ids[row, column]} in row {row}, which is not"
        return f"expected ads that are there when the request comes, found {gone}; ask `available`"
    return ""


def _in_order(ids: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Whether each id may come before the next: a smaller one, or anything before padding.  [R, n - 1]"""
    return ((ids[:, :-1] < ids[:, 1:]) & (ids[:, :-1] >= 0)) | (ids[:, 1:] < 0)


def score_fault(said: Any, shape: tuple[int, ...]) -> str:
    """What is wrong with what `score` gave; empty if nothing is."""
    expected = f"expected score to give numbers of shape [R, m] = {list(shape)}"
    if not isinstance(said, np.ndarray):
        return f"{expected}, found {type(said).__name__}"
    if said.shape != shape:
        return f"{expected}, found shape {list(said.shape)}"
    if not np.issubdtype(said.dtype, np.floating):
        return f"{expected}, found dtype {said.dtype}; give float32"
    if not np.isfinite(said).all():
        return f"expected finite scores, found {said[~np.isfinite(said)][0]}"
    return ""


def locked(array: np.ndarray) -> Any:
    """The same array, not to be written to."""
    view = array.view()
    view.flags.writeable = False
    return view


def _all_locked(arrays: Mapping[str, np.ndarray]) -> Mapping[str, Any]:
    return MappingProxyType({name: locked(array) for name, array in arrays.items()})
