"""A market whose models learn while it runs, small enough for tests, and ways to look into its trainer."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from worlds.timed_market import WORLD, Finished, timed_scenario

FEATURES = ["user", "context", "quality", "tier", "G1", "G4"]
MODELS = {
    "rank": {"kind": "coaction", "features": [*FEATURES, "mismatch_pair"], "hidden": 8, "dims": 4,
             "batch": 128},
    "pre": {"features": FEATURES[:-1], "dims": 4, "batch": 128},
    "pupil": {"features": FEATURES, "dims": 4, "recipe": "distill", "teacher": "rank",
              "sample": {"set": "pre_ranking", "per_request": 10}},
    "order": {"features": FEATURES, "dims": 4, "recipe": "ltr", "teacher": "rank",
              "sample": {"set": "competitive", "per_request": 16}},
}  # fmt: skip
ARMS = {
    "now": {},
    "exploring": {"exploration": 0.3},
    "taught": {"pre_ranking": {"model": "pupil"}},
    "ordered": {"pre_ranking": {"model": "order"}},
    "twice": {"pre_ranking": {"model": "rank", "bid": "opt"}},
}
# Delayed clicks, so that some are still under way at every deployment; three of them in the half hour.
LEARNING = {
    "charging": {"click_delay": 60.0},
    "training": {"interval": 500.0, "window": 800.0, "panel": 96, "lists": 200},
}


def learning_scenario(market: dict[str, Any] | None = None, **training: Any) -> Any:
    """LEARNING with these keys of the market and of its training."""
    merged = {**LEARNING, **(market or {})}
    merged["training"] = {**LEARNING["training"], **training}
    cascade = {**WORLD["cascade"], "pre_ranking": {"model": "pre", "size": 20}, "ranking": {"model": "rank"}}
    sections = {"cascade": cascade, "models": MODELS, "arms": ARMS, "phases": {"shadow": 64}}
    scenario = timed_scenario(merged, **sections)
    arms = {name: scenario.arms[name] for name in ARMS}  # those of WORLD have other seats
    return scenario.model_copy(update={"arms": arms})


def learning_sim(scenario: Any, seed: int = 1) -> Any:
    """The simulation with models that know nothing yet: what is tested is how they change."""
    from cascade_sim.study.simulation import Simulation
    from cascade_sim.training.modules import build_module, make_scorer

    sim = Simulation(scenario, seed)
    for i, (name, spec) in enumerate(scenario.models.items()):
        view = sim.view(spec.features)
        sim.scorers[name] = make_scorer(name, spec.trained_by, view, build_module(name, spec, view, i))
    return sim


@dataclass
class Seen:
    """What the trainer fitted, in order: (recipe, data, plan, weights before)."""

    calls: list[tuple[str, Any, Any, dict[str, np.ndarray]]] = field(default_factory=list)
    arms: list[Any] = field(default_factory=list)  # the cascade of every deployment

    def of(self, recipe: str) -> list[tuple[str, Any, Any, dict[str, np.ndarray]]]:
        return [call for call in self.calls if call[0] == recipe]


def weights(module: Any) -> dict[str, np.ndarray]:
    return {name: value.detach().numpy().copy() for name, value in module.state_dict().items()}


def equal(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


def name_of(recipe: Any) -> str:
    """Its name among the built-in recipes."""
    from cascade_sim.models.recipes import RECIPES

    return next(name for name, known in RECIPES.items() if known is recipe)


def watch(monkeypatch: Any) -> Seen:
    """Write down every fit and every deployment from now on."""
    from cascade_sim.market.trainer import Trainer
    from cascade_sim.training import fit as recipes

    seen, train, learn = Seen(), recipes.train, Trainer.train

    def watched(module, view, data, recipe, plan, *options):
        seen.calls.append((name_of(recipe), data, plan, weights(module)))
        return train(module, view, data, recipe, plan, *options)

    def deployed(self, now):
        if not seen.arms:
            seen.arms.append(_frozen(self.arm))
        learn(self, now)
        seen.arms.append(_frozen(self.arm))

    monkeypatch.setattr(recipes, "train", watched)
    monkeypatch.setattr(Trainer, "train", deployed)
    return seen


def _frozen(arm: Any) -> Any:
    """The arm as it is, whatever its modules turn into."""
    from copy import deepcopy

    return deepcopy(arm)


def live_and_learn(sim: Any, arm: str = "now", workers: int = 1) -> Finished:
    """Let an arm's market run and learn."""
    from cascade_sim.market.run import MarketRun
    from cascade_sim.market.study import arm_market, market_columns
    from cascade_sim.scenario.schema import resolved_arms

    settled: list[Any] = []
    charges: list[dict[str, np.ndarray]] = []
    spec = resolved_arms(sim.scenario)[arm]
    run = MarketRun(
        sim, sim.arm(arm, spec), arm_market(sim, spec), workers=workers, on_block=settled.append,
        on_charges=charges.append,
    )  # fmt: skip
    tally = run.run()
    parts = [market_columns(sim, one, run.server.routes) for one in settled]
    log = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    late = {name: np.concatenate([part[name] for part in charges]) for name in charges[0]}
    metrics = {**tally.metrics(), "learning": run.trainer.metrics(run.now)}
    return Finished(sim, run, log, settled, metrics, late)


def run_arm(folder: Path, workers: int = 1, arm: str = "taught") -> Any:
    """The figures of an arm's market, from a checkpoint in the folder if there is one."""
    from cascade_sim.context import RunContext
    from cascade_sim.market.study import run_market

    scenario = learning_scenario({"checkpoint": 300.0, "exploration": 0.1})
    return run_market(learning_sim(scenario), arm, RunContext(folder, workers=workers))
