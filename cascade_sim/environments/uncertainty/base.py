"""How uncertain what was fitted leaves figures that rest on it: the contract, and worlds that fit nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

import numpy as np

from cascade_sim.cascade.outcome import Outcome
from cascade_sim.cascade.serve import Arm, Decision
from cascade_sim.environments.clusters import Clusters

UNCERTAINTY = "uncertainty"  # of a tally's vectors
Tables = dict[str, dict[str, np.ndarray]]  # {arm: {column: [rows]}}


class Uncertainty(Protocol):
    """What a tally keeps of it, block by block, and how intervals grow by it."""

    is_common: ClassVar[bool]  # the same on both sides of a comparison, whatever is paired

    @property
    def words(self) -> str | None:
        """What intervals hold of it, and what not."""

    def sums(
        self, context: Any, arm: Arm, decision: Decision, result: Outcome, columns: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        """What is kept of a block, to be added up: {UNCERTAINTY: [...]}, or nothing."""

    def widened(self, tables: Tables, sums: Mapping[str, np.ndarray], clusters: Clusters | None) -> Tables:
        """Columns of arms by row, as intervals resample them: no sum moves, only their spread grows."""


class NoUncertainty:
    """Of a world in which nothing was fitted."""

    is_common: ClassVar[bool] = False
    words: str | None = None

    def sums(
        self, context: Any, arm: Arm, decision: Decision, result: Outcome, columns: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        return {}

    def widened(self, tables: Tables, sums: Mapping[str, np.ndarray], clusters: Clusters | None) -> Tables:
        return tables
