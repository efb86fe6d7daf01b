"""Runs that are killed, raced and starved of disk: a server that starts them quickly, and what they leave.

As a program it is the server: it imports everything once, then forks a process for each request it reads (a
line of JSON), so a command starts in milliseconds and a kill hits the run and not its imports. No thread runs
in the server, so a fork is a clean process.
"""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from places import HANG, ROOT

# What a run would spend its first seconds on.
IMPORTED = (
    *("torch._dynamo", "pyarrow.parquet", "safetensors.torch", "jinja2", "rich.table", "rich.console"),
    *("cascade_sim.analysis.report.page", "cascade_sim.analysis.report.terminal"),
    *("cascade_sim.counterfactual.critical_bids", "cascade_sim.study.evaluate", "cascade_sim.study.prepare"),
    *("cascade_sim.study.results", "cascade_sim.market.study", "cascade_sim.study.run"),
)
TIMES = ("started", "seconds", "micros", "seal")  # of a manifest: times, and a digest of all of it


def contents(out: Path) -> dict[str, bytes]:
    """Every file of a run folder, hidden ones too; of those that tell the time, what is left without it."""
    found = {}
    for path in sorted(p for p in out.rglob("*") if p.is_file()):
        data = path.read_bytes()
        if path.name == "manifest.json":
            manifest = json.loads(data)
            data = json.dumps({key: manifest[key] for key in manifest if key not in TIMES}).encode()
        elif path.name == "report.html":
            text = re.sub(r"started [-0-9T:+]+", "", data.decode())
            text = re.sub(r'<section id="cost">.*?</section>', "", text, flags=re.DOTALL)  # what serving took
            data = re.sub(r"<h3>Timings</h3>.*?</dl>", "", text, flags=re.DOTALL).encode()
        found[str(path.relative_to(out))] = data
    return found


def differences(one: dict[str, bytes], other: dict[str, bytes]) -> list[str]:
    return sorted(name for name in {*one, *other} if one.get(name) != other.get(name))


class Server:
    """Starts commands. A context manager; what it started is ended with it."""

    def __init__(self, cache: Path, *modules: str) -> None:
        """`modules` are imported before the first command, besides those that every run needs."""
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "tests"))),
            "OMP_NUM_THREADS": "1",
        }
        environment["CASCADE_SIM_CACHE"] = str(cache)
        self._process = subprocess.Popen(
            [sys.executable, __file__, *modules], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            cwd=ROOT, env=environment,
        )  # fmt: skip
        self._ask(None)

    def start(self, *words: str, log: Path, **options: Any) -> int:
        """The process id of a command. Options: see `_command`."""
        log.parent.mkdir(parents=True, exist_ok=True)
        return self._ask({"words": words, "log": str(log), **options})

    def wait(self, pid: int) -> int:
        """Exit code; negative if killed by a signal."""
        return self._ask({"wait": pid})

    def run(self, *words: str, log: Path, **options: Any) -> tuple[int, str]:
        """Exit code and what was said."""
        code = self.wait(self.start(*words, log=log, **options))
        return code, log.read_text()

    def kill_after(self, seconds: float, *words: str, log: Path, **options: Any) -> int:
        """Exit code of a command that is killed after so many seconds unless it was quicker."""
        pid = self.start(*words, log=log, **options)
        time.sleep(seconds)
        os.kill(pid, signal.SIGKILL)  # also if it has ended: nobody has waited for it yet
        return self.wait(pid)

    def _ask(self, request: Any) -> int:
        assert self._process.stdin is not None and self._process.stdout is not None
        if request is not None:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


def serve() -> None:
    """The server's life; see the module."""
    import importlib

    for name in (*IMPORTED, *sys.argv[1:]):
        importlib.import_module(name)
    print(0, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            print(os.waitstatus_to_exitcode(os.waitpid(request["wait"], 0)[1]), flush=True)
            continue
        pid = os.fork()
        if not pid:
            os._exit(_command(request))
        print(pid, flush=True)


def _command(request: dict[str, Any]) -> int:
    """Run a command: with a `cache` of its own, without drawing (`draw`), not before a time (`at`), in a race
    whose runners meet in a folder (`meet`), on a disk that is full from the step `fail` on as far as files
    `below` a folder go."""
    handle = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (0, 1, 2):
        os.dup2(handle, stream)
    from cascade_sim.cli import main

    if "cache" in request:
        os.environ["CASCADE_SIM_CACHE"] = request["cache"]
    if not request.get("draw", True):
        from cascade_sim.analysis.report import page as plots

        plots.draw_all = lambda metrics: {}
    if "below" in request:
        fail_write(request.get("fail", 0), Path(request["below"]))
    if "meet" in request:
        wait_for_the_other(Path(request["meet"]))
    if "at" in request:
        time.sleep(max(0.0, request["at"] - time.time()))
    try:
        code = main(request["words"])
    except BaseException:
        import traceback

        traceback.print_exc()
        code = 1
    print(f"{WRITES} {len(_seen)}", flush=True)
    return code


def wait_for_the_other(folder: Path) -> None:
    """Who has tried for a run folder waits until the other has too: no race ends before the second begins."""
    from cascade_sim.storage.folder import RunFolder

    take = RunFolder.create

    def create(*arguments: Any, **options: Any) -> RunFolder:
        try:
            return take(*arguments, **options)
        finally:
            (folder / str(os.getpid())).touch()
            for _ in range(int(HANG / 0.005)):
                if len(list(folder.iterdir())) > 1:
                    break
                time.sleep(0.005)

    RunFolder.create = create  # type: ignore[method-assign, assignment]


WRITES = "writes:"
_seen: list[str] = []


def fail_write(n: int, out: Path) -> None:
    """The n-th step of writing below `out` fails for want of space, and so does every later one (0: none).

    Steps: making a folder, opening a lock and writing it, writing a file, flushing it, renaming it, opening,
    writing and closing a Parquet part.
    """
    import pathlib

    from cascade_sim.storage import tables as records

    def step(what: str, path: Any) -> None:
        if not str(path).startswith(str(out)):
            return
        _seen.append(f"{what} {path}")
        if n and len(_seen) >= n:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def failing(place: Any, name: str, path_of: Any) -> None:
        real = getattr(place, name)

        def wrapped(*arguments: Any, **options: Any) -> Any:
            step(name, path_of(*arguments))
            return real(*arguments, **options)

        setattr(place, name, wrapped)

    real_write = pathlib.Path.write_bytes

    def write_bytes(path: Path, data: bytes) -> int:
        try:
            step("write", path)
        except OSError:
            real_write(path, data[: len(data) // 2])  # as much as there was room for
            raise
        return real_write(path, data)

    pathlib.Path.write_bytes = write_bytes  # type: ignore[method-assign, assignment]
    failing(pathlib.Path, "mkdir", lambda path, *_: "" if path.is_dir() else path)
    failing(os, "fsync", lambda handle: os.readlink(f"/proc/self/fd/{handle}"))
    failing(os, "pwrite", lambda handle, *_: os.readlink(f"/proc/self/fd/{handle}"))
    failing(os, "replace", lambda _, path: path)
    real_open = records._open_part

    def open_part(path: Path, *more: Any) -> Any:
        step("open", path)
        writer = real_open(path, *more)
        failing(writer, "write_table", lambda *_: path)
        failing(writer, "close", lambda *_: path)
        return writer

    records._open_part = open_part


def steps_of(said: str) -> int:
    """How many steps of writing a command said it took."""
    return int(said.rpartition(WRITES)[2])


def is_whole(manifest: Path) -> bool:
    """Not there, or readable and with all it needs."""
    if not manifest.exists():
        return True
    return json.loads(manifest.read_text()).get("status") in ("running", "complete")


if __name__ == "__main__":
    serve()
