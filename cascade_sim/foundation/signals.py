"""Ctrl-C and SIGTERM: work is unwound, locks are released, temporary files go, and no code swallows them.

Slurm, Kubernetes and `timeout` send SIGTERM; it is an interrupt like Ctrl-C with an exit code of its own. An
interrupt that falls into code which swallows it (a bare `except`, a callback that runs inside a library)
would be lost: `check_interrupt`, called between two pieces of work, raises it again. Where Python itself
swallows it (a finaliser, a callback of the garbage collector) it would print a traceback; as
`check_interrupt` is to come, it does not.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from cascade_sim.foundation import cleanup

STOPPED = 128 + signal.SIGTERM  # the exit code that a shell shows for it


class Terminated(KeyboardInterrupt):
    """SIGTERM. Code that cleans up after Ctrl-C cleans up after it as well."""


class _Signals:
    """What came in since `stoppable` began to listen."""

    is_heard = False  # whether signals are handled: an interrupt that no signal brought is then a forged one
    came: type[KeyboardInterrupt] | None = None
    is_over = False  # whether the work has ended: there is nothing left to interrupt


def _interrupt(number: int, frame: FrameType | None) -> None:
    _Signals.came = Terminated if number == signal.SIGTERM else KeyboardInterrupt
    if not _Signals.is_over:
        raise _Signals.came


@contextmanager
def _quiet_about_interrupts() -> Iterator[None]:
    """An interrupt that falls into a finaliser is not printed: `check_interrupt` raises it again."""
    before = sys.unraisablehook

    def hook(unraisable: sys.UnraisableHookArgs) -> None:
        if not (isinstance(unraisable.exc_value, KeyboardInterrupt) and _Signals.came is not None):
            before(unraisable)

    sys.unraisablehook = hook
    try:
        yield
    finally:
        if sys.unraisablehook is hook:
            sys.unraisablehook = before


@contextmanager
def stoppable() -> Iterator[None]:
    """Inside, SIGINT and SIGTERM raise KeyboardInterrupt and Terminated; a handler of one's own stays.

    At the end what they left behind is taken away.
    """
    ours = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    if threading.current_thread() is not threading.main_thread():
        yield  # Python gives signals to the main thread alone
        return
    held = cleanup.registered()  # by the caller of a command in Python
    before = {number: signal.getsignal(number) for number in ours}
    taken = [number for number, usual in ours.items() if before[number] == usual]
    for number in taken:
        signal.signal(number, _interrupt)
    is_ignored = before[signal.SIGINT] == signal.SIG_IGN  # in the background: no signal brings an interrupt
    _Signals.is_heard, _Signals.came = signal.SIGINT in taken or is_ignored, None
    try:
        with _quiet_about_interrupts():
            yield
    finally:
        _Signals.is_over = True
        try:
            cleanup.clear(but=held)
        finally:
            _Signals.is_heard, _Signals.came = False, None
            for number in taken:
                signal.signal(number, before[number])
            _Signals.is_over = False


def check_interrupt() -> None:
    """Raise an interrupt that came in and was swallowed."""
    if _Signals.came is not None and threading.current_thread() is threading.main_thread():
        raise _Signals.came


def is_interrupt(error: BaseException) -> bool:
    """Whether the user wants the work to stop, rather than code that raises what an interrupt would."""
    return isinstance(error, KeyboardInterrupt) and (_Signals.came is not None or not _Signals.is_heard)
