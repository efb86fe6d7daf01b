"""A small world with randomised logs: scenarios/off_policy.yaml made smaller, trained once per process."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from worlds.tiny_market import ROOT

SCENARIO = ROOT / "scenarios" / "off_policy.yaml"
SMALL = (
    *("world.users=300", "world.ads=120", "world.advertisers=60", "traffic.block=256"),
    *("phases.cold_start=1500", "phases.log=2500", "phases.evaluate=256"),
    *("models.rank.epochs=2", "models.logloss.epochs=1"),
    *("report.resamples=20", "report.detail_requests=64"),
    *("off_policy.requests=1500", "off_policy.slates.requests=1200"),
)


@dataclass(frozen=True)
class Logged:
    """The world with trained models, its baseline arm, and the folder with its randomised logs."""

    sim: Any
    arm: Any
    folder: Path
    modules: dict[str, Any]

    @property
    def scenario(self) -> Any:
        return self.sim.scenario


def small_scenario(*overrides: str, seed: int | None = None) -> Any:
    from cascade_sim.scenario.file import load_scenario

    return load_scenario(SCENARIO, [*SMALL, *overrides], seed)


@functools.cache
def logged() -> Logged:
    """Trained and logged once; nobody may change it."""
    import torch

    from cascade_sim.foundation.progress import Progress
    from cascade_sim.ope.log import write_logs
    from cascade_sim.scenario.schema import resolved_arms
    from cascade_sim.storage.model_store import ModelStore
    from cascade_sim.study.prepare import Preparation
    from cascade_sim.study.simulation import Simulation

    scenario = small_scenario()
    folder = Path(tempfile.mkdtemp(prefix="off-policy-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    sim = Simulation(scenario, scenario.seed)
    with Progress(quiet=True) as progress:
        preparation = Preparation(sim, folder, ModelStore(folder / "cache"), progress, torch.device("cpu"))
        preparation.run()
        arm = sim.arm("production", resolved_arms(scenario)["production"])
        write_logs(sim, arm, folder, progress)
    return Logged(sim, arm, folder, preparation.modules)


class Unasked:
    """In place of the truth: whoever asks it anything is caught."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"the truth was asked for {name}")
