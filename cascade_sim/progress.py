"""Progress bars with stage names and rates on stderr, and the seconds each stage took."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import Task


def terminal_width(least: int = 0, usual: int = 100) -> int:
    """Columns of the terminal, `usual` where there is none to ask; never below `least`."""
    return max(shutil.get_terminal_size((usual, 24)).columns, least)


class Stage:
    """One bar. `advance` may be called as often as one likes: drawing is limited to a few times a second."""

    def __init__(self, bars: RichProgress | None, name: str, total: int | None, unit: str) -> None:
        self.done = 0
        self._bars = bars
        self._task = bars.add_task(name, total=total, unit=unit) if bars is not None else None

    def advance(self, n: int = 1) -> None:
        """`n` more units are done."""
        self.done += n
        if self._bars is not None and self._task is not None:
            self._bars.advance(self._task, n)

    def stop(self) -> None:
        """Freeze the bar and its clock; it stays on the screen."""
        if self._bars is not None and self._task is not None:
            self._bars.stop_task(self._task)


class Progress:
    """Stages of a run, shown while they last.

    Silent when `quiet` or when stderr is no terminal, so logs stay clean; the seconds are kept anyway.
    `seconds[name]` adds up if a stage name is used more than once, and is kept if the stage fails.
    """

    def __init__(self, quiet: bool = False) -> None:
        self.seconds: dict[str, float] = {}
        self._shown = not quiet and sys.stderr.isatty()
        self._bars: RichProgress | None = None

    def __enter__(self) -> Progress:
        if self._shown:
            self._bars = _bars()
            self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bars is not None:
            self._bars.stop()
            self._bars = None

    @contextmanager
    def stage(self, name: str, total: int | None = None, unit: str = "requests") -> Iterator[Stage]:
        """A named stage of `total` units (None: unknown, the bar pulses)."""
        stage = Stage(self._bars, name, total, unit)
        started = time.perf_counter()
        try:
            yield stage
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - started
            stage.stop()


def rate_text(done: float, seconds: float | None, unit: str) -> str:
    """`12,345 requests/s`; empty before anything is known."""
    if not done or not seconds:
        return ""
    rate = done / seconds
    return f"{rate:,.0f} {unit}/s" if rate >= 10 else f"{rate:.1f} {unit}/s"


def _bars() -> RichProgress:
    """The bars; rich is imported only when something is to be drawn."""
    from rich.console import Console
    from rich.progress import BarColumn, ProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            # Over the whole stage: rich's own speed looks at the last moments only and jumps about.
            return Text(rate_text(task.completed, task.elapsed, task.fields["unit"]), style="cyan")

    # force_interactive: FORCE_COLOR in CI would otherwise animate into a log file.
    console = Console(stderr=True, force_interactive=sys.stderr.isatty())
    return RichProgress(
        TextColumn("{task.description:<24}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        Rate(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        refresh_per_second=4,
    )
