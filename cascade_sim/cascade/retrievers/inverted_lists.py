"""Approximate search of a large corpus: faiss, `pip install 'cascade_sim[faiss]'`.

The ads are parted into about 2 * sqrt(ads) lists of neighbours, and of these only the `probes` most similar
to a user are searched: at ten million ads that takes a small part of the time of a whole search, and misses
some of the nearest (`recall`). One thread, and a sample and centres drawn by the world's seed: the answers
are the same for all workers. On another kind of processor an ad between two lists may fall into the other.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cascade_sim.cascade.cost import listed_search
from cascade_sim.foundation import random as draws
from cascade_sim.foundation.errors import UserError

INSTALL = "pip install 'cascade_sim[faiss]'"
ROUNDS = 10  # of the clustering
SAMPLE = 64  # ads for each list that the centres are learned from


def n_lists(n_ads: int) -> int:
    """Into how many lists so many ads are parted."""
    return max(1, int(2 * n_ads**0.5))


def require() -> Any:
    """The library; UserError with the command that installs it."""
    try:
        import faiss
    except ImportError:
        raise UserError(
            f"cascade.retrieval.probes: approximate retrieval needs faiss, an extra: {INSTALL}"
        ) from None
    return faiss


class InvertedLists:
    """The nearest of ads [A, D] by inner product, looked for in the lists most similar to the user."""

    def __init__(self, ads: NDArray[np.float32], probes: int, seed: int):
        faiss = require()
        faiss.omp_set_num_threads(1)  # sums of floats would otherwise depend on how many cores there are
        n, width = ads.shape
        lists = n_lists(n)
        sample = np.argsort(draws.bits(seed, "retrieval lists", np.arange(n)), kind="stable")[
            : SAMPLE * lists
        ]
        means = faiss.Kmeans(
            width, lists, niter=ROUNDS, seed=seed % 2**31, max_points_per_centroid=SAMPLE,
            min_points_per_centroid=1,
        )  # fmt: skip
        means.train(ads[np.sort(sample)])
        near = faiss.IndexFlatL2(width)  # an ad belongs to the list of the nearest centre
        near.add(means.centroids)
        self._index = faiss.IndexIVFFlat(near, width, lists, faiss.METRIC_INNER_PRODUCT)
        for at in draws.parts(n):
            self._index.add(ads[at])
        self._alike = faiss.IndexFlatIP(width)  # and a user looks into the lists of the most similar ones
        self._alike.add(means.centroids)
        self._index.quantizer = self._alike
        self._index.nprobe = min(probes, lists)
        self.cost = listed_search(n, width, lists, probes, is_kept=True)  # of a search

    def nearest(self, users: NDArray[np.float32], size: int) -> NDArray[np.int32]:
        """The `size` nearest found, ids ascending, -1 at the end if they are fewer.  [m, D] -> [m, size]"""
        found = self._index.search(np.ascontiguousarray(users), size)[1].astype(np.int32)
        # As unsigned numbers -1 is the largest: padding comes last.
        return np.sort(found.view(np.uint32), axis=1).view(np.int32)


def recall(found: NDArray[np.int32], exact: NDArray[np.int32]) -> float:
    """The share of the exact answers that was found.  [m, n], [m, n]"""
    met = sum(len(np.intersect1d(one, other)) for one, other in zip(found, exact, strict=True))
    return met / exact.size
