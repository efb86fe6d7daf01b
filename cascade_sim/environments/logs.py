"""What a replayed log and a world fitted to one have in common: the log, and its predictions as scorers."""

from __future__ import annotations

from pathlib import Path

from cascade_sim.cascade.logged import LoggedScorer
from cascade_sim.cascade.scorers import Scorer
from cascade_sim.logs.replay.replay import Replay
from cascade_sim.logs.store.store import LogStore, open_store
from cascade_sim.scenario.log_support import find_log
from cascade_sim.scenario.schema import LOGGED, LOGGED_PRE, LOGGED_SCORE
from cascade_sim.scenario.sections import ReplayedLog


def store_of(logged: ReplayedLog, home: Path) -> LogStore:
    """The log that a section names: beside the scenario, else from the working folder."""
    return open_store(find_log(logged.log, home) or logged.log)


def logged_scorers(replay: Replay) -> dict[str, Scorer]:
    """The predictions that were logged, by the names that a scenario has for them."""
    store, found = replay.store, dict[str, Scorer]()
    columns = {LOGGED: "pctr", LOGGED_PRE: "pre_score"}
    columns |= {f"{LOGGED_SCORE}{name}": f"score.{name}" for name in store.about.scores}
    for name, column in columns.items():
        if store.has(column):
            is_order = name == LOGGED_PRE and store.about.pre_score == "score"
            found[name] = LoggedScorer(name, replay, column, "none" if is_order else "sigmoid")
    return found
