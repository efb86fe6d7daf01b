"""A tiny market on trial, and runs of its designs with everything written down."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from worlds.timed_market import slow_days, timed_scenario

DAYS = slow_days(
    share=1.0,
    median=12.0,
    bidders={"fixed": {}, "pid": {"kind": "pid"}, "throttling": {"kind": "throttling"}},
)
# The treatment shows one ad more, in another order, at other prices and above a reserve.
ARMS = {
    "now": {"slots": 2},
    "better": {
        "pre_ranking": {"model": "truth"},
        "slots": 3,
        "auction": {"pricing": "vcg", "reserve_cpc": 0.4},
    },
    "again": {"slots": 2},
}


def design_scenario(
    market: dict[str, Any] | None = None, arms: dict[str, Any] | None = None, **designs: Any
) -> Any:
    """Two days, the second on trial; `designs` are keys of the section."""
    section = {"treatment": "better", **designs}
    scenario = timed_scenario({**DAYS, **(market or {}), "designs": section})
    from cascade_sim.scenario.schema import Scenario

    data = scenario.model_dump(mode="json", exclude_none=True)
    return Scenario.model_validate({**data, "arms": arms or ARMS}, strict=False)


def design_study(scenario: Any, folder: Path = Path("."), workers: int = 1) -> Any:
    from cascade_sim.context import RunContext
    from cascade_sim.experiments.study import DesignStudy
    from cascade_sim.study.simulation import Simulation

    sim = Simulation(scenario, scenario.seed, workers)
    return DesignStudy(sim, RunContext(folder, workers=workers))


def live_design(
    scenario: Any, unit: str, part: bool | None = None, workers: int = 1
) -> tuple[Any, list[Any]]:
    """A market on trial lived through: the run and its settled pieces."""
    from cascade_sim.experiments.assignment import make_assignment
    from cascade_sim.experiments.run import DesignRun

    study = design_study(scenario)
    assignment = make_assignment(study.spec, unit, study.sim.seed)
    run = DesignRun(study.sim, study.arms, assignment, part=part, workers=workers)
    settled: list[Any] = []
    run.on_block = settled.append
    run.run()
    return run, settled
