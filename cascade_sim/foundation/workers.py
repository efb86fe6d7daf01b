"""Jobs in processes of their own, of which any may die without taking the others along.

A worker that is killed (by the system when memory runs out, by hand) is replaced and its job is tried again;
a job whose workers died three times is set aside until the others are done, and then named. An exception
inside a job ends all of them at once with its own message. Workers never outlive the process that started
them, however it ends.
"""

import os
import signal
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import get_context, parent_process, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from types import ModuleType
from typing import Any

from cascade_sim.foundation.errors import ScenarioError, UserError, lacks_memory
from cascade_sim.foundation.loading import keep_memory
from cascade_sim.foundation.signals import STOPPED, Terminated, stoppable

TRIES = 3
PATIENCE = 5.0  # seconds for a worker to put its files in order when it is told to stop


def usable_cores() -> int:
    """Cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def serving_threads(workers: int) -> ThreadPoolExecutor:
    """Threads that serve requests, each with one thread of the numerical libraries, as the main one has.

    torch's setting holds for the thread that makes it: a product of a few rows, shared between cores in a
    thread of its own, differs in its last digits from the same one in the main thread.
    """
    return ThreadPoolExecutor(workers, initializer=_alone)


def _alone() -> None:
    torch = sys.modules.get("torch")  # who has not loaded it does not compute with it
    if torch is not None:
        torch.set_num_threads(1)


@dataclass(frozen=True)
class Job:
    """A function at the top of a module, and its arguments; `name` is what messages call it."""

    name: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)


class JobError(RuntimeError):
    """A defect inside a job; a note carries the traceback of the process it happened in."""


Answer = tuple[str, Any]  # how a job ended (done, refused, problems, starved, failed), and what came of it


def answer_of(function: Callable[..., Any], arguments: Sequence[Any], options: Mapping[str, Any]) -> Answer:
    """Do a job and say how it ended. Errors become text: those of user code need not survive the way."""
    try:
        return "done", function(*arguments, **options)
    except ScenarioError as error:
        return "problems", error.problems
    except UserError as error:
        return "refused", str(error)
    except Terminated:
        raise
    except BaseException as error:
        if lacks_memory(error):
            return "starved", str(error) or type(error).__name__
        return "failed", (f"{type(error).__name__}: {error}", traceback.format_exc())


def unpacked(name: str, answer: Answer) -> Any:
    """What a job returned; its error, in its own words, if it ended with one."""
    kind, content = answer
    if kind == "done":
        return content
    if kind == "refused":
        raise UserError(content)
    if kind == "problems":
        raise ScenarioError(content)
    if kind == "starved":
        raise MemoryError(f"{name}: {content}")
    message, trace = content
    error = JobError(f"{name}: {message}")
    error.add_note(trace)
    raise error


def require_names(jobs: Sequence[Job], workers: int) -> None:
    """ValueError where keys of jobs are not unique, or there is no process for them."""
    if len({job.name for job in jobs}) < len(jobs):
        raise ValueError("two jobs have the same name")
    if workers < 1:
        raise ValueError(f"{workers} workers; there must be at least 1")


def run_jobs(
    jobs: Sequence[Job],
    workers: int,
    *,
    on_done: Callable[[str], None] = lambda name: None,
    go_on: str = "",
) -> dict[str, Any]:
    """What each job returned, by name, in the order of `jobs`; at most `workers` processes at a time.

    `on_done` hears the name of a job when it is finished. `go_on` ends the message about jobs whose workers
    died three times: how to go on.
    """
    require_names(jobs, workers)
    pool = _Pool(jobs)
    try:
        pool.run(min(workers, len(jobs)), on_done)
    finally:
        pool.stop()
    if pool.given_up:
        raise UserError(failure_message(pool.given_up, len(pool.results), go_on))
    return {job.name: pool.results[job.name] for job in jobs}


@dataclass
class _Worker:
    """A process, our end of its pipe, and the job it is at."""

    process: SpawnProcess
    pipe: Connection
    job: Job


class _Pool:
    def __init__(self, jobs: Sequence[Job]) -> None:
        self.waiting = deque(jobs)
        self.busy: dict[Connection, _Worker] = {}
        self.results: dict[str, Any] = {}
        self.deaths: dict[str, int] = {}
        self.given_up: dict[str, str] = {}  # job -> how its last worker died

    def run(self, workers: int, on_done: Callable[[str], None]) -> None:
        while self.waiting or self.busy:
            while self.waiting and len(self.busy) < workers:
                self._start(self.waiting.popleft())
            for pipe in wait(list(self.busy)):
                assert isinstance(pipe, Connection)
                worker = self.busy[pipe]
                try:
                    answer = pipe.recv()
                except (EOFError, OSError):  # OSError: it died with half an answer in the pipe
                    self._reap(worker)
                    continue
                self._take(worker, answer)
                on_done(worker.job.name)
                self._next(worker)

    def _start(self, job: Job) -> None:
        # Fresh processes: a fork would copy the state of numerical libraries and their threads.
        context = get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_work, args=(theirs,), daemon=True)
        with _no_interrupts(), _no_main():  # Ctrl-C reaches all processes of a terminal; only we act on it
            process.start()
        theirs.close()  # so that its death shows as the end of the pipe
        worker = _Worker(process, ours, job)
        self.busy[ours] = worker
        self._send(worker)

    def _next(self, worker: _Worker) -> None:
        """The worker goes on with the next job, its modules loaded; without one it ends."""
        if not self.waiting:
            del self.busy[worker.pipe]
            worker.pipe.close()
            worker.process.join()
            return
        worker.job = self.waiting.popleft()
        self._send(worker)

    def _send(self, worker: _Worker) -> None:
        job = worker.job
        with suppress(ConnectionError):  # it has died already: shows when we listen
            worker.pipe.send((job.function, job.arguments, job.options))

    def _take(self, worker: _Worker, answer: "Answer") -> None:
        self.results[worker.job.name] = unpacked(worker.job.name, answer)

    def _reap(self, worker: _Worker) -> None:
        """Take off a worker that died. Its job is the next to be tried again, TRIES times in all."""
        del self.busy[worker.pipe]
        worker.pipe.close()
        worker.process.join()
        name = worker.job.name
        self.deaths[name] = self.deaths.get(name, 0) + 1
        if self.deaths[name] < TRIES:
            self.waiting.appendleft(worker.job)
        else:
            self.given_up[name] = _cause(worker.process.exitcode)

    def stop(self) -> None:
        """End what is still at work; returns when no process is left."""
        processes = [worker.process for worker in self.busy.values()]
        for process in processes:
            process.terminate()
        for process in processes:
            process.join(PATIENCE)
            if process.is_alive():
                process.kill()
                process.join()
        for pipe in self.busy:
            pipe.close()
        self.busy.clear()


@contextmanager
def _no_main() -> Iterator[None]:
    """A process that is started here does not run the script again that called us.

    It would import it as its own main module, and a script without `if __name__ == "__main__"` would repeat
    all its work there, only to fail at this very place. Jobs are functions of modules: they do not need it.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


@contextmanager
def _no_interrupts() -> Iterator[None]:
    """SIGINT waits until the end of the block; a process or thread started inside never gets one."""
    resource_tracker.ensure_running()  # started with the first process, it would lift the block
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _work(pipe: Connection) -> None:
    """What a worker process does: take a job and answer, again and again, until the pipe ends."""
    keep_memory()
    threading.Thread(target=_die_with_parent, daemon=True).start()
    try:
        with stoppable():  # told to stop: unwind, so that locks are released and half-written files dropped
            while _job(pipe):
                pass
    except Terminated:
        sys.exit(STOPPED)


def _job(pipe: Connection) -> bool:
    """Take a job and answer; False when there is none any more."""
    try:
        function, arguments, options = pipe.recv()
    except EOFError:
        return False
    answer = answer_of(function, arguments, options)
    try:
        pipe.send(answer)
    except OSError:  # the parent is gone
        raise
    except Exception as error:  # it is pickled before anything is sent, so the pipe is still whole
        pipe.send(("failed", (f"its answer cannot be sent: {error}", traceback.format_exc())))
    return True


def _die_with_parent() -> None:
    """A worker whose parent was killed would go on writing into a folder that a new run wants."""
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGKILL)


def _cause(code: int | None) -> str:
    if code is not None and code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        return f"killed by {name}" + (", perhaps for want of memory" if -code == signal.SIGKILL else "")
    return f"ended with exit code {code}"


def failure_message(given_up: Mapping[str, str], finished: int, go_on: str) -> str:
    """The message about jobs whose workers died three times, by how the last one died."""
    dead = "; ".join(f"{name} died three times: {cause}" for name, cause in given_up.items())
    others = "no other is finished" if not finished else f"the other {finished} are finished and kept"
    if finished == 1:
        others = "the other one is finished and kept"
    return f"{dead}; {others}" + (f"; {go_on}" if go_on else "")
