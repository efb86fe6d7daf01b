"""A world of a run that is under way, made again in another process: from its scenario and seed.

No world is sent: it is built there, with the models that the run has left in its folder so far. Weights are
read rather than trained again, because on another kind of processor they would differ in their last digits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from cascade_sim.cascade.links import calibrator_file, load_calibrator
from cascade_sim.cascade.scorers import Scorer
from cascade_sim.cascade.serve import Block
from cascade_sim.environments.arrivals import serve_block
from cascade_sim.foundation.errors import UserError
from cascade_sim.scenario.file import dump_scenario
from cascade_sim.scenario.schema import Scenario
from cascade_sim.storage.files import below
from cascade_sim.storage.model_store import load_file
from cascade_sim.study.simulation import Simulation
from cascade_sim.training.modules import build_module, served_scorer

_kept: dict[tuple[Any, ...], tuple[Simulation, dict[str, Scorer]]] = {}  # the last world, and its models

FIRST = " (first)"  # ends the name of a model's first deployment, trained on random traffic


@dataclass(frozen=True)
class Plan:
    """What a world is made of: a few words, whatever its size."""

    scenario: Scenario
    seed: int
    home: Path
    folder: Path  # of the run: its logs, and the weights of its models
    models: tuple[str, ...]  # which of them are trained by now
    device: str = "cpu"  # where further ones are trained

    @classmethod
    def of(cls, sim: Simulation, folder: Path) -> Plan:
        """The plan of a world as it is now; its trained models lie in the folder (`Preparation.export`)."""
        trained = tuple(name for name in sim.scorers if name not in sim.built_in)
        return cls(sim.scenario, sim.seed, sim.home, folder, trained, str(sim.device))


def rebuilt(plan: Plan) -> Simulation:
    """The world of a plan. Made once in a process, whatever phases come; its models are loaded once too."""
    key = (dump_scenario(plan.scenario), plan.seed, plan.home, plan.folder, plan.device)
    if key not in _kept:
        _kept.clear()  # a process has room for one world
        device = torch.device(plan.device)
        _kept[key] = (Simulation(plan.scenario, plan.seed, home=plan.home, device=device, is_part=True), {})
    sim, loaded = _kept[key]
    for name in plan.models:
        if name not in loaded:
            loaded[name] = _seated(sim, name, plan.folder)
    # No more than the plan has: which models there are decides who serves.
    built_in = {name: sim.scorers[name] for name in sim.built_in}
    sim.scorers.clear()
    sim.scorers.update({**built_in, **{name: loaded[name] for name in plan.models}})
    return sim


def remote_handler(sim: Simulation, handle: Callable[[Block], Any]) -> Callable[..., Any]:
    """`handle` for blocks that come as the words they are made from: phase, index, n_requests, start."""

    def serve(phase: str, index: int, n_requests: int, start: float) -> Any:
        return serve_block(phase, sim.arrivals.block(phase, index, n_requests, start), handle)

    return serve


def _seated(sim: Simulation, alias: str, folder: Path) -> Scorer:
    """A trained model from the run's folder, ready to serve."""
    name = alias.removesuffix(FIRST)
    own = sim.scenario.models[name]
    spec = own if alias == name else own.as_first_deployed()
    view = sim.view(spec.features)
    module = build_module(name, spec, view, seed=0, home=sim.home)
    file = below(folder, "models", f"{alias}.safetensors")
    try:
        load_file(file, module)
    except (OSError, ValueError) as error:
        raise UserError(f"{file}, which the run has just written, cannot be read here: {error}") from error
    calibrator = load_calibrator(calibrator_file(file)) if spec.has_calibrator else None
    return served_scorer(name, spec, view, module, calibrator)
