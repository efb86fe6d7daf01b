"""Small disks: the space runs out somewhere, the command says so, and with more space it goes on.

A real file system of a drawn size where one may be mounted, a limit on the size of files, and steps of
writing that fail from one on, or once. What had been computed is not lost: the run goes on with --resume to
the same bytes, and where another run was to be replaced, that one is still whole or the new one goes on.
"""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

from drills.hostile import stops
from drills.hostile.commands import Answer, run
from drills.hostile.outcome import CRASH, DETECTED, HARMLESS, SILENT, WRONG, Outcome
from drills.hostile.prepared import Prepared, check_same, left_behind
from drills.hostile.steps import Steps, full
from worlds.stoppable_runs import contents

REASONS = ("No space left on device", "File too large")
QUESTIONS = (
    ("compare", "{run}", "{other}"),
    ("trace", "{run}", "--request", "3"),
    ("validate", "{scenario}"),
    ("schema",),
    ("landscape", "{run}", "--ad", "3", "--points", "2", "--quiet"),
)
prepare = stops.prepare


def case(prepared: Prepared, place: Path, rng: Random) -> Outcome:
    how = rng.choices((injected, limited, mounted, no_room_to_say), (5, 2, 3, 1))[0]
    return how(prepared, place, rng)


def injected(prepared: Prepared, place: Path, rng: Random) -> Outcome:
    name, before, more = rng.choices(stops.START, (3, 3, 2, 3, 1))[0]
    out, cache = stops.lay_down(prepared, place, before), place / "cache"
    at = rng.randrange(1, len(prepared.steps(name)) + 1)
    lasts = rng.random() < 0.7
    where = rng.choice(([out, cache], [out], [cache]))
    steps = Steps(where, range(at, 1 << 40) if lasts else {at}, full)
    over = f" over {before}" if before else ""
    full_disk = " and ".join(folder.name for folder in where)
    what = f"run {name}{over}, {full_disk} full {'from' if lasts else 'at'} step {at}"
    earlier = left_behind(place)
    answer = run(prepared.words(name, out, *more), place, cache=cache, first=steps.plant)
    return _judged(prepared, place, name, before, what, answer, lambda: None, rng, earlier=earlier)


def limited(prepared: Prepared, place: Path, rng: Random) -> Outcome:
    """No file may be longer than so many bytes: libraries in C++ meet it too, in the middle of a file."""
    name, before, more = rng.choice(stops.START)
    out, most = stops.lay_down(prepared, place, before), rng.choice((0, 100, 1_000, 5_000, 20_000, 60_000))
    most += rng.randrange(100)

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))

    what = f"run {name}{' over ' + before if before else ''}, files of at most {most} bytes"
    earlier = left_behind(place)
    answer = run(prepared.words(name, out, *more), place, cache=place / "cache", first=limit)
    return _judged(prepared, place, name, before, what, answer, lambda: None, rng, earlier=earlier)


def mounted(prepared: Prepared, place: Path, rng: Random) -> Outcome:
    """A file system of so many pages, made larger afterwards."""
    disk, pages = place / "disk", rng.randrange(4, 120)
    disk.mkdir()
    if _mount("-t", "tmpfs", "-o", f"size={pages * 4096}", "tmpfs", str(disk)):
        return limited(prepared, place, rng)
    try:
        name = rng.choice(("plain", "market"))
        what = f"run {name} on a disk of {pages * 4} kB"
        answer = run(prepared.words(name, disk / "out"), place, cache=disk / "cache")
        (place / "out").symlink_to(disk / "out")

        def enlarge() -> None:
            assert _mount("-o", "remount,size=64m", str(disk)) == 0

        return _judged(prepared, disk, name, "", what, answer, enlarge, rng, logs=place)
    finally:
        subprocess.run(["umount", "-l", str(disk)], capture_output=True)


def _mount(*words: str) -> int:
    try:
        return subprocess.run(["mount", *words], capture_output=True).returncode
    except OSError:
        return 1


def no_room_to_say(prepared: Prepared, place: Path, rng: Random) -> Outcome:
    """The answer itself does not fit: standard output on a full disk."""
    names = {
        "run": str(prepared.finished("plain")),
        "other": str(prepared.finished("market")),
        "scenario": str(prepared.scenario("plain")),
    }
    words = [word.format(**names) for word in rng.choice(QUESTIONS)]
    what = f"{words[0]} > /dev/full"
    answer = run(words, place, cache=place / "cache", stdout="/dev/full")
    if answer.is_crash or "Exception ignored" in answer.err:
        return Outcome(CRASH, what, answer.last_words)
    if answer.code == 0:
        return Outcome(SILENT, what, "exit code 0, and nobody has the answer")
    return Outcome(DETECTED if REASONS[0] in answer.err else WRONG, what, answer.last_words)


def _judged(
    prepared: Prepared,
    place: Path,
    name: str,
    before: str,
    what: str,
    answer: Answer,
    make_room: Callable[[], None],
    rng: Random,
    logs: Path | None = None,
    earlier: Sequence[str] = (),
) -> Outcome:
    """What was said, what is left, and whether the run goes on when there is room again.

    Files `earlier` left by a killed run may stay: one that gets no lock must not clear another's folder.
    """
    out, cache = place / "out", place / "cache"
    if answer.is_crash:
        return Outcome(CRASH, what, answer.last_words)
    if answer.code == 0:
        other = check_same(prepared, name, out, answer)
        is_told = answer.names(*REASONS)
        return Outcome(
            SILENT if other else DETECTED if is_told else HARMLESS, what, other or answer.err[-300:]
        )
    if not (answer.is_refusal and answer.names(*REASONS) and answer.names(str(place))):
        return Outcome(WRONG, what, f"exit code {answer.code}; {answer.last_words}")
    left = [entry for entry in left_behind(place) if entry.endswith(".tmp") and entry not in earlier]
    if left:
        return Outcome(WRONG, what, f"left behind: {', '.join(left)}")
    if before in ("plain", "market") and not _is_kept(out, prepared.whole[before]):
        return Outcome(WRONG, what, f"the run that was there is lost; {_names(out)}")
    make_room()
    more = () if before in ("plain", "market") or rng.random() < 0.2 else ("--resume",)
    after = run(prepared.words(name, out, *more), logs or place, cache=cache)
    if after.is_crash:
        return Outcome(CRASH, what + ", then with room", after.last_words)
    other = check_same(prepared, name, out, after)
    if other:
        return Outcome(
            SILENT if after.code == 0 else WRONG, what + ", then with room", f"{other}; {after.last_words}"
        )
    return Outcome(DETECTED, what, answer.last_words)


def _is_kept(out: Path, whole: dict[str, bytes]) -> bool:
    """Whether every file of the run that was to be replaced is still there: in its place, or moved aside."""
    asides = [out, *(path for path in out.glob("*") if path.is_dir())] if out.is_dir() else []
    return any({**contents(out), **contents(aside)}.items() >= whole.items() for aside in asides)


def _names(out: Path) -> Sequence[str]:
    return sorted(os.listdir(out)) if out.is_dir() else ["no folder"]
