"""What the platform itself would forecast for other policies: logged requests served again, no truth asked.

A target of the knobs is served at the logged noise around its own centres: a draw from the target's law as
good as any other. Pages need no serving: the log holds the list they were drawn from, and another model's
scores for it are one prediction away.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from cascade_sim.auction import MICROS
from cascade_sim.cascade.knobs import Randomiser
from cascade_sim.cascade.serve import Arm, Decision, Stage, score
from cascade_sim.estimation.data import REWARDS, Floats, KnobLog, SlateLog, decision_forecast
from cascade_sim.estimation.log import baseline_spec, randomiser, serve_knobs
from cascade_sim.estimation.slates import log_odds
from cascade_sim.phases.simulation import Simulation
from cascade_sim.scenario.targets import Target


def replay(
    sim: Simulation,
    arm: Arm,
    log: KnobLog,
    law: Randomiser,
    measure: Callable[[slice, Decision], dict[str, Floats]],
    is_noisy: bool = True,
) -> dict[str, Floats]:
    """Serve the logged requests under another law; what `measure` makes of each block, joined.  {name: [R]}

    Without noise every request has the centres themselves.
    """
    found: list[dict[str, Floats]] = []
    for cut, block in log.visits.blocks(sim.scenario.traffic.block):
        noise = {knob: log.noise[knob][cut] * (1.0 if is_noisy else 0.0) for knob in law.sigmas}
        found.append(measure(cut, serve_knobs(sim, block, arm, law, noise)[0]))
    return {name: np.concatenate([part[name] for part in found]) for name in found[0]}


def knob_forecast(sim: Simulation, arm: Arm, log: KnobLog, target: Target) -> dict[str, Floats]:
    """The click model's forecast of each reward under a target.  {reward: [R]}"""
    law, effects = randomiser(sim.scenario).moved(target.knobs), sim.platform.slot_effects
    return replay(sim, arm, log, law, lambda _, decision: decision_forecast(decision, effects))


def centre_forecast(sim: Simulation, arm: Arm, log: KnobLog) -> dict[str, Floats]:
    """The forecast with the knobs at their centres: it knows nothing of the noise.  {reward: [R]}"""
    law, effects = randomiser(sim.scenario), sim.platform.slot_effects
    measure = lambda _, decision: decision_forecast(decision, effects)  # noqa: E731
    return replay(sim, arm, log, law, measure, is_noisy=False)


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
    stage: Stage = sim.stage(section, spec.auction.squashing)
    parts = []
    for cut, block in log.visits.blocks(sim.scenario.traffic.block):
        ads = log.listed.ads[cut]
        parts.append(
            np.where(ads >= 0, score(block, ads, stage, replace(arm, ranking=stage), sim.platform).score, 0.0)
        )
    return log_odds(np.concatenate(parts), temperature)


def page_gain(log: SlateLog) -> dict[str, Floats]:
    """What the click model expects of each listed ad in a fully examined slot.  {reward: [R, d]}"""
    clicks = log.listed.pctr.astype(np.float64)
    gain = {"revenue": clicks * (log.listed.cpc_micros / MICROS), "clicks": clicks}
    return {reward: gain[reward] for reward in REWARDS}
