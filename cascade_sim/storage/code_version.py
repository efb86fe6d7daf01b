"""Digests of source code: a stored result must not outlive the code that made it."""

import hashlib
import inspect
import sys
from functools import cache
from pathlib import Path
from typing import Any

from cascade_sim.version import BESIDE, PACKAGE, folder_of

PACKAGES = ("cascade_sim", "agents", "models", "analysis")
_FOLDERS = {name: folder_of(name) for name in PACKAGES[1:]} | {"cascade_sim": PACKAGE}


@cache
def source_digest(packages: tuple[str, ...] = PACKAGES) -> str:
    """Of all Python files of these packages.  16 hex digits"""
    files: dict[str, Path] = {}
    for name in packages:
        for file in sorted(_FOLDERS[name].rglob("*.py")):
            inside = file.relative_to(_FOLDERS[name])
            if name != "cascade_sim" or inside.parts[0] not in BESIDE:  # installed, those lie inside
                files[f"{name}/{inside.as_posix()}"] = file
    return _digest(files)


def model_code_digest(module: Any) -> str:
    """Of what decides how a model trains: our nets, losses and loop, and the user's folder of modules."""
    own = source_digest(("models",))
    file = inspect.getsourcefile(type(module))
    if file is None or _FOLDERS["models"] in Path(file).resolve().parents:
        return own
    folder = Path(file).resolve().parent
    loaded = {
        Path(path).resolve()
        for path in (getattr(m, "__file__", None) for m in list(sys.modules.values()))
        if path
    }
    files = {path.name: path for path in sorted(loaded) if path.suffix == ".py" and path.parent == folder}
    return _digest({**files, Path(file).name: Path(file).resolve()}) + own


def named_files_digest(scenario: Any, home: Path) -> str:
    """Of the files that a scenario names: models, bidders and click models of one's own, traffic profiles."""
    from cascade_sim.scenario.market import find_profile
    from cascade_sim.scenario.plugins import find_model_file

    kinds = [spec.kind for spec in scenario.models.values()]
    files = []
    if scenario.market is not None:
        kinds += [spec.kind for spec in scenario.market.bidders.values()]
        kinds.append(scenario.market.users.click_model)
        files = [find_profile(scenario.market.profile, home)]
    files += [find_model_file(kind, home) for kind in kinds if ".py:" in kind]
    total = hashlib.blake2b(digest_size=8)
    for file in files:
        total.update(b"" if file is None else file.read_bytes())
        total.update(b"\0")
    return total.hexdigest()


def _digest(files: dict[str, Path]) -> str:
    """Of files by the name that counts for them."""
    total = hashlib.blake2b(digest_size=8)
    for name, file in files.items():
        total.update(name.encode() + b"\0" + file.read_bytes() + b"\0")
    return total.hexdigest()
