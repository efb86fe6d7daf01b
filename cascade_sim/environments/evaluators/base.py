"""What measures decisions: the contract of an evaluator, and what it is given of a block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from cascade_sim.cascade.outcome import Outcome
from cascade_sim.cascade.serve import Arm, Block, Decision, Platform


@dataclass(frozen=True)
class Yardstick:
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
    yards: dict[Arm, Y]  # by what arms do in their last stage

    def trim(self, most: int) -> None:
        """Give up what was found for arms but the first and the last ones."""
        for old in list(self.yards)[1 : 1 - most]:
            del self.yards[old]


C = TypeVar("C", bound=Context[Any])


class Evaluator(Protocol[C]):
    """Measures decisions. What it compares them with is in its context, which is its own affair."""

    def context(self, block: Block, group: np.ndarray, n_groups: int) -> C:
        """What arms are measured by on this block. `group` [R]: over which vectors are summed."""

    def prepare(self, context: C, arm: Arm) -> None:
        """Find what the arm is measured by: before it serves, so that whole sets are scored first."""

    def columns(self, context: C, arm: Arm, decision: Decision, result: Outcome) -> dict[str, np.ndarray]:
        """What is summed over requests, never NaN.  {name: [R] float64}"""

    def vectors(self, context: C, arm: Arm, decision: Decision, result: Outcome) -> dict[str, np.ndarray]:
        """What is summed over groups of requests.  {name: [G, ...]}"""

    def best(self, context: C, arm: Arm) -> np.ndarray | None:
        """The ads that an arm should show of those that are there; None where nothing tells.  [R, k]"""
