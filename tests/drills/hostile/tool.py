"""The hostile drill: whatever is done to a run, its result is right or it says what is wrong with it.

    python -m tests.drills.hostile                               a minute: what CI does
    python -m tests.drills.hostile --nightly --seed 7            all of it
    python -m tests.drills.hostile --counts flips=500,kills=20   so many of each
    python -m tests.drills.hostile --case flips:1234 --seed 7    one case again

Ends with a table, with a line for each failing case to run it again, and with 1 if there are any.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from drills.hostile import classes, clocks, disks, flips, links, mutants, races, resealed, stops, torn
from drills.hostile.outcome import Outcome, Result, table
from drills.hostile.pool import Case, run_cases
from drills.hostile.prepared import Prepared

# Kind -> what makes what all its cases need, and what runs a case.
KINDS: dict[str, tuple[Callable[[Prepared], None], Callable[..., Outcome]]] = {
    "kills": (stops.prepare, stops.killed),
    "signals": (stops.prepare, stops.signalled),
    "flips": (flips.prepare, flips.case),
    "resealed": (resealed.prepare, resealed.case),
    "mutants": (mutants.prepare, mutants.case),
    "classes": (classes.prepare, classes.case),
    "races": (races.prepare, races.case),
    "disks": (disks.prepare, disks.case),
    "links": (links.prepare, links.case),
    "torn": (torn.prepare, torn.case),
    "clocks": (clocks.prepare, clocks.case),
}
# Kind -> cases in a processor minute, and in a night.
COUNTS = {
    "kills": (4, 200),
    "signals": (4, 100),
    "flips": (90, 20_000),
    "resealed": (25, 2_500),
    "mutants": (50, 2_000),
    "classes": (4, 100),
    "races": (3, 100),
    "disks": (4, 50),
    "links": (6, 150),
    "torn": (4, 200),
    "clocks": (3, 50),
}
SMALL, NIGHTLY = ({kind: counts[i] for kind, counts in COUNTS.items()} for i in (0, 1))
SHOWN = 250  # characters of what was said in a failing case


def main(argv: Sequence[str] | None = None) -> int:
    asked = _parser().parse_args(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that nothing is left behind
    counts = _counts(asked)
    if not counts:
        return 2
    if asked.case:
        kind, _, index = asked.case.partition(":")
        cases: list[Case] = [(kind, int(index))]
    else:
        # All kinds side by side, so that a budget is spent on each of them.
        cases = [(kind, index) for kind, n in counts.items() for index in range(n)]
        cases.sort(key=lambda case: case[1] / counts[case[0]])
    done = _read_results(asked.resume, asked.seed)
    results = [result for result in done if (result.kind, result.index) in set(cases)]
    had = {(result.kind, result.index) for result in results}
    is_stopped = False
    try:
        with work_folder() as folder:
            prepared = prepare(folder, sorted({kind for kind, _ in cases}))
            left = [case for case in cases if case not in had]
            for result in _within(asked.budget, run_cases(prepared, _cases(), left, asked.seed, asked.jobs)):
                results.append(result)
                if asked.resume:
                    with asked.resume.open("a") as file:
                        file.write(json.dumps({"seed": asked.seed, **asdict(result)}) + "\n")
                if asked.verbose or asked.case:
                    print(_line(result), flush=True)
                if asked.case:
                    print(result.outcome.said)
                elif result.outcome.is_failure:
                    print(_how_to_see(result, asked.seed), flush=True)
    except (KeyboardInterrupt, SystemExit):
        is_stopped = True
        print("stopped; the table has what was done")
    print(table(sorted(results, key=lambda result: list(KINDS).index(result.kind))))
    return 1 if is_stopped or any(result.outcome.is_failure for result in results) else 0


def prepare(folder: Path, kinds: Sequence[str]) -> Prepared:
    """Import and make all that cases of these kinds start from. The processes that run them are forks."""
    import torch

    from worlds.stoppable_runs import IMPORTED

    for name in (
        *IMPORTED,
        "cascade_sim.api",
        "cascade_sim.experiments.study",
        "cascade_sim.commands.analysis.compare",
    ):
        __import__(name)
    torch.set_num_threads(1)
    prepared = Prepared(folder)
    for kind in kinds:
        KINDS[kind][0](prepared)
    gc.collect()
    gc.freeze()  # forks share what is there
    return prepared


def _cases() -> dict[str, Callable[..., Outcome]]:
    return {kind: case for kind, (_, case) in KINDS.items()}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.drills.hostile", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--counts", default="", help="kind=n,kind=n,…; a kind that is left out is not tried")
    parser.add_argument("--nightly", action="store_true", help="all kinds, many cases")
    parser.add_argument("--only", choices=list(KINDS), help="one kind alone")
    parser.add_argument("--budget", type=float, help="stop after so many seconds, whatever is left")
    parser.add_argument("--case", help="KIND:INDEX: this case alone, with what was said")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--resume", type=Path, help="keep results in this file, and skip those it has")
    parser.add_argument("--verbose", action="store_true", help="a line for every case")
    return parser


def _counts(asked: argparse.Namespace) -> dict[str, int]:
    counts = dict(NIGHTLY if asked.nightly or asked.budget else SMALL)
    if asked.counts:
        pairs = [part.partition("=") for part in asked.counts.split(",")]
        counts = {kind: int(n) for kind, _, n in pairs}
    if asked.case:
        counts = {asked.case.partition(":")[0]: 1}
    unknown = counts.keys() - KINDS.keys()
    if unknown and (asked.counts or asked.case):
        print(f"no such kind: {', '.join(sorted(unknown))}; known: {', '.join(KINDS)}", file=sys.stderr)
        return {}
    return {kind: n for kind, n in counts.items() if kind in KINDS and asked.only in (None, kind)}


def _read_results(file: Path | None, seed: int) -> list[Result]:
    if file is None or not file.exists():
        return []
    found = [json.loads(line) for line in file.read_text().splitlines()]
    return [
        Result(one["kind"], one["index"], Outcome(**one["outcome"]), one["seconds"])
        for one in found
        if one["seed"] == seed
    ]


def _within(budget: float | None, results: Iterator[Result]) -> Iterator[Result]:
    started = time.monotonic()
    for result in results:
        yield result
        if budget is not None and time.monotonic() - started > budget:
            results.close()  # type: ignore[attr-defined]
            return


@contextmanager
def work_folder() -> Iterator[Path]:
    """Where the drill works: in memory if there is room, for flushing to a disk takes most of the time."""
    shm = Path("/dev/shm")
    is_roomy = shm.is_dir() and os.access(shm, os.W_OK) and shutil.disk_usage(shm).free > 1 << 29
    path, before = Path(tempfile.mkdtemp(prefix="drill-", dir=shm if is_roomy else None)), Path.cwd()
    try:
        yield path
    finally:
        os.chdir(before)
        shutil.rmtree(path, ignore_errors=True)


def _line(result: Result) -> str:
    return f"{result.kind}:{result.index} {result.outcome.verdict}: {result.outcome.what}"


def _how_to_see(result: Result, seed: int) -> str:
    """The line that runs a failing case again, and what was wrong."""
    outcome = result.outcome
    said = " | ".join(outcome.said.split("\n"))[-SHOWN:]
    again = f"python -m tests.drills.hostile --seed {seed} --case {result.kind}:{result.index}"
    return f"{again}  # {outcome.verdict}: {outcome.what}: {said}"
