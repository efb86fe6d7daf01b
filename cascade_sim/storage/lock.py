"""The one writer of a folder: a file that names its owner, dies with it, and shows whether it is alive.

It is locked by the operating system (flock), so a killed process never blocks its folder: the next one finds
the file unlocked and takes it over. A file system need not share such locks between hosts, and a dead host
cannot be asked. So the holder of the lock has a lease: it counts a beat up in the file several times in each.
Another host that finds the file looks at it for a whole lease, by its own clock (no two clocks are compared).
A beat: the folder is in use. None: it puts a new file, with the next attempt number, in the place of the old.

The old owner, should it come back, finds that the file is not its own any more, or has another's attempt
number: it beats no longer, and nothing below its folder gets its name (`files.guard`).

It may be paused just between that look and the rename. What it was about to rename is then gone: the new
owner has removed all that has no name yet before it looked at anything. Either the rename comes before that,
or it finds no file. This needs one order of renames and removals, which every file system has. What it cannot
do: on a network file system the look at the lock may be as old as the client's cache of names (NFS:
`acdirmax`, 60 s), so the lease should be longer than that; and what a paused process is about to remove,
rather than rename, is not kept from it. Both hold for hosts that do not see each other's flock. Where it is
seen, as on a local disk, a paused owner has the folder until it is killed.
"""

import errno
import json
import os
import socket
import stat
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cascade_sim.foundation import cleanup
from cascade_sim.foundation.errors import Notice, UserError
from cascade_sim.storage.files import NO_LINKS, discard, flock, flush, guard, parse_json, temporary, unguard

LOCK = ".lock"
PROGRAM = "cascade_sim"
BEGINS = json.dumps({"program": PROGRAM}).encode()[:-1]  # as it is written
MAX_OF_LOCK = 4096  # bytes of it that are read

LOOKS = 3  # at a lock: one may come in the middle of a beat
HOLDER = ("pid", "host", "started", "attempt")  # of what the file says: who, and which time

LEASE_VARIABLE = "CASCADE_SIM_LEASE"
LEASE = 30.0  # seconds
BEATS = 5  # in a lease: a few may be late


class Clock:
    """Time, for those who wait; tests have one of their own."""

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)

    def every(self, seconds: float, do: Callable[[], bool]) -> Callable[[], None]:
        """Call `do` again and again until it is False, or until what is returned here is called."""
        over = threading.Event()

        def repeat() -> None:
            while not over.wait(seconds) and do():
                pass

        threading.Thread(target=repeat, daemon=True, name="lease").start()
        return over.set


CLOCK = Clock()


def lease() -> float:
    """Seconds without a sign after which the lock of another host is free: CASCADE_SIM_LEASE, or 30."""
    text = os.environ.get(LEASE_VARIABLE)
    if text is None:
        return LEASE
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.1 <= seconds <= 1e6:
        raise UserError(f"{LEASE_VARIABLE}={text}: expected seconds, from 0.1 to 1,000,000")
    return seconds


class Lock:
    """A lock that is held, from `take` to `release`."""

    def __init__(self, path: Path, clock: Clock = CLOCK) -> None:
        self._path, self._clock = path, clock
        self._handle: int | None = None  # of the file, locked
        self._is_opening = False  # whether the file may be there without a known handle
        self._is_new = False  # whether it was empty before
        self._owner: dict[str, Any] = {}
        self._busy = threading.Lock()  # the beat and the end of the lock
        self._stop: Callable[[], None] = lambda: None

    @classmethod
    def take(cls, folder: Path, *, waits: bool = True, clock: Clock | None = None) -> "Lock":
        """Lock the folder for this process; UserError naming the owner if another process has it.

        Where another host had it, that takes a lease, or is refused at once unless this one `waits`.
        """
        lock = cls(folder / LOCK, clock or CLOCK)
        cleanup.register(lock, lock.give_up)
        try:
            while not lock._open():
                pass
            lock._sign(waits)
        except BaseException:
            lock.give_up()
            raise
        return lock

    def _open(self) -> bool:
        """Open and lock the file; False if its owner removed it between the two steps: begin again."""
        if self._path.is_symlink():
            raise UserError(f"{self._path} is a link, which a lock never is; remove it")
        self._is_opening = True
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT | NO_LINKS, 0o644)
        try:
            try:
                flock(handle, self._path)
            except BlockingIOError:
                self._is_opening = False
                raise UserError(_refusal(self._path.parent, _written_owner(handle))) from None
            except UserError:  # no locks: nor can another process have locked what is empty here
                if _is_empty(handle):
                    self._path.unlink(missing_ok=True)
                raise
            if _is_same_file(handle, self._path):
                self._handle, self._is_opening = handle, False
                return True
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)
        return False

    def _sign(self, waits: bool) -> None:
        """Write into the locked file whose it is, and show from here on that its owner is alive."""
        assert self._handle is not None
        folder, before = self._path.parent, _written_owner(self._handle)
        self._owner = _new_owner(before)
        if before.get("host", socket.gethostname()) != socket.gethostname():
            _outlive(folder, before, waits, self._clock)
            old, self._handle = self._handle, _put_in_place(self._path, self._handle, self._owner)
            os.close(old)
            self._clock.wait(
                self._owner["lease"] / BEATS
            )  # another process may have looked as long as we did
            if not _is_same_file(self._handle, self._path):
                raise UserError(_refusal(folder, owner_of(self._path)))
        else:
            _check_lock(self._path, self._handle)
            self._is_new = _is_empty(self._handle)
            _write_owner(self._handle, self._owner)
            os.fsync(self._handle)
        flush(folder)  # before anything is removed: the lock shows that it was a run's
        self._stop = self._clock.every(self._owner["lease"] / BEATS, self.beat)
        guard(folder, self.require_held)

    @property
    def is_held(self) -> bool:
        """Whether the lock is still one's own: the same file, with the same attempt number in it."""
        if self._handle is None or not _is_same_file(self._handle, self._path):
            return False
        own = self._owner.get("attempt")
        return bool(_written_owner(self._handle).get("attempt", own) == own)

    @property
    def attempt(self) -> int:
        """1, or one more than that of the owner who did not come to its end."""
        return int(self._owner["attempt"])

    def beat(self) -> bool:
        """Show that the owner is alive; False when there is nothing to show any more."""
        with self._busy:
            if self._handle is None or not self.is_held:
                return False
            self._owner["beat"] += 1
            try:
                _write_owner(self._handle, self._owner)
                os.fsync(self._handle)  # another host sees what has reached the file server
            except OSError:
                pass  # a full disk, a server that is away: the next beat may come through
            return True

    def require_held(self) -> None:
        """UserError if another process took the folder meanwhile: nothing may be written there any more."""
        if self._handle is not None and not self.is_held:
            if not self._path.parent.is_dir():
                raise UserError(f"{self._path.parent} was removed while this process wrote to it")
            other = owner_of(self._path)
            who = _named(other) + f" took it over (attempt {other.get('attempt', '?')})" if other else ""
            raise UserError(
                f"{self._path.parent}: {who or 'its lock is gone, and another process may have had it'}: "
                f"this process gave no sign for {self._owner['lease']:g} s, and writes no more"
            )

    def leave(self) -> None:
        """Unlock, and let the file stay as after a kill."""
        unguard(self.require_held)
        self._stop()
        with self._busy:
            handle, self._handle = self._handle, None
        if handle is not None:
            os.close(handle)
        cleanup.unregister(self)

    def release(self) -> None:
        """Remove the file, if it is still one's own, then unlock. Releasing twice is harmless.

        So is a release that was cut off: only when the file is gone is the lock not held any more.
        """
        try:
            if self.is_held:
                self._path.unlink(missing_ok=True)
        except OSError:
            pass  # the folder became read-only: the file stays behind unlocked, which is as good
        self.leave()

    def give_up(self) -> None:
        """Release before anything was done in the folder: a file that was there before stays."""
        if self._handle is None and self._is_opening:
            self._handle = _locked(self._path)
        self._is_opening = False
        if self._handle is not None and (self._is_new or _is_empty(self._handle)):
            self.release()
        self.leave()

    @staticmethod
    def is_ours(folder: Path) -> bool:
        """Whether the folder has a lock of this program, held or left behind."""
        try:
            handle = os.open(folder / LOCK, os.O_RDONLY | os.O_NONBLOCK | NO_LINKS)
        except OSError:
            return False
        try:
            return os.pread(handle, len(BEGINS), 0) == BEGINS  # the rest may be half another's
        except OSError:
            return False
        finally:
            os.close(handle)


def owner_of(path: Path) -> dict[str, Any]:
    """Who wrote the lock; empty if there is none, or it is just being written."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | NO_LINKS)  # a pipe would wait for its other end
    except OSError:
        return {}
    try:
        return _written_owner(handle)
    finally:
        os.close(handle)


def holder_of(folder: Path) -> dict[str, Any]:
    """Who holds the folder, in what never changes while it does; empty if unknown."""
    owner: dict[str, Any] = {}
    for _ in range(LOOKS):
        owner = owner or owner_of(folder / LOCK)
    return {name: owner[name] for name in HOLDER if name in owner}


@contextmanager
def written_for(folder: Path, holder: Mapping[str, Any]) -> Iterator[None]:
    """Write in a folder for the process that holds it, and no more once it has lost it."""

    def require() -> None:
        now = holder_of(folder)
        if now != holder:
            who = _named(now) + " has it now" if now else "no process has it now"
            raise UserError(f"{folder}: {_named(dict(holder))} for which this process works, lost it: {who}")

    if holder:
        guard(folder, require)
    try:
        yield
    finally:
        unguard(require)


def _outlive(folder: Path, owner: dict[str, Any], waits: bool, clock: Clock) -> None:
    """Return when the owner, of another host, has shown no sign for a lease; UserError if it is alive."""
    path = folder / LOCK
    if "beat" not in owner or not waits:  # an older version gives no sign even if it is alive
        raise UserError(_refusal(folder, owner) + f"; if it is gone, delete {path}")
    seconds = max(lease(), _number(owner.get("lease")))
    warnings.warn(
        f"{folder} is marked as in use by {_named(owner)}: looking for {seconds:g} s whether it is alive",
        Notice, stacklevel=5,
    )  # fmt: skip
    for _ in range(2 * BEATS):
        clock.wait(seconds / (2 * BEATS))
        if owner_of(path) != owner:
            raise UserError(_refusal(folder, owner_of(path) or owner))
    warnings.warn(
        f"{folder}: {_named(owner)} gave no sign for {seconds:g} s and counts as dead; taken over, attempt "
        f"{_new_owner(owner)['attempt']}",
        Notice, stacklevel=5,
    )  # fmt: skip


def _locked(path: Path) -> int | None:
    """The handle of a file that is there, locked; None if another process has it, or it is none."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_NONBLOCK | NO_LINKS)
    except OSError:
        return None
    try:
        flock(handle, path)
    except (OSError, UserError):
        os.close(handle)
        return None
    return handle


def _put_in_place(path: Path, old: int, owner: dict[str, Any]) -> int:
    """A new lock in the place of a dead one. A new file: what the old owner writes does not reach it.

    UserError if another process was quicker: its lock lies there, or it has removed what was to become ours.
    """
    temp = temporary(path)
    try:
        handle = os.open(temp, os.O_RDWR | NO_LINKS)
        try:
            flock(handle, temp)
            _write_owner(handle, owner)
            os.fsync(handle)
            if not _is_same_file(old, path):
                raise FileNotFoundError
            os.replace(temp, path)
        except FileNotFoundError:
            os.close(handle)
            raise UserError(_refusal(path.parent, owner_of(path))) from None
        except BaseException:
            os.close(handle)
            raise
    finally:
        discard(temp)
    return handle


def _new_owner(before: dict[str, Any]) -> dict[str, Any]:
    started = datetime.now(UTC).isoformat(timespec="seconds")
    attempt = int(_number(before.get("attempt"))) + 1
    return {
        "program": PROGRAM, "pid": os.getpid(), "host": socket.gethostname(), "started": started,
        "attempt": attempt, "lease": lease(), "beat": 0,
    }  # fmt: skip


def _number(value: Any) -> float:
    return value if isinstance(value, int | float) and 0 <= value <= 1e6 else 0


def _written_owner(handle: int) -> dict[str, Any]:
    try:
        content = parse_json(os.pread(handle, MAX_OF_LOCK, 0))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _write_owner(handle: int, owner: dict[str, Any]) -> None:
    """Write the owner into the file; OSError where it does not fit, also when a part of it did."""
    text = json.dumps(owner).encode()
    written = 0
    while written < len(text):  # on a full disk a part goes through, and only the next call says why
        written += os.pwrite(handle, text[written:], written)
    os.ftruncate(handle, len(text))  # after: a reader never finds it empty


def _check_lock(path: Path, handle: int) -> None:
    """UserError if the file is not a run's: taking the lock would empty it."""
    status = os.fstat(handle)
    text = os.pread(handle, len(BEGINS), 0) if stat.S_ISREG(status.st_mode) else b"?"
    # A killed run leaves it empty at worst, a power cut with zeros for its end.
    if status.st_nlink > 1 or not BEGINS.startswith(text.rstrip(b"\0")):
        raise UserError(f"{path} is not a lock of {PROGRAM}; move it away")


def _is_empty(handle: int) -> bool:
    """Whether it is a plain file in which nothing is written: it was just made, or shows nothing."""
    status = os.fstat(handle)
    return stat.S_ISREG(status.st_mode) and status.st_nlink == 1 and status.st_size == 0


def _is_same_file(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ESTALE):  # removed here, or by another host
            raise
        return False


def _named(owner: dict[str, Any]) -> str:
    return f"process {owner.get('pid')} on {owner.get('host')}, started {owner.get('started')},"


def _refusal(folder: Path, owner: dict[str, Any]) -> str:
    return f"{folder} is in use: {_named(owner) if owner else 'another run'} is writing to it"
