"""The whole way of requests in a scenario: what the bench times when it does not time a part."""

import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import torch

from cascade_sim.bench import seconds
from cascade_sim.cascade.serve import Arm
from cascade_sim.foundation.progress import Progress
from cascade_sim.scenario.schema import Scenario, resolve_arm
from cascade_sim.storage.model_store import ModelStore
from cascade_sim.study.prepare import Preparation, rows_to_log
from cascade_sim.study.simulation import Simulation
from cascade_sim.training.modules import build_module, make_scorer


def ready(scenario: dict[str, Any]) -> tuple[Simulation, Arm]:
    """A world and the first of its arms. Weights are as drawn: a net takes the same time trained or not."""
    checked = Scenario.model_validate(scenario)
    sim = Simulation(checked, seed=1)
    for name, spec in checked.models.items():
        view = sim.view(spec.features)
        sim.scorers[name] = make_scorer(name, "logloss", view, build_module(name, spec, view, 1))
    arm = next(iter(checked.arms.values()))
    return sim, sim.arm("bench", resolve_arm(checked, arm))


def serving(sim: Simulation, arm: Arm, n_requests: int, rate: float = 0.01) -> float:
    """CPU seconds for n requests: SimPy traffic, serve, clicks, charges, log on disk; `rate` explore."""
    with tempfile.TemporaryDirectory() as folder:
        phases = Preparation(sim, Path(folder), ModelStore(Path(folder)), Progress(True), torch.device("cpu"))
        return seconds(lambda: phases.log_phase("bench", n_requests, arm, rate=rate))


def unlogged(sim: Simulation, arm: Arm, n_requests: int) -> float:
    """The same without exploration, up to the rows of the log, which are not written."""

    def serve() -> None:
        sim.arrivals.run_phase("bench", n_requests, partial(rows_to_log, sim, arm, 0.0), lambda *rows: None)

    return seconds(serve)
