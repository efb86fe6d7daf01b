"""What a run works with: its folder, its workers and device, the engine, and who is told how far it is.

A context is made once, where a command or a function of `cascade_sim.api` is called, and handed down as it
is. It says where and by whom the work is done; what is simulated is said by the scenario alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from cascade_sim.engines import LOCAL, Engine, open_engine
from cascade_sim.foundation.progress import Progress
from cascade_sim.scenario.plugins import refuse_far_logs, refuse_registered, travelling_files
from cascade_sim.scenario.schema import Scenario

HERE = Path(".")


@dataclass(frozen=True)
class RunContext:
    """Where and by whom a run is done. By default on this machine, with one worker, in silence.

    `engine` and `progress` do nothing before they are entered, which is up to the caller.

        run_study(scenario, RunContext(Path("runs/mine"), workers=4))
    """

    out: Path  # where logs, models and results go
    home: Path = HERE  # where files that a scenario names are looked for, after the working folder
    workers: int = 1  # threads of one world, processes of several
    device: str = "auto"  # where models are trained
    engine: Engine = field(default_factory=open_engine)
    progress: Progress = field(default_factory=lambda: Progress(quiet=True))


def run_context(
    out: Path,
    scenarios: Iterable[Scenario],
    *,
    workers: int,
    device: str,
    quiet: bool,
    engine: str = LOCAL,
    address: str | None = None,
) -> RunContext:
    """The context that a user's options ask for; UserError if these scenarios cannot be run by the engine."""
    files: dict[Path, None] = {}
    if engine != LOCAL:
        for scenario in scenarios:
            refuse_registered(scenario)
            refuse_far_logs(scenario)
            files |= dict.fromkeys(travelling_files(scenario, HERE))
    where = open_engine(engine, address, files)
    return RunContext(out, workers=workers, device=device, engine=where, progress=Progress(quiet))


@contextmanager
def scratch_context(**chosen: Any) -> Iterator[RunContext]:
    """A context whose folder is gone at the end, for work of which figures alone are kept."""
    with TemporaryDirectory(prefix="cascade_sim-") as folder:
        yield RunContext(Path(folder), **chosen)
