"""Links: an entry of a run's folder is a link, a pipe, a socket or of another kind, and a command is asked.

Whatever lies there, what a link leads to stays as it was, no command waits for a pipe, and the answer is that
of the intact run or a refusal in words.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from random import Random

from drills.hostile import flips
from drills.hostile.commands import OPTIONS, Answer, Process
from drills.hostile.outcome import CRASH, DETECTED, HARMLESS, SILENT, WRONG, Outcome
from drills.hostile.prepared import Prepared, check_same
from worlds.stoppable_runs import contents, differences

SECONDS = 60  # of the processor's clock and the wall's: the slowest command takes a few

# Entries that no finished run has, and that a command may look for.
ABSENT = (
    *(".previous.moving", ".previous.moving/manifest.json", ".previous.gone", "previous", ".lock"),
    *("whatif", "checkpoints", "seed-1", "figures/more", "checkpoints/log.keep"),
)
# Commands about `run`, where `other` and `baseline.json` lie beside it; they write to flips.OUT.
COMMANDS: dict[str, tuple[str, ...]] = {
    **{name: flips.COMMANDS[name] for name in ("trace", "compare", "report", "baseline", "check", "resume")},
    "report inside": ("report", "run"),
    "whatif": ("whatif", "run", "--set", "auction.reserve_cpc=0.1", "--quiet"),
    "run": ("run", "market.yaml", "--out", "run", *OPTIONS),
    "another run": ("run", "plain.yaml", "--out", "run", *OPTIONS),
    "overwrite": ("run", "plain.yaml", "--out", "run", "--overwrite", *OPTIONS),
}
RUNS = {"run": "market", "another run": "plain", "overwrite": "plain"}
WRITTEN = {"whatif": "run/whatif", "report inside": "run/report.html"}  # else flips.OUT


def prepare(prepared: Prepared) -> None:
    """The runs and the baseline of flips; what each command answers where nothing was planted."""
    flips.prepare(prepared)
    if "links" in prepared.kept:
        return
    base = prepared.place("links")
    for name in ("run", "other", "market.yaml", "baseline.json"):
        there = prepared.folder / "flips" / name
        shutil.copytree(there, base / name) if there.is_dir() else shutil.copy(there, base / name)
    shutil.copy(prepared.scenario("plain"), base / "plain.yaml")
    prepared.kept["links"] = {}
    for name in COMMANDS:
        place = prepared.place("links-asked")
        answer, wrote = _asked(prepared, place, name)
        assert answer.code == 0, f"{name}: {answer.err}"
        prepared.kept["links"][name] = answer, wrote


def case(prepared: Prepared, place: Path, rng: Random) -> Outcome:
    name = rng.choice(sorted(COMMANDS))
    plant = rng.choice(PLANTS)
    run = prepared.folder / "links" / "run"
    there = sorted(str(path.relative_to(run)) for path in run.rglob("*"))
    entry = rng.choice(rng.choice((ABSENT, sorted(os.listdir(run)), there)))
    what = f"{plant.__name__.replace('_', ' ')} as run/{entry}; {name}"
    victim = place / "victim"
    answer, wrote = _asked(prepared, place, name, lambda folder: _planted(folder / entry, victim, plant))
    if (victim.exists() and contents(victim) != VICTIM) or (place / "absent").exists():
        return Outcome(SILENT, what, f"what the link leads to was changed; {answer.last_words}")
    if answer.code == -signal.SIGALRM:
        return Outcome(CRASH, what, f"no answer in {SECONDS} s")
    if answer.is_crash:
        return Outcome(CRASH, what, answer.last_words)
    undisturbed, had_written = prepared.kept["links"][name]
    if answer.code == 0 and name in RUNS:
        other = _not_of(check_same(prepared, RUNS[name], place / "work" / "run", answer), entry)
        return Outcome(SILENT if other else HARMLESS, what, f"{other}; {answer.last_words}")
    if answer.code == undisturbed.code and differences(wrote, had_written) == []:
        same = flips.timeless(answer.out) == flips.timeless(undisturbed.out)
        is_told = answer.out.count(f"run/{entry}") > undisturbed.out.count(f"run/{entry}")  # in a note
        return Outcome(HARMLESS if same else DETECTED if is_told else SILENT, what, answer.last_words)
    if answer.code == 0:
        return Outcome(SILENT, what, f"{differences(wrote, had_written)[:4]}; {answer.last_words}")
    is_told = answer.is_refusal and answer.names("run", str(entry))
    return Outcome(DETECTED if is_told else WRONG, what, f"exit code {answer.code}; {answer.last_words}")


def _not_of(other: str, entry: str) -> str:
    """What differs from the undisturbed run, but for what was planted and is none of a run's entries."""
    mine = entry.split("/")[0]
    names = [name for name in other.removeprefix("differs: ").split(", ") if name.split("/")[0] != mine]
    return ", ".join(names) if entry in ABSENT else other


def _asked(
    prepared: Prepared, place: Path, name: str, planted: Callable[[Path], None] = lambda folder: None
) -> tuple[Answer, dict[str, bytes]]:
    """The answer of a command in a copy of all that it is about, and what it wrote."""
    work = place / "work"
    shutil.copytree(prepared.folder / "links", work)
    planted(work / "run")

    def first() -> None:
        os.chdir(work)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(SECONDS)

    answer = Process(COMMANDS[name], place, cache=prepared.cache, first=first).answer()
    shown = work / WRITTEN.get(name, flips.OUT)
    if shown.is_symlink() or not shown.exists():
        return answer, {}
    return answer, contents(shown) if shown.is_dir() else {shown.name: shown.read_bytes()}


def _planted(path: Path, victim: Path, plant: Callable[[Path, Path], None]) -> None:
    """Put it in the place of what is there. A victim is a folder with files as of a run, and of somebody."""
    for name, data in VICTIM.items():
        file = victim / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    plant(path, victim)


VICTIM = {
    "keep.txt": b"precious\n", ".keep.txt.1.2.tmp": b"a rest\n", "log.keep": b"{}", "logs/log/notes": b"rows",
    "part-00000.parquet": b"rows",
}  # fmt: skip


def a_link_to_a_folder(path: Path, victim: Path) -> None:
    path.symlink_to(victim)


def a_link_to_a_file(path: Path, victim: Path) -> None:
    path.symlink_to(victim / "keep.txt")


def a_link_to_nothing(path: Path, victim: Path) -> None:
    path.symlink_to(victim.parent / "absent")


def a_link_to_itself(path: Path, victim: Path) -> None:
    path.symlink_to(path)


def a_pipe(path: Path, victim: Path) -> None:
    os.mkfifo(path)


def a_socket(path: Path, victim: Path) -> None:
    before = Path.cwd()
    os.chdir(path.parent)  # the name of a socket has 107 bytes at most
    try:
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(path.name)
    finally:
        os.chdir(before)


def a_folder(path: Path, victim: Path) -> None:
    path.mkdir()


def a_file(path: Path, victim: Path) -> None:
    path.write_bytes(b"{}")


PLANTS = (
    *(a_link_to_a_folder, a_link_to_a_file, a_link_to_nothing, a_link_to_itself),
    *(a_pipe, a_socket, a_folder, a_file),
)
