"""The section `market.designs`: experiments on one market, held against what a launch would bring."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from cascade_sim.scenario.sections import Name, Section
from cascade_sim.scenario.yaml import Path, Problem
from cascade_sim.suggest import unknown_name

if TYPE_CHECKING:
    from cascade_sim.scenario.schema import Scenario

DAY = 86_400.0
PREFIX = "design-"  # of the tables and checkpoints of a design: no arm may be called like one
Kind = Literal["request", "user", "budget", "switchback"]


class Designs(Section):
    """Two arms on trial in one market.

    request, user  each request, or each user, belongs to an arm; budgets and bidders are common
    switchback     all requests of a time slot belong to an arm; budgets and bidders are common
    budget         requests as in `request`, and each arm has its share of every budget and its own bidders
    """

    treatment: Name = Field(description="The arm on trial.")
    control: Name | None = Field(default=None, description="The arm it is held against; absent: baseline.")
    share: float = Field(default=0.5, gt=0, lt=1, description="Share of requests, users or slots treated.")
    kinds: Annotated[tuple[Kind, ...], Field(strict=False)] = Field(
        default=("request", "user", "budget", "switchback"), min_length=1, description="Designs to run."
    )
    switchback: float = Field(
        default=7200.0, gt=0, le=DAY, description="Seconds of a time slot; a day must be a multiple of it."
    )
    washout: float = Field(
        default=0.0, ge=0, le=DAY, description="Seconds after a change of arm that a switchback leaves out."
    )
    pre_days: int = Field(
        default=1, ge=0, le=365, description="Days before the trial, with everybody on control (for CUPED)."
    )


def control_arm(scenario: Scenario) -> str:
    """The arm that the treatment is held against."""
    assert scenario.market is not None and scenario.market.designs is not None
    return scenario.market.designs.control or scenario.report.baseline


def check_designs(scenario: Scenario) -> Iterator[Problem]:
    """What is wrong with `market.designs`."""
    market = scenario.market
    spec = market.designs if market is not None else None
    if market is None or spec is None:
        return
    at: Path = ("market", "designs")
    for key, arm in (("treatment", spec.treatment), ("control", spec.control)):
        if arm is not None and arm not in scenario.arms:
            yield Problem((*at, key), unknown_name("arm", arm, scenario.arms), uses=((*at, key),))
    if spec.treatment == control_arm(scenario):
        text = f"'{spec.treatment}' is the control; name another arm"
        yield Problem((*at, "treatment"), text, uses=((*at, "treatment"), (*at, "control")))
    if len(set(spec.kinds)) < len(spec.kinds):
        yield Problem((*at, "kinds"), f"each design runs once, found {', '.join(spec.kinds)}")
    if DAY % spec.switchback:
        text = f"{spec.switchback:g} does not divide a day of {DAY:.0f} seconds; use 3600, 7200, 86400 …"
        yield Problem((*at, "switchback"), text)
    if spec.washout >= spec.switchback:
        text = f"{spec.washout:g} leaves nothing of slots of {spec.switchback:g} seconds; use less"
        yield Problem((*at, "washout"), text, uses=((*at, "washout"), (*at, "switchback")))
    if spec.pre_days >= market.days:
        text = f"{spec.pre_days} leave no day of {market.days:g} for the trial; use fewer"
        yield Problem((*at, "pre_days"), text, uses=((*at, "pre_days"), ("market", "days")))
    for key, section in (("training", market.training), ("compute", market.compute)):
        if section is not None:
            what = "models that learn" if key == "training" else "servers"
            text = f"arms on trial cannot share {what} yet; remove market.{key} or market.designs"
            yield Problem(at, text, uses=(("market", key),))
    for name in scenario.arms:
        if name.startswith(PREFIX):
            text = f"names that begin with '{PREFIX}' belong to the designs; give the arm another name"
            yield Problem(("arms", name), text, uses=(at,))
