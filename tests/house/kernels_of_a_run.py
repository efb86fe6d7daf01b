"""Writes cascade_sim/foundation/precompiled.txt: kernels that `run scenarios/quick.yaml` calls, with types.

    python tests/house/kernels_of_a_run.py

A process of its own counts them: where a kernel is compiled already it is not asked for. It runs twice: what
is compiled inside another kernel is asked for only once both are kept.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from cascade_sim.foundation import compilation  # noqa: E402
from cascade_sim.foundation.precompile import LIST, line_of  # noqa: E402

# Their kernels are compiled for declared types as soon as they are imported.
AHEAD = ("cascade_sim.auction.kernels",)


def kernels_of(arguments: list[str]) -> list[str]:
    """The lines of the kernels that a command calls."""
    from cascade_sim.cli import main

    lines, path = set(AHEAD), compilation._path

    def noting(made: Any, types: Any, return_type: Any) -> Path | None:
        if made.py_func.__module__ not in AHEAD:
            lines.add(line_of(made.py_func.__module__, made.py_func.__name__, tuple(types)))
        return path(made, types, return_type)

    compilation._path = noting
    try:
        assert main(arguments) == 0
    finally:
        compilation._path = path
    return sorted(lines - {""}, key=lambda line: (":" in line, line))


def of_quick() -> list[str]:
    """The lines of a run of the smallest shipped scenario, in processes that have compiled nothing yet."""
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "kernels.txt"
        for turn in ("first", "second"):
            models = {"CASCADE_SIM_CACHE": f"{folder}/{turn}"}  # none that were trained before
            subprocess.run([sys.executable, __file__, found], check=True, cwd=ROOT, env=os.environ | models)
        return found.read_text(encoding="utf-8").splitlines()


def _note_quick(found: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        lines = kernels_of(["run", "quick", "--out", f"{folder}/run", "--workers", "1", "--quiet"])
    found.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        _note_quick(Path(sys.argv[1]))
    else:
        LIST.write_text("\n".join(of_quick()) + "\n", encoding="utf-8")
