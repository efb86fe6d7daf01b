"""Races: two commands want one folder or one cache, and meet at a drawn step.

The first is held before a step of writing until the second has ended, so the order is that of the draw and
not of the machine's load; some start together instead. One wins and the other is told who has it, or both
come to the bytes of an undisturbed run.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

from drills.hostile import stops
from drills.hostile.commands import OPTIONS, Answer, Process
from drills.hostile.outcome import CRASH, DETECTED, HARMLESS, SILENT, WRONG, Outcome
from drills.hostile.prepared import Prepared, check_same, left_behind
from drills.hostile.steps import Steps
from worlds.stoppable_runs import contents, differences

prepare = stops.prepare
IN_USE = "is in use: "


def case(prepared: Prepared, place: Path, rng: Random) -> Outcome:
    return rng.choices((for_a_folder, for_the_cache, with_a_reader), (5, 2, 3))[0](prepared, place, rng)


def for_a_folder(prepared: Prepared, place: Path, rng: Random) -> Outcome:
    before = rng.choice(("", "", "stopped", "plain"))
    first = "market" if before == "stopped" else rng.choice(("plain", "market"))
    second = first if rng.random() < 0.6 else "plain" if first == "market" else "market"
    more = [("--resume",) if before == "stopped" or rng.random() < 0.3 else () for _ in range(2)]
    out = stops.lay_down(prepared, place, before)
    words = [prepared.words(name, out, *m) for name, m in zip((first, second), more, strict=True)]
    what, answers = _meet(prepared, place, words, [out], first, rng)
    both = " and ".join(" ".join(("run", *m, n)) for n, m in zip((first, second), more, strict=True))
    what = f"{both} in {before or 'a new'} folder, {what}"
    if any(answer.is_crash for answer in answers):
        return Outcome(CRASH, what, "\n".join(answer.last_words for answer in answers))
    for answer in answers:
        if answer.code not in (0, 2) or (answer.code == 2 and not _says_why(answer, out)):
            return Outcome(WRONG, what, f"exit code {answer.code}; {answer.last_words}")
    won = [name for name, answer in zip((first, second), answers, strict=True) if answer.code == 0]
    if not won:
        return Outcome(WRONG, what, "nobody won: " + "\n".join(answer.last_words for answer in answers))
    found = contents(out)
    if not any(differences(found, prepared.whole[name]) == [] for name in won):
        return Outcome(SILENT, what, ", ".join(differences(found, prepared.whole[won[-1]])[:5]))
    left = left_behind(place)
    if left:
        return Outcome(WRONG, what, f"left behind: {', '.join(left)}")
    return Outcome(DETECTED if len(won) == 1 else HARMLESS, what)


def _says_why(answer: Answer, out: Path) -> bool:
    """In use; or, where the other run was quicker, that another run lies there."""
    return IN_USE in answer.err or (f"{out} holds a run of " in answer.err and "--resume" in answer.err)


def for_the_cache(prepared: Prepared, place: Path, rng: Random) -> Outcome:
    """Two runs in two folders that train the same models: both end, with the same bytes."""
    cache, name = place / "cache", rng.choice(("plain", "market"))
    if rng.random() < 0.3:
        shutil.copytree(prepared.cache, cache)
    outs = [place / "out", place / "other"]
    words = [prepared.words(name, out) for out in outs]
    what, answers = _meet(prepared, place, words, [cache], name, rng)
    what = f"two runs of {name} with one cache, {what}"
    for out, answer in zip(outs, answers, strict=True):
        if answer.is_crash:
            return Outcome(CRASH, what, answer.last_words)
        other = check_same(prepared, name, out, answer)
        if other:
            return Outcome(SILENT if answer.code == 0 else WRONG, what, f"{other}; {answer.last_words}")
    left = left_behind(place)
    return Outcome(WRONG, what, f"left behind: {', '.join(left)}") if left else Outcome(HARMLESS, what)


def with_a_reader(prepared: Prepared, place: Path, rng: Random) -> Outcome:
    """A finished run is replaced by the same one while somebody asks about it."""
    out = stops.lay_down(prepared, place, "plain")
    question = rng.choice(
        (
            ["trace", str(out), "--request", "3", "--json"],
            ["compare", str(prepared.finished("market")), str(out)],
            ["baseline", str(out), "--out", str(place / "kept.json")],
            ["run", str(prepared.scenario("plain")), "--out", str(out), *OPTIONS, "--resume"],
        )
    )
    undisturbed = Process(question, place, cache=prepared.cache).answer()
    words = [prepared.words("plain", out), question]
    what, answers = _meet(prepared, place, words, [out], "plain", rng)
    what = f"{question[0]} while its run is made again, {what}"
    if any(answer.is_crash for answer in answers):
        return Outcome(CRASH, what, "\n".join(answer.last_words for answer in answers))
    writer, reader = answers
    other = check_same(prepared, "plain", out, writer)
    if other and not (writer.code == 2 and IN_USE in writer.err):
        return Outcome(SILENT if writer.code == 0 else WRONG, what, f"{other}; {writer.last_words}")
    if reader.code == undisturbed.code and reader.out.split("(")[0] == undisturbed.out.split("(")[0]:
        return Outcome(HARMLESS, what)
    is_told = reader.is_refusal and reader.names(str(out))
    return Outcome(DETECTED if is_told else SILENT if reader.code == 0 else WRONG, what, reader.last_words)


def _meet(
    prepared: Prepared, place: Path, words: list[list[str]], folders: list[Path], name: str, rng: Random
) -> tuple[str, list[Answer]]:
    """Both commands' answers. The first waits before a step for the second's end, or both for each other."""
    together = rng.random() < 0.25
    at = 1 if together else rng.randrange(1, len(prepared.steps(name)) + 1)
    come, done = os.pipe(), os.pipe()  # who has the writing end says something by closing it

    def wait(pipe: tuple[int, int]) -> None:
        os.close(pipe[1])
        os.read(pipe[0], 1)

    def hold(what: str) -> None:
        os.close(come[1])
        wait(done)

    def first() -> None:
        os.close(come[0])
        Steps(folders, {at}, hold).plant()

    def second() -> None:
        os.close(done[0])
        wait(come)
        if together:
            os.close(done[1])

    cache = place / "cache"
    planted: list[Callable[[], None]] = [first, second]
    started = [Process(w, place, cache=cache, first=plant) for w, plant in zip(words, planted, strict=True)]
    for handle in (*come, *done):
        os.close(handle)
    answers = [process.answer() for process in started]
    return "together" if together else f"the first held before step {at}", answers
