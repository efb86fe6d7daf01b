"""How uncertain a log's click model is, by the influence of what it was fitted to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np

from cascade_sim.analysis.metrics.catalogue import MODELLED
from cascade_sim.auction import MICROS
from cascade_sim.cascade.outcome import Outcome
from cascade_sim.cascade.serve import Arm, Decision
from cascade_sim.environments.clusters import Clusters
from cascade_sim.environments.uncertainty.base import UNCERTAINTY, Tables
from cascade_sim.environments.uncertainty.control_variate import CONTROLS, Control, Side, control
from cascade_sim.logs.replay.observed import ObservedClicks, PageClicks

# Columns that modelled clicks have a part in, and the sum whose gradient they move by.
FACTORS = {"1000 revenue": ("revenue", 1000.0), "1000 expected_revenue": ("expected_revenue", 1000.0)}


class Kept(NamedTuple):
    """Of an arm: gradients of modelled and of kept clicks and their revenue, and the latter by group."""

    modelled: np.ndarray  # [FOLDS, p, 2]
    kept: np.ndarray  # [FOLDS, p, 2]
    groups: np.ndarray  # [groups, 2]

    @property
    def flat(self) -> np.ndarray:
        return np.concatenate([part.ravel() for part in self])


@dataclass(frozen=True)
class ClickModelUncertainty:
    """Of a replayed log's click model. `n_logged`: how many requests the log has."""

    clicks: ObservedClicks
    n_logged: int
    is_common: ClassVar[bool] = False
    words: str | None = None  # of what intervals hold, a statement says more
    _last: dict[Any, dict[str, np.ndarray]] = field(default_factory=dict, compare=False, repr=False)

    def sums(
        self, context: Any, arm: Arm, decision: Decision, result: Outcome, columns: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        """What a block adds to `Kept`, flat."""
        pages = result.observed
        if pages is None or pages.said is None:
            return {}
        price = result.price_micros(decision) / MICROS * (arm.charging == "click")
        return {UNCERTAINTY: self.kept(context.block, decision.win_set, pages, price).flat}

    def kept(self, block: Any, ads: np.ndarray, pages: PageClicks, price: np.ndarray) -> Kept:
        weights = np.ones(price.shape), price
        return Kept(
            pages.gradient(~pages.is_observed, *weights),
            pages.gradient(pages.is_kept, *weights),
            self.clicks.by_group(block, ads, pages, *weights),
        )

    def controlled(
        self, tables: Tables, sums: Mapping[str, np.ndarray], clusters: Clusters | None, baseline: str
    ) -> Tables:
        """Expected clicks and revenue of the arms with the click model as control variate of their lifts."""
        made = dict(tables)
        moved = self._moved(sums, clusters)
        for arm, controls in self._controls(tables, sums, moved, baseline).items():
            made[arm] = dict(tables[arm])
            for name, (column, factor) in _places(tables[arm]).items():
                if column in controls:
                    made[arm][name] = tables[arm][name] + factor * controls[column].added
        return made

    def widened(
        self,
        tables: Tables,
        sums: Mapping[str, np.ndarray],
        clusters: Clusters | None,
        baseline: str | None = None,
    ) -> Tables:
        """The columns of each arm with how its modelled clicks move with each unit: only their spread grows.

        With a baseline, of `controlled`.
        """
        moved = self._moved(sums, clusters)
        controls = {} if baseline is None else self._controls(tables, sums, moved, baseline)
        made = dict(tables)
        for arm, of_arm in moved.items():
            made[arm] = dict(tables[arm])
            for name, (column, factor) in _places(tables[arm]).items():
                by, own = of_arm[:, MODELLED[column]], controls.get(arm, {}).get(column)
                made[arm][name] = tables[arm][name] + factor * (by if own is None else by + own.widened)
        return made

    def _moved(self, sums: Mapping[str, np.ndarray], clusters: Clusters | None) -> dict[str, np.ndarray]:
        """How the sums of each arm's `Kept` move with each unit.  [units, 4]; {} without a fit"""
        model = self.clicks.model
        if clusters is None or model is None or not sums:
            return {}
        key = (id(clusters), *((arm, flat.tobytes()) for arm, flat in sums.items()))
        if key not in self._last:
            unit = np.zeros(self.n_logged, np.int64)
            unit[: len(clusters.of_request)] = clusters.of_request
            parts = self._parts(sums).values()
            whole = np.concatenate([of for part in parts for of in (part.modelled, part.kept)], axis=2)
            influence = model.influence(whole, unit, clusters.n)
            self._last.clear()
            self._last[key] = {arm: influence[:, 4 * i : 4 * i + 4] for i, arm in enumerate(sums)}
        return self._last[key]

    def _controls(
        self,
        tables: Tables,
        sums: Mapping[str, np.ndarray],
        moved: Mapping[str, np.ndarray],
        baseline: str,
    ) -> dict[str, dict[str, Control]]:
        """Of every arm but the baseline, by column."""
        found: dict[str, dict[str, Control]] = {}
        if baseline not in moved:
            return found
        misfit, parts = self.clicks.misfit, self._parts(sums)
        assert misfit is not None
        for arm in moved.keys() - {baseline}:
            for column, name in CONTROLS.items():
                if name in tables[baseline] and name in tables[arm]:
                    at = MODELLED[column]
                    own, base = (
                        Side(
                            tables[one][column], tables[one][name], parts[one].groups[:, at],
                            moved[one][:, at], moved[one][:, 2 + at],
                        )
                        for one in (arm, baseline)
                    )  # fmt: skip
                    made = control(own, base, misfit)
                    if made is not None:
                        found.setdefault(arm, {})[column] = made
        return found

    def _parts(self, sums: Mapping[str, np.ndarray]) -> dict[str, Kept]:
        """What `sums` were flattened from."""
        model, misfit = self.clicks.model, self.clicks.misfit
        if model is None or misfit is None:
            return {}
        shape = (*model.apart.shape, 2)
        n = int(np.prod(shape))
        return {
            arm: Kept(flat[:n].reshape(shape), flat[n : 2 * n].reshape(shape), flat[2 * n :].reshape(-1, 2))
            for arm, flat in sums.items()
        }


def _places(columns: Mapping[str, np.ndarray]) -> dict[str, tuple[str, float]]:
    """Columns with modelled clicks in them: which one it is of, and times what."""
    every = {**{name: (name, 1.0) for name in MODELLED}, **FACTORS}
    return {name: of for name, of in every.items() if name in columns}
