"""Target policies: what a log of randomised decisions is asked about.

A target sets a parameter (`auction.reserve_cpc=0.22`), or draws pages otherwise from the same list
(`slates.temperature=0.3`, `ranking.model=wide`: the list in another model's order). Parameters and pages were
randomised in logs of their own, so a target is about one of the two.

What becomes of the parameters' noise is a choice (`Estimand`):

launch    a launch: every request meets the value itself, and the other jittered parameters the current values
jittered  the log's own noise around the value: another centre of the jitter, which is never launched

A target of pages always draws them, as the log does: at its temperature, from the same list, at the list's
prices. It is no launch of an order without a draw.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from cascade_sim.foundation.errors import UserError, unknown_name
from cascade_sim.scenario.assignments import key_and_value
from cascade_sim.scenario.questions import Estimand
from cascade_sim.scenario.serving_parameters import arm_parameters, scenario_path

PARAMETER_KEYS = {"auction.reserve_cpc": "reserve_cpc", "auction.squashing": "squashing"}
SLATE_KEYS = ("slates.temperature", "ranking.model")
LIMITS = {"reserve_cpc": (0.0, 1e9), "squashing": (0.0, 2.0), "temperature": (0.0, 100.0)}
AS_LOGGED = "as logged"  # the target that changes nothing, not even the noise
CURRENT = "current values without jitter"  # the target that changes nothing but that the noise ends


@dataclass(frozen=True)
class Target:
    """What differs from the logging policy; nothing differs in a target without any of these."""

    name: str
    parameters: dict[str, float] = field(
        default_factory=dict
    )  # values (centres, if the noise is kept), by parameter
    temperature: float | None = None
    model: str | None = None
    is_pages: bool = False  # about pages although nothing differs: the policy that wrote that log
    estimand: Estimand = "launch"  # what becomes of the parameters' noise

    @property
    def is_slate(self) -> bool:
        """About the log of drawn pages, not about that of the parameters."""
        return self.is_pages or self.temperature is not None or self.model is not None

    @property
    def is_launch(self) -> bool:
        """About parameters without their noise."""
        return not self.is_slate and self.estimand == "launch"

    @property
    def words(self) -> str:
        """The changes as they are written."""
        parts = [f"auction.{parameter}={value:g}" for parameter, value in self.parameters.items()]
        if self.temperature is not None:
            parts.append(f"slates.temperature={self.temperature:g}")
        if self.model is not None:
            parts.append(f"ranking.model={self.model}")
        return ", ".join(parts)


def parse_target(name: str, changes: Sequence[str], estimand: Estimand = "launch") -> Target:
    """A target from `key=value` texts; UserError, which begins with the text that is to blame, for a key or a
    value that no log can answer for."""
    parameters: dict[str, float] = {}
    temperature, model = None, None
    for text in changes:
        try:
            key, value = (part.strip() for part in key_and_value(text))
            if not value:
                raise ValueError("no value")
        except ValueError as reason:
            raise UserError(f"{text}: {reason}; write key=value, as in auction.reserve_cpc=0.22") from None
        if key in PARAMETER_KEYS:
            parameters[PARAMETER_KEYS[key]] = _number(text, value, PARAMETER_KEYS[key])
        elif key == "slates.temperature":
            temperature = _number(text, value, "temperature")
        elif key == "ranking.model":
            model = value
        else:
            raise UserError(f"{text}: {_no_answer(key, value)}")
    if parameters and (temperature is not None or model is not None):
        raise UserError(
            f"{', '.join(changes)}: parameters and pages were randomised in logs of their own; "
            "ask about one of the two"
        )
    return Target(name, parameters, temperature, model, estimand=estimand)


def logged_parameters(estimand: Estimand) -> Target:
    """What targets of the parameters are compared with: the current values, fixed or with the log's noise."""
    return Target(CURRENT if estimand == "launch" else AS_LOGGED, estimand=estimand)


def _no_answer(key: str, value: str) -> str:
    """Why no log answers for a key, and for one that decides how pages are served, what does."""
    known = (*PARAMETER_KEYS, *SLATE_KEYS)
    meant = [
        scenario_path(parameter)
        for parameter in arm_parameters()
        if key in (".".join(parameter), scenario_path(parameter), f"cascade.{'.'.join(parameter)}")
        or key == parameter[-1]
    ]
    if len(meant) != 1 or meant[0] in known:
        return unknown_name("key of a target", key, known)
    return (
        f"was not randomised, so no log can tell; off-policy answers for {', '.join(known)}. What-ifs serve "
        f"the requests again and answer for this one: `whatif RUN --set {meant[0]}={value}`"
    )


def _number(change: str, text: str, what: str) -> float:
    low, high = LIMITS[what]
    try:
        value = float(text)
    except ValueError:
        raise UserError(f"{change}: expected a number, not {text!r}") from None
    if not (math.isfinite(value) and low < value <= high):
        raise UserError(f"{change}: should be above {low:g} and at most {high:g}")
    return value
