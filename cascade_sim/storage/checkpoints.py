"""The state of a simulation as one file: nested dicts of arrays, stored without any code in them."""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from cascade_sim.errors import UserError
from cascade_sim.storage.files import write_file

SEPARATOR = "/"


def save_state(path: Path, state: Mapping[str, Any]) -> None:
    """Write a nested dict of arrays and numbers. The file is there whole or not at all."""
    buffer = io.BytesIO()
    np.savez(buffer, **flat(state))  # type: ignore[arg-type]  # names never clash with its own
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, buffer.getvalue())


def load_state(path: Path) -> dict[str, Any]:
    """What `save_state` wrote. A damaged file is a UserError."""
    try:
        with np.load(path) as file:
            return nested({name: file[name] for name in file.files})
    except Exception as error:  # zipfile, numpy and the file system each have their own
        raise UserError(
            f"{path}: not a readable state of a run ({error}); run again without --resume"
        ) from error


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
