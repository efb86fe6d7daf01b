"""The auction's parameters request by request, so that a log can tell what other settings would do.

reserve_cpc   centre * exp(sigma * z): log-normal, so it stays above 0
squashing     centre + sigma * z, and 0 where that is negative

z is a standard normal draw keyed by (seed, parameter, request), and logged. The clip at 0 is harmless to
weights, which are ratios of densities of z, and rare: a scenario whose squashing lies less than four sigmas
above 0 is refused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from cascade_sim.cascade.page import Rules
from cascade_sim.cascade.request import Arm, Block, Platform, RequestOverrides
from cascade_sim.foundation import random as draws

RANDOMISED = ("reserve_cpc", "squashing")  # what may be randomised
SCALES: dict[str, Literal["log", "linear"]] = {"reserve_cpc": "log", "squashing": "linear"}
PURPOSES = {"reserve_cpc": "randomised reserve", "squashing": "randomised squashing"}


@dataclass(frozen=True)
class ParameterRandomiser:
    """The law of the parameters: centres and standard deviations by parameter; only randomised ones are
    named.
    """

    centres: Mapping[str, float]
    sigmas: Mapping[str, float]

    def noise(self, seed: int, requests: NDArray[np.int64]) -> dict[str, NDArray[np.float64]]:
        """The z of each randomised parameter.  {parameter: [R]}"""
        return {parameter: draws.normal(seed, PURPOSES[parameter], requests) for parameter in self.sigmas}

    def values(self, noise: Mapping[str, NDArray[np.float64]]) -> dict[str, NDArray[np.float64]]:
        """The parameters' values for this noise, request by request.  {parameter: [R]}"""
        drawn = {}
        for parameter, sigma in self.sigmas.items():
            centre = self.centres[parameter]
            if SCALES[parameter] == "log":
                drawn[parameter] = centre * np.exp(sigma * noise[parameter])
            else:
                drawn[parameter] = np.maximum(centre + sigma * noise[parameter], 0.0)
        return drawn

    def shift(self, target: Mapping[str, float]) -> dict[str, float]:
        """How far a target's centres lie from these, on the scale of the noise."""
        shifts = {}
        for parameter, here in self.centres.items():
            there = target.get(parameter, here)
            shifts[parameter] = math.log(there / here) if SCALES[parameter] == "log" else there - here
        return shifts

    def moved(self, target: Mapping[str, float]) -> ParameterRandomiser:
        """The same noise around other centres."""
        return ParameterRandomiser({**self.centres, **target}, self.sigmas)

    def weights(
        self, noise: Mapping[str, NDArray[np.float64]], target: Mapping[str, float]
    ) -> NDArray[np.float64]:
        """p*(parameters) / p(parameters): the same noise around the target's centres.  [R]"""
        from cascade_sim.analysis.off_policy.gradient import parameter_weights

        weights = np.ones(len(next(iter(noise.values()))))
        for parameter, apart in self.shift(target).items():
            weights *= parameter_weights(noise[parameter], self.sigmas[parameter], apart)
        return weights


def with_parameters(block: Block, values: Mapping[str, NDArray[np.float64]], arm_squashing: float) -> Block:
    """The block with these parameters [R]; the arm that serves it has this squashing (above 0)."""
    squashing = values.get("squashing")
    ratio = None if squashing is None else squashing / arm_squashing
    own = block.parameters or RequestOverrides()  # slots of a logged page stay
    return replace(
        block, parameters=replace(own, reserve_cpc=values.get("reserve_cpc"), squashing_ratio=ratio)
    )


def reserve_of(block: Block, arm: Arm) -> float | NDArray[np.float64]:
    """The CPC reserve that a block's requests meet: the arm's, or one of each request [R]."""
    parameters = block.parameters
    if parameters is not None and parameters.reserve_cpc is not None:
        return parameters.reserve_cpc
    if arm.logged_reserves and parameters is not None and parameters.logged_reserve is not None:
        return parameters.logged_reserve
    return arm.reserve_cpc


def rules_of(block: Block, arm: Arm, platform: Platform) -> Rules:
    """How the pages of a block are priced."""
    rules = replace(arm.rules(platform.slot_effects), reserve_cpc=reserve_of(block, arm))
    slots = None if block.parameters is None else block.parameters.slots
    if slots is None or int(slots.min(initial=arm.slots)) >= arm.slots:
        return rules
    return replace(rules, page_slots=np.minimum(slots, arm.slots))
