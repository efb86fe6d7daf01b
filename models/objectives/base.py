"""What an objective is: a loss, the heads it trains, what of them ranks, and what of them predicts.

All that the rest of the project wants to know of an objective it asks its class. A new one is a class in a
file of its own (or beside its kin) and a line in `OBJECTIVES`: scenarios then know its name and its options,
recipes train it, and the cascade serves its link.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from cascade_sim.models.examination import slot_log_odds
from cascade_sim.models.lazy import losses, np, torch
from cascade_sim.models.options import Choice, Option

if TYPE_CHECKING:
    from cascade_sim.models.losses.lists import Offsets

TASKS = ("binary", "graded")


# Whether a list's ranking part is divided by the sum of its labels. Papers differ, so with each one's form
# equal alphas do not weigh alike: they are apart by that sum, list by list.
NORMALISATIONS = ("sum", "mean")
UNDIVIDED, DIVIDED = Choice("sum", NORMALISATIONS), Choice("mean", NORMALISATIONS)
RANKING = Choice("softmax", ("softmax", "ranknet"))  # which loss is the ranking part
ALPHA_RANKING = Option(0.5, 0.0, 1.0, weighs="ranking")
ALPHA_REGRESSION = Option(0.5, 0.0, 1.0, weighs="regression")


@dataclass(frozen=True)
class LoggedScores:
    """What the deployed model said of the requests that a batch's samples come from."""

    scores: torch.Tensor  # [M]
    labels: torch.Tensor  # [M]
    lists: Offsets  # [Q + 1]
    request: torch.Tensor  # [S], which of the Q requests a sample belongs to


@dataclass(frozen=True)
class Objective:
    """A loss with its heads, its link and its start; they travel together.

    outputs [N, n_heads] come from a net. `task`: "binary" for labels 0 and 1 (or probabilities) with a
    logistic regression part, "graded" for labels >= 0 with a squared one. `predict` is on the labels' scale
    where `has_scale` (and alpha leaves the regression part a weight). A loss without scale does not see a
    shift of all scores, or a common factor of all predictions: what `predict` then gives is only a number,
    to be measured against or corrected by a calibrator.
    """

    task: str = "binary"
    name: ClassVar[str]
    n_heads: ClassVar[int] = 1
    has_scale: ClassVar[bool] = True
    link: ClassVar[str] = "sigmoid"  # name of `probability`; the sigmoid is served by the net's own kernel
    trains_on: ClassVar[str] = "lists"  # whole lists in a batch, or "samples" in any order with their dump
    can_take_samples: ClassVar[bool] = False  # the loss is a sum over samples, whatever else is in the batch
    is_log_loss: ClassVar[bool] = False  # on single impressions it is the loss of recipe logloss itself
    tasks: ClassVar[tuple[str, ...]] = TASKS
    options: ClassVar[Mapping[str, Option | Choice]] = {}
    slot_maps: ClassVar[tuple[Callable[[torch.Tensor, torch.Tensor], torch.Tensor], ...]] = (slot_log_odds,)

    def __post_init__(self) -> None:
        if self.task not in self.tasks:
            raise ValueError(f"{self.name} is for {' or '.join(self.tasks)} labels, not {self.task!r}")
        for option, allowed in self.options.items():
            fault = allowed.fault(getattr(self, option))
            if fault:
                raise ValueError(f"{option} {fault}")

    @property
    def family(self) -> str:
        """Its name, and whatever it chooses that is not its own choice: alpha then weighs something else."""
        choices = {name: own.default for name, own in self.options.items() if isinstance(own, Choice)}
        others = [given for name, own in choices.items() if (given := getattr(self, name)) != own]
        return "-".join([self.name, *others])

    @classmethod
    def gives_logits(cls) -> bool:
        """Whether its score is by itself the log-odds of a click, which another score can be compared
        with.
        """
        return cls.has_scale and cls.link == "sigmoid"

    @classmethod
    def fault_for_clicks(cls, option: str, value: Any) -> str:
        """Why an option cannot have this value where the labels are clicks, 0 and 1; empty if it can."""
        return cls.options[option].fault(value)

    def loss(
        self,
        outputs: torch.Tensor,
        labels: torch.Tensor,
        lists: Offsets,
        *,
        dumped: LoggedScores | None = None,
    ) -> torch.Tensor:
        """The mean over the lists of a batch.  [N, n_heads], [N], [L + 1] -> scalar"""
        raise NotImplementedError

    def score(self, outputs: torch.Tensor) -> torch.Tensor:
        """The score by which ads are ranked.  [N, n_heads] -> [N]"""
        return outputs[:, 0]

    def predict(self, outputs: torch.Tensor) -> torch.Tensor:
        """The expected label.  [N, n_heads] -> [N]"""
        score = self.score(outputs)
        return torch.sigmoid(score) if self.task == "binary" else score

    def probability(self, score: np.ndarray) -> np.ndarray:
        """The probability of a click as it is served, of scores in float32.  float64, in [0, 1]"""
        return 1.0 / (1.0 + np.exp(-score.astype(np.float64)))

    def slot_outputs(self, outputs: torch.Tensor, examination: torch.Tensor) -> torch.Tensor:
        """What outputs for examined slots say of slots that are looked at with these chances.

        [N, n_heads], [N] in (0, 1] -> [N, n_heads]
        """
        columns = zip(self.slot_maps, outputs.unbind(1), strict=True)
        return torch.stack([slot_map(column, examination) for slot_map, column in columns], dim=1)

    def start(self, rate: float) -> tuple[float, ...]:
        """Outputs, one for each head, that predict this probability: the bias training starts from."""
        return (self.start_score(rate), *[0.0] * (self.n_heads - 1))

    def start_score(self, rate: float) -> float:
        """The score whose prediction is this probability."""
        return math.log(rate / (1 - rate))

    def regression(self, scores: torch.Tensor, labels: torch.Tensor, lists: Offsets) -> torch.Tensor:
        """The loss on single items that suits the labels: logistic, or squared."""
        form = losses.logistic if self.task == "binary" else losses.squared
        return form(scores, labels, lists)


def unit_interval(task: str, predictions: torch.Tensor) -> torch.Tensor:
    """Predictions of a link without an upper end: a probability is cut at 1, a grade is not."""
    return predictions.clamp(max=1.0) if task == "binary" else predictions


def softplus(scores: torch.Tensor) -> torch.Tensor:
    """log(1 + e^s)."""
    return torch.nn.functional.softplus(scores)
