"""Objectives of several models that are trained together on the same lists, by name.

| name | learns |
|---|---|
| lcron | that ranking's k best pass all stages, and each stage by itself, with learned weights (LCRON) |
| rankflow | each stage on what the one before hands on, taught by the one after it (RankFlow) |

A new objective is a loss and a line in `JOINT_OBJECTIVES`: a scenario's `joint` sections then know its name
and its options. The loss is given the served log score of each model, in the order of the cascade, [L, m]
each; ranking's log score; how many ads of a list each model hands on; and the options by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cascade_sim.models.lazy import stages, torch
from cascade_sim.models.options import AnyOption, Choice, Flag, Option
from cascade_sim.models.recipes import BEST, require_choice


@dataclass(frozen=True)
class JointObjective:
    """A loss of several models at once. `weighs_stages`: with a learned weight of each, `log_weights`."""

    loss: Callable[..., torch.Tensor]
    options: Mapping[str, AnyOption] = field(default_factory=dict)
    weighs_stages: bool = False

    def with_defaults(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """All options by name, those that are not given at their defaults."""
        return {name: given.get(name, option.default) for name, option in self.options.items()}

    def of_batch(
        self,
        logits: Sequence[torch.Tensor],
        sample: Mapping[str, torch.Tensor],
        quotas: Sequence[int],
        options: Mapping[str, Any],
        log_weights: Sequence[torch.Tensor],
    ) -> torch.Tensor:
        """The loss of a batch of lists.  logits: [L, m] of each model"""
        told = {name: value for name, value in options.items() if name not in LISTED}
        require_choice(logits[0], k=options["k"], quota=max(quotas))
        scores = [sample["log_bid"] + logit for logit in logits] if options["bid"] else list(logits)
        weights = {"log_weights": log_weights} if self.weighs_stages else {}
        return self.loss(scores, sample["log_score"], quotas, k=options["k"], **told, **weights)


LISTED = ("k", "bid", "quotas", "quota")  # options of all, which say what the scores and quotas are
OF_ALL: dict[str, AnyOption] = {
    "k": BEST,
    "bid": Flag(True),
    "quotas": Choice("fixed", ("fixed", "sizes")),
    "quota": Option(10, 1, 10_000, is_whole=True),
}
ENDS = Option(5, 1, 10_000, is_whole=True)  # ads whose mean scores are kept apart

JOINT_OBJECTIVES: dict[str, JointObjective] = {
    "lcron": JointObjective(
        lambda *given, **options: stages.lcron(*given, **options),
        {**OF_ALL, "temperature": Option(50.0, 0.0, 1e6, low_is_open=True)},
        weighs_stages=True,
    ),
    "rankflow": JointObjective(
        lambda *given, **options: stages.rankflow(*given, **options),
        {**OF_ALL, "positives": ENDS, "negatives": ENDS, "weight": Option(1.0, 0.0, 1e6)},
    ),
}
