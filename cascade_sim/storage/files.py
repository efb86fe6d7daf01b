"""Files that appear whole or not at all: written beside their place, flushed to the disk, renamed."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cascade_sim.errors import UserError


def write_file(path: Path, data: bytes) -> None:
    """Put `data` at `path`, whose folder exists. After an error the old file, if any, is still whole."""
    temp = temporary(path)
    with discarded_on_error(temp), storage_errors(path):
        temp.write_bytes(data)
        seal(temp, path)


def seal(temp: Path, path: Path) -> None:
    """Flush a finished temporary file to the disk and give it its name."""
    _flush(temp)
    os.replace(temp, path)
    _flush(path.parent)  # the rename itself must survive a power cut


def temporary(path: Path) -> Path:
    """Where to write before `seal`: hidden, in the same folder, one per process."""
    return path.with_name(f".{path.name}.{os.getpid()}.tmp")


@contextmanager
def discarded_on_error(temp: Path) -> Iterator[None]:
    """Leave no half-written file behind."""
    try:
        yield
    except BaseException:
        with suppress(OSError):
            temp.unlink(missing_ok=True)
        raise


@contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """A full disk or a read-only folder is the user's to mend: UserError with the reason."""
    try:
        yield
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from error


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
