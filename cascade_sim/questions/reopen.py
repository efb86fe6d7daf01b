"""A finished run made concrete again: its world, its traffic, and its trained models in their seats."""

from dataclasses import dataclass
from pathlib import Path

from torch import nn

from cascade_sim.cascade.links import calibrator_file, load_calibrator
from cascade_sim.cascade.serve import Arm
from cascade_sim.errors import UserError
from cascade_sim.phases.simulation import Simulation
from cascade_sim.scenario.file import load_scenario
from cascade_sim.scenario.schema import ArmSpec, Scenario, resolved_arms
from cascade_sim.storage.folder import open_run
from cascade_sim.storage.model_store import load_file
from cascade_sim.suggest import unknown_name
from cascade_sim.training.modules import build_module, served_scorer


@dataclass(frozen=True)
class ReopenedRun:
    """A run of one world. Models are loaded when an arm asks for them."""

    path: Path
    scenario: Scenario
    sim: Simulation

    def arm(self, name: str | None = None) -> Arm:
        """An arm as it served the evaluation; default: the baseline. UserError if unknown."""
        specs = resolved_arms(self.scenario)
        name = name or self.scenario.report.baseline
        if name not in specs:
            raise UserError(f"--arm: {unknown_name('arm', name, specs)}")
        self.load_models(specs[name])
        return self.sim.arm(name, specs[name])

    def load_models(self, spec: ArmSpec) -> None:
        """Have the trained models of an arm's seats among the simulation's scorers."""
        for model in (spec.pre_ranking.model, spec.ranking.model):
            if model not in self.sim.scorers:
                self._seat(model)

    def _seat(self, name: str) -> None:
        """Put a trained model into the simulation's scorers."""
        spec, view = self.scenario.models[name], self.sim.view(self.scenario.models[name].features)
        kept = self.path / "models" / f"{name}.py"
        if kept.is_file():  # the user's own class, as it was when the run was made
            spec = spec.model_copy(update={"kind": f"{kept}:{spec.kind.rpartition(':')[2]}"})
        module = build_module(name, spec, view, seed=0, home=self.path)
        file = self.path / "models" / f"{name}.safetensors"
        load_weights(file, module)
        calibrator = load_calibrator(calibrator_file(file)) if spec.calibrator is not None else None
        self.sim.scorers[name] = served_scorer(name, spec, view, module, calibrator)


def reopen(path: Path) -> ReopenedRun:
    """Open a finished run of one world. UserError if it is none, or holds several worlds."""
    run = open_run(path)
    worlds = sorted(run.path.glob("seed-*"), key=lambda folder: (len(folder.name), folder.name))
    if worlds:
        listed = ", ".join(str(folder) for folder in worlds)
        raise UserError(
            f"{path} is a study over {len(worlds)} worlds; give the folder of one of them: {listed}"
        )
    scenario = load_scenario(run.path / "scenario.yaml")
    return ReopenedRun(run.path, scenario, Simulation(scenario, scenario.seed, home=run.path))


def load_weights(path: Path, module: nn.Module) -> None:
    """Put the weights of a file into a module of the same names, shapes and dtypes; else UserError."""
    if not path.is_file():
        beside = sorted(file.name for file in path.parent.glob("*.safetensors"))
        raise UserError(
            f"{path} is missing, so a trained model is not there (found: {', '.join(beside) or 'none'}); "
            "run the scenario again"
        )
    try:
        load_file(path, module)
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path} does not fit {type(module).__name__}: {error}; "
            "the model's code or the file has changed since the run"
        ) from error
