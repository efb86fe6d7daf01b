"""Objectives that join a regression part and a ranking part. What alpha weighs: see each one's options."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from cascade_sim.models.examination import slot_log_odds, slot_log_share, slot_softplus, slot_two_logits
from cascade_sim.models.lazy import losses, np, torch
from cascade_sim.models.objectives.base import (
    ALPHA_RANKING,
    ALPHA_REGRESSION,
    DIVIDED,
    RANKING,
    UNDIVIDED,
    Choice,
    LoggedScores,
    Objective,
    Option,
    softplus,
    unit_interval,
)

if TYPE_CHECKING:
    from cascade_sim.models.losses.lists import Offsets


@dataclass(frozen=True)
class MultiObjective(Objective):
    """alpha · ranking + (1 − alpha) · regression on one score; the regression's link.

    The ranking part is the softmax or, as in combined regression and ranking, RankNet's pairs. The softmax is
    undivided, as where scale calibration comes from; where RCR comes from, its rival in the comparisons is
    divided by the sum of the labels, as RCR is: normalisation mean. Pairs are divided by their number.
    """

    alpha: float = 0.5
    ranking: str = "softmax"
    normalisation: str = "sum"
    name = "multi_objective"
    options: ClassVar[Mapping[str, Option | Choice]] = {
        "alpha": ALPHA_RANKING,
        "ranking": RANKING,
        "normalisation": UNDIVIDED,
    }

    def loss(
        self,
        outputs: torch.Tensor,
        labels: torch.Tensor,
        lists: Offsets,
        *,
        dumped: LoggedScores | None = None,
    ) -> torch.Tensor:
        scores = outputs[:, 0]
        form = losses.softmax if self.ranking == "softmax" else losses.ranknet
        ranking = form(scores, labels, lists, each=self.normalisation)
        return self.alpha * ranking + (1 - self.alpha) * self.regression(scores, labels, lists)


@dataclass(frozen=True)
class MultiTask(Objective):
    """alpha · softmax on head 1 + (1 − alpha) · regression on head 0, shared layers below. Head 0 serves."""

    alpha: float = 0.5
    normalisation: str = "sum"
    name = "multi_task"
    n_heads = 2
    slot_maps = (slot_log_odds, slot_log_share)
    options: ClassVar[Mapping[str, Option | Choice]] = {"alpha": ALPHA_RANKING, "normalisation": UNDIVIDED}

    def loss(
        self,
        outputs: torch.Tensor,
        labels: torch.Tensor,
        lists: Offsets,
        *,
        dumped: LoggedScores | None = None,
    ) -> torch.Tensor:
        ranking = losses.softmax(outputs[:, 1], labels, lists, each=self.normalisation)
        return self.alpha * ranking + (1 - self.alpha) * self.regression(outputs[:, 0], labels, lists)


@dataclass(frozen=True)
class RegressionCompatible(Objective):
    """alpha · ListCE(sigmoid) + (1 − alpha) · log loss; both are least at sigmoid(s) = E[y]."""

    alpha: float = 0.5
    normalisation: str = "mean"
    name = "rcr"
    tasks = ("binary",)
    options: ClassVar[Mapping[str, Option | Choice]] = {"alpha": ALPHA_RANKING, "normalisation": DIVIDED}

    def loss(
        self,
        outputs: torch.Tensor,
        labels: torch.Tensor,
        lists: Offsets,
        *,
        dumped: LoggedScores | None = None,
    ) -> torch.Tensor:
        scores = outputs[:, 0]
        return losses.rcr(scores, labels, lists, alpha=self.alpha, normalisation=self.normalisation)


@dataclass(frozen=True)
class RegressionCompatibleGraded(Objective):
    """alpha · ListCE(softplus) + (1 − alpha) · squared error of softplus(s).

    Both are least at softplus(s) = E[y]. Link: the softplus, for binary labels cut at 1.
    """

    alpha: float = 0.5
    normalisation: str = "mean"
    name = "rcr_regression"
    link = "capped_softplus"
    slot_maps = (slot_softplus,)
    options: ClassVar[Mapping[str, Option | Choice]] = {"alpha": ALPHA_RANKING, "normalisation": DIVIDED}

    def loss(
        self,
        outputs: torch.Tensor,
        labels: torch.Tensor,
        lists: Offsets,
        *,
        dumped: LoggedScores | None = None,
    ) -> torch.Tensor:
        return losses.rcr_regression(
            outputs[:, 0], labels, lists, alpha=self.alpha, normalisation=self.normalisation
        )

    def predict(self, outputs: torch.Tensor) -> torch.Tensor:
        return unit_interval(self.task, softplus(outputs[:, 0]))

    def probability(self, score: np.ndarray) -> np.ndarray:
        """min(log(1 + e^s), 1)."""
        return np.minimum(np.logaddexp(0.0, score.astype(np.float64)), 1.0)

    def start_score(self, rate: float) -> float:
        return math.log(math.expm1(rate))


@dataclass(frozen=True)
class JointRankingCalibration(Objective):
    """Logits f_0, f_1: alpha · log loss of sigmoid(f_1 − f_0) + (1 − alpha) · softmax within each class."""

    alpha: float = 0.5
    name = "jrc"
    n_heads = 2
    tasks = ("binary",)
    options: ClassVar[Mapping[str, Option | Choice]] = {"alpha": ALPHA_REGRESSION}

    def loss(
        self,
        outputs: torch.Tensor,
        labels: torch.Tensor,
        lists: Offsets,
        *,
        dumped: LoggedScores | None = None,
    ) -> torch.Tensor:
        return losses.jrc(outputs, labels, lists, alpha=self.alpha)

    def score(self, outputs: torch.Tensor) -> torch.Tensor:
        return outputs[:, 1] - outputs[:, 0]

    def slot_outputs(self, outputs: torch.Tensor, examination: torch.Tensor) -> torch.Tensor:
        return slot_two_logits(outputs, examination)

    def start(self, rate: float) -> tuple[float, ...]:
        return (0.0, self.start_score(rate))


@dataclass(frozen=True)
class SelfBoosted(Objective):
    """alpha · log loss + (1 − alpha) · pairs of a sample with the dumped scores of its request.

    Trained on single samples in any order: `lists` is not looked at, the mean is over samples, and `dumped`
    says what the deployed model gave the rest of each sample's request. Link: the sigmoid. This is the
    ranking module; the calibration module is `piecewise_linear`, trained in the same batches.
    """

    alpha: float = 0.5
    name = "sbcr"
    trains_on = "samples"
    can_take_samples = True
    tasks = ("binary",)
    options: ClassVar[Mapping[str, Option | Choice]] = {"alpha": ALPHA_REGRESSION}

    def loss(
        self,
        outputs: torch.Tensor,
        labels: torch.Tensor,
        lists: Offsets,
        *,
        dumped: LoggedScores | None = None,
    ) -> torch.Tensor:
        if dumped is None:
            raise ValueError("sbcr needs the dumped scores and labels of its samples' requests")
        scores = outputs[:, 0]
        point = losses.logistic(scores, labels, [0, len(scores)], each="mean")
        pairs = losses.self_boosted_pair(
            scores,
            labels,
            dumped.lists,
            dumped_scores=dumped.scores,
            dumped_labels=dumped.labels,
            request=dumped.request,
        )
        return self.alpha * point + (1 - self.alpha) * pairs
