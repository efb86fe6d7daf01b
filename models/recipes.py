"""Recipes by name: what a model learns from, by which loss, and what its score then means.

| name | learns from | loss | a prediction is |
|---|---|---|---|
| logloss | clicks of logged impressions | examined log loss, or the model's objective | σ(s) |
| rankflow | the same | log loss of the best, and the score of a later stage (RankFlow) | e^s |
| joint | what a `joint` section says (joint.py) | its objective, together with other models | e^s |
| in_batch | positives among the ads of a batch | sampled softmax, corrected by log Q | e^s |
| distill | lists scored by a teacher | squared difference to the teacher's logit | σ(s) |
| head_distill | the same | the same, chunks at the head weighted up | σ(s) |
| listwise_distill | the same | cross entropy of bid · σ(s) with bid · σ(teacher), and `distill` | σ(s) |
| listwise | the same | cross entropy of bid · e^s with bid · σ(teacher), or with ranking's score | e^s |
| infonce | lists with ranking's k best | each of the best against all that are not | e^s |
| dftopk | the same | log loss of who is within a quota, by a threshold that moves (DFTopK) | e^s |
| arf | the same | soft recall of the best within a quota by NeuralSort (ARF) | e^s |
| ltr | lists scored by a teacher | RankNet between chunks of ranking's order, of bid · e^s | e^s |
| copr | the same | the same pairs, weighted by what their exchange moves NDCG (COPR) | e^s |

A new recipe is a loss and a line in `RECIPES`: scenarios then know its name, its options and the keys it
reads, the phases and the markets' trainers train by it, and the cascade serves its link.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cascade_sim.models.known import check_known
from cascade_sim.models.lazy import losses, stages, torch
from cascade_sim.models.options import AnyOption, Choice, Flag, Option

STEPS = ("epochs", "batch", "learning_rate", "weight_decay", "validation")  # of a model's own training


@dataclass(frozen=True)
class Recipe:
    """How a model is trained.

    `loss`: of scores [R, n], the columns of a batch, which are those of `training.Impressions` (n = 1) or,
    with a teacher, of `training.Lists`, and of the options by name; a recipe that has `learned` numbers is
    given them by name as well, as scalars that are trained with the model. One that `crosses` scores every
    request of a batch with every ad of it, which takes a net whose logit is an inner product; its columns are
    those of `training.crossed`.
    """

    loss: Callable[..., torch.Tensor]
    keys: tuple[str, ...]  # of a model's section: those that mean nothing under some other recipe
    has_teacher: bool  # imitates a trained model; else learns from clicks, for an objective
    link: str = "sigmoid"
    options: Mapping[str, AnyOption] = field(default_factory=dict)
    learned: Mapping[str, float] = field(default_factory=dict)  # and what they begin with
    cls: type | None = None  # of a custom one
    crosses: bool = False
    in_joint: bool = False  # trained with others, by a section of their own
    follows: bool = False  # the teacher may be any model of a later stage

    def with_defaults(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """All options by name, those that are not given at their defaults."""
        return {name: given.get(name, option.default) for name, option in self.options.items()}

    @property
    def read(self) -> tuple[str, ...]:
        """The keys of a model's section that mean something under this recipe and nothing under another."""
        return self.keys if self.in_joint else (*self.keys, *STEPS)

    @property
    def has_objective(self) -> bool:
        """Whether clicks of single impressions are learned from, for the objective of the model's section."""
        return not self.has_teacher and not self.crosses

    @property
    def gives_probabilities(self) -> bool:
        """Whether predictions are probabilities, which prices need."""
        return self.link == "sigmoid"


def log_loss(logit: torch.Tensor, sample: Mapping[str, torch.Tensor]) -> torch.Tensor:
    return losses.examined_logloss(logit.squeeze(1), sample["click"], sample["examination"])


def in_batch(
    logit: torch.Tensor,
    sample: Mapping[str, torch.Tensor],
    *,
    temperature: float,
    log_q: bool,
    correct_own: bool,
    bid: bool,
    **_: Any,  # what the samples were made by
) -> torch.Tensor:
    """What is served is the score without the correction."""
    score = (logit + sample["log_bid"] if bid else logit) / temperature
    return stages.in_batch(score, sample["is_same"], sample["log_chance"] if log_q else None, correct_own)


def distillation(logit: torch.Tensor, sample: Mapping[str, torch.Tensor]) -> torch.Tensor:
    return losses.distill(logit, sample["teacher_logit"], each="mean")


def fused(loss: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """A loss of bid times e^s that may be told to leave the bid out, also of the teacher's eCPM."""

    def with_option(
        logit: torch.Tensor, sample: Mapping[str, torch.Tensor], *, bid: bool = True, **options: Any
    ) -> torch.Tensor:
        if not bid:
            sample = {**sample, "log_bid": torch.zeros_like(sample["log_bid"])}
        return loss(logit, sample, **options)

    return with_option


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


def head_distillation(
    logit: torch.Tensor, sample: Mapping[str, torch.Tensor], *, base: float
) -> torch.Tensor:
    """Squared difference to the teacher's logit; a chunk weighs `base` times the next worse one."""
    chunk = sample["chunk"].to(logit.dtype)
    weight = torch.exp(math.log(base) * (chunk - chunk.amax()))
    return (weight * (logit - sample["teacher_logit"]).square()).sum() / weight.sum()


def listwise(
    logit: torch.Tensor, sample: Mapping[str, torch.Tensor], *, target: str, temperature: float
) -> torch.Tensor:
    return stages.listwise(sample["log_bid"] + logit, list_target(sample, target), temperature)


def listwise_distillation(
    logit: torch.Tensor, sample: Mapping[str, torch.Tensor], *, target: str, temperature: float, weight: float
) -> torch.Tensor:
    """An order of the head by the one part, probabilities by the other."""
    score = sample["log_bid"] + torch.nn.functional.logsigmoid(logit)
    whole = stages.listwise(score, list_target(sample, target), temperature)
    return whole + weight * distillation(logit, sample)


def list_target(sample: Mapping[str, torch.Tensor], target: str) -> torch.Tensor:
    """Logarithm of what orders the list: eCPM by init-bid and teacher, or the ranking stage's score."""
    if target == "ranking":
        return sample["log_score"]
    return sample["log_bid"] + torch.nn.functional.logsigmoid(sample["teacher_logit"])


def require_choice(logit: torch.Tensor, **asked: int) -> None:
    """ValueError where an option asks for as many ads as a list has: such a loss teaches nothing."""
    for name, n in asked.items():
        if n >= logit.shape[1]:
            raise ValueError(
                f"recipe_options.{name}: {n} of lists of {logit.shape[1]} ads leave nothing to choose; "
                "lower it, or learn from a larger sample.set"
            )


def infonce(logit: torch.Tensor, sample: Mapping[str, torch.Tensor], *, k: int) -> torch.Tensor:
    require_choice(logit, k=k)
    return stages.infonce(sample["log_bid"] + logit, stages.best_of(sample["log_score"], k))


def soft_top_k(
    logit: torch.Tensor, sample: Mapping[str, torch.Tensor], *, k: int, quota: int, temperature: float
) -> torch.Tensor:
    require_choice(logit, k=k, quota=quota)
    is_best = stages.best_of(sample["log_score"], k)
    return stages.soft_top_k(sample["log_bid"] + logit, is_best, quota, temperature)


def relaxed_recall(
    logit: torch.Tensor,
    sample: Mapping[str, torch.Tensor],
    *,
    k: int,
    quota: int,
    temperature: float,
    order: bool,
    log_weight: torch.Tensor,
) -> torch.Tensor:
    require_choice(logit, k=k, quota=quota)
    score, ideal = sample["log_bid"] + logit, sample["log_score"]
    if not order:
        return stages.soft_recall(stages.neural_sort(score, temperature), stages.best_of(ideal, k), quota)
    return stages.relaxed_recall(score, ideal, log_weight, k, quota, temperature)


def rankflow(
    logit: torch.Tensor,
    sample: Mapping[str, torch.Tensor],
    *,
    k: int,
    quota: int,
    positives: int,
    negatives: int,
    weight: float,
) -> torch.Tensor:
    """The part of one stage, whose list is what the stage before it hands on; the teacher comes after it."""
    require_choice(logit, k=k, quota=quota)
    score, later = sample["log_bid"] + logit, sample["log_bid"] + sample["teacher_logit"]
    return stages.rankflow_of_stage(score, later, sample["log_score"], quota, k, positives, negatives, weight)


def alone(logit: torch.Tensor, sample: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """What a model of a joint section learns where it is tried by itself: the best of each list leads it."""
    return infonce(logit, sample, k=1)


def ndcg_of_chunks(logit: torch.Tensor, sample: Mapping[str, torch.Tensor]) -> torch.Tensor:
    return stages.ndcg_pairs(sample["log_bid"] + logit, sample["chunk"])


OF_LISTS = ("teacher", "sample")
OF_CHUNKS = (*OF_LISTS, "chunks", "chunking")
TARGET = Choice("teacher", ("teacher", "ranking"))
TEMPERATURE = Option(1.0, 0.0, 1e6, low_is_open=True)
BEST = Option(5, 1, 10_000, is_whole=True)  # of a list, that have to be handed on
QUOTA = Option(10, 1, 10_000, is_whole=True)  # of a list, that are handed on
BID = Flag(True)  # whether the init-bid is a part of the score, as where it is served


def _of_lists(loss: Callable[..., torch.Tensor], keys: tuple[str, ...] = OF_LISTS, **more: Any) -> Recipe:
    """A recipe of lists whose score is served times the bid."""
    options = {**more.pop("options", {}), "bid": BID}
    return Recipe(fused(loss), keys, has_teacher=True, options=options, **more)


RECIPES: dict[str, Recipe] = {
    "logloss": Recipe(log_loss, ("data",), has_teacher=False),
    "distill": Recipe(distillation, OF_LISTS, has_teacher=True),
    "ltr": _of_lists(order_of_chunks, OF_CHUNKS, link="exp"),
    "head_distill": Recipe(
        head_distillation, OF_CHUNKS, has_teacher=True, options={"base": Option(2.0, 1.0, 100.0)}
    ),
    "listwise": _of_lists(listwise, link="exp", options={"target": TARGET, "temperature": TEMPERATURE}),
    "listwise_distill": _of_lists(
        listwise_distillation,
        options={"target": TARGET, "temperature": TEMPERATURE, "weight": Option(0.05, 0.0, 1e6)},
    ),
    "infonce": _of_lists(infonce, link="exp", options={"k": BEST}),
    "dftopk": _of_lists(
        soft_top_k, link="exp", options={"k": BEST, "quota": QUOTA, "temperature": TEMPERATURE}
    ),
    "arf": _of_lists(
        relaxed_recall,
        link="exp",
        options={
            "k": BEST,
            "quota": QUOTA,
            "temperature": Option(12.0, 0.0, 1e6, low_is_open=True),
            "order": Flag(True),
        },
        learned={"log_weight": 0.0},
    ),
    "copr": _of_lists(ndcg_of_chunks, OF_CHUNKS, link="exp"),
    "rankflow": _of_lists(
        rankflow,
        link="exp",
        follows=True,
        options={
            "k": BEST, "quota": QUOTA, "positives": BEST, "negatives": BEST, "weight": Option(1.0, 0.0, 1e6),
        },
    ),
    "in_batch": Recipe(
        in_batch,
        ("data",),
        has_teacher=False,
        link="exp",
        crosses=True,
        options={
            "positives": Choice("clicks", ("clicks", "shown")),
            "log_q": Flag(True),
            "correct_own": Flag(True),
            "uniform": Option(0, 0, 1_000_000, is_whole=True),
            "temperature": TEMPERATURE,
            "bid": BID,
        },
    ),
    "joint": Recipe(alone, (), has_teacher=True, link="exp", in_joint=True),
}  # fmt: skip


def recipe_named(name: str | Recipe) -> Recipe:
    """The recipe of that name, or a ValueError that lists the known ones; one that is at hand is itself."""
    if isinstance(name, Recipe):
        return name
    check_known("recipe", name, RECIPES)
    return RECIPES[name]


def custom_recipe(link: str, made: Any = None) -> Recipe:
    """A recipe of the user's: it learns from a teacher's lists, with chunks, by the loss of this object.

    Without an object only its section is known, and nothing of the user's has been run.
    """
    loss, cls = (_not_loaded, None) if made is None else (made.loss, type(made))
    return Recipe(loss, OF_CHUNKS, has_teacher=True, link=link, cls=cls)


def _not_loaded(*_: Any) -> Any:
    raise RuntimeError("the class of a custom recipe has not been loaded")
