"""What is under way, on stderr, and the seconds each stage took.

On a terminal: a bar per stage with its rate. Elsewhere, as in a log: a line when a stage begins, a line a
minute while it lasts, and a line for each of the large parts (a world, a cell) that some stages have.

    [0:07] evaluate: 20,000 requests
    [1:07] evaluate: 8,192 of 20,000 requests (41 %), 137 requests/s, 1:26 left
    [1:09] cells: slots=3, seed 1 finished, 2 of 6 worlds (33 %), 2:18 left
"""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING

from cascade_sim.foundation import compilation
from cascade_sim.foundation.signals import check_interrupt
from cascade_sim.foundation.terminal import in_line, shown

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import Task, TaskID


def terminal_width(least: int = 0, default: int = 100) -> int:
    """Columns of the terminal, `default` where there is none to ask; never below `least`."""
    return max(shutil.get_terminal_size((default, 24)).columns, least)


EVERY = 60.0  # seconds between the lines of a stage that lasts
_GLANCE = 5.0  # seconds between looks at whether a line is due
COMPILING = "compiling kernels, once per version"


class Stage:
    """One stage. `advance` may be called as often as one likes: showing it is limited."""

    def __init__(
        self,
        name: str,
        total: int | None,
        unit: str,
        clock: Callable[[], float],
        bars: RichProgress | None = None,
        lines: Lines | None = None,
    ) -> None:
        self.name, self.total, self.unit = name, total, unit
        self.done = 0
        self.clock = clock
        self.started = clock()
        self._lines = lines
        self._bars = bars
        self._task = bars.add_task(in_line(name), total=total, unit=unit) if bars is not None else None
        if lines is not None:
            lines.begin(self)

    def advance(self, n: int = 1) -> None:
        """`n` more units are done."""
        check_interrupt()  # between two pieces of work
        self.done += n
        if self._bars is not None and self._task is not None:
            self._bars.advance(self._task, n)
        elif self._lines is not None:
            self._lines.tick()

    def stop(self) -> None:
        """Freeze the bar and its clock; it stays on the screen."""
        if self._bars is not None and self._task is not None:
            self._bars.stop_task(self._task)
        if self._lines is not None:
            self._lines.end(self)

    def tell(self, text: str) -> None:
        """A line of its own where there is no terminal; the bar of a terminal says enough."""
        if self._lines is not None:
            self._lines.tell(self, text)

    def text(self) -> str:
        """The stage and how far it is."""
        return f"{self.name}: {self.state()}"

    def state(self) -> str:
        """How far it is: done, rate and the time that is left, as far as they are known."""
        seconds = self.clock() - self.started
        left = None
        if self.total is None or self.total <= 1:  # one of one says nothing while it lasts
            done = f"{self.done:,} {self.unit}" if self.done else f"for {clock_text(seconds)}"
        else:
            done = f"{self.done:,} of {self.total:,} {self.unit} ({self.done / self.total:.0%})".replace(
                "%", " %"
            )
            left = seconds * (self.total - self.done) / self.done if 0 < self.done <= self.total else None
        parts = [done, rate_text(self.done, seconds, self.unit)]
        parts += [f"{clock_text(left)} left"] if left is not None else []
        return ", ".join(part for part in parts if part)


class Lines:
    """Plain lines where there is no terminal to draw on, each with the time since the first."""

    def __init__(self, write: Callable[[str], None], clock: Callable[[], float]) -> None:
        self._write = write
        self._clock = clock
        self._started = self._last = clock()
        self._open: list[Stage] = []
        self._compiled: int | None = None  # kernels; None before the first begins
        self._alone = threading.RLock()  # stages advance in several threads

    def begin(self, stage: Stage) -> None:
        """A line for a stage that begins."""
        with self._alone:
            self._open.append(stage)
            size = f": {stage.total:,} {stage.unit}" if stage.total is not None and stage.total > 1 else ""
            self._say(f"{stage.name}{size}")

    def end(self, stage: Stage) -> None:
        """No more lines for this stage."""
        with self._alone:
            self._open.remove(stage)

    def tell(self, stage: Stage, text: str) -> None:
        """A line about a stage, at once."""
        with self._alone:
            self._say(f"{stage.name}: {text}")

    def compiling(self, n_done: int) -> None:
        """Kernels are compiled, of which so many are done: a line for the first, the others are counted."""
        with self._alone:
            if self._compiled is None:
                self._say(COMPILING)
            self._compiled = n_done

    def tick(self) -> None:
        """A line for the stage that is under way, if the last line is a while ago."""
        if self._clock() - self._last < EVERY:
            return
        with self._alone:
            if self._open and self._clock() - self._last >= EVERY:
                compiled = f"; {self._compiled:,} kernels compiled" if self._compiled else ""
                self._say(self._open[-1].text() + compiled)

    def _say(self, text: str) -> None:
        self._last = self._clock()
        self._write(f"[{clock_text(self._last - self._started)}] {text}")


class Progress:
    """Stages of a run, shown while they last: by bars on a terminal, by lines elsewhere, not if `quiet`.

    `seconds[name]` adds up if a stage name is used more than once, and is kept if the stage fails.
    `micros`: what serving was measured to take a request, {arm: {stage of the cascade: µs}}.
    """

    def __init__(self, quiet: bool = False, *, clock: Callable[[], float] | None = None) -> None:
        self.seconds: dict[str, float] = {}
        self.micros: dict[str, dict[str, float]] = {}
        self._clock = clock or time.perf_counter
        self.is_quiet = quiet or sys.stderr is None
        self._bars: RichProgress | None = None
        self._lines: Lines | None = None
        self._over = threading.Event()
        self._watching = ExitStack()
        self._n_compiling = self._n_compiled = 0  # kernels: under way, one inside the other, and done
        self._compile_task: TaskID | None = None

    def __enter__(self) -> Progress:
        if self.is_quiet:
            return self
        self._watching.enter_context(compilation.watched(self._compiling))
        if sys.stderr.isatty():
            self._bars = _bars()
            self._bars.start()
        else:
            self._lines = Lines(_to_stderr, self._clock)
            threading.Thread(target=self._watch, args=(self._lines,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._watching.close()
        self._lines = None
        if self._bars is not None:
            self._bars.stop()
            self._bars = None

    @contextmanager
    def stage(self, name: str, total: int | None = None, unit: str = "requests") -> Iterator[Stage]:
        """A named stage of `total` units (None: unknown, the bar pulses)."""
        stage = Stage(name, total, unit, self._clock, self._bars, self._lines)
        try:
            yield stage
            if total == 1 and not stage.done:  # one piece of work is done when it ends
                stage.advance()
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + self._clock() - stage.started
            stage.stop()

    def _compiling(self, name: str, is_done: bool) -> None:
        """What the stage under way waits for the first time: a bar of its own while it lasts, or a line."""
        self._n_compiling += -1 if is_done else 1
        self._n_compiled += is_done
        if self._lines is not None:
            self._lines.compiling(self._n_compiled)
        elif self._bars is not None:
            if self._compile_task is None:
                self._compile_task = self._bars.add_task(COMPILING, total=None, unit="kernels")
            self._bars.update(self._compile_task, advance=int(is_done), visible=self._n_compiling > 0)

    def _watch(self, lines: Lines) -> None:
        """A stage that does not advance for long, as where a process has a world to do, is told of too."""
        while not self._over.wait(_GLANCE):
            lines.tick()


def _to_stderr(line: str) -> None:
    """A line for the reader of a log; if the stream is closed, the work goes on."""
    with suppress(OSError, ValueError):
        print(shown(line), file=sys.stderr, flush=True)


def clock_text(seconds: float) -> str:
    """`1:05`, `2:00:07`: minutes and seconds, with hours from one on."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def rate_text(done: float, seconds: float | None, unit: str) -> str:
    """`12,345 requests/s`; empty before anything is known, and where it would be 0.0."""
    if not done or not seconds or done / seconds < 0.05:
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
        TextColumn("{task.description:<24}", markup=False),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        Rate(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        refresh_per_second=4,
    )
