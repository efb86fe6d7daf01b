"""One thread that does pieces of work: the most urgent first, and of one asker the newest question alone.

A job is a generator. Each step is a piece of work of some milliseconds, and between two steps a job more
urgent goes first. What a step yields, None apart, is handed to the asker at once; what the generator returns
is the answer. A newer job with the same key makes the older one stale: it is abandoned where it is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Hashable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from cascade_sim.foundation.progress import Progress, Stage

Job = Generator[Any, None, Any]
MAX_WAITING = 64

# Urgencies, the least first.
NOW, SOON, LATER, IDLE = range(4)


class Superseded(Exception):  # noqa: N818 (nothing went wrong)
    """A newer question of the same asker took the place of this one."""


class Busy(Exception):  # noqa: N818
    """Too many questions wait."""


@dataclass
class _Task:
    job: Job
    urgency: int
    number: int
    key: Hashable | None
    tell: Callable[[Any], None] | None
    answer: Future[Any] = field(default_factory=Future)
    is_stale: bool = False

    @property
    def place(self) -> tuple[int, int]:
        """Among equally urgent ones the newest goes first: it is what is on the screen."""
        return self.urgency, -self.number


class Worker:
    """Does the jobs in a thread of its own, until it is closed."""

    def __init__(self, most_waiting: int = MAX_WAITING) -> None:
        self._most_waiting = most_waiting
        self._tasks: list[_Task] = []
        self._at: _Task | None = None
        self._count = 0
        self._is_closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="live", daemon=True)
        self._thread.start()

    def submit(
        self,
        job: Job,
        urgency: int,
        key: Hashable | None = None,
        tell: Callable[[Any], None] | None = None,
    ) -> Future[Any]:
        """The answer to come; raises Superseded once a newer job has this key. Busy if too many wait."""
        with self._changed:
            for task in self._tasks:
                task.is_stale |= key is not None and task.key == key
            if sum(not task.is_stale for task in self._tasks) >= self._most_waiting:
                raise Busy
            task = _Task(job, urgency, self._count, key, tell)
            self._count += 1
            self._tasks.append(task)
            self._changed.notify()
        return task.answer

    def close(self) -> None:
        """No further step is done. Returns when the present one has ended."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join()

    def is_wanted(self) -> bool:
        """Whether any request waits for the job that is being done: a long step may ask, and give up."""
        task = self._at
        return task is not None and not (self._is_closed or task.is_stale or task.answer.cancelled())

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._tasks and not self._is_closed:
                    self._changed.wait()
                if self._is_closed:
                    for task in self._tasks:
                        task.answer.cancel()
                    return
                task = next((t for t in self._tasks if t.is_stale), None) or min(
                    self._tasks, key=lambda t: t.place
                )
            self._at = task
            if not self._step(task):
                with self._changed:
                    self._tasks.remove(task)

    @staticmethod
    def _step(task: _Task) -> bool:
        """Do a piece of a task; False when there is nothing left of it."""
        if task.is_stale or task.answer.cancelled():
            task.job.close()
            if not task.answer.cancelled():
                task.answer.set_exception(Superseded())
            return False
        try:
            told = next(task.job)
        except StopIteration as end:
            if not task.answer.cancelled():
                task.answer.set_result(end.value)
            return False
        except BaseException as error:  # the caller is told; the thread goes on
            if not task.answer.cancelled():
                task.answer.set_exception(error)
            return False
        if told is not None and task.tell is not None:
            task.tell(told)
        return True


class CancellableProgress(Progress):
    """Of work that does not come in pieces: it is given up as Superseded where it would say how far it is."""

    def __init__(self, is_wanted: Callable[[], bool]) -> None:
        super().__init__(quiet=True)
        self._is_wanted = is_wanted

    @contextmanager
    def stage(self, name: str, total: int | None = None, unit: str = "requests") -> Iterator[Stage]:
        """A stage that ends early if no request waits for it."""
        yield _WantedStage(name, total, unit, self._clock, self._is_wanted)


class _WantedStage(Stage):
    def __init__(
        self,
        name: str,
        total: int | None,
        unit: str,
        clock: Callable[[], float],
        is_wanted: Callable[[], bool],
    ) -> None:
        super().__init__(name, total, unit, clock)
        self._is_wanted = is_wanted

    def advance(self, n: int = 1) -> None:
        if not self._is_wanted():
            raise Superseded
        super().advance(n)
