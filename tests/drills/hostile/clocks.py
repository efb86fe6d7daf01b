"""Clocks and pauses: clocks are set while a run is at work, hosts disagree about the time, a process stops.

No result depends on what time it is, and no lock on two clocks agreeing: a lease is what its reader waits. A
process that was paused for longer than its lease comes back to a folder of another's, and changes nothing.
"""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from random import Random
from typing import Any

from cascade_sim.foundation.errors import UserError
from cascade_sim.storage import lock as locks
from drills.hostile import stops
from drills.hostile.commands import Answer, Process, run
from drills.hostile.outcome import CRASH, DETECTED, HARMLESS, SILENT, WRONG, Outcome
from drills.hostile.prepared import Prepared, check_same, left_behind
from drills.hostile.steps import Steps, kill
from drills.hostile.torn import NoBeats
from worlds.stoppable_runs import contents, differences

prepare = stops.prepare
JUMPS = (-1e9, -86_400.0, -3600.0, -31.0, 0.0, 31.0, 3600.0, 86_400.0, 1e9)  # seconds; a lease is 30
AGAIN = 0.05  # of steps of writing: the clock is set before them


def case(prepared: Prepared, place: Path, rng: Random) -> Outcome:
    return rng.choices((stepping, hosts, paused), (2, 4, 4))[0](prepared, place, rng)


class SetClock:
    """The time of day as it is set now and then, for all that asks for it in this process."""

    def __init__(self, rng: Random) -> None:
        self.rng, self.off = rng, rng.choice(JUMPS)

    def step(self, what: str = "") -> None:
        if self.rng.random() < AGAIN:
            self.off = self.rng.choice(JUMPS)

    def plant(self) -> Callable[[], None]:
        """From here on it is this clock's time; what is returned ends that."""
        clock, real, real_ns = self, time.time, time.time_ns

        class Now(datetime):
            @classmethod
            def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
                return datetime.now(tz) + timedelta(seconds=clock.off)

        modules = [
            module
            for name, module in sys.modules.items()
            if name.startswith("cascade_sim.") and getattr(module, "datetime", None) is datetime
        ]
        self._tell(modules, Now)
        time.time, time.time_ns = lambda: real() + clock.off, lambda: real_ns() + int(clock.off * 1e9)

        def end() -> None:
            self._tell(modules, datetime)
            time.time, time.time_ns = real, real_ns

        return end

    @staticmethod
    def _tell(modules: list[Any], kind: type[datetime]) -> None:
        for module in modules:
            module.datetime = kind


def stepping(prepared: Prepared, place: Path, rng: Random) -> Outcome:
    """The clock is set while a run is at work; it is killed, its files are of any time, and it goes on."""
    name = rng.choice(("plain", "market"))
    out, cache = place / "out", place / "cache"
    at = rng.randrange(1, len(prepared.steps(name)) + 1)

    def clocked(stops_at: int) -> Callable[[], None]:
        clock = SetClock(Random(rng.random()))
        steps = Steps([out, cache], range(1, 1 << 40), lambda what: act(what))

        def act(what: str) -> None:
            clock.step()
            if len(steps.labels) == stops_at:
                kill(what)

        def plant() -> None:
            clock.plant()
            steps.plant()

        return plant

    what = f"run {name} with a clock that is set, killed before step {at}, then --resume"
    first = run(prepared.words(name, out), place, cache=cache, first=clocked(at))
    if first.code not in (0, -signal.SIGKILL):
        return Outcome(CRASH if first.is_crash else WRONG, what, first.last_words)
    for file in (path for path in place.rglob("*") if path.is_file()):
        when = time.time() + rng.choice(JUMPS)
        os.utime(file, (when, when))
    answer = run(prepared.words(name, out, "--resume"), place, cache=cache, first=clocked(0))
    if answer.is_crash:
        return Outcome(CRASH, what, answer.last_words)
    other = check_same(prepared, name, out, answer)
    return Outcome(SILENT if answer.code == 0 else WRONG, what, other) if other else Outcome(HARMLESS, what)


class Timeline(locks.Clock):
    """Time that passes where a reader waits; a holder's beats are done on the way, unless it is silent."""

    def __init__(self, clock: SetClock, rng: Random) -> None:
        self.now, self._clock, self._rng = 0.0, clock, rng
        self.silent_from = self.silent_to = 0.0
        self.beats = 0  # that a reader could have seen
        self._host, self._next = "", 0.0
        self._do: Callable[[], bool] | None = None

    def every(self, seconds: float, do: Callable[[], bool]) -> Callable[[], None]:
        if self._do is None:  # the holder's; a reader's own beats are of no matter here
            self._do, self._seconds, self._next = do, seconds, self.now + seconds
            self._host = socket.gethostname()
        return lambda: None

    def wait(self, seconds: float) -> None:
        until = self.now + seconds
        while self._do is not None and self._next <= until:
            self.now = self._next
            self._next += self._seconds * self._rng.uniform(0.9, 1.3)
            self._clock.step()
            if not self.silent_from <= self.now < self.silent_to:
                with host_called(self._host):
                    self.beats += self._do()
        self.now = until
        self._clock.step()


@contextmanager
def host_called(name: str) -> Iterator[None]:
    before = socket.gethostname
    socket.gethostname = lambda: name
    try:
        yield
    finally:
        socket.gethostname = before


def unseen(handle: int, how: int) -> None:
    """A lock that other hosts do not see: flock of a file system that has it for each host alone."""


def hosts(prepared: Prepared, place: Path, rng: Random) -> Outcome:
    """A host holds a folder, is silent for a while, and another wants it; their clocks are hours apart."""
    clock = SetClock(rng)
    end, seen = clock.plant(), fcntl.flock
    fcntl.flock = unseen
    try:
        return _two_hosts(place, clock, rng)
    finally:
        fcntl.flock = seen
        end()


def _two_hosts(place: Path, clock: SetClock, rng: Random) -> Outcome:
    line = Timeline(clock, rng)
    with host_called("node1"):
        holder = locks.Lock.take(place, clock=line)
    line.silent_from = rng.uniform(20.0, 60.0)
    line.silent_to = line.silent_from + rng.choice((0.0, 20.0, 35.0, 50.0, 120.0, 1e9))
    line.wait(line.silent_from + rng.uniform(-20.0, 20.0))
    clock.off = rng.choice(JUMPS)  # the other host's clock
    asked, line.beats, taker = line.now, 0, None
    with host_called("node2"), suppress(UserError), warnings.catch_warnings(action="ignore"):
        taker = locks.Lock.take(place, clock=line)
    is_alive = line.beats > 0
    line.wait(200.0)  # the holder comes back
    silent = f"silent from {line.silent_from:.0f} to {line.silent_to:.0f} s, wanted at {asked:.0f} s"
    what = f"two hosts whose clocks are {clock.off:g} s apart at last, the holder {silent}"
    held = [name for name, lock in (("node1", holder), ("node2", taker)) if lock is not None and lock.is_held]
    if held != (["node1"] if is_alive else ["node2"]):
        return Outcome(WRONG, what, f"held by {' and '.join(held) or 'none'}; beats seen: {is_alive}")
    for lock in (holder, taker):
        if lock is not None:
            lock.release()
    if (place / locks.LOCK).exists():
        return Outcome(WRONG, what, "a lock is left behind")
    return Outcome(HARMLESS if is_alive else DETECTED, what)


def paused(prepared: Prepared, place: Path, rng: Random) -> Outcome:
    """A run is stopped (SIGSTOP) before a step, for longer than its lease; another wants its folder."""
    before = rng.choice(("", "", "stopped", "plain"))
    first = "market" if before == "stopped" else rng.choice(("plain", "market"))
    second = first if rng.random() < 0.6 else "plain" if first == "market" else "market"
    out, cache = stops.lay_down(prepared, place, before), place / "cache"
    sees = (
        rng.random() < 0.25
    )  # the other one sees its flock: the same host, or a file system that shares them
    at = rng.randrange(1, len(prepared.steps(first)) + 1)
    steps = Steps([out], range(at, 1 << 40), lambda what: pause())
    has_paused = []

    def pause() -> None:
        # A removal, or a rename into `previous`, that is under way is not kept from a paused process.
        what, _, path = steps.labels[-1].partition(" ")
        if not has_paused and what not in ("remove", "rmdir") and "previous" not in path:
            has_paused.append(path)
            os.kill(os.getpid(), signal.SIGSTOP)

    def plant() -> None:
        locks.CLOCK = NoBeats()
        steps.plant()

    def elsewhere() -> None:
        locks.CLOCK = NoWait()
        if not sees:
            socket.gethostname = lambda: "node2"
            fcntl.flock = unseen

    old = Process(prepared.words(first, out), place, cache=cache, first=plant)
    os.waitid(os.P_PID, old.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    how = ("--resume",) if first == second and rng.random() < 0.5 else ()
    new = run(prepared.words(second, out, *how), place, cache=cache, first=elsewhere)
    os.kill(old.pid, signal.SIGCONT)
    answers = [(first, old.answer()), (second, new)]
    where = "the same host" if sees else "another host"
    what = (
        f"run {first}{' over ' + before if before else ''} paused before step {at}, run {second} on {where}"
    )
    return _judged(prepared, out, what, answers)


class NoWait(NoBeats):
    """A lease is over at once: the one that holds the folder stands still meanwhile."""

    def wait(self, seconds: float) -> None:
        pass


def _judged(prepared: Prepared, out: Path, what: str, answers: list[tuple[str, Answer]]) -> Outcome:
    """One of them, or one after the other, came to its end; the one that did not says why."""
    said = "\n".join(answer.last_words for _, answer in answers)
    if any(answer.is_crash for _, answer in answers):
        return Outcome(CRASH, what, said)
    for _, answer in answers:
        is_told = answer.is_refusal and answer.names("is in use: ", "took it over", "its lock is gone")
        if answer.code != 0 and not is_told:
            return Outcome(WRONG, what, f"exit code {answer.code}; {said}")
    won = [name for name, answer in answers if answer.code == 0]
    found = contents(out)
    if not any(differences(found, prepared.whole[name]) == [] for name in won):
        other = differences(found, prepared.whole[won[-1]])[:5] if won else ["no run came to its end"]
        return Outcome(SILENT, what, f"{', '.join(other)}\n{said}")
    left = [entry for entry in left_behind(out.parent) if not entry.startswith("cache")]
    if left:
        return Outcome(WRONG, what, f"left behind: {', '.join(left)}")
    return Outcome(DETECTED if len(won) == 1 else HARMLESS, what)
