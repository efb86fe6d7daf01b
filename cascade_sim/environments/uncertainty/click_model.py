"""How uncertain a log's click model is, by the influence of what it was fitted to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cascade_sim.analysis.metrics.catalogue import MODELLED
from cascade_sim.auction import MICROS
from cascade_sim.cascade.outcome import Outcome
from cascade_sim.cascade.serve import Arm, Decision
from cascade_sim.environments.clusters import Clusters
from cascade_sim.environments.uncertainty.base import UNCERTAINTY, Tables
from cascade_sim.logs.replay.observed import ObservedClicks

# Columns that modelled clicks have a part in, and the sum whose gradient they move by.
FACTORS = {"1000 revenue": ("revenue", 1000.0), "1000 expected_revenue": ("expected_revenue", 1000.0)}


@dataclass(frozen=True)
class ClickModelUncertainty:
    """Of a replayed log's click model. `n_logged`: how many requests the log has."""

    clicks: ObservedClicks
    n_logged: int
    is_common: ClassVar[bool] = False
    words: str | None = None  # of what intervals hold, a statement says more

    def sums(
        self, context: Any, arm: Arm, decision: Decision, result: Outcome, columns: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        """Gradients of modelled clicks and revenue by the model's coefficients.  [FOLDS, p, 2]"""
        pages = result.observed
        if pages is None or pages.said is None:
            return {}
        price = result.price_micros(decision) / MICROS * (arm.charging == "click")
        return {UNCERTAINTY: pages.gradient(np.ones(price.shape), price)}

    def widened(self, tables: Tables, sums: Mapping[str, np.ndarray], clusters: Clusters | None) -> Tables:
        if clusters is None:
            return tables
        return with_influence(tables, dict(sums), self.clicks, self.n_logged, clusters)


def with_influence(
    tables: dict[str, dict[str, np.ndarray]],
    gradient: dict[str, np.ndarray],
    clicks: ObservedClicks,
    n_logged: int,
    units: Clusters,
) -> dict[str, dict[str, np.ndarray]]:
    """The columns of each arm with how its modelled clicks move with each unit: only their spread grows.

    `n_logged`: how many requests the log has, of which the evaluation may be a part.
    """
    model, arms = clicks.model, list(gradient)
    if model is None or not arms:
        return tables
    unit = np.zeros(n_logged, np.int64)
    unit[: len(units.of_request)] = units.of_request
    whole = np.concatenate([gradient[arm] for arm in arms], axis=2)
    moved = model.influence(whole, unit, units.n)
    made = dict(tables)
    for i, arm in enumerate(arms):
        columns = dict(tables[arm])
        for name, at in MODELLED.items():
            if name in columns:
                columns[name] = columns[name] + moved[:, 2 * i + at]
        for name, (of, factor) in FACTORS.items():
            if name in columns:
                columns[name] = columns[name] + factor * moved[:, 2 * i + MODELLED[of]]
        made[arm] = columns
    return made
