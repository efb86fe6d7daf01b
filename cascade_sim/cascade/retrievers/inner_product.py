"""Ads as vectors, searched for the largest inner products: exactly, or in inverted lists with faiss.

No BLAS: a matrix product may change its last bits with the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from cascade_sim.cascade.cost import exact_search
from cascade_sim.cascade.retrievers.inverted_lists import InvertedLists, recall
from cascade_sim.foundation import random as draws
from cascade_sim.foundation.kernels import dot_scores, nearest_rows, pad_lanes, tile_scores, tiled
from cascade_sim.foundation.limits import LANES
from cascade_sim.protocols import Cost

Codes = NDArray[np.float32]


class AdIndex:
    """Vectors of all ads. `rows_of`: those of a slice of ads, [m, D] float32.

    >>> index = AdIndex(3, 2, lambda at: np.eye(3, 2, dtype=np.float32)[at])
    >>> index.nearest(np.array([[0.0, 1.0]], np.float32), 1)
    array([[1]], dtype=int32)
    """

    def __init__(
        self,
        n_ads: int,
        width: int,
        rows_of: Callable[[slice], Codes],
        probes: int | None = None,
        seed: int = 0,
    ):
        self.n_ads, self.width = n_ads, width
        self._tiles = np.empty((-(-n_ads // LANES), width, LANES), np.float32)
        for at in draws.parts(n_ads):
            part = tiled(np.ascontiguousarray(rows_of(at), np.float32))
            self._tiles[at.start // LANES : at.start // LANES + len(part)] = part
        self._lists = None
        if probes is not None:
            self._lists = InvertedLists(self.rows(np.arange(n_ads)), probes, seed)

    @property
    def is_exact(self) -> bool:
        """Whether the whole corpus is searched."""
        return self._lists is None

    def cost(self, size: int, *, is_kept: bool = False) -> Cost:
        """Of a search for so many; none is made where all ads are retrieved. `is_kept`: answers are."""
        if self._lists is not None:
            return replace(self._lists.cost, is_kept=is_kept)
        return exact_search(0 if size >= self.n_ads else self.n_ads, self.width, is_kept=is_kept)

    def nearest(self, codes: Codes, size: int) -> NDArray[np.int32]:
        """The ads with the largest inner products.  [m, D] -> [m, size] ids ascending, -1 at the end"""
        if self._lists is not None:
            return self._lists.nearest(codes, size)
        return self.exactly_nearest(codes, size)

    def exactly_nearest(self, codes: Codes, size: int) -> NDArray[np.int32]:
        """The same, from the whole corpus; of equals the smaller id.  [m, D] -> [m, size] ids ascending"""
        return nearest_rows(codes, self._tiles, self.n_ads, size)

    def recall(self, codes: Codes, size: int) -> float:
        """The share of the nearest ads that an approximate search finds."""
        size = min(size, self.n_ads)
        return recall(self.nearest(codes, size), self.exactly_nearest(codes, size))

    def scores(self, codes: Codes, ids: NDArray[np.int32]) -> Codes:
        """Inner products with these ads; 0 for padding.  [R, D], [R, m] -> [R, m]"""
        ads, place = np.unique(ids, return_inverse=True)
        rows = pad_lanes(self.rows(ads))
        place = np.where(ids >= 0, place.reshape(ids.shape), -1).astype(np.int32)
        return dot_scores(pad_lanes(codes), rows, place)

    def all_scores(self, code: Codes) -> Codes:
        """Inner products with every ad.  [D] -> [A]"""
        return tile_scores(code[None, :], self._tiles, self.n_ads)[0]

    def rows(self, ads: np.ndarray) -> Codes:
        """The vectors of these ads; of padding, some ad's.  [m] -> [m, D]"""
        return self._tiles[ads // LANES, :, ads % LANES]
