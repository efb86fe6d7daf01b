"""The packages as one tree of links, as installed: mypy does not follow a `__path__` that grows.

`python tests/house/one_tree.py FOLDER` makes FOLDER/cascade_sim anew.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

BESIDE = ("agents", "models", "analysis")


def make_tree(folder: Path) -> None:
    """Links to every part of the package, and to the folders that an installation puts inside it."""
    tree = folder / "cascade_sim"
    if tree.exists():
        shutil.rmtree(tree)
    tree.mkdir(parents=True)
    for part in (ROOT / "cascade_sim").iterdir():
        if part.name != "__pycache__":
            (tree / part.name).symlink_to(part)
    for name in BESIDE:
        (tree / name).symlink_to(ROOT / name)


if __name__ == "__main__":
    make_tree(Path(sys.argv[1]))
