"""Recipes by name: what a model learns from, by which loss, and what its score then means.

| name | learns from | loss | a prediction is |
|---|---|---|---|
| logloss | clicks of logged impressions | examined log loss, or the model's objective | σ(s) |
| distill | lists scored by a teacher | squared difference to the teacher's logit | σ(s) |
| ltr | lists scored by a teacher | RankNet between chunks of the teacher's order, of bid · e^s | e^s |

A new recipe is a loss and a line in `RECIPES`: scenarios then know its name and the keys it reads, the phases
and the markets' trainers train by it, and the cascade serves its link.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from cascade_sim.models.known import check_known
from cascade_sim.models.lazy import losses, torch


@dataclass(frozen=True)
class Recipe:
    """How a model is trained.

    `loss`: of scores [R, n] and the columns of a batch, which are those of `training.Impressions` (n = 1) or,
    with a teacher, of `training.Lists`.
    """

    loss: Callable[[torch.Tensor, Mapping[str, torch.Tensor]], torch.Tensor]
    keys: tuple[str, ...]  # of a model's section: those that mean nothing under some other recipe
    has_teacher: bool  # imitates a trained model; else learns from clicks, for an objective
    link: str = "sigmoid"

    @property
    def gives_probabilities(self) -> bool:
        """Whether predictions are probabilities, which prices need."""
        return self.link == "sigmoid"


def log_loss(logit: torch.Tensor, sample: Mapping[str, torch.Tensor]) -> torch.Tensor:
    return losses.examined_logloss(logit.squeeze(1), sample["click"], sample["examination"])


def distillation(logit: torch.Tensor, sample: Mapping[str, torch.Tensor]) -> torch.Tensor:
    return losses.distill(logit, sample["teacher_logit"], each="mean")


def order_of_chunks(logit: torch.Tensor, sample: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """The served score is bid * exp(s): its logarithm is what must be in the right order."""
    return between_chunks(sample["log_bid"] + logit, sample["chunk"])


def between_chunks(score: torch.Tensor, chunk: torch.Tensor) -> torch.Tensor:
    """losses.chunked_ranknet per ordered pair of all lists, 0 if there is none.  [L, m], [L, m] -> ()"""
    label = chunk.long()
    sizes = label.new_zeros((len(label), MAX_CHUNKS)).scatter_add_(1, label, torch.ones_like(label))
    n_ordered = (label.numel() * label.shape[1] - sizes.square().sum()) // 2  # pairs less those of one chunk
    return losses.chunked_ranknet(score, chunk, reduction="sum") / n_ordered.clamp_min(1)


MAX_CHUNKS = 128  # their numbers are int8


RECIPES: dict[str, Recipe] = {
    "logloss": Recipe(log_loss, ("data",), has_teacher=False),
    "distill": Recipe(distillation, ("teacher", "sample"), has_teacher=True),
    "ltr": Recipe(order_of_chunks, ("teacher", "sample", "chunks", "chunking"), has_teacher=True, link="exp"),
}


def recipe_named(name: str) -> Recipe:
    """The recipe of that name, or a ValueError that lists the known ones."""
    check_known("recipe", name, RECIPES)
    return RECIPES[name]
