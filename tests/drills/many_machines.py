"""The same work on this machine, on one Ray and on three machines of which one is killed: the same bytes?

    python tests/drills/many_machines.py --kills 10

Prints a table and ends with 1 if anything differs. Machines are processes with a host name of their own, in a
network that nobody else can reach (Linux, with the right to `unshare`); a kill takes all processes of one at
once, as a power cut would, while it is at a job: after a random part of the work that a run without kills
takes. Those that struck are counted, and nine of ten must; one for which the run was over too soon is tried
again. Takes a while: `make drill-machines`.

    python tests/drills/many_machines.py --kills 0 --full      # wall and CPU time of one worker and of two
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from places import HANG, ROOT  # noqa: E402

INSIDE = "CASCADE_SIM_DRILL_INSIDE"  # set in the network of its own
HOSTS = ("node-1", "node-2", "node-3")
PORT = 6379
OPTIONS = ("--device", "cpu", "--quiet")
LEASE = "3"  # seconds: nobody wants to wait for a dead host in a drill
ALONE = "1 worker"
JOBS = ("ray::_do", "ray::_serve")  # as processes are called that are at a job, a task of chunks
LOOKS = 0.1  # seconds between two looks at the processes
STRUCK = 0.9  # of the kills, at least
TRIES = 3  # at a kill that comes after the end
LATE = "nobody killed: it was done before"
SAID = "said.txt"

# quick.yaml made smaller: what is drilled is the way, not the work.
SMALL = (
    *("world.users=150", "world.ads=600", "world.advertisers=60", "cascade.retrieval.size=60"),
    *("cascade.pre_ranking.size=15", "traffic.block=128", "phases.cold_start=600", "phases.log=900"),
    *("phases.shadow=128", "phases.evaluate=512", "report.resamples=20", "report.detail_requests=8"),
)
SET = [word for key in SMALL for word in ("--set", key)]
QUICK = str(ROOT / "scenarios" / "quick.yaml")


def works(seeds: int, requests: int, small: bool) -> dict[str, list[str]]:
    """What is done, by name: commands without --out."""
    sets = SET if small else []
    # The models of all cells learn in the first one's world, which comes before the others.
    over = ["--over", "auction.squashing=0.5,0.6,0.7,0.8,0.9,1.0,1.1,1.2"]
    return {
        f"run --seeds {seeds}": ["run", QUICK, *sets, "--seeds", str(seeds)],
        "sweep of 8 cells": ["sweep", QUICK, *sets, "--seeds", "1", "--keep-logs", *over],
        f"one world, {requests:,} requests": ["run", QUICK, *sets, "--set", f"phases.evaluate={requests}"],
    }


def may_unshare() -> bool:
    """Whether a network and host names of one's own are allowed here."""
    try:
        return subprocess.run(["unshare", "-n", "-u", "true"], capture_output=True).returncode == 0
    except OSError:
        return False


def digest(folder: Path) -> str:
    """Of metrics, logs and models, wherever they lie in a folder of results; times are not among them."""
    total = hashlib.sha256()
    for file in sorted(folder.rglob("*")):
        inside = file.relative_to(folder)
        if file.is_file() and (file.name == "metrics.json" or {"logs", "models"} & set(inside.parts)):
            total.update(f"{inside}\0".encode() + hashlib.sha256(file.read_bytes()).digest())
    return total.hexdigest()


@dataclass(frozen=True)
class Process:
    """What the kernel says of a process."""

    name: str
    host: str  # its UTS namespace
    cpu: float  # seconds


def processes() -> Iterator[tuple[int, Process]]:
    """The processes of this network, other than this one."""
    network, own = os.readlink("/proc/self/ns/net"), os.getpid()
    tick = os.sysconf("SC_CLK_TCK")
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == own:
            continue
        try:
            if os.readlink(entry / "ns" / "net") != network:
                continue
            times = (entry / "stat").read_text().rpartition(")")[2].split()[11:13]
            name = (entry / "cmdline").read_bytes().partition(b"\0")[0].decode(errors="replace")
            host = os.readlink(entry / "ns" / "uts")
        except OSError:  # it is gone
            continue
        yield int(entry.name), Process(name, host, sum(map(int, times)) / tick)


class Watch:
    """Looks at all processes while something is done: their CPU time, and which machines are at a job.

    The CPU time of a process is that of the last look before its end.
    """

    def __init__(self) -> None:
        self.started = time.monotonic()
        self.busy: set[str] = set()  # the UTS namespaces of machines that were at a job at the last look
        self.work = 0.0  # CPU-seconds of processes that were at a job
        self._before = {pid: process.cpu for pid, process in processes()}
        self._last = dict(self._before)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started

    @property
    def cpu(self) -> float:
        return sum(self._last.values()) - sum(self._before.values())

    def look(self) -> None:
        self.busy = set()
        for pid, process in processes():
            if process.name.startswith(JOBS):
                self.busy.add(process.host)
                self.work += process.cpu - self._last.get(pid, process.cpu)
            self._last[pid] = process.cpu


@dataclass(frozen=True)
class Row:
    work: str
    where: str
    seconds: float
    cpu: float
    digest: str
    kill: str = ""  # what it struck


@dataclass
class Cluster:
    """Machines that are host names: processes of one UTS namespace each."""

    folder: Path
    token: str
    machines: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    namespaces: dict[str, str] = field(default_factory=dict)  # as the kernel calls them

    @property
    def address(self) -> str:
        return f"127.0.0.1:{PORT}"

    def env(self) -> dict[str, str]:
        return {
            **os.environ, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": self.token,
            "RAY_USAGE_STATS_ENABLED": "0", "RAY_raylet_start_wait_time_s": "40",
            "CASCADE_SIM_LEASE": LEASE, "PYTHONPATH": str(ROOT),
        }  # fmt: skip

    def start(self, host: str) -> None:
        """Returns when it takes work: two that start in one instant would be in each other's way.

        On a busy machine Ray may run out of its own patience; it is asked again.
        """
        for _ in range(5):
            if self._started(host):
                return
            self.kill(host)
        raise RuntimeError(f"{host} does not start:\n{(self.folder / f'{host}.log').read_text()[-2000:]}")

    def _started(self, host: str) -> bool:
        number = HOSTS.index(host) + 1
        join = [f"--address={self.address}"]
        if number == 1:
            temp = f"--temp-dir={self.folder / 'ray'}"
            join = ["--head", f"--port={PORT}", "--include-dashboard=false", temp]
        words = [
            sys.executable, "-m", "ray.scripts.scripts", "start", *join, "--block", "--num-cpus=1",
            f"--node-ip-address=127.0.0.{number}", "--object-store-memory=200000000",
        ]  # fmt: skip
        log = self.folder / f"{host}.log"
        with log.open("wb") as file:
            self.machines[host] = subprocess.Popen(
                ["unshare", "-u", "sh", "-c", 'hostname "$0"; exec "$@"', host, *words],
                env=self.env(), stdout=file, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        for _ in range(int(10 * HANG)):
            if self.machines[host].poll() is None:  # `unshare` has done its part before anything is printed
                self.namespaces[host] = os.readlink(f"/proc/{self.machines[host].pid}/ns/uts")
            if b"Ray runtime started" in log.read_bytes():
                return True
            if self.machines[host].poll() is not None:
                break
            time.sleep(0.1)
        return False

    def kill(self, host: str) -> None:
        """All processes of a machine, at once."""
        namespace = self.namespaces[host]
        assert namespace != os.readlink("/proc/self/ns/uts")
        for _ in range(3):  # one may be starting another just now
            for entry in Path("/proc").iterdir():
                try:
                    if entry.name.isdigit() and os.readlink(entry / "ns" / "uts") == namespace:
                        os.kill(int(entry.name), signal.SIGKILL)
                except OSError:
                    continue
        self.machines.pop(host).wait()

    def stop(self) -> None:
        for host in list(self.machines):
            self.kill(host)


class Drill:
    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.rng = folder, random.Random(seed)
        self.cluster = Cluster(folder, f"{random.Random(seed).getrandbits(128):032x}")
        self.rows: list[Row] = []
        self.bad: list[str] = []

    def command(self, words: list[str], out: Path, *more: str) -> subprocess.Popen[bytes]:
        shutil.rmtree(out, ignore_errors=True)
        cache = self.folder / f"cache-{out.name}"
        shutil.rmtree(cache, ignore_errors=True)  # each trains for itself
        with (self.folder / SAID).open("wb") as file:
            return subprocess.Popen(
                [sys.executable, "-m", "cascade_sim", *words, "--out", str(out), *OPTIONS, *more],
                env=self.cluster.env() | {"CASCADE_SIM_CACHE": str(cache)},
                cwd=self.folder, stdout=file, stderr=subprocess.STDOUT,
            )  # fmt: skip

    def done(self, work: str, where: str, words: list[str], *more: str, kill: float | None = None) -> Watch:
        """Do it; digest and times go into the table. `kill`: a machine dies after so much work, CPU-seconds.

        Not after so many seconds: on a busy machine a run may take twice as long as the one before.
        """
        out, struck, watch = self.folder / "out", "", Watch()
        process = self.command(words, out, *more)
        while process.poll() is None:
            watch.look()
            at_work = [host for host in HOSTS[1:] if self.cluster.namespaces.get(host) in watch.busy]
            if kill is not None and watch.work >= kill and at_work:
                struck, kill = f"{self.rng.choice(at_work)} killed at {watch.seconds:.1f} s", None
                self.cluster.kill(struck.split()[0])
            if watch.seconds > HANG:
                process.kill()
            time.sleep(LOOKS)
        seconds = watch.seconds
        if kill is not None:  # it was over too soon
            struck = LATE
        if struck:
            where = f"{where}, {struck}"
        if process.returncode != 0:
            said = (self.folder / SAID).read_text(errors="replace")
            self.bad.append(f"{work}, {where}: exit code {process.returncode}\n{said[-1500:]}")
        row = Row(work, where, seconds, watch.cpu, digest(out) if out.is_dir() else "-", struck)
        self.rows.append(row)
        print(f"  {work} | {where} | {seconds:.1f} s | {row.cpu:.1f} CPU-s | {row.digest[:12]}", flush=True)
        return watch

    def all_up(self) -> None:
        for host in HOSTS:
            if host not in self.cluster.machines:
                self.cluster.start(host)

    def run(self, kills: int, todo: dict[str, list[str]]) -> None:
        ray = ("--engine", "ray")
        for work, words in todo.items():
            self.done(work, f"local, {ALONE}", words, "--workers", "1")
            self.done(work, "local, 2 workers", words, "--workers", "2")
            self.done(work, f"one Ray, {ALONE}", words, "--workers", "1", *ray)
            self.done(work, "one Ray, 2 workers", words, "--workers", "2", *ray)
        self.all_up()
        far = (*ray, "--address", self.cluster.address)
        for work, words in todo.items():
            self.all_up()
            self.done(work, "three machines", words, *far)
            if kills == 0:
                continue
            # The first run after a start has more to do: its moments would come after the end of later ones.
            whole = min(self.done(work, "three machines, warm", words, *far).work for _ in range(2))
            for i in range(kills):
                for _ in range(TRIES):
                    self.all_up()
                    moment = (i + self.rng.random()) / kills * whole
                    lived = self.done(work, "three machines", words, *far, kill=moment).work
                    if self.rows[-1].kill != LATE:
                        break
                    whole = min(whole, lived)  # there was less to do than we thought
        self.all_up()
        self.deadly()
        for work in todo:
            digests = {row.digest for row in self.rows if row.work == work}
            if len(digests) != 1:
                self.bad.append(f"{work}: {len(digests)} different results")
            struck = self.struck(work)
            if struck < int(STRUCK * kills):
                self.bad.append(f"{work}: {struck} of {kills} kills struck a machine at work, too few")

    def struck(self, work: str) -> int:
        return sum(row.work == work and row.kill not in ("", LATE) for row in self.rows)

    def deadly(self) -> None:
        """A job that always kills its worker is named after three tries."""
        marks = self.folder / "marks"
        marks.mkdir()
        code = (
            "import sys; sys.path.insert(0, sys.argv[1]);"
            "from pathlib import Path; import worlds.pool_jobs, places;"
            "from cascade_sim.engines import open_engine; from cascade_sim.foundation.workers import Job;"
            "from worlds.pool_jobs import die;"
            "files = [Path(module.__file__) for module in (worlds.pool_jobs, places)];"
            "engine = open_engine('ray', sys.argv[3], files=files).__enter__();"
            "jobs = [Job('world seed-3', die, (sys.argv[2], 'x', 9)), Job('b', die, (sys.argv[2], 'b', 0))];"
            "engine.jobs(jobs, 2, go_on='resume it with --resume')"
        )
        tests = str(ROOT / "tests")
        found = subprocess.run(
            [sys.executable, "-c", code, tests, str(marks), self.cluster.address],
            env=self.cluster.env() | {"PYTHONPATH": f"{ROOT}{os.pathsep}{tests}"}, cwd=tests,
            capture_output=True, text=True,
        )  # fmt: skip
        said = found.stderr.strip().splitlines()[-1:] or ["nothing"]
        tries = len((marks / "x").read_text().split()) if (marks / "x").exists() else 0
        print(f"  a job that always kills its worker, {tries} tries: {said[0]}")
        if tries != 3 or "world seed-3 died three times" not in said[0]:
            self.bad.append(f"the job that kills its worker: {tries} tries, {said[0]}")

    def table(self) -> None:
        """The last columns: against one worker of this machine, in the same minutes."""
        print(
            "\n| work | where | seconds | CPU-seconds | metrics, logs, models: sha256 | times as fast | CPU |"
        )
        print("|---|---|---|---|---|---|---|")
        alone = {row.work: row for row in self.rows if row.where == f"local, {ALONE}"}
        for row in self.rows:
            one = alone[row.work]
            print(
                f"| {row.work} | {row.where} | {row.seconds:.1f} | {row.cpu:.1f} | {row.digest[:16]} | "
                f"{one.seconds / row.seconds:.2f} | {row.cpu / one.cpu:.2f} |"
            )
        print("\n| work | runs | different results | kills of a machine at work | moments after the end |")
        print("|---|---|---|---|---|")
        for work in alone:
            rows = [row for row in self.rows if row.work == work]
            late = sum(row.kill == LATE for row in rows)
            different = len({row.digest for row in rows})
            print(f"| {work} | {len(rows)} | {different} | {self.struck(work)} | {late} |")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--requests", type=int, default=8192, help="of the one long world's evaluation")
    parser.add_argument("--works", type=int, nargs=2, default=(0, 3), help="the first, and after the last")
    parser.add_argument("--seed", type=int, default=1, help="of the moments")
    parser.add_argument("--full", action="store_true", help="quick.yaml as it is, not made smaller")
    given = parser.parse_args()
    if INSIDE not in os.environ:
        if not may_unshare():
            print("this drill needs the right to `unshare -n -u`, as root or in a container that allows it")
            return 2
        inside = ["unshare", "-n", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
        words = [*inside, sys.executable, str(Path(__file__).resolve()), *sys.argv[1:]]
        return subprocess.run(words, env={**os.environ, INSIDE: "1"}).returncode
    with tempfile.TemporaryDirectory() as folder:
        drill = Drill(Path(folder), given.seed)
        try:
            todo = works(given.seeds, given.requests, not given.full)
            drill.run(given.kills, {name: todo[name] for name in list(todo)[slice(*given.works)]})
        finally:
            drill.cluster.stop()
            drill.table()
    for bad in drill.bad:
        print(f"NOT SO: {bad}")
    return 1 if drill.bad else 0


if __name__ == "__main__":
    sys.exit(main())
