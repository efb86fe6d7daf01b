"""The environment that a scenario describes: the only place that asks which kind it is."""

from __future__ import annotations

from pathlib import Path

from cascade_sim.engines import Engine
from cascade_sim.environments.base import Environment
from cascade_sim.environments.fitted import Fitted
from cascade_sim.environments.replayed import Replayed
from cascade_sim.environments.synthetic import Synthetic
from cascade_sim.logs.replay.fitted import open_click_model
from cascade_sim.logs.store.store import open_store
from cascade_sim.scenario.schema import Scenario, World


def environment_of(
    scenario: Scenario, seed: int, workers: int = 1, home: Path = Path("."), engine: Engine | None = None
) -> Environment:
    """The scenario's world, made concrete. `home`: where logs are looked for, before the working folder."""
    logged = scenario.world.replay
    if logged is None:
        return Synthetic(scenario, seed, workers, engine)
    if logged.fitted is None:
        return Replayed(scenario, seed, logged, workers, home)
    return Fitted(scenario, seed, logged, logged.fitted, workers, home)


def check_log(world: World) -> None:
    """UserError where the log of a world, or the click model fitted to it, holds what none can."""
    logged = world.replay
    if logged is None:
        return
    assert logged.digest is not None  # it was found when the scenario was read
    store = open_store(logged.log)
    if logged.fitted is not None:
        open_click_model(Path(logged.fitted.click_model), store, logged.digest)
