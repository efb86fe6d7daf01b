"""What an objective is: a loss, the heads it trains, what of them ranks, and what of them predicts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch.nn import functional

from cascade_sim.models import losses
from cascade_sim.models.losses.lists import Offsets

TASKS = ("binary", "graded")


@dataclass(frozen=True)
class Option:
    """A number an objective takes: its default and the values allowed."""

    default: float
    low: float
    high: float
    low_is_open: bool = False
    weighs: str = ""  # for alpha: which part of the loss it multiplies; the other gets 1 − alpha

    def check(self, name: str, value: float) -> None:
        """ValueError unless the value is a finite number in the range."""
        is_inside = self.low < value if self.low_is_open else self.low <= value
        if not (math.isfinite(value) and is_inside and value <= self.high):
            bracket = "(" if self.low_is_open else "["
            raise ValueError(f"{name} must be in {bracket}{self.low:g}, {self.high:g}], not {value:g}")


ALPHA_RANKING = Option(0.5, 0.0, 1.0, weighs="ranking")
ALPHA_REGRESSION = Option(0.5, 0.0, 1.0, weighs="regression")


@dataclass(frozen=True)
class Dumped:
    """What the deployed model said of the requests that a batch's samples come from."""

    scores: torch.Tensor  # [M]
    labels: torch.Tensor  # [M]
    lists: Offsets  # [Q + 1]
    request: torch.Tensor  # [S], which of the Q requests a sample belongs to


@dataclass(frozen=True)
class Objective:
    """A loss with its heads and its link; they travel together.

    outputs [N, n_heads] come from a net. `task`: "binary" for labels 0 and 1 (or probabilities) with a
    logistic regression part, "graded" for labels >= 0 with a squared one. `predict` is on the labels' scale
    where `has_scale` (and alpha leaves the regression part a weight). A loss without scale does not see a
    shift of all scores, or a common factor of all predictions: what `predict` then gives is only a number,
    to be measured against or mended by a calibrator.
    """

    task: str = "binary"
    name: ClassVar[str]
    n_heads: ClassVar[int] = 1
    has_scale: ClassVar[bool] = True
    trains_on: ClassVar[str] = "lists"  # whole lists in a batch, or "samples" in any order with their dump
    tasks: ClassVar[tuple[str, ...]] = TASKS
    options: ClassVar[Mapping[str, Option]] = {}

    def __post_init__(self) -> None:
        if self.task not in self.tasks:
            raise ValueError(f"{self.name} is for {' or '.join(self.tasks)} labels, not {self.task!r}")
        for option, allowed in self.options.items():
            allowed.check(option, getattr(self, option))

    def loss(
        self, outputs: torch.Tensor, labels: torch.Tensor, lists: Offsets, *, dumped: Dumped | None = None
    ) -> torch.Tensor:
        """The mean over the lists of a batch.  [N, n_heads], [N], [L + 1] -> scalar"""
        raise NotImplementedError

    def score(self, outputs: torch.Tensor) -> torch.Tensor:
        """What ranks.  [N, n_heads] -> [N]"""
        return outputs[:, 0]

    def predict(self, outputs: torch.Tensor) -> torch.Tensor:
        """The expected label.  [N, n_heads] -> [N]"""
        score = self.score(outputs)
        return torch.sigmoid(score) if self.task == "binary" else score

    def regression(self, scores: torch.Tensor, labels: torch.Tensor, lists: Offsets) -> torch.Tensor:
        """The loss on single items that suits the labels: logistic, or squared."""
        form = losses.logistic if self.task == "binary" else losses.squared
        return form(scores, labels, lists)


def unit_interval(task: str, predictions: torch.Tensor) -> torch.Tensor:
    """Predictions of a link without an upper end: a probability is cut at 1, a grade is not."""
    return predictions.clamp(max=1.0) if task == "binary" else predictions


def softplus(scores: torch.Tensor) -> torch.Tensor:
    """log(1 + e^s)."""
    return functional.softplus(scores)
