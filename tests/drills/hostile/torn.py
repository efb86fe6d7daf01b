"""Torn writes: the power goes at a step, and of what was not flushed to the disk anything may be left.

A file has what it had when it was last flushed; of what was written since then all, a beginning, zeros, or
nothing. A name that was given or taken away is certain only when its folder was flushed. Without that, a file
system with a journal (ext4, XFS) keeps such changes in their order up to some point, and each flush, of
whatever, keeps all before it; POSIX allows any of them without the others (`is_ordered`).

Afterwards readers and --resume are right, or say what is damaged. A run that was said to be finished is
whole, and so is one that was to be replaced by a run that did not come to its end.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from cascade_sim.storage import lock as locks
from drills.hostile import stops
from drills.hostile.commands import Answer, run
from drills.hostile.outcome import CRASH, DETECTED, HARMLESS, SILENT, WRONG, Outcome
from drills.hostile.prepared import Prepared, check_same, left_behind
from drills.hostile.steps import Steps, kill
from worlds.stoppable_runs import contents

TRACKED = ("out", "cache")  # of a case's folder
IN_PLACE = ".lock"  # what is written to again, twice within a tick of the file system's clock
AFTER = "after"  # where the disk is put that is found after the power cut
ASIDES = ("", "previous", ".previous.moving")  # where a run that is to be replaced may lie


@dataclass(eq=False)
class Node:
    """A file or a folder, whatever its name; `kept` is the content that was flushed, `now` the latest."""

    is_folder: bool
    kept: bytes = b""
    now: bytes = b""
    stamp: tuple[int, int] = (-1, -1)  # of `now`: when it was written, and how much


Entry = tuple[Node, str]  # a name in a folder


@dataclass(eq=False)
class Change:
    """Names that were given or taken away in one step; `needs` must have been kept before."""

    entries: dict[Entry, Node | None]
    needs: list[Change]
    is_kept: bool = False


@dataclass
class Disk:
    """What is on a disk for certain, and what may be: folders are looked at before each step of writing."""

    place: Path
    is_ordered: bool
    root: Node = field(default_factory=lambda: Node(True))
    changes: list[Change] = field(default_factory=list)
    _seen: dict[str, Node] = field(default_factory=dict)  # by path below the place
    _numbers: dict[int, Node] = field(default_factory=dict)  # by the file system's number

    def __post_init__(self) -> None:
        self.look()
        self.keep_all()

    def look(self) -> None:
        """Note what has changed since the last look: at most one step of writing."""
        numbers, seen = {}, {}
        for path, entry in _entries(self.place):
            number = entry.inode()
            node = self._numbers.get(number) or Node(entry.is_dir(follow_symlinks=False))
            numbers[number] = seen[path] = node
            stat = entry.stat(follow_symlinks=False)
            stamp = stat.st_mtime_ns, stat.st_size
            if not node.is_folder and (node.stamp != stamp or path.endswith(IN_PLACE)):
                node.now, node.stamp = Path(entry.path).read_bytes(), stamp
        before, self._seen, self._numbers = self._seen, seen, numbers
        was = {self._entry(path, before): node for path, node in before.items()}
        now = {self._entry(path, seen): node for path, node in seen.items()}
        changed = {entry: now.get(entry) for entry in {**was, **now} if was.get(entry) is not now.get(entry)}
        if changed:
            self.changes.append(Change(changed, self._needed(changed, was)))

    def _entry(self, path: str, nodes: dict[str, Node]) -> Entry:
        folder, _, name = path.rpartition("/")
        return nodes.get(folder, self.root), name

    def _needed(self, changed: dict[Entry, Node | None], was: dict[Entry, Node]) -> list[Change]:
        """Changes of the same names, and of the names in a folder that is removed."""
        removed = {was[entry] for entry, node in changed.items() if node is None}
        return [
            change
            for change in self.changes
            if change.entries.keys() & changed.keys()
            or any(folder in removed for folder, _ in change.entries)
        ]

    def flushed(self, path: str) -> None:
        """A file or a folder has reached the disk."""
        self.look()
        node = self.root if path == str(self.place) else self._seen.get(os.path.relpath(path, self.place))
        if self.is_ordered:
            for change in self.changes:
                change.is_kept = True
        if node is None:
            return
        node.kept = node.now
        for change in self.changes:
            if any(folder is node for folder, _ in change.entries):
                _keep(change)

    def keep_all(self) -> None:
        """What lies here has lain here for long."""
        for change in self.changes:
            change.is_kept = True
        for node in self._seen.values():
            node.kept = node.now

    def lose(self, rng: Random) -> None:
        """Write down, in AFTER, a disk that may be found when the power goes now."""
        self.look()
        if self.is_ordered:
            open_changes = [change for change in self.changes if not change.is_kept]
            for change in open_changes[: rng.randrange(len(open_changes) + 1)]:
                change.is_kept = True
        else:
            share = rng.choice((0.0, 0.2, 0.5, 0.8, 1.0))
            for change in self.changes:
                if not change.is_kept and rng.random() < share:
                    _keep(change)
        found: dict[Entry, Node | None] = {}
        for change in self.changes:
            if change.is_kept:
                found |= change.entries
        self._write(self.root, self.place / AFTER, found, rng, {})

    def _write(
        self, folder: Node, to: Path, found: dict[Entry, Node | None], rng: Random, torn: dict[Node, bytes]
    ) -> None:
        to.mkdir()
        for (parent, name), node in found.items():
            if parent is not folder or node is None:
                continue
            if node.is_folder:
                self._write(node, to / name, found, rng, torn)
            else:
                (to / name).write_bytes(torn.setdefault(node, _torn(node, rng)))


def _entries(place: Path) -> list[tuple[str, os.DirEntry[str]]]:
    """What lies in the tracked folders, folders before what is in them."""
    found: list[tuple[str, os.DirEntry[str]]] = []
    todo = [""]
    while todo:
        folder = todo.pop()
        for entry in os.scandir(place / folder):
            path = f"{folder}/{entry.name}" if folder else entry.name
            if path.split("/")[0] in TRACKED:
                found.append((path, entry))
                if entry.is_dir(follow_symlinks=False):
                    todo.append(path)
    return found


def _keep(change: Change) -> None:
    if not change.is_kept:
        change.is_kept = True
        for needed in change.needs:
            _keep(needed)


def _torn(node: Node, rng: Random) -> bytes:
    """Of a file that was not flushed after its last write: anything between the old and the new."""
    old, new = node.kept, node.now
    if old == new:
        return new
    at = rng.randrange(len(new) + 1)
    zeros = max(rng.choice((0, at)), len(old))  # what lay there before is never zeros
    return rng.choice((old, new, new[:at] + old[at:], new[:zeros] + bytes(max(len(new) - zeros, 0))))


class Journal(Steps):
    """Steps of writing, each of which a disk is told of."""

    def __init__(self, disk: Disk, at: set[int], act: Callable[[str], None]) -> None:
        super().__init__([disk.place / name for name in TRACKED], at, act)
        self._disk = disk

    def plant(self) -> None:
        super().plant()
        counted = os.fsync

        def fsync(handle: int) -> None:
            counted(handle)
            self._is_busy = True
            try:
                self._disk.flushed(os.readlink(f"/proc/self/fd/{handle}"))
            finally:
                self._is_busy = False

        os.fsync = fsync

    def _step(self, what: str, path: Any, folder: int = -1) -> None:
        if not self._is_busy:
            self._is_busy = True
            try:
                self._disk.look()
            finally:
                self._is_busy = False
        super()._step(what, path, folder)


class NoBeats(locks.Clock):
    """Steps are those of the run alone, however long it takes."""

    def every(self, seconds: float, do: Callable[[], bool]) -> Callable[[], None]:
        return lambda: None


prepare = stops.prepare


def case(prepared: Prepared, place: Path, rng: Random) -> Outcome:
    """One to three power cuts, then the command is let through."""
    name, before, more = rng.choices(stops.START, (3, 4, 2, 4, 2))[0]
    out = stops.lay_down(prepared, place, before)
    n = len(prepared.steps(name)) + (60 if before else 0)
    what = [f"run {name}" + (f" over {before}" if before else "")]
    for number in range(rng.choice((1, 1, 2, 3))):
        at = rng.randrange(1, n + 1) if not number else rng.randrange(1, n // 2)
        at = 1 << 40 if rng.random() < 0.1 else at
        how = more if not number else _how_to_go_on(before, rng)
        answer, said = cut(prepared, place, prepared.words(name, out, *how), at, rng)
        what.append(f"{' '.join(('run', *how)) + ' ' if number else ''}{said}")
        if answer.code not in (0, -9):
            return Outcome(CRASH if answer.is_crash else WRONG, ", ".join(what), answer.last_words)
        lost = _lost(prepared, out, name, before, is_over=answer.code == 0)
        if lost:
            return Outcome(WRONG, ", ".join(what), lost)
        if answer.code == 0 and before:
            before = name  # is what the next one is to replace
        if rng.random() < 0.5:
            asked = _asked(prepared, place, rng, {name, before} & {"plain", "market"})
            if asked.is_failure:
                return Outcome(asked.verdict, f"{', '.join(what)}, {asked.what}", asked.said)
    how = _how_to_go_on(before, rng)
    what.append(f"then run {' '.join(how)}")
    return _goes_on(prepared, place, name, how, ", ".join(what))


def cut(prepared: Prepared, place: Path, words: list[str], at: int, rng: Random) -> tuple[Answer, str]:
    """Run a command up to a step, or to its end, and put the disk in place that is found after the cut."""
    is_ordered = rng.random() < 0.5

    def lose(what: str = "") -> None:
        disk.lose(rng)
        if what:
            kill(what)

    disk = Disk(place, is_ordered)
    journal = Journal(disk, {at}, lose)

    def plant() -> None:
        locks.CLOCK = NoBeats()
        journal.plant()

    answer = run(words, place, cache=place / "cache", first=plant, last=lose)
    for name in TRACKED:
        shutil.rmtree(place / name, ignore_errors=True)
        if (place / AFTER / name).exists():
            os.rename(place / AFTER / name, place / name)
    shutil.rmtree(place / AFTER, ignore_errors=True)
    when = "after its end" if answer.code == 0 else f"before step {at}"
    return answer, f"power cut {when} ({'in order' if is_ordered else 'in any order'})"


def _how_to_go_on(before: str, rng: Random) -> tuple[str, ...]:
    if before in ("plain", "market"):
        return ()
    return ("--resume",) if rng.random() < 0.8 else ()


def _lost(prepared: Prepared, out: Path, name: str, before: str, *, is_over: bool) -> str:
    """What is lost of a run that was said to be finished; if there is none, of the one to be replaced."""
    missing = _missing(out, prepared.whole[name], ("",))
    if is_over or not missing:
        return f"a finished run is not whole: {', '.join(missing[:4])}" if missing else ""
    # After an earlier cut the new run may have been finished, and be the one to be replaced now.
    if before not in ("plain", "market") or not _missing(out, prepared.whole[name], ASIDES):
        return ""
    missing = _missing(out, prepared.whole[before], ASIDES)
    return f"the run that was to be replaced is not whole: {', '.join(missing[:4])}" if missing else ""


def _missing(out: Path, whole: dict[str, bytes], asides: tuple[str, ...]) -> list[str]:
    """Files of an undisturbed run that are in none of the places as they were."""
    found = [contents(out / aside) for aside in asides if (out / aside).is_dir()]
    return [name for name, data in whole.items() if all(files.get(name) != data for files in found)]


def _asked(prepared: Prepared, place: Path, rng: Random, names: set[str]) -> Outcome:
    """A question to what is left: refused in words, or answered as by a run that is whole."""
    question = rng.choice((["trace", "RUN", "--request", "3", "--json"], ["compare", "RUN", "RUN"]))

    def ask(folder: Path) -> Answer:
        words = [str(folder) if word == "RUN" else word for word in question]
        return run(words, place, cache=prepared.cache)

    answer, what = ask(place / "out"), f"then {question[0]}"
    if answer.is_crash:
        return Outcome(CRASH, what, answer.last_words)
    if answer.code:
        is_told = answer.is_refusal and answer.names(str(place / "out"))
        return Outcome(DETECTED if is_told else WRONG, what, answer.last_words)
    said = answer.out.replace(str(place / "out"), "RUN")
    for name in names:
        folder = prepared.finished(name)
        if ask(folder).out.replace(str(folder), "RUN") == said:
            return Outcome(HARMLESS, what)
    is_told = answer.names(f"{place / 'out'} is not sealed")  # the power went before the last file of a run
    return Outcome(DETECTED if is_told else SILENT, what, answer.out[-600:])


def _goes_on(prepared: Prepared, place: Path, name: str, how: tuple[str, ...], what: str) -> Outcome:
    """The verdict on the run that is let through."""
    out = place / "out"
    answer = run(prepared.words(name, out, *how), place, cache=place / "cache")
    if answer.is_crash:
        return Outcome(CRASH, what, answer.last_words)
    if answer.is_refusal:
        return Outcome(DETECTED if answer.names(str(out)) else WRONG, what, answer.last_words)
    other = check_same(prepared, name, out, answer)
    if other:
        return Outcome(SILENT, what, f"{other}\n{answer.last_words}")
    left = [entry for entry in left_behind(place) if not entry.startswith("cache")]
    return Outcome(WRONG, what, f"left behind: {', '.join(left)}") if left else Outcome(HARMLESS, what)
