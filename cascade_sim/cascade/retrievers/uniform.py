"""Retrieval at random: ads drawn uniformly from the corpus, before a learned retriever has been trained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cascade_sim.cascade.corpus_sample import uniform_ads
from cascade_sim.foundation import random as draws
from cascade_sim.protocols import Availability
from cascade_sim.world.availability import ascending


@dataclass(frozen=True)
class UniformRetrieval:
    """Another draw of ads for every request, of those that are there."""

    n_ads: int
    seed: int
    name: str = "uniform"

    def retrieve(self, block: Any, size: int, lives: Availability | None) -> NDArray[np.int32]:
        """[R, min(size, A)] ids ascending, -1 at the end"""
        size = min(size, self.n_ads)
        found = uniform_ads(
            block.requests, size, self.n_ads, self.seed, "uniform retrieval", block.times, lives
        )
        return ascending(found)

    def score(self, block: Any, ids: np.ndarray) -> NDArray[np.float32]:
        """A draw for every ad; 0 for padding.  [R, m]"""
        draw = draws.uniform(self.seed, "uniform retrieval score", block.requests[:, None], ids)
        return np.where(ids >= 0, draw, 0.0).astype(np.float32)
