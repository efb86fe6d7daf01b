"""Cases in forked processes: the next ones follow when one dies, and what it died of is its outcome."""

from __future__ import annotations

import json
import os
import resource
import select
import shutil
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TextIO

from drills.hostile.outcome import CRASH, Outcome, Result, rng_of
from drills.hostile.prepared import Prepared
from places import HANG

Case = tuple[str, int]  # kind and index
Kinds = dict[str, Callable[..., Outcome]]


def run_cases(
    prepared: Prepared, kinds: Kinds, cases: Sequence[Case], seed: int, jobs: int = 1
) -> Iterator[Result]:
    """The results, as they come. Cases are dealt out in turn; a case does not know which process has it."""
    left = {number: list(cases[number::jobs]) for number in range(jobs)}
    running: dict[int, _Worker] = {}
    try:
        while left or running:
            for number in [n for n in left if n not in running]:
                todo = left.pop(number)
                if todo:
                    running[number] = _Worker(prepared, kinds, todo, seed, number)
            if not running:
                return
            ready, _, _ = select.select([worker.pipe for worker in running.values()], [], [], HANG)
            for number, worker in list(running.items()):
                if ready and worker.pipe not in ready:
                    continue
                if not ready:
                    os.kill(worker.pid, signal.SIGKILL)  # nobody has said anything for minutes
                yield from worker.read(is_hung=not ready)
                if worker.is_over:
                    del running[number]
                    if worker.todo:
                        left[number] = worker.todo
    finally:
        for worker in running.values():
            worker.end()


class _Worker:
    """A forked process that goes through `todo`; what is left of it when it ends has not been tried."""

    def __init__(self, prepared: Prepared, kinds: Kinds, todo: list[Case], seed: int, number: int) -> None:
        self.todo, self.is_over, self._text = list(todo), False, ""
        self.pipe, write = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid:
            os.close(write)
            return
        try:
            os.close(self.pipe)
            # stdin and the terminal are not a case's: a child's Ctrl-C must not reach the drill.
            os.setsid()
            with os.fdopen(write, "w", buffering=1) as pipe:
                _go_through(prepared, kinds, todo, seed, number, pipe)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)

    def read(self, *, is_hung: bool) -> Iterator[Result]:
        data = b"" if is_hung else os.read(self.pipe, 1 << 16)
        self._text += data.decode()
        *lines, self._text = self._text.split("\n")
        for line in lines:
            self.todo.pop(0)
            found = json.loads(line)
            yield Result(found["kind"], found["index"], Outcome(**found["outcome"]), found["seconds"])
        if not data:
            self.is_over = True
            os.close(self.pipe)
            _, status = os.waitpid(self.pid, 0)
            if self.todo:
                kind, index = self.todo.pop(0)
                code = os.waitstatus_to_exitcode(status)
                why = f"no answer in {HANG:.0f} s" if is_hung else f"the process ended with {code}"
                yield Result(kind, index, Outcome(CRASH, why), 0.0)

    def end(self) -> None:
        """Stop it, if it has not ended by itself."""
        if self.is_over:
            return
        os.killpg(self.pid, signal.SIGKILL)  # with the commands it has started
        os.close(self.pipe)
        os.waitpid(self.pid, 0)


def _go_through(
    prepared: Prepared, kinds: Kinds, todo: list[Case], seed: int, number: int, pipe: TextIO
) -> None:
    warnings.simplefilter("always")  # a warning is an answer each time, not only the first
    for kind, index in todo:
        os.chdir(prepared.folder)  # the case before may have left its own folder as the working one
        # Of this process: a command of one that was stopped may still write into the folder of its case.
        place = prepared.place(f"case-{number}-{os.getpid()}")
        before = _processor_seconds()
        outcome = one_case(prepared, kinds, kind, index, seed, place)
        seconds = _processor_seconds() - before
        line = {"kind": kind, "index": index, "outcome": asdict(outcome), "seconds": seconds}
        print(json.dumps(line), file=pipe)
        shutil.rmtree(place, ignore_errors=True)


def one_case(prepared: Prepared, kinds: Kinds, kind: str, index: int, seed: int, place: Path) -> Outcome:
    try:
        return kinds[kind](prepared, place, rng_of(seed, kind, index))
    except Exception:
        told = traceback.format_exc()
        return Outcome(
            CRASH, "the drill itself failed", told if len(told) < 4000 else f"{told[:2000]} … {told[-2000:]}"
        )


def _processor_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)
