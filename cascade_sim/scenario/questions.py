"""The sections `off_policy` and `what_if`: what is asked of the baseline arm besides the comparison of arms.

what_if:
  dearer: [auction.reserve_cpc=0.6, cascade.slots=4]    # one other way to serve, both changed
  reserve:                                              # a curve: one parameter, several values
    - auction.reserve_cpc=0.2,0.3,0.4
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, Field

from cascade_sim.scenario.sections import MAX_REQUESTS, Name, Section

Estimand = Literal["launch", "jittered"]  # what becomes of the parameters' noise: see `targets`
ESTIMANDS: tuple[Estimand, ...] = get_args(Estimand)
MAX_DEPTH = 12  # propensities sum over subsets of the list


class Randomise(Section):
    """Standard deviations of the parameters' noise."""

    reserve_cpc: float | None = Field(
        default=None,
        gt=0,
        le=3,
        description="Of the logarithm of auction.reserve_cpc; absent: not randomised.",
    )
    squashing: float | None = Field(
        default=None, gt=0, le=1, description="Of auction.squashing; absent: not randomised."
    )

    @property
    def sigmas(self) -> dict[str, float]:
        """The noise's standard deviation by parameter, for those that are randomised."""
        return {parameter: sigma for parameter, sigma in self.model_dump().items() if sigma is not None}


class Slates(Section):
    """Pages drawn from the head of the ranking order: Plackett-Luce on log score / temperature."""

    requests: int = Field(default=20_000, ge=2, le=MAX_REQUESTS, description="Requests logged so.")
    temperature: float = Field(
        default=0.5, gt=0, le=100, description="Near 0 is the ranking order, large is uniform."
    )
    depth: int = Field(
        default=8, ge=2, le=MAX_DEPTH, description="Ads of the ranking order that take part in the draw."
    )


TargetChanges = Annotated[tuple[str, ...], Field(strict=False, min_length=1)]


class OffPolicy(Section):
    """Logged by the baseline arm after the study's own phases."""

    requests: int = Field(
        default=20_000, ge=2, le=MAX_REQUESTS, description="Requests logged with randomised parameters."
    )
    randomise: Randomise | None = Field(
        default=None, description="The parameters' noise; absent: no such log."
    )
    slates: Slates | None = Field(default=None, description="Randomised pages; absent: no such log.")
    targets: dict[Name, TargetChanges] = Field(
        default={},
        description="Policies asked about: NAME: [auction.reserve_cpc=…, auction.squashing=…] for the "
        "parameters, "
        "[slates.temperature=…, ranking.model=…] for the pages.",
    )
    estimand: Estimand = Field(
        default="launch",
        description="launch: targets of the parameters are launches, the parameters fixed at their values. "
        "jittered: the log's own noise around the value.",
    )
    clip: float = Field(
        default=10.0, gt=0, le=1e6, description="Largest weight of clipped estimators and of the bounds."
    )


def _is_text(value: Any) -> Any:
    if not isinstance(value, str):
        raise ValueError(
            f"expected path.to.parameter=value, found {value!r}; "
            "put several values of one parameter between quotes: 'auction.reserve_cpc=0.1,0.2'"
        )
    return value


WhatIfChanges = Annotated[
    tuple[Annotated[str, BeforeValidator(_is_text)], ...], Field(strict=False, min_length=1)
]
