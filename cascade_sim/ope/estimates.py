"""Estimates from randomised logs, the platform's own forecasts for other policies, and the truth beside them.

Estimates come from the logs alone: `Evidence` holds rewards, weights and forecasts for the estimators of
`analysis.off_policy`.

Forecasts ask no truth. A launch is served at its values; a target that keeps the noise at the logged noise
around its own centres: a draw from the target's law as good as any other. Pages need no serving: the log
holds the list they were drawn from, and another model's scores for it are one prediction away.

The truth (`parameter_truth`, `slate_truth`, `true_slopes`) is what a target really earns, from the simulator:
for the table beside the estimates, never for them. Every click is replaced by its probability. A target of
the parameters is served on the logged requests, at its values or at the logged noise around them; the value
of a page policy is summed over all its pages. So what is left of chance is which requests came.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cascade_sim.analysis import off_policy
from cascade_sim.analysis.off_policy import OffPolicyEstimate
from cascade_sim.analysis.off_policy import slates as off_policy_slates
from cascade_sim.analysis.off_policy.bounds import Bounds, bounds
from cascade_sim.analysis.off_policy.gradient import Sensitivity, sensitivity
from cascade_sim.analysis.off_policy.launch import JitteredParameter, LaunchEstimate, launches
from cascade_sim.auction import MICROS
from cascade_sim.cascade.randomisation import SCALES, ParameterRandomiser
from cascade_sim.cascade.serve import Arm, Block, Decision, Stage, score
from cascade_sim.ope.log import (
    REWARDS,
    Floats,
    ParameterLog,
    SlateLog,
    baseline_spec,
    decision_forecast,
    randomiser,
    serve_parameters,
)
from cascade_sim.ope.slates import log_odds, log_propensities, page_values, slot_marginals
from cascade_sim.scenario.targets import Target, logged_parameters
from cascade_sim.study.simulation import Simulation

# estimators of pages, and the columns they need beside the reward
PAGES: dict[str, tuple[Callable[..., OffPolicyEstimate], tuple[str, ...]]] = {
    "slate_ips": (off_policy_slates.slate_ips, ("conditional",)),
    "reward_interaction_ips": (off_policy_slates.reward_interaction_ips, ("conditional",)),
    "independent_ips": (off_policy_slates.independent_ips, ("marginal",)),
    "cascade_dr": (off_policy_slates.cascade_dr, ("conditional", "q_logged", "v_target")),
}

PARAMETER_ESTIMATORS = tuple(off_policy.ESTIMATORS)

LAUNCH_ESTIMATORS = ("local_linear", "local_dr", "direct_method")

SLATE_ESTIMATORS = (*PAGES, "direct_method")

ESTIMATORS = tuple(dict.fromkeys((*LAUNCH_ESTIMATORS, *PARAMETER_ESTIMATORS, *SLATE_ESTIMATORS)))


def estimators_of(target: Target) -> tuple[str, ...]:
    """Those that answer for a target."""
    if target.is_slate:
        return SLATE_ESTIMATORS
    return LAUNCH_ESTIMATORS if target.is_launch else PARAMETER_ESTIMATORS


STEP = 0.05  # of log reserve or of squashing, for finite differences


@dataclass(frozen=True)
class Evidence:
    """What a log says about one target and one reward: the columns of every estimator. Rows are requests."""

    columns: dict[str, NDArray[Any]]  # by the estimators' argument names, [R] or [R, K]
    settings: dict[str, Any]  # clip, threshold; of a launch its parameters
    limit: Floats | None  # [R], for bounds

    def rows(self, cut: slice) -> Evidence:
        """The evidence of some of the requests."""
        columns = {name: values[cut] for name, values in self.columns.items()}
        return Evidence(columns, self.settings, None if self.limit is None else self.limit[cut])

    @property
    def estimators(self) -> tuple[str, ...]:
        """Those that fit."""
        if "z" in self.columns:
            return LAUNCH_ESTIMATORS
        return SLATE_ESTIMATORS if "conditional" in self.columns else PARAMETER_ESTIMATORS


def parameter_evidence(
    log: ParameterLog, law: ParameterRandomiser, target: Target, reward: str, forecast: Floats, clip: float
) -> Evidence:
    """`forecast` [R]: the platform's, of this reward under the target."""
    columns = {
        "reward": log.reward[reward],
        "weights": law.weights(log.noise, target.parameters),
        "predicted_logged": log.forecast[reward],
        "predicted_target": forecast,
    }
    return Evidence(columns, {"clip": clip, "threshold": clip}, log.limit[reward])


def launch_evidence(
    log: ParameterLog,
    law: ParameterRandomiser,
    target: Target,
    reward: str,
    forecast: Floats,
    current: Floats,
) -> Evidence:
    """`forecast`, `current` [R]: the platform's, of this reward at the launch and at the current values."""
    shifts = law.shift(target.parameters)
    parameters = [
        JitteredParameter(
            f"auction.{parameter}", f"off_policy.randomise.{parameter}", sigma, shifts[parameter] / sigma
        )
        for parameter, sigma in law.sigmas.items()
    ]
    columns = {
        "reward": log.reward[reward],
        "z": np.column_stack([log.noise[parameter] for parameter in law.sigmas]),
        "predicted_logged": log.forecast[reward],
        "predicted_target": forecast,
        "predicted_current": current,
    }
    return Evidence(columns, {"parameters": parameters}, None)


def slate_evidence(log: SlateLog, temperature: float, odds: Floats, reward: str, gain: Floats) -> Evidence:
    """`odds` [R, d]: the target's log odds; `gain` [R, d]: what the click model expects of each listed ad."""
    logged = log_odds(log.listed.score, temperature)
    q_logged, v_target = page_values(odds, gain, log.slot_effects, log.places)
    columns = {
        "reward": log.reward[reward],
        "conditional": np.exp(log_propensities(odds, log.places)) / log.propensity,
        "marginal": slot_marginals(odds, log.places) / slot_marginals(logged, log.places),
        "q_logged": q_logged,
        "v_target": v_target,
        "predicted_target": v_target[:, 0],
    }
    return Evidence(columns, {}, None)


def estimate(name: str, evidence: Evidence) -> OffPolicyEstimate:
    """One estimator on the whole evidence, or on the rows of it that were cut out before."""
    given = evidence.columns
    if "z" in given:
        return estimates(evidence, (name,))[name]
    if "conditional" not in given:
        return off_policy.evaluate(name, **given, **evidence.settings)
    if name == "direct_method":
        return off_policy.direct_method(given["predicted_target"])
    of_pages, needed = PAGES[name]
    clusters = evidence.settings.get("clusters")
    return of_pages(given["reward"], *(given[column] for column in needed), clusters=clusters)


def estimates(evidence: Evidence, names: Iterable[str] = ()) -> dict[str, OffPolicyEstimate]:
    """Every estimator that fits the evidence, or those named."""
    asked = [name for name in evidence.estimators if not names or name in names]
    if "z" not in evidence.columns:
        return {name: estimate(name, evidence) for name in asked}
    arguments: dict[str, Any] = {**evidence.columns, **evidence.settings}
    fits = launches(**arguments) if set(asked) - {"direct_method"} else {}
    model = off_policy.direct_method(evidence.columns["predicted_target"])
    return {name: fits.get(name, model) for name in asked}


def lift_of(name: str, evidence: Evidence, estimate: OffPolicyEstimate) -> OffPolicyEstimate:
    """Over the current values without noise, for a launch; else over what was logged. Parameters only."""
    if isinstance(estimate, LaunchEstimate):
        return estimate.lift
    given = evidence.columns
    if "z" in given:
        return off_policy.lift(
            name, reward=given["predicted_current"], predicted_target=given["predicted_target"]
        )
    return off_policy.lift(name, **given, **evidence.settings)


def inner_and_outer(evidence: Evidence) -> Bounds | None:
    """The bounds of a parameter's target; None for pages."""
    if evidence.limit is None:
        return None
    columns = evidence.columns
    return bounds(columns["reward"], columns["weights"], evidence.settings["clip"], evidence.limit)


def slopes(
    log: ParameterLog, law: ParameterRandomiser, reward: str, forecast: Floats
) -> dict[str, Sensitivity]:
    """How the mean reward responds to each randomised parameter; `forecast` [R] knows nothing of the
    noise.
    """
    return {
        parameter: sensitivity(
            log.reward[reward],
            log.noise[parameter],
            sigma,
            SCALES[parameter],
            law.centres[parameter],
            forecast,
        )
        for parameter, sigma in law.sigmas.items()
    }


def replay(
    sim: Simulation,
    arm: Arm,
    log: ParameterLog,
    law: ParameterRandomiser,
    measure: Callable[[slice, Decision], dict[str, Floats]],
    is_noisy: bool = True,
) -> dict[str, Floats]:
    """Serve the logged requests under another law; what `measure` makes of each block, joined.  {name: [R]}

    Without noise every request has the centres themselves.
    """
    parts: list[dict[str, Floats]] = []
    for cut, block in log.visits.blocks(sim):
        noise = {
            parameter: log.noise[parameter][cut] * (1.0 if is_noisy else 0.0) for parameter in law.sigmas
        }
        parts.append(measure(cut, serve_parameters(sim, block, arm, law, noise)[0]))
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def parameter_forecast(sim: Simulation, arm: Arm, log: ParameterLog, target: Target) -> dict[str, Floats]:
    """The click model's forecast of each reward under a target.  {reward: [R]}"""
    law, effects = randomiser(sim.scenario).moved(target.parameters), sim.platform.slot_effects
    measure = lambda _, decision: decision_forecast(decision, effects)  # noqa: E731
    return replay(sim, arm, log, law, measure, is_noisy=not target.is_launch)


def centre_forecast(sim: Simulation, arm: Arm, log: ParameterLog) -> dict[str, Floats]:
    """The forecast with the parameters at their centres: it knows nothing of the noise.  {reward: [R]}"""
    return parameter_forecast(sim, arm, log, logged_parameters("launch"))


def page_odds(sim: Simulation, arm: Arm, log: SlateLog, target: Target) -> Floats:
    """A target's log odds for the ads of each logged list.  [R, d]"""
    assert sim.scenario.off_policy is not None and sim.scenario.off_policy.slates is not None
    temperature = sim.scenario.off_policy.slates.temperature
    if target.temperature is not None:
        temperature = target.temperature
    if target.model is None:
        return log_odds(log.listed.score, temperature)
    spec = baseline_spec(sim.scenario)
    section = spec.ranking.model_copy(update={"model": target.model})
    stage: Stage = sim.stage(section, spec)
    parts = []
    for cut, block in log.visits.blocks(sim):
        ads = log.listed.ads[cut]
        parts.append(np.where(ads >= 0, score(block, ads, stage, arm, sim.platform).score, 0.0))
    return log_odds(np.concatenate(parts), temperature)


def page_gain(log: SlateLog) -> dict[str, Floats]:
    """What the click model expects of each listed ad in a fully examined slot.  {reward: [R, d]}"""
    clicks = log.listed.pctr.astype(np.float64)
    gain = {"revenue": clicks * (log.listed.cpc_micros / MICROS), "clicks": clicks}
    return {reward: gain[reward] for reward in REWARDS}


def parameter_truth(sim: Simulation, arm: Arm, log: ParameterLog, target: Target) -> dict[str, Floats]:
    """Expected rewards of every logged request under a target.  {reward: [R]}"""

    def measure(cut: slice, decision: Decision) -> dict[str, Floats]:
        return expected_rewards(sim, log.visits.block(sim, cut), decision)

    law = randomiser(sim.scenario).moved(target.parameters)
    return replay(sim, arm, log, law, measure, is_noisy=not target.is_launch)


def slate_truth(sim: Simulation, arm: Arm, log: SlateLog, target: Target) -> dict[str, Floats]:
    """Expected rewards of every logged request under a target's pages.  {reward: [R]}"""
    odds = page_odds(sim, arm, log, target)
    parts = [sim.environment.ctr(block, log.listed.ads[cut]) for cut, block in log.visits.blocks(sim)]
    ctr = np.concatenate(parts)
    gains = {"revenue": ctr * (log.listed.cpc_micros / MICROS), "clicks": ctr}
    nowhere = np.full(log.places.shape, -1, np.int64)
    return {
        reward: page_values(odds, gain, log.slot_effects, nowhere)[1][:, 0] for reward, gain in gains.items()
    }


def true_slopes(sim: Simulation, arm: Arm, log: ParameterLog) -> dict[str, dict[str, float]]:
    """Central finite differences of the served rewards in each parameter's centre.  {parameter: {reward:
    slope}}

    In log reserve and in squashing, STEP to either side, on the same requests and noise.
    """
    law = randomiser(sim.scenario)
    slope = {}
    for parameter, centre in law.centres.items():
        ends = []
        for side in (1.0, -1.0):
            moved = centre * np.exp(side * STEP) if parameter == "reserve_cpc" else centre + side * STEP
            served = parameter_truth(
                sim, arm, log, Target(parameter, {parameter: float(moved)}, estimand="jittered")
            )
            ends.append({reward: float(values.mean()) for reward, values in served.items()})
        slope[parameter] = {reward: (ends[0][reward] - ends[1][reward]) / (2 * STEP) for reward in ends[0]}
    return slope


def expected_rewards(sim: Simulation, block: Block, decision: Decision) -> dict[str, Floats]:
    """Rewards of pages as they were served, every click by its true probability.  {reward: [R]}"""
    from cascade_sim.agents.users import click_probability

    win_set = decision.win_set
    clicks = click_probability(sim.environment.ctr(block, win_set), sim.world.slot_effects, win_set >= 0)
    return {
        "revenue": (clicks * (decision.cpc_micros / MICROS)).sum(axis=1),
        "clicks": clicks.sum(axis=1),
    }
