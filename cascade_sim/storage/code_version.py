"""Digests of source code: a stored result must not outlive the code that made it."""

import hashlib
import json
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from cascade_sim.storage.user_code import class_file, code_of
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
    """The digest of what decides how a model trains: our nets, losses and loop, and the user's own code."""
    own = source_digest(("models",))
    cls = type(module)
    if class_file(cls) is None:
        return hashlib.blake2b(class_source(cls), digest_size=8).hexdigest() + own
    code = code_of(cls)
    return code_digest(code) + own if code else own


def code_digest(code: Mapping[str, str]) -> str:
    """One digest of the labels and digests that `code_of` gives.  16 hex digits"""
    text = json.dumps(code, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def class_source(cls: type) -> bytes:
    """All code of a class. Code that cannot be read may be new each time, and so is what stands for it."""
    return os.urandom(16) if class_file(cls) is None else code_digest(code_of(cls)).encode()


def _digest(files: dict[str, Path]) -> str:
    """The digest of files: of the names they are given here, and of their content."""
    total = hashlib.blake2b(digest_size=8)
    for name, file in files.items():
        total.update(name.encode() + b"\0" + file.read_bytes() + b"\0")
    return total.hexdigest()
