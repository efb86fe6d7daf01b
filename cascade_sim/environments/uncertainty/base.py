"""Model uncertainty of worlds in which nothing was fitted; its contract in the types of the cascade."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from cascade_sim import protocols
from cascade_sim.cascade.outcome import Outcome
from cascade_sim.cascade.serve import Arm, Decision
from cascade_sim.environments.clusters import Clusters

UNCERTAINTY = "uncertainty"  # of a tally's vectors
Tables = dict[str, dict[str, np.ndarray]]  # {arm: {column: [rows]}}


Uncertainty = protocols.Uncertainty[Arm, Decision, Outcome, Clusters]  # the contract, in the cascade's types


class NoUncertainty:
    """No model uncertainty: nothing was fitted, so intervals stay as they are."""

    is_common: ClassVar[bool] = False
    words: str | None = None

    def sums(
        self, context: Any, arm: Arm, decision: Decision, result: Outcome, columns: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        return {}

    def controlled(
        self, tables: Tables, sums: Mapping[str, np.ndarray], clusters: Clusters | None, baseline: str
    ) -> Tables:
        return tables

    def widened(
        self,
        tables: Tables,
        sums: Mapping[str, np.ndarray],
        clusters: Clusters | None,
        baseline: str | None = None,
    ) -> Tables:
        return tables
