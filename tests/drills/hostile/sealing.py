"""Digests and seals of files that were changed, made anew: what anybody can do who can write."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from cascade_sim.storage import checksums


def reseal(folder: Path) -> None:
    """Lists of parts, stores and responses below, then the manifests that have their digests."""
    for parts in sorted(folder.rglob("_parts.json")):
        changed_json(parts, lambda data, at=parts: _parts(data, at.parent))
    for market in sorted(folder.rglob("log.json")):
        changed_json(market, lambda data, at=market: _store(data, at.parent))
    for fitted in sorted(folder.rglob("fitted.json")):
        changed_json(fitted, lambda data, at=fitted: _response(data, at.parent))
    for manifest in sorted(folder.rglob("manifest.json"), reverse=True):
        changed_json(manifest, lambda data, at=manifest: _manifest(data, at.parent))


def changed_json(path: Path, change: Callable[[Any], Any]) -> None:
    """Change what is in a file of JSON; one that is none stays as it is."""
    try:
        data = json.loads(path.read_bytes())
        path.write_text(json.dumps(change(data)))
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
        return


def changed_column(path: Path, change: Callable[[np.ndarray], Any]) -> None:
    """Change a .npy column in place, or give another for it."""
    values = np.load(path)
    made = change(values)
    np.save(path, values if made is None else made)


def _sealed(data: dict[str, Any]) -> dict[str, Any]:
    return checksums.with_checksum(data) if checksums.SEAL in data else data


def _parts(data: dict[str, Any], folder: Path) -> dict[str, Any]:
    for part in data["parts"]:
        if not os.path.isfile(folder / str(part["name"])):  # False of a name that no file can have
            continue
        content = (folder / part["name"]).read_bytes()
        part["bytes"] = len(content)
        part.update({"sha256": hashlib.sha256(content).hexdigest()[:32]} if "sha256" in part else {})
    return data


def _store(data: dict[str, Any], folder: Path) -> dict[str, Any]:
    for name, entry in data["files"].items() if isinstance(data["files"], dict) else ():
        if not (folder / name).is_file():
            continue
        content = (folder / name).read_bytes()
        entry |= {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    return _sealed(data)


def _response(data: dict[str, Any], folder: Path) -> dict[str, Any]:
    for name in data["files"]:
        if (folder / f"{name}.npy").is_file():
            data["files"][name] = checksums.file_digest(folder / f"{name}.npy")
    return _sealed(data)


def _manifest(data: dict[str, Any], folder: Path) -> dict[str, Any]:
    for name in data.get(checksums.SEALS, {}):
        if (folder / name).is_file():
            data[checksums.SEALS][name] = checksums.file_digest(folder / name)
    return _sealed(data)
