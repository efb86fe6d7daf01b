"""Kills and signals: a command is stopped before a step of writing, or at a call; then it is to go on.

After a kill (no farewell) and after a signal (SIGINT as from Ctrl-C, SIGTERM as from Slurm and Kubernetes)
the run goes on with --resume to the bytes of one that was not stopped, or says why it cannot. A signal ends a
command with the exit code that shells expect, in words, and without temporary files.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from drills.hostile.commands import Answer, run
from drills.hostile.outcome import CRASH, DETECTED, HARMLESS, SILENT, WRONG, Outcome
from drills.hostile.prepared import Prepared, check_same, left_behind
from drills.hostile.steps import Steps, kill
from worlds.stoppable_runs import contents, differences

# What is stopped: a scenario, what lies in the folder before, and more words. Resumed with --resume, or begun
# again where another run was to be replaced.
START = (
    ("plain", "", ()),
    ("market", "", ()),
    ("market", "stopped", ("--resume",)),
    ("market", "plain", ()),  # replaces another run
    ("plain", "plain", ()),  # replaces the same run
)
CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}
MAX_CALLS = {"plain": 250_000, "market": 400_000}  # about as many calls as a run makes


def prepare(prepared: Prepared) -> None:
    for name in ("plain", "market"):
        prepared.finished(name)
        n = len(prepared.steps(name))
    prepared.stopped("market", int(0.8 * n))


def lay_down(prepared: Prepared, place: Path, before: str) -> Path:
    """The run folder as it is before the command."""
    out = place / "out"
    if before == "stopped":
        shutil.copytree(prepared.stopped("market", int(0.8 * len(prepared.steps("market")))), out)
    elif before:
        shutil.copytree(prepared.finished(before), out)
    return out


def killed(prepared: Prepared, place: Path, rng: Random) -> Outcome:
    """One to three kills in a row, then the command is let through."""
    name, before, more = rng.choices(START, (4, 4, 2, 2, 1))[0]
    out, cache = lay_down(prepared, place, before), place / "cache"
    n = len(prepared.steps(name)) + (60 if before else 0)
    what = [f"run {name}" + (f" over {before}" if before else "")]
    for number in range(rng.choice((1, 1, 1, 2, 3))):
        at = rng.randrange(1, n + 1) if not number else rng.randrange(1, n // 2)
        steps = Steps([out, cache], {at}, kill)
        how = more if not number else _how_to_go_on(out, before, rng)
        answer = run(prepared.words(name, out, *how), place, cache=cache, first=steps.plant)
        came = "killed before step" if answer.code == -signal.SIGKILL else "never came to step"
        what.append(f"{' '.join(('run', *how)) + ' ' if number else ''}{came} {at}")
        if answer.code not in (0, -signal.SIGKILL):
            return Outcome(CRASH if answer.is_crash else WRONG, ", ".join(what), answer.last_words)
    how = _how_to_go_on(out, before, rng)
    answer = run(prepared.words(name, out, *how), place, cache=cache)
    what.append(f"then run {' '.join(how)}")
    for temp in cache.glob(".*.tmp"):  # nobody can tell a killed writer's from one at work on another host
        temp.unlink()
    return _afterwards(prepared, name, place, ", ".join(what), answer)


def _how_to_go_on(out: Path, before: str, rng: Random) -> tuple[str, ...]:
    """--resume, or now and then from the start, as ever where another run was to be replaced."""
    if before in ("plain", "market"):
        return ()
    return ("--resume",) if rng.random() < 0.8 else ()


def _afterwards(prepared: Prepared, name: str, place: Path, what: str, answer: Answer) -> Outcome:
    """The verdict on a run that went on."""
    out = place / "out"
    if answer.is_crash:
        return Outcome(CRASH, what, answer.last_words)
    if answer.is_refusal:
        return Outcome(DETECTED if answer.names(str(out)) else WRONG, what, answer.last_words)
    other = check_same(prepared, name, out, answer)
    if other:
        return Outcome(SILENT, what, other + "\n" + answer.last_words)
    left = left_behind(place) + _beside(place)
    return Outcome(WRONG, what, f"left behind: {', '.join(left)}") if left else Outcome(HARMLESS, what)


def _beside(place: Path) -> list[str]:
    """What lies beside the run folder and is not the drill's own."""
    return [p.name for p in place.iterdir() if p.name not in ("out", "cache", "tmp")]


def signalled(prepared: Prepared, place: Path, rng: Random) -> Outcome:
    """A signal, or two in a row, before a step of writing or at a call of a Python function."""
    number = rng.choice((signal.SIGINT, signal.SIGTERM))
    name, before, more = rng.choice(START[:4])
    out, cache = lay_down(prepared, place, before), place / "cache"
    twice = rng.random() < 0.15
    had = left_behind(place)  # by the kill that stopped it
    if rng.random() < 0.6:
        at = rng.randrange(1, len(prepared.steps(name)) + 1)
        places = {at, at + rng.randrange(1, 4)} if twice else {at}
        steps = Steps([out, cache], places, lambda what: os.kill(os.getpid(), number))
        plant, when = steps.plant, f"before step {at}"
    else:
        at = rng.randrange(1, MAX_CALLS[name])
        plant, when = at_call(at, number, twice), f"at call {at:,}"
    over = f" over {before}" if before else ""
    what = f"run {name}{over}, {number.name} {when}{' and again' if twice else ''}"
    answer = run(prepared.words(name, out, *more), place, cache=cache, first=plant)
    if answer.code == 0:  # it came after the end, or was swallowed: distinguished by what is there
        return _afterwards(prepared, name, place, what + " came too late", answer)
    died = answer.code == -number and (twice or number == signal.SIGTERM)
    if answer.is_crash and not died:
        return Outcome(CRASH, what, answer.last_words)
    if not twice:
        if answer.code != CODES[number]:
            return Outcome(WRONG, what, f"exit code {answer.code}; {answer.last_words}")
        if not answer.err.strip():
            return Outcome(WRONG, what, "not a word")
        left = [name for name in left_behind(place) if name not in had]
        if left:
            return Outcome(WRONG, what, f"left behind: {', '.join(left)}")
    how = _how_to_go_on(out, before, rng)
    if before == "plain" and differences(contents(out), prepared.whole["plain"]) == []:
        what += ", the run that was there is whole"
    answer = run(prepared.words(name, out, *how), place, cache=cache)
    return _afterwards(prepared, name, place, f"{what}, then run {' '.join(how)}", answer)


def at_call(at: int, number: signal.Signals, twice: bool) -> Callable[[], None]:
    """Send this process a signal at the at-th call of a Python function from here on."""
    count = 0

    def profile(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        if event == "call":
            count += 1
            if count == at or (twice and count == at + 50):
                if count > at or not twice:
                    sys.setprofile(None)
                os.kill(os.getpid(), number)

    return lambda: sys.setprofile(profile)
