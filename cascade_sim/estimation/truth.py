"""What target policies really earn, from the simulator: for the truth table beside estimates, never for them.

Every click is replaced by its probability. A target of the knobs is served on the logged requests at the
logged noise; the value of a page policy is summed over all its pages. So what is left of chance is which
requests came.
"""

from __future__ import annotations

import numpy as np

from cascade_sim.auction import MICROS
from cascade_sim.cascade.serve import Arm, Block, Decision
from cascade_sim.estimation.data import Floats, KnobLog, SlateLog
from cascade_sim.estimation.log import randomiser
from cascade_sim.estimation.replay import page_odds, replay
from cascade_sim.estimation.slates import page_values
from cascade_sim.phases.simulation import Simulation
from cascade_sim.scenario.targets import Target

STEP = 0.05  # of log reserve or of squashing, for finite differences


def expected_rewards(sim: Simulation, block: Block, decision: Decision) -> dict[str, Floats]:
    """{reward: [R]} of pages as they were served."""
    from cascade_sim.agents.users import click_probability

    win_set = decision.win_set
    clicks = click_probability(sim.truth.ctr(block, win_set), sim.world.slot_effects, win_set >= 0)
    return {
        "revenue": (clicks * (decision.cpc_micros / MICROS)).sum(axis=1),
        "clicks": clicks.sum(axis=1),
    }


def knob_truth(sim: Simulation, arm: Arm, log: KnobLog, target: Target) -> dict[str, Floats]:
    """Expected rewards of every logged request under a target.  {reward: [R]}"""
    visits = log.visits

    def measure(cut: slice, decision: Decision) -> dict[str, Floats]:
        block = Block(visits.requests[cut], visits.users[cut], visits.context[cut], visits.times[cut])
        return expected_rewards(sim, block, decision)

    return replay(sim, arm, log, randomiser(sim.scenario).moved(target.knobs), measure)


def slate_truth(sim: Simulation, arm: Arm, log: SlateLog, target: Target) -> dict[str, Floats]:
    """Expected rewards of every logged request under a target's pages.  {reward: [R]}"""
    odds = page_odds(sim, arm, log, target)
    parts = [
        sim.truth.ctr(block, log.listed.ads[cut])
        for cut, block in log.visits.blocks(sim.scenario.traffic.block)
    ]
    ctr = np.concatenate(parts)
    gains = {"revenue": ctr * (log.listed.cpc_micros / MICROS), "clicks": ctr}
    nowhere = np.full(log.places.shape, -1, np.int64)
    return {
        reward: page_values(odds, gain, log.slot_effects, nowhere)[1][:, 0] for reward, gain in gains.items()
    }


def true_slopes(sim: Simulation, arm: Arm, log: KnobLog) -> dict[str, dict[str, float]]:
    """Central finite differences of the served rewards in each knob's centre.  {knob: {reward: slope}}

    In log reserve and in squashing, STEP to either side, on the same requests and noise.
    """
    law = randomiser(sim.scenario)
    found = {}
    for knob, centre in law.centres.items():
        ends = []
        for side in (1.0, -1.0):
            moved = centre * np.exp(side * STEP) if knob == "reserve_cpc" else centre + side * STEP
            served = knob_truth(sim, arm, log, Target(knob, {knob: float(moved)}))
            ends.append({reward: float(values.mean()) for reward, values in served.items()})
        found[knob] = {reward: (ends[0][reward] - ends[1][reward]) / (2 * STEP) for reward in ends[0]}
    return found
