"""What is tried for each objective, and what is chosen of it by the validation lists.

A point is a setting of everything that is tuned: learning rate, dropout and momentum of batch norm for every
objective, and what only some have (alpha, y0). Without a budget all points of the grid are tried: then an
objective with an alpha has many more trainings than one without. With a budget of N every objective has
exactly N points, all different. They lie on a diagonal of common settings by own values, so that each common
setting and each own value is tried as often as any other, up to one time.

Rules of choice, all by the validation lists:
- ndcg: the greatest NDCG@10;
- loss: the least log loss (or squared error);
- near: for an objective without scale as ndcg; for one with scale the least loss among the cells whose
  NDCG@10 is within one standard error of the objective's best. With few validation lists that is nearly all
  of them, with many nearly none.
The paper on regression compatible ranking gives results by the first two. That on scale calibration says that
settings are tuned on the validation lists and not by which measure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from cascade_sim.foundation import random as draws
from cascade_sim.models.objectives import OBJECTIVES, Objective, make_objective, split_family

NEAR, NDCG, LOSS = "near", "ndcg", "loss"

PAPER_RULES = (NDCG, LOSS)  # of the paper on regression compatible ranking


@dataclass(frozen=True)
class Entrant:
    """A row of the tables by a name of its own: an objective of which something is fixed."""

    family: str
    tasks: tuple[str, ...]
    fixed: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    on_grades: bool = False  # in the binary task it learns from the grades all the same

    @property
    def kind(self) -> type[Objective]:
        return OBJECTIVES[split_family(self.family)[0]]


ENTRANTS = {
    "softmax-grades": Entrant("softmax", ("binary",), on_grades=True),  # as the paper on scale calibration
    "mse_softplus": Entrant("rcr_regression", ("graded",), {"alpha": 0.0}),  # as RCR's Table 3
}


def entrant_of(name: str) -> Entrant:
    """What a name of the tables stands for; KeyError for none."""
    return ENTRANTS.get(name) or Entrant(name, OBJECTIVES[split_family(name)[0]].tasks)


class Point(NamedTuple):
    """An objective with its own options, and how it is trained."""

    objective: Objective
    alpha: float | None
    learning_rate: float
    dropout: float
    momentum: float
    y0: float | None  # None where it is not tuned
    name: str = ""  # of the row, where it is not the objective's family
    on_grades: bool = False

    @property
    def setting(self) -> dict[str, float | None]:
        """All that is tuned, by name."""
        return {name: getattr(self, name) for name in ("alpha", "learning_rate", "dropout", "momentum", "y0")}


@dataclass(frozen=True)
class Grid:
    """The values that are tried. Empty y0s: the objective's own, or what the plan fixes."""

    learning_rates: tuple[float, ...]
    dropouts: tuple[float, ...]
    momenta: tuple[float, ...]
    alphas: tuple[float, ...]
    y0s: tuple[float, ...] = ()
    budget: int | None = None

    def points(self, name: str, task: str, fixed: Mapping[str, Any]) -> list[Point]:
        """Of one objective, or family; ValueError for options it refuses and a budget it cannot spend."""
        entrant, row = entrant_of(name), name if name in ENTRANTS else ""
        kind, family = split_family(entrant.family)
        known = {key: option for key, option in entrant.kind.options.items() if key not in entrant.fixed}
        fixed = {**{key: value for key, value in fixed.items() if key in known}, **family, **entrant.fixed}
        own: list[dict[str, float]] = [
            {**alpha, **y0}
            for alpha in _each("alpha", self.alphas, known)
            for y0 in _each("y0", self.y0s, known)
        ]
        common = [
            (rate, dropout, momentum)
            for rate in self.learning_rates
            for dropout in self.dropouts
            for momentum in self.momenta
        ]
        objectives = [make_objective(kind, task, **{**fixed, **values}) for values in own]
        return [
            Point(objectives[i], own[i].get("alpha"), *common[j], own[i].get("y0"), row, entrant.on_grades)
            for i, j in self._pairs(len(own), len(common))
        ]

    def _pairs(self, n_own: int, n_common: int) -> list[tuple[int, int]]:
        if self.budget is None:
            return [(i, j) for i in range(n_own) for j in range(n_common)]
        if self.budget > n_own * n_common:
            tuned = f"{n_common} common" + (f" × {n_own} own" if n_own > 1 else "")
            raise ValueError(
                f"has {n_own * n_common} settings to try ({tuned}), fewer than the budget of {self.budget}; "
                "give more learning rates, dropouts or momenta, or a lower budget"
            )
        return diagonal(n_own, n_common, self.budget)


def _each(name: str, values: Sequence[float], known: Mapping[str, Any]) -> list[dict[str, float]]:
    return [{name: value} for value in values] if name in known and values else [{}]


def diagonal(n_own: int, n_common: int, n: int) -> list[tuple[int, int]]:
    """n different pairs (own, common), each own value and each common setting as often as any other, up to 1.

    Both are shuffled first, the same way in every study, so that large values of the one do not always meet
    large values of the other. What is common comes in the same order whatever n_own is: with n no more than
    n_common all objectives have the same common settings.
    """
    own = np.argsort(draws.uniform(0, "ltr budget: own", np.arange(n_own)))
    common = np.argsort(draws.uniform(0, "ltr budget: common", np.arange(n_common)))
    both = math.lcm(n_own, n_common)  # after so many steps a diagonal meets itself: then the next one
    return sorted((int(own[(k + k // both) % n_own]), int(common[k % n_common])) for k in range(n))


class _Judged(Protocol):
    """What was measured of a cell on the validation lists."""

    @property
    def means(self) -> dict[str, float]: ...

    @property
    def ndcg_error(self) -> float: ...


class _Cell(Protocol):
    @property
    def objective(self) -> Objective: ...

    @property
    def valid(self) -> _Judged: ...


C = TypeVar("C", bound=_Cell)


def measure_of(rule: str, objective: Objective) -> str:
    """The measure whose best epoch a rule looks at: of `near` the loss where there is a scale."""
    if rule != NEAR:
        return rule
    return LOSS if objective.has_scale else NDCG


def choose(cells: Sequence[C], rule: str = NEAR) -> C:
    """The cell that the validation lists prefer by a rule; the first of equals."""
    if rule == LOSS:
        return min(cells, key=lambda cell: cell.valid.means["loss"])
    best = max(cells, key=lambda cell: cell.valid.means["ndcg"])
    if rule == NDCG or not best.objective.has_scale:
        return best
    least = best.valid.means["ndcg"] - best.valid.ndcg_error
    near = [cell for cell in cells if cell.valid.means["ndcg"] >= least]
    return min(near, key=lambda cell: cell.valid.means["loss"])
