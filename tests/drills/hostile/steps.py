"""Steps of writing: what a process does to files below some folders, counted; and what is done to it then.

Opening for writing, renaming, removing, making folders and links are seen by an audit hook, so no way around
it is left to Python code; flushing and writing to a handle are wrapped. What a library written in C++ does is
not seen (a Parquet part being filled), but its sealing is. A hook cannot be taken away again: use it in a
process that is about to end.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Steps:
    """Counts steps below `folders`. Before each whose number (from 1 on) is in `at`, `act` is told of it."""

    def __init__(self, folders: list[Path], at: set[int] | range, act: Callable[[str], None]) -> None:
        self.folders = tuple(str(folder.resolve()) for folder in folders)
        self.at, self.act = at, act
        self.labels: list[str] = []
        self._is_busy = False

    def plant(self) -> None:
        """From here on steps of this process count."""
        sys.addaudithook(self._audit)
        for name in ("fsync", "pwrite", "write"):
            self._wrap(name)

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            if isinstance(arguments[0], (str, bytes)) and (arguments[2] or 0) & _WRITING:
                self._step("open", arguments[0])
        elif event == "os.rename":
            self._step("rename", arguments[1], arguments[3])
        elif event in ("os.remove", "os.rmdir", "os.mkdir"):
            self._step(event[3:], arguments[0], arguments[-1])
        elif event in ("os.link", "os.symlink"):
            self._step(event[3:], arguments[1])
        elif event == "os.truncate":
            self._step("truncate", arguments[0])

    def _wrap(self, name: str) -> None:
        real = getattr(os, name)

        def wrapped(handle: int, *arguments: Any) -> Any:
            if not self._is_busy:
                self._step(name, handle)
            return real(handle, *arguments)

        setattr(os, name, wrapped)

    def _step(self, what: str, path: Any, folder: int = -1) -> None:
        if self._is_busy:
            return
        self._is_busy = True
        try:
            where = _absolute(path, folder)
            if not any(where == base or where.startswith(base + os.sep) for base in self.folders):
                return
            self.labels.append(f"{what} {where}")
            if len(self.labels) in self.at:
                self.act(what)
        finally:
            self._is_busy = False


def _absolute(path: Any, folder: int) -> str:
    if isinstance(path, int):
        return _of_handle(path)
    text = os.fsdecode(path)
    if os.path.isabs(text):
        return text
    return os.path.join(_of_handle(folder) if folder >= 0 else os.getcwd(), text)


def _of_handle(handle: int) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{handle}")
    except OSError:
        return ""


def kill(what: str) -> None:
    """No farewell: what power cuts and kill -9 do."""
    os.kill(os.getpid(), signal.SIGKILL)


def full(what: str) -> None:
    """There is no room, except for removing."""
    if what not in ("remove", "rmdir"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
