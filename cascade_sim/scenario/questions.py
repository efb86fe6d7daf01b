"""The `off_policy` section: requests logged with randomised knobs or pages, and what is asked of the logs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from cascade_sim.errors import UserError
from cascade_sim.scenario.sections import MAX_REQUESTS, Name, Section
from cascade_sim.scenario.targets import KNOB_KEYS, Target, parse_target
from cascade_sim.scenario.yaml import KeyPath, Problem

if TYPE_CHECKING:
    from cascade_sim.scenario.schema import ArmSpec, Scenario

FURTHEST_BELOW = 4.0  # sigmas between squashing and 0: a normal draw falls further once in 32,000
MOST_DEPTH = 12  # propensities sum over subsets of the list


class Randomise(Section):
    """Standard deviations of the knobs' noise."""

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
        """Of the knobs that are randomised."""
        return {knob: sigma for knob, sigma in self.model_dump().items() if sigma is not None}


class Slates(Section):
    """Pages drawn from the head of the ranking order: Plackett-Luce on log score / temperature."""

    requests: int = Field(default=20_000, ge=2, le=MAX_REQUESTS, description="Requests logged so.")
    temperature: float = Field(
        default=0.5, gt=0, le=100, description="Near 0 is the ranking order, large is uniform."
    )
    depth: int = Field(
        default=8, ge=2, le=MOST_DEPTH, description="Ads of the ranking order that take part in the draw."
    )


Changes = Annotated[tuple[str, ...], Field(strict=False, min_length=1)]


class OffPolicy(Section):
    """Logged by the baseline arm after the study's own phases."""

    requests: int = Field(
        default=20_000, ge=2, le=MAX_REQUESTS, description="Requests logged with randomised knobs."
    )
    randomise: Randomise | None = Field(default=None, description="The knobs' noise; absent: no such log.")
    slates: Slates | None = Field(default=None, description="Randomised pages; absent: no such log.")
    targets: dict[Name, Changes] = Field(
        default={},
        description="Policies asked about: NAME: [auction.reserve_cpc=…, auction.squashing=…] for the knobs, "
        "[slates.temperature=…, ranking.model=…] for the pages.",
    )
    clip: float = Field(
        default=10.0, gt=0, le=1e6, description="Largest weight of clipped estimators and of the bounds."
    )


def check_off_policy(scenario: Scenario) -> Iterator[Problem]:
    """What is wrong with `off_policy`, seen against the baseline arm."""
    from cascade_sim.scenario.schema import resolve_arm

    section = scenario.off_policy
    if section is None or scenario.report.baseline not in scenario.arms:
        return
    arm = resolve_arm(scenario, scenario.arms[scenario.report.baseline])
    if section.randomise is None and section.slates is None:
        yield Problem(
            ("off_policy",), "nothing is randomised; add randomise: {reserve_cpc: 0.3} or slates: {}"
        )
    yield from _check_knobs(section, arm)
    yield from _check_slates(section, arm)
    for name, changes in section.targets.items():
        at: KeyPath = ("off_policy", "targets", name)
        try:
            target = parse_target(name, changes)
        except UserError as error:
            yield Problem(at, str(error))
            continue
        fault = target_fault(target, section, arm, scenario)
        if fault:
            yield Problem(at, fault, uses=(("off_policy", "randomise"), ("off_policy", "slates")))


def target_fault(target: Target, section: OffPolicy, arm: ArmSpec, scenario: Scenario) -> str:
    """Why a log of this section cannot answer for a target; empty if it can."""
    sigmas = section.randomise.sigmas if section.randomise is not None else {}
    for knob in target.knobs:
        if knob not in sigmas:
            return (
                f"auction.{knob} was not randomised, so a log cannot tell what changing it does; "
                f"set off_policy.randomise.{knob}"
            )
    if target.is_slate and section.slates is None:
        return (
            "pages were not randomised, so a log cannot tell what another order does; set off_policy.slates"
        )
    if target.model is not None:
        from cascade_sim.errors import unknown_name

        known = [name for name, spec in scenario.models.items() if spec.trained_by.gives_probabilities]
        if target.model not in known:
            return f"ranking.model: {unknown_name('model', target.model, known)}"
    if "squashing" in target.knobs and target.knobs["squashing"] < FURTHEST_BELOW * sigmas["squashing"]:
        asked, least = target.knobs["squashing"], FURTHEST_BELOW * sigmas["squashing"]
        return f"auction.squashing: {asked:g} is too near 0 for this noise; use {least:g} or more"
    return ""


def _check_knobs(section: OffPolicy, arm: ArmSpec) -> Iterator[Problem]:
    at: KeyPath = ("off_policy", "randomise")
    if section.randomise is None:
        return
    sigmas = section.randomise.sigmas
    if not sigmas:
        yield Problem(at, f"names no knob; give {' or '.join(KNOB_KEYS)} a standard deviation", uses=(at,))
    if "reserve_cpc" in sigmas and arm.auction.reserve_cpc == 0:
        text = "a reserve of 0 times any noise is 0; give the baseline arm an auction.reserve_cpc above 0"
        yield Problem((*at, "reserve_cpc"), text, uses=(at, ("auction", "reserve_cpc")))
    if "squashing" in sigmas:
        if arm.auction.pricing == "vcg":
            text = "pricing vcg needs squashing 1 on every request; use gsp, or leave squashing alone"
            yield Problem((*at, "squashing"), text, uses=(at, ("auction", "pricing")))
        if arm.auction.squashing < FURTHEST_BELOW * sigmas["squashing"]:
            most = arm.auction.squashing / FURTHEST_BELOW
            text = (
                f"{sigmas['squashing']:g} around a squashing of {arm.auction.squashing:g} would often fall "
                f"below 0; use at most {most:g}"
            )
            yield Problem((*at, "squashing"), text, uses=(at, ("auction", "squashing")))


def _check_slates(section: OffPolicy, arm: ArmSpec) -> Iterator[Problem]:
    if section.slates is None:
        return
    depth, at = section.slates.depth, ("off_policy", "slates", "depth")
    if depth <= arm.slots:
        text = f"{depth} ads leave nothing to choose for {arm.slots} slots; use at least {arm.slots + 1}"
        yield Problem(at, text, uses=(at, ("cascade", "slots")))
    if depth >= arm.pre_ranking.size:
        text = (
            f"{depth} of {arm.pre_ranking.size} ranked ads leave no runner-up to price the list; "
            f"use at most {arm.pre_ranking.size - 1}"
        )
        yield Problem(at, text, uses=(at, ("cascade", "pre_ranking", "size")))
