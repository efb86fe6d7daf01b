"""Files that appear whole or not at all: written beside their place, flushed to the disk, renamed.

After a power cut, too: a folder is flushed when a name in it must stay, as the names of new folders must, in
which files are lost that were flushed themselves.

No link is followed on the way: a folder that others may write to cannot lead a write elsewhere. Nor a read:
`below` builds every path of a run's folder, `opened` opens every file of it.
"""

import errno
import io
import json
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from cascade_sim.foundation import cleanup
from cascade_sim.foundation.errors import UserError

MAX_DIGITS = 40  # of an integer in JSON
LARGEST = 1e100  # of a number in JSON: squares and sums of such are still finite
NO_LINKS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)  # for os.open
MARKED = 4096  # bytes at the beginning of a file that say whose it is
PNG = b"\x89PNG\r\n\x1a\n"
MAX_BYTES = 1 << 28  # of a file that is read whole: the largest results have a few million
_KINDS = {  # of what is no regular file
    stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}  # fmt: skip


def write_file(path: Path, data: bytes) -> None:
    """Put `data` at `path`, whose folder exists. After an error the old file, if any, is still whole."""
    with storage_errors(path):
        temp = temporary(path)
        with discarded_on_error(temp):
            temp.write_bytes(data)
            seal(temp, path)


def seal(temp: Path, path: Path) -> None:
    """Flush a finished temporary file to the disk and give it its name.

    UserError where it lies below a guarded folder that is not ours to write to any more. A process that is
    paused after that check does no harm either: the next owner of the folder removes what has no name yet
    before it does anything else, so there is nothing left to rename.
    """
    flush(temp)
    require_ours(path)
    os.replace(temp, path)
    cleanup.unregister(temp)
    flush(path.parent)  # the rename itself must survive a power cut


def _is_below(path: Path, folder: Path) -> bool:
    whole = Path(os.path.abspath(path))
    return folder == whole or folder in whole.parents


_guards: list[tuple[Path, Callable[[], None]]] = []  # folders, and who says whether they are still ours


def require_ours(path: Path) -> None:
    """UserError where the path lies below a guarded folder that is not ours to write to any more."""
    for folder, check in list(_guards):
        if _is_below(path, folder):
            check()


def guard(folder: Path, check: Callable[[], None]) -> None:
    """From here on nothing below the folder gets its name unless `check` passes."""
    _guards.append((Path(os.path.abspath(folder)), check))


def unguard(check: Callable[[], None]) -> None:
    """The end of `guard`; twice is harmless."""
    _guards[:] = [entry for entry in _guards if entry[1] != check]


def temporary(path: Path) -> Path:
    """A new empty file to write before `seal`: hidden, in the same folder, with an unguessable name.

    It goes with `discard`, or else at the end of the command.
    """
    temp = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(8)}.tmp")
    cleanup.register(temp, partial(temp.unlink, missing_ok=True))
    os.close(os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_LINKS, 0o666))
    return temp


def discard(temp: Path) -> None:
    """Remove a temporary file that gets no name. Twice is harmless."""
    temp.unlink(missing_ok=True)
    cleanup.unregister(temp)


def below(folder: str | Path, *names: str) -> Path:
    """The path of an entry of a run's folder, be it there or not.

    UserError where a step of it is a link: it may lead anywhere. The folder itself may be one, for it was
    named by who asks.
    """
    path = Path(folder)
    for name in (part for words in names for part in words.split("/")):
        if name in ("", ".", "..") or "\0" in name:
            raise UserError(f"{path}: {'/'.join(names)!r} is not the name of an entry of a run")
        path = path / name
        if os.path.islink(path):
            raise UserError(f"{path} is a link, and no link in a run's folder is followed; remove it")
    return path


def make_folder(path: Path, *, parents: bool = True) -> None:
    """Make a folder, with its `parents`, where they are missing; their names survive a power cut."""
    if path.is_dir():
        return
    try:
        path.mkdir()
    except FileNotFoundError:
        if not parents:
            raise
        make_folder(path.parent)
        path.mkdir(exist_ok=True)
    except FileExistsError:  # a file, or another process was quicker
        path.mkdir(exist_ok=True)
    flush(path.parent)


def folder_inside(folder: Path, *names: str) -> Path:
    """The folder below a run's, which is there: made where it is missing; no step may be a link."""
    is_there = any(_is_below(folder, ours) for ours, _ in list(_guards))  # what is locked is not made again
    for name in names:
        folder = below(folder, name)
        with storage_errors(folder):
            make_folder(folder, parents=not is_there)
    return folder


def opened(path: Path, *, follows: bool = False) -> io.BufferedReader:
    """A regular file, to be read; OSError in words for anything else, which might be waited for for ever.

    A file that the user named (`follows`) may be a link to one; in a run's folder it may not.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follows else NO_LINKS)
    try:
        handle = os.open(path, flags)
    except OSError as error:
        words = {errno.ENXIO: "a socket, not a regular file"}  # nothing else says so of reading
        if not follows and os.path.islink(path):
            words = {errno.ELOOP: "a link, which is not followed"}
        raise OSError(error.errno, words.get(error.errno or 0, error.strerror), str(path)) from None
    kind = stat.S_IFMT(os.fstat(handle).st_mode)
    if kind == stat.S_IFREG:
        return os.fdopen(handle, "rb")
    os.close(handle)
    code = errno.EISDIR if kind == stat.S_IFDIR else errno.EINVAL
    raise OSError(code, f"{_KINDS.get(kind, 'something else')}, not a regular file", str(path))


def read_file(path: Path, *, most: int = MAX_BYTES, follows: bool = False) -> bytes:
    """All of a file, as `opened`; OSError if it has more than `most` bytes."""
    with opened(path, follows=follows) as file:
        size = os.fstat(file.fileno()).st_size
        data = file.read(min(size, most) + 1)  # room is made for as much as is asked for
    if max(size, len(data)) > most:
        raise OSError(errno.EFBIG, f"more than {most:,} bytes", str(path))
    return data


def refuse_other(path: Path, what: str, mark: bytes) -> None:
    """UserError if writing would replace what is no `what`: that has the mark near its beginning."""
    try:
        with opened(path) as file:
            if mark in file.read(MARKED):
                return
    except FileNotFoundError:
        return
    except OSError as error:
        reason = f"{error.strerror}; give another name"
        raise UserError(f"{path} is there and is not replaced: {reason}") from error
    raise UserError(f"{path} is there and is no {what}; give another name, or remove it first")


def mark_of(content: bytes) -> bytes:
    """What a file of the same kind has: the head of a table, the first key of JSON, the kind of a picture."""
    if content.startswith(PNG):
        return PNG
    if b"<svg" in content[:MARKED]:
        return b"<svg"
    found = re.match(rb"[\[{\s]*[^\n:]*", content)
    return found[0] if found else b""


def parse_json(data: bytes | str) -> Any:
    """JSON as this program writes it; ValueError in words for what no result can hold."""
    try:
        return json.loads(data, parse_int=_whole, parse_float=_number, parse_constant=_number)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _whole(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise ValueError(f"an integer of {len(text):,} digits")
    return int(text)


def _number(text: str) -> float:
    number = float(text)
    if not abs(number) <= LARGEST:
        raise ValueError(f"{text[:MAX_DIGITS]} is not a number that a result can have")
    return number


@contextmanager
def discarded_on_error(temp: Path) -> Iterator[None]:
    """Leave no half-written file behind."""
    try:
        yield
    except BaseException:
        with suppress(OSError):
            discard(temp)
        raise


@contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """A full disk or a read-only folder is the user's to fix: UserError with the reason.

    Where a file or a folder is gone, that may be that another process has the run folder by now.
    """
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        if isinstance(error, FileNotFoundError):
            require_ours(path)
            if not path.parent.is_dir():
                reason = f"{path.parent} is not there any more: it was removed, or moved away"
        raise UserError(f"cannot write {path}: {reason}") from error


_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)  # of an NFS mount, or a FUSE


def flock(handle: int, path: Path, *, waits: bool = False) -> None:
    """Lock an open file or folder for this process; BlockingIOError if another has it, unless this `waits`.

    UserError where the file system has no locks.
    """
    import fcntl

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        raise UserError(
            f"cannot lock {path}: {error.strerror}. Without locks two commands may write to one folder at "
            "once: give a folder on a local disk, or have the file system mounted with locks (NFS: with "
            "rpc.statd running on both sides; with the option local_lock=all if this host alone writes there)"
        ) from error


def flush(path: Path) -> None:
    """Wait until a file, or the names in a folder, have reached the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
