"""Digests of source code: a stored result must not outlive the code that made it."""

import hashlib
import inspect
import os
import sys
from functools import cache
from pathlib import Path
from typing import Any

from cascade_sim.version import BESIDE, PACKAGE, folder_of

PACKAGES = ("cascade_sim", "agents", "models", "analysis")
_FOLDERS = {name: folder_of(name) for name in PACKAGES[1:]} | {"cascade_sim": PACKAGE}


@cache
def source_digest(packages: tuple[str, ...] = PACKAGES) -> str:
    """The digest of all Python files of these packages.  16 hex digits"""
    files: dict[str, Path] = {}
    for name in packages:
        for file in sorted(_FOLDERS[name].rglob("*.py")):
            inside = file.relative_to(_FOLDERS[name])
            if name != "cascade_sim" or inside.parts[0] not in BESIDE:  # installed, those lie inside
                files[f"{name}/{inside.as_posix()}"] = file
    return _digest(files)


def model_code_digest(module: Any) -> str:
    """The digest of what decides how a model trains: our nets, losses and loop, the user's own modules."""
    own = source_digest(("models",))
    file = class_file(type(module))
    if file is None:
        return hashlib.blake2b(class_source(type(module)), digest_size=8).hexdigest() + own
    if _FOLDERS["models"] in file.parents:
        return own
    folder = file.parent
    loaded = {
        Path(path).resolve()
        for path in (getattr(m, "__file__", None) for m in list(sys.modules.values()))
        if path
    }
    beside = [path for path in sorted(loaded) if path.suffix == ".py" and path.parent == folder]
    files = {path.name: path for path in beside if path.is_file()}  # torch has modules without a file
    return _digest({**files, file.name: file}) + own


def class_file(cls: type) -> Path | None:
    """The file in which a class is defined; None for one that was typed into a shell or a notebook."""
    try:
        file = inspect.getsourcefile(cls)
    except (OSError, TypeError):
        return None
    return Path(file).resolve() if file is not None and Path(file).is_file() else None


def class_source(cls: type) -> bytes:
    """The file of a class. Code that cannot be read may be new each time, and so is what stands for it."""
    file = class_file(cls)
    return os.urandom(16) if file is None else file.read_bytes()


def _digest(files: dict[str, Path]) -> str:
    """The digest of files: of the names they are given here, and of their content."""
    total = hashlib.blake2b(digest_size=8)
    for name, file in files.items():
        total.update(name.encode() + b"\0" + file.read_bytes() + b"\0")
    return total.hexdigest()
