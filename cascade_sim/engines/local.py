"""This machine: a process for each job, threads for the chunks of one world (the kernels release the GIL)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any

from cascade_sim.engines import Chunk, Service
from cascade_sim.foundation.workers import Job, run_jobs, serving_threads

UNDER_WAY = 2  # chunks for each thread


class Local:
    """The default. Needs nothing, and leaves nothing behind."""

    is_elsewhere = False
    is_far = False

    def __init__(self, address: str | None = None, files: Sequence[Path] = ()) -> None:
        pass

    def __enter__(self) -> Local:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def place(self, folder: Path) -> Path:
        return folder

    def require_folder(self, *folders: Path) -> None:
        pass

    def jobs(
        self,
        jobs: Sequence[Job],
        workers: int,
        *,
        on_done: Callable[[str], None] = lambda name: None,
        go_on: str = "",
    ) -> dict[str, Any]:
        return run_jobs(jobs, workers, on_done=on_done, go_on=go_on)

    def chunks(self, service: Service, chunks: Iterable[Chunk], workers: int) -> Iterator[tuple[Chunk, Any]]:
        """At most two under way per thread: enough for the threads, few enough for the memory."""
        if workers == 1:  # handing them to another thread and back costs more than it saves
            for chunk in chunks:
                yield chunk, service.here(chunk.content)
            return
        with serving_threads(workers) as pool:
            under_way: deque[tuple[Chunk, Future[Any]]] = deque()
            for chunk in chunks:
                under_way.append((chunk, pool.submit(service.here, chunk.content)))
                if len(under_way) >= UNDER_WAY * workers:
                    oldest, result = under_way.popleft()
                    yield oldest, result.result()
            for oldest, result in under_way:
                yield oldest, result.result()
