"""Commands as the drill runs them: in a forked process of their own, or in this one where nothing can be hurt.

The process that forks has imported and compiled everything, so a command starts in milliseconds.
"""

from __future__ import annotations

import io
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

OPTIONS = ("--workers", "1", "--device", "cpu", "--quiet")
FIGURE = b"<svg xmlns='http://www.w3.org/2000/svg'/>"


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
    """Reports without drawing: seconds each, and a stand-in lies where a figure would."""
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
        self.logs = [place / f"said-{len(list(place.glob('said-*')))}-{name}" for name in ("out", "err")]
        for log in self.logs:
            log.touch()
        self.pid = os.fork()
        if self.pid:
            return
        code = 70
        try:
            streams = [os.devnull, stdout or str(self.logs[0]), str(self.logs[1])]
            for number, name in enumerate(streams):
                os.dup2(os.open(name, os.O_RDWR if number else os.O_RDONLY), number)
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
        out, err = (log.read_text(errors="replace") for log in self.logs)
        return Answer(os.waitstatus_to_exitcode(status), out, err)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            pass  # its disk is full; the command has had its chance to say so


def run(words: Sequence[str], place: Path, **options: object) -> Answer:
    """The answer of a command in a process of its own; options as in Process."""
    return Process(words, place, **options).answer()  # type: ignore[arg-type]
