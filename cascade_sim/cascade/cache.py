"""What was computed for the candidates of a block once, for all arms that ask again.

Many arms look at the same candidates: the shadow, the oracle and the ablation score the same
pre-ranking sets, and a competitive set is a part of one. A block that carries a memo is answered from it.
Who asks the same blocks many questions keeps their memos: a parameter then selects, prices and measures
again, and no model is asked twice.
"""

from collections.abc import Callable
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np

from cascade_sim.foundation.compilation import kernel

Made = TypeVar("Made")
P = ParamSpec("P")
Values = Callable[..., np.ndarray]


class BlockCache:
    """Of one block. The arrays that it hands out are shared and read-only."""

    def __init__(self) -> None:
        self._sets: dict[object, np.ndarray] = {}
        self._known: dict[object, list[tuple[np.ndarray, np.ndarray]]] = {}
        self._made: dict[object, tuple[tuple[np.ndarray, ...], Any]] = {}

    def candidates(self, key: object, find: Callable[[], np.ndarray]) -> np.ndarray:
        """The pre-ranking set of this key, always the same array."""
        if key not in self._sets:
            self._sets[key] = find()
        return self._sets[key]

    def values(
        self, key: object, ids: np.ndarray, compute: Callable[[], np.ndarray], by_pair: bool
    ) -> np.ndarray:
        """compute() for the candidates `ids` [R, m], or what is known of them; kept for pre-ranking sets.

        `by_pair`: a value depends, to the last bit, on its request and ad alone, so a part of a set may be
        answered from the whole.
        """
        known = self._known.pop(key, [])
        self._known[key] = known  # the last one used is last
        for whole, values in known:
            if whole is ids:
                return values
            if by_pair:
                columns, is_part = self.made("places", (whole, ids), partial(_places, whole, ids))
                if is_part:
                    return self.made(
                        "part", (values, columns), partial(np.take_along_axis, values, columns, 1)
                    )
        values = compute()
        if any(ids is whole for whole in self._sets.values()):
            known.append((ids, values))
        return values

    def made(self, what: object, of: tuple[np.ndarray, ...], compute: Callable[[], Made]) -> Made:
        """compute(), which makes `what` of these very arrays and of nothing else; done once."""
        key = (what, *map(id, of))
        kept = self._made.pop(key, None)
        if kept is None:
            kept = (of, compute())  # while an array is kept, no other has its id
        self._made[key] = kept  # the last one used is last
        made: Made = kept[1]
        return made

    def trim(self, most_sets: int, most_known: int, most_made: int) -> None:
        """Forget all but the first pre-ranking set and the latest others, and what was used longest ago.

        The first is that of the arm as it is, to which all arms come back.
        """
        for key in list(self._sets)[1 : len(self._sets) - max(most_sets - 1, 0)]:
            gone = self._sets.pop(key)
            for known in self._known.values():
                known[:] = [pair for pair in known if pair[0] is not gone]
        for old in list(self._known)[: max(len(self._known) - most_known, 0)]:
            del self._known[old]
        for made in list(self._made)[: max(len(self._made) - most_made, 0)]:
            del self._made[made]


def once(function: Callable[Concatenate[Any, P], Made]) -> Callable[Concatenate[Any, P], Made]:
    """Decorates function(block, *arguments): in a block with a memo, computed once of the same arguments.

    Arrays are the same by identity, all else by equality; with an argument that has no hash it is not kept.
    """

    @wraps(function)
    def call(block: Any, *arguments: P.args, **none: P.kwargs) -> Made:
        compute = partial(function, block, *arguments, **none)
        if block.memo is None:
            return compute()
        arrays = tuple(value for value in arguments if isinstance(value, np.ndarray))
        rest = tuple(None if isinstance(value, np.ndarray) else value for value in arguments)
        try:
            hash(rest)
        except TypeError:
            return compute()
        memo: BlockCache = block.memo
        return memo.made((function, rest), arrays, compute)

    return call


def of_sets(function: Values) -> Values:
    """Decorates function(block, *key) -> ids [R, m]: in a block with a memo, found once, always one array.

    What `of_pairs` computes for such a set is kept.
    """

    @wraps(function)
    def call(block: Any, *key: Any) -> np.ndarray:
        find = partial(function, block, *key)
        if block.memo is None:
            return find()
        memo: BlockCache = block.memo
        return memo.candidates((function, key), find)

    return call


def of_pairs(is_by_pair: Callable[..., bool]) -> Callable[[Callable[..., np.ndarray]], Values]:
    """Decorates function(block, ids [R, m], *key) -> [R, m]: kept for what a block with a memo retrieves.

    `is_by_pair(*key)`: a value depends on its request and ad alone, so that a part is answered from a whole.
    """

    def decorated(function: Callable[..., np.ndarray]) -> Values:
        @wraps(function)
        def call(block: Any, ids: np.ndarray, *key: Any) -> np.ndarray:
            compute = partial(function, block, ids, *key)
            if block.memo is None:
                return compute()
            memo: BlockCache = block.memo
            return memo.values((function, key), ids, compute, is_by_pair(*key))

        return call

    return decorated


@kernel
def _places(whole, ids):
    """Columns of `ids` in `whole`, rows of both ascending, and whether all are there; padding never is."""
    n_rows, n = whole.shape
    columns = np.zeros(ids.shape, np.int64)
    for r in range(n_rows):
        at = 0
        for j in range(ids.shape[1]):
            while at < n and whole[r, at] < ids[r, j]:
                at += 1
            if at == n or whole[r, at] != ids[r, j] or ids[r, j] < 0:
                return columns, False
            columns[r, j] = at
    return columns, True
