"""The section `market.training`: models that learn from the market's own log and are redeployed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from cascade_sim.scenario.sections import Section
from cascade_sim.scenario.yaml import Problem

if TYPE_CHECKING:
    from cascade_sim.scenario.schema import Scenario

HOUR = 3600.0


class Training(Section):
    """Every arm trains its own copies of the models in its seats on what it has shown of late."""

    every: float = Field(default=6 * HOUR, gt=0, description="Seconds between two deployments.")
    history: float | None = Field(
        default=None,
        gt=0,
        description="Seconds of impressions to learn from; absent: as many as `every`.",
    )
    start_from: Literal["study", "random"] = Field(
        default="study",
        description="study: the models that the study trained; random: fresh weights, as at a launch.",
    )
    warm_start: bool = Field(
        default=True, description="Go on from the deployed weights; false: from fresh ones each time."
    )
    epochs: int = Field(default=1, ge=1, le=1000, description="Passes over the impressions each time.")
    batch: int | None = Field(
        default=None, ge=1, le=10**7, description="Samples a step; absent: the model's."
    )
    learning_rate: float | None = Field(
        default=None, gt=0, le=10, description="At the start of each training; absent: the model's."
    )
    lists: int = Field(
        default=2000,
        ge=1,
        le=10**7,
        description="For distill and ltr: recent requests whose candidates the new teacher scores each time.",
    )
    panel: int = Field(
        default=512,
        ge=1,
        le=10**6,
        description="Requests on which every deployment is held against the truth.",
    )


def check_training(scenario: Scenario) -> Iterator[Problem]:
    """What is wrong with `market.training` and with arms that explore."""
    for name, arm in scenario.arms.items():
        if arm.exploration is not None and scenario.market is None:
            at = ("arms", name, "exploration")
            text = "an arm explores in the market only; add a section market, or use phases.exploration"
            yield Problem(at, text, uses=(at, ("market",)))
    training = scenario.market.training if scenario.market is not None else None
    if training is None:
        for name, model in scenario.models.items():
            if model.refit:
                at = ("models", name, "refit")
                text = "calibrators are fitted anew where models are: add market.training, or remove it"
                yield Problem(at, text, uses=(at, ("market",)))
        return
    cascade = scenario.cascade
    for name, arm in scenario.arms.items():
        pre_ranking = (arm.pre_ranking and arm.pre_ranking.model) or cascade.pre_ranking.model
        ranking = (arm.ranking and arm.ranking.model) or cascade.ranking.model
        if pre_ranking not in scenario.models and ranking not in scenario.models:
            text = f"arm '{name}' has no model to train ({pre_ranking} and {ranking} are built in)"
            yield Problem(("market", "training"), text, uses=(("arms", name),))
