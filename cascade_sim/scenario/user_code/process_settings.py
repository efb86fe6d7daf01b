"""Process-wide settings that a custom class changes are restored when it is done.

A click model that sets torch's default dtype would break the net that is served next, and one that changes
the working folder would send the results elsewhere, far from the class that did it. Nothing is copied on the
way in that takes longer than a call; of what is not loaded, nothing can have been set.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from cascade_sim.foundation.errors import UserError

# What is told, and how it is set again.
Setting = tuple[Callable[[], Any], Callable[[Any], Any]]


@contextmanager
def preserve_global_state() -> Iterator[None]:
    """Inside, anything may be set, and the standard streams are lent."""
    before = [(tell, put_back, tell()) for tell, put_back in _settings()]
    streams = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (_lent(stream, name) for stream, name in zip(streams, _STREAMS, strict=True))
    try:
        yield
    finally:
        sys.stdout, sys.stderr = streams
        for tell, put_back, value in before:
            if tell() != value:
                put_back(value)


_STREAMS = ("stdout", "stderr")


class _Lent:
    """A standard stream given to user code, which may write to it. Some keep it, for a log of theirs."""

    def __init__(self, stream: Any, name: str) -> None:
        self._stream, self._name = stream, name

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._stream)

    def close(self) -> None:
        raise UserError(f"it closes sys.{self._name}, which is not its own")


def _lent(stream: Any, name: str) -> Any:
    """None is what Python has for a stream that was closed before it began."""
    return stream if stream is None or isinstance(stream, _Lent) else _Lent(stream, name)


def _settings() -> Iterator[Setting]:
    yield _folder, _to_folder
    yield sys.getrecursionlimit, sys.setrecursionlimit
    yield gc.isenabled, lambda was: gc.enable() if was else gc.disable()
    yield lambda: list(warnings.filters), _to_filters
    if threading.current_thread() is threading.main_thread():  # the only one that may set them
        for number in (signal.SIGINT, signal.SIGTERM):
            yield partial(signal.getsignal, number), partial(signal.signal, number)
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None:
        yield numpy.geterr, lambda was: numpy.seterr(**was)
    if torch is not None:
        yield torch.get_default_dtype, torch.set_default_dtype
        yield torch.is_grad_enabled, torch.set_grad_enabled
        yield torch.get_num_threads, torch.set_num_threads


def _folder() -> str | None:
    try:
        return os.getcwd()
    except OSError:  # it was removed
        return None


def _to_folder(folder: str | None) -> None:
    with suppress(OSError):
        if folder is not None:
            os.chdir(folder)


def _to_filters(filters: list[Any]) -> None:
    warnings.filters[:] = filters  # type: ignore[index]
    with warnings.catch_warnings():  # on leaving it Python forgets what the others had it ignore
        pass
