"""Seals: digests of what a run wrote, kept in its manifest and checked when it is read.

A digit that changed in a result, by hand or by a failing disk, must not pass for the result. The manifest
of a finished run names the digest of each file that is read back: metrics, scenario, sums, weights, the code
of users' classes, and the list of each table's parts, which in turn has the digests of the parts. It holds a
digest of itself as well. None of this keeps out an attacker, who can seal what he wrote.

Files that stand for themselves, such as checkpoints, are `wrapped` with their digest inside.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cascade_sim.foundation.errors import UserError
from cascade_sim.storage.files import below, opened, parse_json, read_file

MANIFEST = "manifest.json"
LOGS = "logs"  # the folder of a run's tables
SEALS = "seals"  # of a manifest: {file: digest}
SEAL = "seal"  # of a manifest: its own digest, without this key
# Small files, checked whenever a run is opened. The others are when they are read.
SMALL = ("metrics.json", "metrics.csv", "scenario.yaml", "blocks.json")
_SEALED = (*SMALL, "models/*.safetensors", "models/*.py", f"{LOGS}/*/_parts.json", f"seed-*/{MANIFEST}")
_HINTS = {
    "scenario.yaml": "to try other settings, copy it to another place, change the copy and run that",
    MANIFEST: "put it back as it was, or run the scenario again",
}
_HINT = "put the file back as it was, or run the scenario again"


def hasher(data: bytes = b"") -> Any:
    """What digests are made with."""
    return hashlib.blake2b(data, digest_size=16)


def digest(data: bytes) -> str:
    """32 hexadecimal digits."""
    return str(hasher(data).hexdigest())


def file_digest(path: Path) -> str:
    """The same of a file, which need not fit into memory."""
    with opened(path) as file:
        return hashlib.file_digest(file, hasher).hexdigest()


def with_checksum(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """A manifest, or another object that is written as JSON, with its own digest."""
    content = {key: value for key, value in manifest.items() if key != SEAL}
    return {**content, SEAL: _content_digest(content)}


def has_checksum(manifest: Mapping[str, Any]) -> bool:
    """Whether an object as read is what `with_checksum` gave."""
    return SEAL in manifest and manifest[SEAL] == with_checksum(manifest)[SEAL]


def checksums_of(folder: Path) -> dict[str, str]:
    """{file: digest} of all that a finished run has written and that is read back."""
    found = sorted(file.relative_to(folder) for pattern in _SEALED for file in folder.glob(pattern))
    files = {name.as_posix(): below(folder, *name.parts) for name in found}
    return {name: file_digest(file) for name, file in files.items() if file.is_file()}


def check_manifest(path: Path, manifest: Mapping[str, Any]) -> None:
    """UserError if a manifest is not what the run wrote; one of an older version has no seal."""
    if SEAL in manifest and not has_checksum(manifest):
        raise UserError(_changed(path))


def known(folder: Path) -> dict[str, str] | None:
    """The seals that the manifest in a folder has; None if there is none, or it has none."""
    try:
        manifest = parse_json(read_file(below(folder, MANIFEST)))
    except (OSError, ValueError):
        return None
    seals = manifest.get(SEALS) if isinstance(manifest, dict) else None
    return seals if isinstance(seals, dict) else None


def check_file(folder: Path, name: str, seals: Mapping[str, str] | None = None) -> None:
    """UserError if a file of a run is there and not what the run wrote."""
    seals = known(folder) if seals is None else seals
    if seals is None or name not in seals:
        return
    path = below(folder, name)
    if not os.path.lexists(path):
        return
    try:
        found = file_digest(path)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    if found != seals[name]:
        raise UserError(_changed(path))


def require_file(folder: Path, name: str) -> None:
    """The same, and UserError if the run wrote the file and it is gone."""
    seals = known(folder)
    if seals is not None and name in seals and not os.path.lexists(below(folder, name)):
        raise UserError(f"{below(folder, name)} is missing, which the run wrote; {_HINT}")
    check_file(folder, name, seals)


def wrapped(content: Any, name: str) -> bytes:
    """JSON with a digest of its content and of the name of its file: another step's is not this one's."""
    return json.dumps(
        {"digest": _content_digest([name, content]), "content": content}, allow_nan=False
    ).encode()


def unwrapped(path: Path) -> Any:
    """What `wrapped` was given; ValueError if the file is not whole, or was written under another name."""
    whole = parse_json(read_file(path))
    if not isinstance(whole, dict) or whole.keys() != {"digest", "content"}:
        raise ValueError("not a file of this program")
    if whole["digest"] != _content_digest([path.name, whole["content"]]):
        raise ValueError("its content does not match its digest")
    return whole["content"]


def _content_digest(content: Any) -> str:
    """Of the values, not of their layout."""
    text = json.dumps(content, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return digest(text.encode("utf-8", "surrogatepass"))


def _changed(path: Path) -> str:
    hint = _HINTS.get(path.name, _HINT)
    return f"{path} is not what the run wrote: it was changed or damaged since; {hint}"
