"""Kills, races and full disks, many times.

    python tests/drills/survival.py --kills 30 --races 30 --writes 50

Prints a table and ends with 1 if anything was lost. Takes a while; test_survival.py is a small one.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from worlds.stoppable_runs import ROOT, Server, contents, differences, is_whole, steps_of  # noqa: E402

QUICK = str(ROOT / "scenarios" / "quick.yaml")
# quick.yaml made smaller, for what is repeated most.
SMALL = (
    *("world.users=150", "world.ads=600", "world.advertisers=60", "cascade.retrieval.size=60"),
    *("cascade.pre_ranking.size=15", "traffic.block=128", "phases.cold_start=600", "phases.log=900"),
    *("phases.shadow=128", "phases.evaluate=128", "report.resamples=20", "report.detail_requests=8"),
)
OPTIONS = ("--workers", "1", "--device", "cpu", "--quiet")
FULL = "No space left on device"


class Drill:
    def __init__(self, folder: Path, server: Server, seed: int) -> None:
        self.folder, self.server, self.rng = folder, server, random.Random(seed)
        self.bad: list[str] = []
        self.rows: list[tuple[str, str]] = []

    def run(self, out: Path, *words: str, **options) -> tuple[int, str]:
        command = ("run", QUICK, *words, "--out", str(out), *OPTIONS)
        return self.server.run(*command, log=self.folder / "log.txt", **options)

    def expect(self, what: str, is_so: bool, said: str = "") -> bool:
        if not is_so:
            self.bad.append(what)
            print(f"  NOT SO: {what}\n{said}", flush=True)
        return is_so

    def same(self, what: str, out: Path, whole: dict[str, bytes]) -> bool:
        other = differences(contents(out), whole)
        return self.expect(f"{what}: {', '.join(other[:4])} differ", not other)

    def kills(self, n: int) -> None:
        """Each at a random moment of its n-th part of the run, with nothing trained before; then resumed."""
        assert self.run(self.folder / "warm")[0] == 0  # compiles what is compiled only once
        started = time.monotonic()
        assert self.run(self.folder / "whole", cache=str(self.folder / "cache-whole"))[0] == 0
        lasts, whole = time.monotonic() - started, contents(self.folder / "whole")
        out, cache = self.folder / "killed", self.folder / "cache-killed"
        command = ("run", QUICK, "--out", str(out), *OPTIONS)
        same = struck = late = 0
        stages: dict[str, int] = {}
        for i in range(n):
            for _ in range(6):
                shutil.rmtree(out, ignore_errors=True)
                shutil.rmtree(cache, ignore_errors=True)
                moment = (i + self.rng.random()) / n * lasts
                log = self.folder / "log.txt"
                code = self.server.kill_after(moment, *command, log=log, cache=str(cache))
                if code == -9:
                    struck += 1
                    break
                late, lasts = late + 1, 0.9 * lasts  # the machine has less to do than before
            at = _stage(out)
            stages[at] = stages.get(at, 0) + 1
            sound = self.expect(f"kill {i} at {moment:.1f} s: manifest", is_whole(out / "manifest.json"))
            code, said = self.run(out, "--resume", cache=str(cache))
            if self.expect(f"kill {i} at {moment:.1f} s: resume ended with {code}", code == 0, said):
                same += self.same(f"kill {i} at {moment:.1f} s", out, whole) and sound
            print(f"  kill {i + 1} of {n} at {moment:.1f} s of {lasts:.1f} s ({at})", flush=True)
        self.rows.append(("kills (SIGKILL) of run quick.yaml", f"{struck} of {n} before its end"))
        self.rows.append(("  came too late and were repeated", str(late)))
        self.rows.append(("  resumed to the same bytes", f"{same} of {n}"))
        self.rows.append(("  while the run was at", ", ".join(f"{k} {v}" for k, v in stages.items())))

    def deaths(self, n: int) -> None:
        """A worker of a study over two worlds is killed; the study goes on without a word."""
        changes = [part for change in SMALL for part in ("--set", change)]
        command = ("run", QUICK, *changes, "--seeds", "2", "--workers", "2", "--device", "cpu", "--quiet")
        log, started = self.folder / "log.txt", time.monotonic()
        words = (*command, "--out", str(self.folder / "worlds"))
        assert self.server.run(*words, log=log, draw=False)[0] == 0
        lasts, whole = time.monotonic() - started, contents(self.folder / "worlds")
        same = 0
        for i in range(n):
            out = self.folder / "bereft"
            shutil.rmtree(out, ignore_errors=True)
            pid = self.server.start(*command, "--out", str(out), log=log, draw=False)
            time.sleep((i + self.rng.random()) / n * 0.8 * lasts)
            workers = _workers(pid)
            for worker in workers[:1]:
                os.kill(worker, signal.SIGKILL)
            code = self.server.wait(pid)
            print(f"  worker {i + 1} of {n} killed: {len(workers[:1])}, exit code {code}", flush=True)
            if self.expect(f"death {i}: {code}", code == 0, log.read_text()):
                same += self.same(f"death {i}", out, whole) and bool(workers)
        self.rows.append(("workers killed in run --seeds 2, to the same bytes", f"{same} of {n}"))

    def races(self, n: int) -> None:
        changes = [part for change in SMALL for part in ("--set", change)]
        one_winner = 0
        for i in range(n):
            out = self.folder / "raced"
            shutil.rmtree(out, ignore_errors=True)
            command = ("run", QUICK, *changes, "--out", str(out), *OPTIONS)
            at = time.time() + 0.05
            logs = [self.folder / f"racer-{k}.txt" for k in (1, 2)]
            meet = self.folder / f"meet-{i}"
            meet.mkdir()
            pids = [self.server.start(*command, log=log, at=at, draw=False, meet=str(meet)) for log in logs]
            codes = [self.server.wait(pid) for pid in pids]
            said = "".join(log.read_text() for log in logs)
            fair = sorted(codes) == [0, 2] and said.count("is in use: ") == 1 and "Traceback" not in said
            one_winner += self.expect(f"race {i}: exit codes {codes}", fair, said)
        self.rows.append(("races of two for one folder", str(n)))
        self.rows.append(("  exactly one winner, the other told who has it", f"{one_winner} of {n}"))

    def writes(self, n: int, more: int = 8) -> None:
        """The disk is full at the 1st, 2nd, … step of writing, and at some later ones."""
        changes = [part for change in SMALL for part in ("--set", change)]
        out = self.folder / "starved"
        code, said = self.run(out, *changes, draw=False, below=str(out))
        assert code == 0, said
        whole, steps = contents(out), steps_of(said)
        later = [n + (k + 1) * (steps - n) // more for k in range(more)] if steps > n else []
        clear = went_on = anew = 0
        for step in [*range(1, min(n, steps) + 1), *later]:
            shutil.rmtree(out, ignore_errors=True)
            code, said = self.run(out, *changes, draw=False, below=str(out), fail=step)
            told = code == 2 and f"error: cannot write {out}" in said and FULL in said
            told = told and "Traceback" not in said
            told = self.expect(f"step {step}: exit code {code}", told, said)
            clear += told and self.expect(f"step {step}: manifest", is_whole(out / "manifest.json"))
            resume = step % 4 != 0  # a new run must work as well
            code, said = self.run(out, *changes, *(["--resume"] if resume else []), draw=False)
            if self.expect(f"step {step}: afterwards {code}", code == 0, said):
                good = self.same(f"step {step}", out, whole)
                went_on += good and resume
                anew += good and not resume
        tried = min(n, steps) + len(later)
        self.rows.append(("steps of writing a run takes", str(steps)))
        self.rows.append(
            ("  disk full from that step on", f"{tried} (the first {min(n, steps)}, {len(later)} later)")
        )
        self.rows.append(("  told clearly, exit code 2, manifest whole", f"{clear} of {tried}"))
        self.rows.append(("  then to the same bytes", f"{went_on} with --resume, {anew} anew, of {tried}"))

    def small_disk(self) -> None:
        """A real one, where it may be mounted."""
        disk = self.folder / "disk"
        disk.mkdir()
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(disk)], capture_output=True
        )
        if mounted.returncode:
            self.rows.append(("a disk of 400 kB", "not tried: may not mount one here"))
            return
        try:
            code, said = self.run(disk / "out")
            told = code == 2 and FULL in said and "Traceback" not in said
            self.expect(f"small disk: exit code {code}", told, said)
            self.expect("small disk: manifest", is_whole(disk / "out" / "manifest.json"))
            subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)
            code, said = self.run(disk / "out", "--resume")
            is_same = code == 0 and self.same("small disk", disk / "out", contents(self.folder / "whole"))
            self.expect(f"small disk, made larger: {code}", is_same, said)
            subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
            code, said = self.run(disk / "new")
            read_only = code == 2 and "Read-only file system" in said and "Traceback" not in said
            self.expect(f"read-only disk: exit code {code}", read_only, said)
            self.rows.append(
                ("a disk of 400 kB: told, then larger, same bytes", "yes" if told and is_same else "NO")
            )
            self.rows.append(("a read-only disk: told, exit code 2", "yes" if read_only else "NO"))
        finally:
            subprocess.run(["umount", str(disk)], check=True)


def _stage(out: Path) -> str:
    """How far a killed run had come, by what it left."""
    if not (out / "manifest.json").exists():
        return "start"
    if (out / "metrics.json").exists():
        return "report"
    if list(out.glob("logs/evaluate-*")):
        return "evaluation"
    done = {path.stem for path in out.glob("checkpoints/*.keep")}
    return "training" if "log" in done else "log" if "cold_start" in done else "cold_start"


def _workers(pid: int) -> list[int]:
    """Worker processes that a command has started."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(c) for c in children if b"spawn_main" in Path(f"/proc/{c}/cmdline").read_bytes()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("kills", "races", "writes", "deaths"):
        parser.add_argument(f"--{name}", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        with Server(folder / "cache", "matplotlib.figure", "scipy.stats") as server:
            drill = Drill(folder, server, asked.seed)
            if asked.writes:
                drill.writes(asked.writes)
            if asked.races:
                drill.races(asked.races)
            if asked.deaths:
                drill.deaths(asked.deaths)
            if asked.kills:
                drill.kills(asked.kills)
                drill.small_disk()
    width = max(len(name) for name, _ in drill.rows)
    print("\n".join(f"{name.ljust(width)}  {text}" for name, text in drill.rows))
    print(f"{len(drill.bad)} not as they should be; {time.monotonic() - started:.0f} s")
    return 1 if drill.bad else 0


if __name__ == "__main__":
    sys.exit(main())
