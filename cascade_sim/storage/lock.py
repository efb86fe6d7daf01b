"""One writer per run folder: a lock file that names its owner and dies with it.

The file is locked by the operating system (flock), so a killed run never blocks its folder: the next one
finds the file unlocked and takes it over. Where a file system does not share locks between hosts, the host
named in the file decides: another host's lock is respected.
"""

import json
import os
import socket
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cascade_sim.errors import UserError

LOCK = ".lock"
_PROGRAM = "cascade_sim"


class Lock:
    """A lock that is held, from `take` to `release`."""

    def __init__(self, path: Path, handle: int) -> None:
        self._path = path
        self._handle: int | None = handle

    @classmethod
    def take(cls, folder: Path) -> "Lock":
        """Lock the folder for this process; UserError naming the owner if somebody else has it."""
        import fcntl

        path = folder / LOCK
        while True:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise UserError(_refusal(folder, _owner(path))) from None
                if not _is_same_file(handle, path):
                    os.close(handle)  # its owner removed it between our two steps: begin again
                    continue
                owner = _owner(path)
                if owner.get("host", socket.gethostname()) != socket.gethostname():
                    raise UserError(_refusal(folder, owner) + f"; if it is gone, delete {path}")
                _write_owner(handle)
            except BaseException:
                os.close(handle)
                raise
            return cls(path, handle)

    def leave(self) -> None:
        """Unlock, and let the file stay as after a kill."""
        if self._handle is not None:
            handle, self._handle = self._handle, None
            os.close(handle)

    def release(self) -> None:
        """Remove the file, then unlock. Releasing twice is harmless."""
        if self._handle is None:
            return
        handle, self._handle = self._handle, None
        try:
            self._path.unlink(missing_ok=True)
        except OSError:
            pass  # the folder became read-only: the file stays behind unlocked, which is as good
        finally:
            os.close(handle)

    @staticmethod
    def is_ours(folder: Path) -> bool:
        """Whether the folder has a lock of this program, held or left behind."""
        return _owner(folder / LOCK).get("program") == _PROGRAM


def _owner(path: Path) -> dict[str, Any]:
    """Who wrote the lock; empty if there is none, or it is just being written."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _write_owner(handle: int) -> None:
    started = datetime.now(UTC).isoformat(timespec="seconds")
    owner = {"program": _PROGRAM, "pid": os.getpid(), "host": socket.gethostname(), "started": started}
    os.ftruncate(handle, 0)
    os.pwrite(handle, json.dumps(owner).encode(), 0)


def _is_same_file(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False


def _refusal(folder: Path, owner: dict[str, Any]) -> str:
    who = "another run"
    if owner:
        who = f"process {owner.get('pid')} on {owner.get('host')}, started {owner.get('started')},"
    return f"{folder} is in use: {who} is writing to it"
