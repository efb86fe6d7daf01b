"""The state of a simulation as one file: nested dicts of arrays, stored without any code in them."""

import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from cascade_sim.foundation.errors import UserError
from cascade_sim.storage import checksums
from cascade_sim.storage.files import folder_inside, read_file, write_file

SEPARATOR = "/"
HEAD = b"cascade_sim state "  # then the digest of what follows, and a new line
DIGITS = 32
MAX_STATE = 1 << 34  # bytes


def save_state(path: Path, state: Mapping[str, Any]) -> None:
    """Write a nested dict of arrays and numbers. The file is there whole or not at all."""
    buffer = io.BytesIO()
    np.savez(buffer, **flat(state))  # type: ignore[arg-type]  # names never clash with its own
    data = buffer.getvalue()
    folder_inside(path.parent.parent, path.parent.name)
    # Before the archive, which is found from its end: it can still be opened by other programs.
    write_file(path, HEAD + _digest(path, data) + b"\n" + data)


def load_state(path: Path) -> dict[str, Any]:
    """What `save_state` wrote. A damaged file is a UserError."""
    try:
        data = read_file(path, most=MAX_STATE)
        start = len(HEAD) + DIGITS + 1
        if not data.startswith(HEAD):
            raise ValueError("it does not begin as one")
        if data[len(HEAD) : start] != _digest(path, data[start:]) + b"\n":
            raise ValueError("its content does not match its digest")
        with np.load(io.BytesIO(data[start:])) as file:
            return nested({name: file[name] for name in file.files})
    except Exception as error:  # zipfile, numpy and the file system each have their own
        raise UserError(
            f"{path}: not a readable state of a run ({error}); run again without --resume"
        ) from error


def _digest(path: Path, data: bytes) -> bytes:
    """Of the content and the name of the file: the state of another arm is not this one's."""
    return checksums.digest(path.name.encode() + b"\n" + data).encode()


def save_figures(path: Path, figures: Mapping[str, Any]) -> None:
    """Write the figures of a part of a run that is done, as JSON with their digest."""
    folder_inside(path.parent.parent, path.parent.name)
    write_file(path, checksums.wrapped(figures, path.name))


def load_figures(path: Path) -> dict[str, Any]:
    """What `save_figures` wrote. A damaged or edited file is a UserError."""
    try:
        content = checksums.unwrapped(path)
        if not isinstance(content, dict):
            raise ValueError("no object in it")
        return content
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(
            f"{path}: not the figures that the run left there ({error}); run again without --resume"
        ) from error


@contextmanager
def state_errors(path: Path) -> Iterator[None]:
    """What goes wrong while a state is put back: the file is another's, or of another version."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        what = f"{type(error).__name__}: {error}"
        raise UserError(f"{path}: not a state of this run ({what}); run again without --resume") from error


def flat(state: Mapping[str, Any], prefix: str = "") -> dict[str, np.ndarray]:
    """`{"a": {"b": 1}}` -> `{"a/b": array(1)}`. Objects are refused; an empty dict is kept as `a/`."""
    arrays: dict[str, np.ndarray] = {}
    for name, value in state.items():
        if SEPARATOR in name:
            raise ValueError(f"the name {name!r} of a state contains {SEPARATOR!r}")
        if isinstance(value, Mapping):
            arrays |= flat(value, f"{prefix}{name}{SEPARATOR}") or {f"{prefix}{name}{SEPARATOR}": np.zeros(0)}
            continue
        array = np.asarray(value)
        if array.dtype.hasobject:
            raise ValueError(f"the state {prefix}{name} holds Python objects, not numbers")
        arrays[prefix + name] = array
    return arrays


def nested(arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """The state that `flat` made these arrays of."""
    state: dict[str, Any] = {}
    for name, value in arrays.items():
        *folders, last = name.split(SEPARATOR)
        place = state
        for folder in folders:
            place = place.setdefault(folder, {})
        if last:
            place[last] = value
    return state
