"""Calibrators by name: from a score to a probability, fitted on outcomes, then frozen.

    calibrator = CALIBRATORS["platt"].fit(scores, clicks)
    pctr = calibrator(scores)                      # numpy gives numpy, torch gives torch
    save(calibrator, path); load(path)             # plain arrays in a safetensors file

>>> import numpy as np
>>> scores, clicks = np.array([-2.0, -1.0, 0.0, 1.0]), np.array([0.0, 1.0, 0.0, 1.0])
>>> CALIBRATORS["isotonic"].fit(scores, clicks)(np.array([-2.0, -0.5, 5.0])).round(3).tolist()
[0.0, 0.5, 1.0]
>>> CALIBRATORS["platt"].fit(scores, clicks)(np.array([-2.0, 0.0, 2.0])).round(2).tolist()
[0.35, 0.55, 0.74]

| name | keeps the order | learns from one class or equal scores |
|---|---|---|
| platt | if its slope is positive | a constant near the mean |
| temperature | strictly | a temperature at the end of its range; 1 if all scores are 0 |
| isotonic | yes, with ties on its levels | the mean |
| histogram | no, and ties within bins | the mean |
| beta | strictly, unless constant | a constant near the mean |
| piecewise_linear | strictly within a request | a map bent a little from the sigmoid |

Probabilities are rounded: scores beyond about 37 (double) or 17 (single precision) all give 1, and of scores
that differ in their last bits only, equal or neighbouring probabilities may come. Empty input, scores that
are not finite and labels outside [0, 1] are refused when fitting.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from cascade_sim.models.calibrators.base import Calibrator
from cascade_sim.models.calibrators.logistic import Beta, Platt, Temperature
from cascade_sim.models.calibrators.request import PiecewiseLinear, RequestMap
from cascade_sim.models.calibrators.steps import Histogram, Isotonic
from cascade_sim.models.known import check_known

CALIBRATORS: dict[str, type[Calibrator]] = {
    "platt": Platt,
    "temperature": Temperature,
    "isotonic": Isotonic,
    "histogram": Histogram,
    "beta": Beta,
    "piecewise_linear": PiecewiseLinear,
}

__all__ = [
    "CALIBRATORS",
    "Beta",
    "Calibrator",
    "Histogram",
    "Isotonic",
    "PiecewiseLinear",
    "Platt",
    "RequestMap",
    "Temperature",
    "calibrator_class",
    "load",
    "save",
]


def calibrator_class(name: str) -> type[Calibrator]:
    """The class of that name, or a ValueError that lists the known ones."""
    check_known("calibrator", name, CALIBRATORS)
    return CALIBRATORS[name]


def save(calibrator: Calibrator, path: str | Path, key: str = "") -> None:
    """Write what was learnt as plain arrays to a safetensors file, with the calibrator's name, a digest and
    the `key` under which it is kept."""
    from safetensors.numpy import save_file

    arrays = calibrator.arrays()
    note = {"name": calibrator.name, "key": key, "digest": _digest(calibrator.name, arrays)}
    # One entry only: safetensors writes several in changing order.
    save_file(arrays, str(path), metadata={"calibrator": json.dumps(note, sort_keys=True)})


def load(path: str | Path, key: str | None = None) -> Calibrator:
    """The calibrator in a file that `save` wrote; ValueError unless it is whole, and kept under this key."""
    from safetensors import safe_open

    with safe_open(str(path), framework="numpy") as file:
        text = (file.metadata() or {}).get("calibrator")
        if text is None:
            raise ValueError(f"{path} does not hold a calibrator")
        note = json.loads(text)
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    if note.get("digest") != _digest(note.get("name"), arrays):
        raise ValueError("its content does not match its digest")
    if key is not None and note.get("key") != key:
        raise ValueError("it was kept under another key")
    return calibrator_class(note["name"]).from_arrays(arrays)


def _digest(name: Any, arrays: Mapping[str, np.ndarray]) -> str:
    total = hashlib.blake2b(str(name).encode(), digest_size=16)
    for key in sorted(arrays):
        array = np.ascontiguousarray(arrays[key])
        total.update(json.dumps([key, array.dtype.str, list(array.shape)]).encode() + array.tobytes())
    return total.hexdigest()
