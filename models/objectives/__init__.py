"""Objectives by name: what a ranker is trained for, and how its outputs rank and predict.

    objective = make_objective("rcr", task="binary", alpha=0.25)
    loss = objective.loss(net(x), labels, lists)             # net with objective.n_heads outputs
    objective.score(outputs), objective.predict(outputs)     # what ranks; what it says of the label
    served = Calibrated.fit(objective, "platt", outputs, labels)

| name | labels | heads | scale | alpha weighs |
|---|---|---|---|---|
| pointwise | both | 1 | sigmoid; graded: the score | |
| ranknet, softmax, approx_ndcg | both | 1 | none | |
| listce | both | 1 | up to a factor | |
| multi_objective | both | 1 | as pointwise | ranking |
| multi_task | both | 2 | as pointwise, head 0 | ranking |
| calibrated_softmax | both | 1 | y0 · e^s | |
| calibrated_ranknet | binary | 1 | sigmoid | |
| rcr | binary | 1 | sigmoid | ranking |
| rcr_regression | both | 1 | softplus | ranking |
| jrc | binary | 2 | sigmoid of f_1 − f_0 | regression |
| sbcr | binary | 1 | sigmoid | regression |

>>> import torch
>>> objective = make_objective("rcr", alpha=0.25)
>>> outputs = torch.tensor([[2.0], [1.0], [0.0], [1.0], [1.0]])  # a net's outputs, n_heads of them per item
>>> clicks, lists = torch.tensor([1.0, 0.0, 0.0, 0.0, 1.0]), torch.tensor([0, 3, 5])
>>> round(objective.loss(outputs, clicks, lists).item(), 3)
1.606
>>> objective.score(outputs).tolist()
[2.0, 1.0, 0.0, 1.0, 1.0]
>>> [round(pctr, 3) for pctr in objective.predict(outputs).tolist()]
[0.881, 0.731, 0.5, 0.731, 0.731]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cascade_sim.models.known import check_known
from cascade_sim.models.objectives.base import Choice, LoggedScores, Objective, Option
from cascade_sim.models.objectives.joint import (
    JointRankingCalibration,
    MultiObjective,
    MultiTask,
    RegressionCompatible,
    RegressionCompatibleGraded,
    SelfBoosted,
)
from cascade_sim.models.objectives.single import (
    ApproxNdcg,
    CalibratedRankNet,
    CalibratedSoftmax,
    ListCE,
    Pointwise,
    RankNet,
    Softmax,
)

if TYPE_CHECKING:
    import torch

    from cascade_sim.models.calibrators import Calibrator

OBJECTIVES: dict[str, type[Objective]] = {
    "pointwise": Pointwise,
    "ranknet": RankNet,
    "softmax": Softmax,
    "approx_ndcg": ApproxNdcg,
    "listce": ListCE,
    "multi_objective": MultiObjective,
    "multi_task": MultiTask,
    "calibrated_softmax": CalibratedSoftmax,
    "calibrated_ranknet": CalibratedRankNet,
    "rcr": RegressionCompatible,
    "rcr_regression": RegressionCompatibleGraded,
    "jrc": JointRankingCalibration,
    "sbcr": SelfBoosted,
}

__all__ = [
    "OBJECTIVES",
    "Calibrated",
    "LoggedScores",
    "Objective",
    "Option",
    "family_name",
    "make_objective",
    "objective_class",
    "objectives_for",
    "split_family",
]


def objective_class(name: str) -> type[Objective]:
    """The class of that name, or a ValueError that lists the known ones."""
    check_known("objective", name, OBJECTIVES)
    return OBJECTIVES[name]


def make_objective(name: str, task: str = "binary", **options: Any) -> Objective:
    """An objective with its options checked; ValueError says what is wrong."""
    kind = objective_class(name)
    unknown = [option for option in options if option not in kind.options]
    if unknown:
        known = ", ".join(kind.options) or "none"
        raise ValueError(f"{name} has no option {', '.join(unknown)}; known: {known}")
    return kind(task, **options)


def split_family(family: str) -> tuple[str, dict[str, str]]:
    """The name and the options of a family, as in `multi_objective-mean`; any other name is itself.

    >>> split_family("multi_objective-mean")
    ('multi_objective', {'normalisation': 'mean'})
    """
    name, *chosen = family.split("-")
    if name not in OBJECTIVES:
        return family, {}
    own = {key: option for key, option in OBJECTIVES[name].options.items() if isinstance(option, Choice)}
    options = {key: value for value in chosen for key, option in own.items() if value in option.names}
    return (name, options) if len(options) == len(chosen) else (family, {})


def family_name(family: str) -> str:
    """The family as it is called: rcr for rcr-mean, since that is its own normalisation."""
    name, options = split_family(family)
    return make_objective(name, OBJECTIVES[name].tasks[0], **options).family


def objectives_for(task: str) -> list[str]:
    """Names of the objectives that suit the labels."""
    return [name for name, kind in OBJECTIVES.items() if task in kind.tasks]


@dataclass(frozen=True)
class Calibrated:
    """An objective followed by a calibrator that was fitted to its scores: same order, other predictions."""

    objective: Objective
    calibrator: Calibrator

    @classmethod
    def fit(
        cls,
        objective: Objective,
        calibrator: str,
        outputs: torch.Tensor,
        labels: torch.Tensor,
        request: torch.Tensor | None = None,
        **options: Any,
    ) -> Calibrated:
        """Fit a calibrator by name to outputs [N, n_heads] and labels [N] in [0, 1] of data kept apart.

        request [N, d]: features of the request, for a calibrator that looks at them. ValueError for graded
        labels: calibrators give probabilities.
        """
        from cascade_sim.models.calibrators import calibrator_class

        kind = calibrator_class(calibrator)
        if objective.task != "binary":
            raise ValueError(f"{calibrator} gives probabilities: it needs binary labels")
        scores = objective.score(outputs).detach()
        features = request if kind.uses_request else None
        return cls(objective, kind.fit(scores, labels, request=features, **options))

    @property
    def name(self) -> str:
        return f"{self.objective.family}+{self.calibrator.name}"

    @property
    def has_scale(self) -> bool:
        return True

    def score(self, outputs: torch.Tensor) -> torch.Tensor:
        """The score by which ads are ranked: the objective's own.  [N, n_heads] -> [N]"""
        return self.objective.score(outputs)

    def predict(self, outputs: torch.Tensor, request: torch.Tensor | None = None) -> torch.Tensor:
        """The calibrated probability.  [N, n_heads] -> [N]"""
        return self.calibrator(self.score(outputs), request)
