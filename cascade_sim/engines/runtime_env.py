"""What travels to the machines of a cluster: this package as it is here, and the user's files it needs.

Nothing else of the working folder does: a cluster is no place for whatever lies there.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from cascade_sim.foundation.errors import UserError
from cascade_sim.version import BESIDE, PACKAGE, folder_of

_LEFT = shutil.ignore_patterns("__pycache__", "*.pyc", ".*")


def pack(trunk: Path, files: Iterable[Path]) -> tuple[Path, Path]:
    """Fill an empty folder: (the package as it is once installed, the working folder with the user's files).

    UserError for a file that does not lie below the working folder, where the other machines look for it.
    """
    package, work = trunk / "cascade_sim", trunk / "work"
    shutil.copytree(PACKAGE, package, ignore=_LEFT)
    for name in BESIDE:
        if not (package / name).exists() and folder_of(name).is_dir():
            shutil.copytree(folder_of(name), package / name, ignore=_LEFT)
    work.mkdir()
    here = Path.cwd().resolve()
    for file in files:
        inside = Path(os.path.relpath(file.resolve(), here))
        if inside.is_absolute() or ".." in inside.parts:
            raise UserError(
                f"{file} lies outside the working folder {here}, so it cannot travel to other machines; "
                "start from a folder that has it below"
            )
        (work / inside).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, work / inside)
    return package, work
