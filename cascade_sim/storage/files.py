"""Files that appear whole or not at all: written beside their place, flushed to the disk, renamed.

No link is followed on the way: a folder that others may write to cannot lead a write elsewhere.
"""

import json
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from cascade_sim import leftovers
from cascade_sim.errors import UserError

MOST_DIGITS = 40  # of a whole number in JSON
LARGEST = 1e100  # of a number in JSON: squares and sums of such are still finite
NO_LINKS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)  # for os.open


def write_file(path: Path, data: bytes) -> None:
    """Put `data` at `path`, whose folder exists. After an error the old file, if any, is still whole."""
    with storage_errors(path):
        temp = temporary(path)
        with discarded_on_error(temp):
            temp.write_bytes(data)
            seal(temp, path)


def seal(temp: Path, path: Path) -> None:
    """Flush a finished temporary file to the disk and give it its name.

    UserError where it lies below a guarded folder that is not ours to write to any more.
    """
    flush(temp)
    for folder, check in list(_guards):
        if folder in Path(os.path.abspath(path)).parents:
            check()
    os.replace(temp, path)
    leftovers.strike(temp)
    flush(path.parent)  # the rename itself must survive a power cut


_guards: list[tuple[Path, Callable[[], None]]] = []  # folders, and who says whether they are still ours


def guard(folder: Path, check: Callable[[], None]) -> None:
    """From here on nothing below the folder gets its name unless `check` passes."""
    _guards.append((Path(os.path.abspath(folder)), check))


def unguard(check: Callable[[], None]) -> None:
    """The end of `guard`; twice is harmless."""
    _guards[:] = [entry for entry in _guards if entry[1] != check]


def temporary(path: Path) -> Path:
    """A new empty file to write before `seal`: hidden, in the same folder, with a name nobody can guess.

    It goes with `discard`, or else at the end of the command.
    """
    temp = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(8)}.tmp")
    leftovers.note(temp, partial(temp.unlink, missing_ok=True))
    os.close(os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_LINKS, 0o666))
    return temp


def discard(temp: Path) -> None:
    """Remove a temporary file that gets no name. Twice is harmless."""
    temp.unlink(missing_ok=True)
    leftovers.strike(temp)


def folder_inside(folder: Path, *names: str) -> Path:
    """The folder below a run's, made where it is missing; UserError where a step is a link to elsewhere."""
    for name in names:
        folder = folder / name
        if folder.is_symlink():
            raise UserError(f"{folder} is a link, through which nothing is written; remove it")
        with storage_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
    return folder


def parse_json(data: bytes | str) -> Any:
    """JSON as this program writes it; ValueError in words for what no result can hold."""
    try:
        return json.loads(data, parse_int=_whole, parse_float=_number, parse_constant=_number)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _whole(text: str) -> int:
    if len(text) > MOST_DIGITS:
        raise ValueError(f"a whole number of {len(text):,} digits")
    return int(text)


def _number(text: str) -> float:
    number = float(text)
    if not abs(number) <= LARGEST:
        raise ValueError(f"{text[:MOST_DIGITS]} is not a number that a result can have")
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
    """A full disk or a read-only folder is the user's to mend: UserError with the reason."""
    try:
        yield
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from error


def flush(path: Path) -> None:
    """Wait until a file, or the names in a folder, have reached the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
