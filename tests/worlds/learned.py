"""The tiny market taken through its phases, as often as a test likes."""

import torch

from cascade_sim.foundation.progress import Progress
from cascade_sim.storage.model_store import ModelStore
from cascade_sim.study.prepare import Preparation
from cascade_sim.study.simulation import Simulation
from worlds.tiny_market import tiny_scenario

SHORT = ("phases.cold_start=150", "phases.log=200", "phases.shadow=48")


def learn(folder, cache, *overrides, seed=None, sim=None):
    scenario = tiny_scenario(*SHORT, *overrides, seed=seed)
    sim = sim or Simulation(scenario, scenario.seed)
    with Progress(quiet=True) as progress:
        preparation = Preparation(sim, folder, ModelStore(cache), progress, torch.device("cpu"))
        preparation.run()
    return preparation
