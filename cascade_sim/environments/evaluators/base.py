"""Context of an evaluator: a block of requests, and the references that arms are compared with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from cascade_sim.cascade.serve import Arm, Block, Decision, Platform


@dataclass(frozen=True)
class ReferenceSets:
    """What an arm's pre-ranking is measured by: answers to the same requests from the whole set."""

    ideal: Decision  # by the arm's own ranking stage
    best_pctr: np.ndarray  # [R, k] ad ids: the ranker's best by pCTR alone
    best_value: np.ndarray  # [R, k] ad ids: best by true CTR * bid


Y = TypeVar("Y")


@dataclass(frozen=True)
class Context(Generic[Y]):
    """A block of requests, and what arms that serve it are measured by, found once for all of them."""

    block: Block  # with a memo
    group: np.ndarray  # [R] of n_groups
    n_groups: int
    platform: Platform
    references: dict[Arm, Y]  # by what arms do in their last stage

    def trim(self, most: int) -> None:
        """Give up what was found for arms but the first and the last ones."""
        for old in list(self.references)[1 : 1 - most]:
            del self.references[old]
