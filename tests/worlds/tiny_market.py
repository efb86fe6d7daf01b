"""A market small enough for every test, and how to take it through all phases."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from places import ROOT

QUICK = ROOT / "scenarios" / "quick.yaml"

# quick.yaml made smaller still. More exploration and exposure, so that both sides of every split have ads.
TINY = (
    *("world.users=150", "world.ads=600", "world.advertisers=60", "world.base_logit=-3.0"),
    *("cascade.retrieval.size=60", "cascade.pre_ranking.size=15", "traffic.block=128"),
    *("phases.cold_start=1500", "phases.log=3000", "phases.exploration=0.2"),
    *("phases.shadow=300", "phases.evaluate=500"),
    *("report.resamples=50", "report.detail_requests=200"),
)


def tiny_scenario(*overrides: str, seed: int | None = None) -> Any:
    """quick.yaml with TINY and then these overrides."""
    from cascade_sim.scenario.file import load_scenario

    return load_scenario(QUICK, [*TINY, *overrides], seed)


@dataclass(frozen=True)
class Study:
    """A finished study: its objects, its metrics and the folder with its logs."""

    sim: Any
    preparation: Any
    evaluation: Any
    metrics: dict[str, Any]
    folder: Path


def run_phases(scenario: Any, folder: Path, cache: Path, workers: int = 1) -> Study:
    """All phases and the evaluation of one seed, without the report."""
    import torch

    from cascade_sim.foundation.progress import Progress
    from cascade_sim.storage.model_store import ModelStore
    from cascade_sim.study.evaluate import Evaluation
    from cascade_sim.study.prepare import Preparation
    from cascade_sim.study.results import collect
    from cascade_sim.study.simulation import Simulation

    sim = Simulation(scenario, scenario.seed, workers)
    with Progress(quiet=True) as progress:
        preparation = Preparation(sim, folder, ModelStore(cache), progress, torch.device("cpu"))
        preparation.run()
        evaluation = Evaluation(sim, folder, progress)
        evaluation.run()
    return Study(sim, preparation, evaluation, collect(evaluation), folder)


def z_score(hits: int | np.ndarray, probability: np.ndarray) -> float:
    """(hits - expected) / standard deviation, for independent events of these probabilities."""
    p = np.asarray(probability, np.float64)
    return float((np.sum(hits) - p.sum()) / np.sqrt((p * (1 - p)).sum()))


def part_of(block: Any, rows: Any) -> Any:
    """Some requests of a block: a slice, a mask or indices."""
    from cascade_sim.cascade.serve import Block

    return Block(block.requests[rows], block.users[rows], block.context[rows], block.times[rows])


def make_block(users: Any, first_request: int = 0) -> Any:
    """Requests of these users, with ids from `first_request` on, at context 0."""
    from cascade_sim.cascade.serve import Block

    users = np.asarray(users, np.int32)
    requests = first_request + np.arange(len(users), dtype=np.int64)
    return Block(requests, users, np.zeros(len(users), np.float32), np.zeros(len(users)))
