"""A study for its sums alone: no report, nothing left behind; and other traffic of the same world.

A check holds the models fixed: they learn from the log that the baseline's cascade writes, so that models
whose recipe and data did not change are the baseline's to the bit, and what moves is what was changed.
Trained on the log of a changed cascade, all models are others, and their noise hides changes of some percent.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cascade_sim.cascade.serve import Block
from cascade_sim.context import RunContext, scratch_context
from cascade_sim.environments.arrivals import FIRST_REQUEST, Arrivals
from cascade_sim.market.dry_run import dry_run
from cascade_sim.regression.baseline import Measured, measured_run
from cascade_sim.regression.blocks import evaluation_blocks
from cascade_sim.scenario.file import load_scenario
from cascade_sim.scenario.schema import Scenario, requests_by_phase
from cascade_sim.storage.environment import stack
from cascade_sim.storage.files import below
from cascade_sim.storage.folder import IMPORTED, open_run
from cascade_sim.study.evaluate import Evaluation
from cascade_sim.study.prepare import logging_scenario, prepare
from cascade_sim.study.simulation import Simulation


class OtherTraffic(Arrivals):
    """A market whose evaluation meets a later stretch of requests: the same world and models, other visitors.

    Stretch 0 is the usual one; each begins an integer of blocks behind it, so that none overlap.
    """

    def __init__(self, sim: Simulation, workers: int, stretch: int):
        phases = requests_by_phase(sim.scenario)
        super().__init__(sim.world, sim.scenario.traffic, workers, phases=phases)
        size = sim.scenario.traffic.block
        self._blocks_before = stretch * -(-sim.scenario.phases.evaluate // size)
        self._requests_before = self._blocks_before * size

    def block(self, phase: str, index: int, n_requests: int, start: float | None = None) -> Block:
        if phase != "evaluate":
            return super().block(phase, index, n_requests, start)
        return super().block(phase, index + self._blocks_before, n_requests + self._requests_before, start)

    def first_request(self, phase: str) -> int:
        return FIRST_REQUEST[phase] + (self._requests_before if phase == "evaluate" else 0)


def measure_scenario(
    scenario: Scenario,
    where: str,
    context: RunContext,
    *,
    stretch: int = 0,
    with_market: bool = True,
    logged_by: Mapping[str, Any] | None = None,
) -> Measured:
    """Run one world and keep the sums of its evaluation, on this stretch of traffic, and of its market.

    `logged_by`: the scenario (resolved, as a baseline has it) whose cascade writes the log to learn from.
    """
    teacher = None if logged_by is None else logging_scenario(scenario, logged_by)
    with context.progress:
        evaluation = evaluated(scenario, context, stretch, teacher)
        evaluation.run()
        market = None
        if scenario.market is not None and with_market and not stretch:
            from cascade_sim.market.study import run_markets

            market = run_markets(evaluation.sim, context)
        blocks = evaluation_blocks(evaluation, market)
        held = teacher is not None
        return Measured(where, scenario, blocks, stack(), is_fresh=stretch > 0, has_held_models=held)


def measured_folder(folder: Path) -> Measured:
    """The sums of a finished run; of an imported log those of its scenario, replayed for it."""
    run = open_run(folder)
    if run.manifest.get("kind") != IMPORTED:
        return measured_run(folder)
    scenario = load_scenario(below(folder, "scenario.yaml"))
    with scratch_context(home=folder) as context:
        return measure_scenario(scenario, str(folder), context)


def evaluated(
    scenario: Scenario, context: RunContext, stretch: int = 0, teacher: Scenario | None = None
) -> Evaluation:
    """The scenario's evaluation, ready to be run: world built, models trained, logs written.

    `teacher`: the scenario whose log the models learn from, if not this one.
    """
    dry_run(scenario, context.home)
    sim = prepare(scenario, context, teacher=teacher).sim
    if stretch:
        scenario.world.require("fresh_requests", "--traffic-sample")
        sim.arrivals = OtherTraffic(sim, context.workers, stretch)
    return Evaluation(sim, context.out, context.progress)
