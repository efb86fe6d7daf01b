"""Objectives of one loss: regression alone, ranking alone, and ranking with a virtual item for the scale."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from cascade_sim.models.examination import slot_log_share
from cascade_sim.models.lazy import losses, np, torch
from cascade_sim.models.objectives.base import LoggedScores, Objective, Option, softplus, unit_interval

if TYPE_CHECKING:
    from cascade_sim.models.losses.lists import Offsets


@dataclass(frozen=True)
class Pointwise(Objective):
    """Regression alone: log loss and the sigmoid, or squared error and the score itself."""

    name = "pointwise"
    can_take_samples = True
    is_log_loss = True

    def loss(
        self,
        outputs: torch.Tensor,
        labels: torch.Tensor,
        lists: Offsets,
        *,
        dumped: LoggedScores | None = None,
    ) -> torch.Tensor:
        return self.regression(outputs[:, 0], labels, lists)


@dataclass(frozen=True)
class RankNet(Objective):
    """Pairs alone. No scale: predict is the sigmoid (graded: the score) and means nothing by itself."""

    name = "ranknet"
    has_scale = False
    slot_maps = (slot_log_share,)

    def loss(
        self,
        outputs: torch.Tensor,
        labels: torch.Tensor,
        lists: Offsets,
        *,
        dumped: LoggedScores | None = None,
    ) -> torch.Tensor:
        return losses.ranknet(outputs[:, 0], labels, lists)


@dataclass(frozen=True)
class Softmax(Objective):
    """The list's softmax alone. No scale: predict is the sigmoid (graded: the score)."""

    name = "softmax"
    has_scale = False
    slot_maps = (slot_log_share,)

    def loss(
        self,
        outputs: torch.Tensor,
        labels: torch.Tensor,
        lists: Offsets,
        *,
        dumped: LoggedScores | None = None,
    ) -> torch.Tensor:
        return losses.softmax(outputs[:, 0], labels, lists)


@dataclass(frozen=True)
class ApproxNdcg(Objective):
    """Smooth NDCG alone, sharper for greater beta. No scale: predict is the sigmoid (graded: the score)."""

    beta: float = 10.0
    name = "approx_ndcg"
    has_scale = False
    slot_maps = (slot_log_share,)
    options: ClassVar[Mapping[str, Option]] = {"beta": Option(10.0, 0.0, 1e6, low_is_open=True)}

    def loss(
        self,
        outputs: torch.Tensor,
        labels: torch.Tensor,
        lists: Offsets,
        *,
        dumped: LoggedScores | None = None,
    ) -> torch.Tensor:
        return losses.approx_ndcg(outputs[:, 0], labels, lists, beta=self.beta)


@dataclass(frozen=True)
class ListCE(Objective):
    """ListCE alone, T = sigmoid (graded: softplus). Sees T(s) up to a factor only; predict is T(s)."""

    name = "listce"
    has_scale = False

    def loss(
        self,
        outputs: torch.Tensor,
        labels: torch.Tensor,
        lists: Offsets,
        *,
        dumped: LoggedScores | None = None,
    ) -> torch.Tensor:
        transform = "sigmoid" if self.task == "binary" else "softplus"
        return losses.list_ce(outputs[:, 0], labels, lists, transform=transform)

    def predict(self, outputs: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(outputs[:, 0]) if self.task == "binary" else softplus(outputs[:, 0])


@dataclass(frozen=True)
class CalibratedSoftmax(Objective):
    """Softmax with a virtual item of score 0 and label y0. Link y0 · e^s, for binary labels cut at 1.

    Nothing in the loss keeps y0 · e^s below 1: where positives are common many predictions are cut, and one
    that is cut and wrong is as costly to the log loss as the log loss allows.
    """

    y0: float = 1.0
    name = "calibrated_softmax"
    link = "capped_exp"
    slot_maps = (slot_log_share,)
    options: ClassVar[Mapping[str, Option]] = {"y0": Option(1.0, 0.0, 1e6, low_is_open=True)}

    def loss(
        self,
        outputs: torch.Tensor,
        labels: torch.Tensor,
        lists: Offsets,
        *,
        dumped: LoggedScores | None = None,
    ) -> torch.Tensor:
        return losses.calibrated_softmax(outputs[:, 0], labels, lists, y0=self.y0)

    def predict(self, outputs: torch.Tensor) -> torch.Tensor:
        return unit_interval(self.task, self.y0 * torch.exp(outputs[:, 0]))

    def probability(self, score: np.ndarray) -> np.ndarray:
        """min(y0 e^s, 1)."""
        return np.exp(np.minimum(score.astype(np.float64) + np.log(self.y0), 0.0))

    def start_score(self, rate: float) -> float:
        return math.log(rate / self.y0)


@dataclass(frozen=True)
class CalibratedRankNet(Objective):
    """RankNet with a virtual item of score 0 and label y0: log loss against it. Link: the sigmoid.

    With y0 = 0 negatives have no pair with the virtual item, and with y0 = 1 positives have none: only
    between the two is the log loss whole.
    """

    y0: float = 0.5
    name = "calibrated_ranknet"
    tasks = ("binary",)
    options: ClassVar[Mapping[str, Option]] = {"y0": Option(0.5, 0.0, 1.0)}

    @classmethod
    def fault_for_clicks(cls, option: str, value: float) -> str:
        if 0 < value < 1:
            return ""
        return f"must lie between a skip, 0, and a click, 1, for {cls.name}; found {value:g}"

    def loss(
        self,
        outputs: torch.Tensor,
        labels: torch.Tensor,
        lists: Offsets,
        *,
        dumped: LoggedScores | None = None,
    ) -> torch.Tensor:
        return losses.calibrated_ranknet(outputs[:, 0], labels, lists, y0=self.y0)
