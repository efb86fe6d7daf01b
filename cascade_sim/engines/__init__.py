"""Where work is done: in processes and threads of this machine, or on a cluster.

An engine does two kinds of work. `jobs` do not know of each other (worlds of a study, cells of a sweep);
their results come by name, in whatever order they are finished. `chunks` are the requests of one world, cut
where the scenario says; their results come in order. Results depend neither on the engine nor on who dies.

    with open_engine("ray", address="10.0.0.1:6379") as engine:
        engine.jobs([Job("a", work, (1,)), Job("b", work, (2,))], workers=2)

A new engine is a file with a class like `Local`, and a line in ENGINES.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from cascade_sim.foundation.errors import UserError, unknown_name
from cascade_sim.foundation.workers import Job

ENGINES = {  # name -> the class, imported when it is asked for
    "local": "cascade_sim.engines.local:Local",
    "ray": "cascade_sim.engines.on_ray:OnRay",
}
LOCAL = "local"


@dataclass(frozen=True)
class Chunk:
    """Some of one world's requests: as they are here, and the words from which they are made elsewhere."""

    content: Any
    spec: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Service:
    """What is done with chunks. `here` serves the content of one in this process.

    `elsewhere` is a job whose result, in another process, serves a chunk by the words it is made from. None:
    it can be served here only. `per_task`: how many of them are worth sending somewhere.
    """

    here: Callable[[Any], Any]
    elsewhere: Job | None = None
    per_task: int = 1


class Engine(AbstractContextManager["Engine"], Protocol):
    """Does the work between `with` and its end."""

    is_elsewhere: bool  # whether chunks may be served by other processes than this one
    is_far: bool  # whether jobs are done by other machines, with their memory

    def place(self, folder: Path) -> Path:
        """A folder of results as it is to be called here and by those who do the work."""

    def require_folder(self, *folders: Path) -> None:
        """UserError if a machine does not see these folders, or would not give the same bytes there."""

    def jobs(
        self,
        jobs: Sequence[Job],
        workers: int,
        *,
        on_done: Callable[[str], None] = lambda name: None,
        go_on: str = "",
    ) -> dict[str, Any]:
        """What each job returned, by name, in the order of `jobs`; here at most `workers` at a time.

        `on_done` hears the name of each finished job. The first exception ends all with its own words. A job
        whose workers died three times is named when the others are done; `go_on` ends that message.
        """

    def chunks(self, service: Service, chunks: Iterable[Chunk], workers: int) -> Iterator[tuple[Chunk, Any]]:
        """Each chunk and what came of it, in order."""


def open_engine(name: str = LOCAL, address: str | None = None, files: Iterable[Path] = ()) -> Engine:
    """The engine of this name; UserError for an unknown one, or an address that it has no use for.

    `files`: the user's own, below the working folder, that the work needs wherever it is done.
    """
    if name not in ENGINES:
        raise UserError(f"--engine: {unknown_name('engine', name, ENGINES)}")
    if name == LOCAL and address is not None:
        raise UserError(f"--address {address}: work is done on this machine unless --engine ray is given")
    module, _, cls = ENGINES[name].partition(":")
    engine: Engine = getattr(import_module(module), cls)(address, tuple(files))
    return engine
