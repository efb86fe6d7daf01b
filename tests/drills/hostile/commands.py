"""Commands as the drill runs them: in a forked process of their own, or in this one.

The process that forks has imported and compiled everything, so a command starts in milliseconds.
"""

from __future__ import annotations

import fcntl
import io
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path

OPTIONS = ("--workers", "1", "--device", "cpu", "--quiet")
PIPE = 1 << 20  # bytes: more than any command says


@dataclass(frozen=True)
class Answer:
    """What a command said: exit code (negative if a signal ended it), both streams."""

    code: int
    out: str
    err: str

    @property
    def is_crash(self) -> bool:
        """A traceback, a death by a signal that nobody sent, or an exit code that no command documents."""
        return "Traceback (most recent call last)" in self.err + self.out or self.code < 0

    @property
    def is_refusal(self) -> bool:
        return self.code == 2 and "error: " in self.err and not self.is_crash

    def names(self, *words: str) -> bool:
        return any(word in self.err for word in words)

    @property
    def last_words(self) -> str:
        return (self.err or self.out).strip()[-600:]


def no_figures() -> None:
    """Reports without drawing, which takes seconds."""
    from cascade_sim.analysis.report import page

    page.draw_all = lambda metrics: {}


def here(words: Sequence[str]) -> Answer:
    """The answer of a command that runs in this process. An exception is a crash, with its traceback."""
    from cascade_sim.cli import main

    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            code = main(list(words))
        except BaseException:  # SystemExit too: main returns
            traceback.print_exc()
            code = 1
    return Answer(code, out.getvalue(), err.getvalue())


class Process:
    """A command in a process of its own, started; `answer` waits for it.

    `first` is called there before the command, to plant a fault. The process has temporary folders of its own
    in `tmp`, and trained models in `cache`.
    """

    def __init__(
        self,
        words: Sequence[str],
        place: Path,
        *,
        cache: Path,
        first: Callable[[], None] = lambda: None,
        last: Callable[[], None] = lambda: None,
        stdout: str | None = None,
    ) -> None:
        # Pipes, not files: a disk that is full must not swallow what is said about it.
        pipes = [os.pipe() for _ in range(2)]
        for _, write in pipes:
            fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, PIPE)
        self._read = [read for read, _ in pipes]
        self.pid = os.fork()
        if self.pid:
            for _, write in pipes:
                os.close(write)
            return
        code = 70
        try:
            out = pipes[0][1] if stdout is None else os.open(stdout, os.O_WRONLY)
            for number, handle in enumerate((os.open(os.devnull, os.O_RDONLY), out, pipes[1][1])):
                os.dup2(handle, number)
            signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored, where the drill is a job
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w", buffering=1)  # noqa: SIM115
            os.environ["CASCADE_SIM_CACHE"] = str(cache)
            tmp = place / "tmp"
            tmp.mkdir(exist_ok=True)
            os.environ["TMPDIR"] = str(tmp)
            import tempfile

            tempfile.tempdir = None
            from cascade_sim.cli import main

            first()
            try:
                code = main(list(words))
                last()
            except BaseException:
                traceback.print_exc()
                code = 1
            _flush()
        finally:
            os._exit(code)

    def answer(self) -> Answer:
        _, status = os.waitpid(self.pid, 0)
        said = []
        for handle in self._read:
            os.set_blocking(handle, False)
            with open(handle, "rb") as stream:
                said.append((stream.read() or b"").decode(errors="replace"))
        return Answer(os.waitstatus_to_exitcode(status), *said)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # full or closed: the command has had its chance to say so
            stream.flush()


def run(words: Sequence[str], place: Path, **options: object) -> Answer:
    """The answer of a command in a process of its own; options as in Process."""
    return Process(words, place, **options).answer()  # type: ignore[arg-type]
