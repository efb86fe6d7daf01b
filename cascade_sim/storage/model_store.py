"""Trained models, kept by the content they were trained from: the same recipe on the same data trains once.

Files are safetensors (no code in them), named by `content_key`, with a digest of the weights inside. A store
never stops a run: a damaged or foreign file counts as absent, a folder that cannot be written means no cache.
"""

import hashlib
import json
import os
import re
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cascade_sim.foundation.errors import UserError
from cascade_sim.storage.files import make_folder, opened, parse_json, read_file, storage_errors, write_file

if TYPE_CHECKING:
    import torch

FOLDER_VARIABLE = "CASCADE_SIM_CACHE"
_HOME_FOLDER = "~/.cache/cascade_sim/models"
_KEY = "key"  # of a stored model's meta
MAX_WEIGHTS = 1 << 34  # bytes
MAX_HEAD = 100_000_000  # bytes of a file that name its tensors; the format allows no more
_LENGTH = 8  # bytes in which the format says how long they are
_CHECKSUM = "checksum"
_METADATA = "cascade_sim"  # one entry only: safetensors writes several in changing order


def content_key(spec: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], **extra: Any) -> str:
    """32 hexadecimal digits, the same for the same JSON content and the same arrays, whatever their order.

    spec and extra must be JSON; of an array count name, dtype, shape and values.
    """
    digest = hashlib.blake2b(digest_size=16)
    described = {name: [array.dtype.str, list(array.shape)] for name, array in arrays.items()}
    head = {"spec": spec, "extra": extra, "arrays": described}
    digest.update(json.dumps(head, sort_keys=True, allow_nan=False).encode())
    for name in sorted(arrays):
        if arrays[name].dtype.hasobject:
            raise ValueError(f"array {name!r} holds Python objects; only plain values have stable bytes")
        digest.update(np.ascontiguousarray(arrays[name]).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


class ModelStore:
    """A folder of trained weights. Default: the environment's CASCADE_SIM_CACHE, else one in the home."""

    def __init__(self, folder: str | Path | None = None) -> None:
        self.folder = Path(folder or os.environ.get(FOLDER_VARIABLE) or _HOME_FOLDER)
        self._is_usable = True
        if str(self.folder).startswith("~"):
            try:
                self.folder = self.folder.expanduser()
            except RuntimeError:
                self._give_up("there is no home folder")

    def load(self, key: str, module: "torch.nn.Module") -> bool:
        """Put the stored weights into the module; False, and the module untouched, if none fit.

        A file that is damaged, or whose names, shapes or dtypes are not the module's, is removed with a
        warning.
        """
        path = self._path(key)
        if not self._is_usable or not path.is_file():
            return False
        try:
            load_file(path, module, key)
        except (OSError, ValueError) as error:
            warnings.warn(f"stored model {path} is not usable and is dropped: {error}", stacklevel=2)
            with suppress(OSError):
                path.unlink()
            return False
        return True

    def note(self, key: str) -> dict[str, Any]:
        """What was noted with the stored weights; {} where nothing can be read."""
        path = self._path(key)
        if not self._is_usable or not path.is_file():
            return {}
        try:
            meta = _note(path).get("meta")
        except (OSError, ValueError):
            return {}
        return meta if isinstance(meta, dict) and meta.get(_KEY) == key else {}

    def save(self, key: str, module: "torch.nn.Module", meta: Mapping[str, Any]) -> None:
        """Store the module's weights, with `meta` (JSON) for readers of the file."""
        path = self._path(key)
        if not self._is_usable:
            return
        try:
            data = _safetensors(module, {**meta, _KEY: key})
        except UserError as error:
            warnings.warn(f"this model is not kept for the next run: {error}", stacklevel=2)
            return
        try:
            with storage_errors(path):
                make_folder(self.folder)
            write_file(path, data)
        except UserError as error:
            self._give_up(str(error))

    def export(
        self, module: "torch.nn.Module", path: str | Path, meta: Mapping[str, Any] | None = None
    ) -> None:
        """Write the module's weights to a file of its own; here an error is an error."""
        target = Path(path)
        with storage_errors(target):
            make_folder(target.parent)
        write_file(target, _safetensors(module, meta or {}))

    def beside(self, key: str) -> Path | None:
        """Where to keep the calibrator of this key; None if nothing is kept."""
        return self._path(key).with_suffix(".calibrator.safetensors") if self._is_usable else None

    def _path(self, key: str) -> Path:
        if not re.fullmatch(r"[0-9a-f]+", key):
            raise ValueError(f"{key!r} is not a content key")
        return self.folder / f"{key}.safetensors"

    def _give_up(self, reason: str) -> None:
        self._is_usable = False
        warnings.warn(f"trained models are not kept for the next run: {reason}", stacklevel=3)


def load_file(path: Path, module: "torch.nn.Module", key: str | None = None) -> None:
    """Put a file's weights into the module; ValueError, and the module untouched, if they do not fit.

    With a `key` they must have been stored under it: a file that lies under another's name is not it.
    """
    tensors = _read(path, key)
    _check_fit(tensors, module)
    module.load_state_dict(tensors, strict=True)


def _safetensors(module: "torch.nn.Module", meta: Mapping[str, Any]) -> bytes:
    """The module's state as safetensors; the same bytes for the same weights and meta."""
    import torch
    from safetensors.torch import save

    tensors = {}
    for name, value in module.state_dict().items():
        if not isinstance(value, torch.Tensor):
            raise UserError(f"{type(module).__name__}: state {name!r} is not a tensor and cannot be stored")
        # A copy of each: tied weights share memory, which the format refuses.
        tensors[name] = value.detach().to("cpu", copy=True).contiguous()
    note: dict[str, Any] = {"meta": dict(meta), "digest": _digest(tensors)}
    note[_CHECKSUM] = _checksum(note)
    return save(tensors, {_METADATA: json.dumps(note, sort_keys=True, allow_nan=False)})


def _read(path: Path, key: str | None = None) -> "dict[str, torch.Tensor]":
    """Tensors of a file, on the CPU; ValueError if the file is damaged, or stored under another key."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    data = read_file(path, most=MAX_WEIGHTS)
    try:
        tensors = load(data)
    except SafetensorError as error:
        raise ValueError(str(error)) from error
    note = _note_of(data)
    if note.get("digest") != _digest(tensors):
        raise ValueError("the weights do not match their digest")
    if key is not None and (note.get("meta") or {}).get(_KEY) != key:
        raise ValueError("it was stored under another key")
    return tensors


def _note(path: Path) -> dict[str, Any]:
    """The note of a file, without its weights; ValueError if the file is damaged."""
    with opened(path) as file:
        head = file.read(_LENGTH)
        return _note_of(head + file.read(min(int.from_bytes(head, "little"), MAX_HEAD)))


def _note_of(data: bytes) -> dict[str, Any]:
    """The note in the head of safetensors: its length, then JSON with the note among its metadata."""
    head = parse_json(data[_LENGTH : _LENGTH + int.from_bytes(data[:_LENGTH], "little")])
    metadata = head.get("__metadata__") if isinstance(head, dict) else None
    note = parse_json(str((metadata if isinstance(metadata, dict) else {}).get(_METADATA, "{}")))
    if not isinstance(note, dict):
        raise ValueError("its note is no object")
    if note.pop(_CHECKSUM, None) != _checksum(note):
        raise ValueError("its note does not match its checksum")
    return note


def _checksum(note: Mapping[str, Any]) -> str:
    """The digest of a note: what was noted with the weights ends in a run's results, as the weights do."""
    return hashlib.blake2b(json.dumps(note, sort_keys=True).encode(), digest_size=16).hexdigest()


def _check_fit(tensors: "Mapping[str, torch.Tensor]", module: "torch.nn.Module") -> None:
    """ValueError if names, shapes or dtypes differ: loading them would leave the module half changed."""
    state = module.state_dict()
    if tensors.keys() != state.keys():
        raise ValueError(f"it holds {sorted(tensors)}, the model has {sorted(state)}")
    for name, want in state.items():
        got = tensors[name]
        if got.shape != want.shape or got.dtype != want.dtype:
            raise ValueError(
                f"{name} is {got.dtype} {list(got.shape)}, the model has {want.dtype} {list(want.shape)}"
            )


def _digest(tensors: "Mapping[str, torch.Tensor]") -> str:
    """The digest of the tensors' names, dtypes, shapes and bytes."""
    import torch

    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        digest.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
