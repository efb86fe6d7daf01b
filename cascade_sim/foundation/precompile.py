"""Kernels that nearly every run needs, compiled ahead by several processes.

    python -m cascade_sim.foundation.precompile

A run compiles a kernel when it is first called, one after the other. precompiled.txt lists those of a usual
run with their types; where their machine code is not kept yet, they are shared between processes first. The
list is no more than a hint: what it lacks is compiled when it is called, and a line too many is never called.
`python tests/house/kernels_of_a_run.py` writes it.
"""

import hashlib
import os
import platform
import re
import sys
from contextlib import suppress
from functools import cache
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

from cascade_sim.foundation import compilation
from cascade_sim.foundation.errors import UserError
from cascade_sim.foundation.progress import COMPILING, Progress
from cascade_sim.foundation.workers import Job, run_jobs, usable_cores
from cascade_sim.version import BESIDE, PACKAGE, folder_of

LIST = Path(__file__).with_name("precompiled.txt")
_TYPE = re.compile(r"(readonly )?array\((\w+), (\d)d, ([CFA])\)|(\w+)")


def precompile(progress: Progress, workers: int) -> None:
    """Have the kernels of the list compiled, shared between processes, unless that was done before."""
    lines = LIST.read_text(encoding="utf-8").splitlines()
    mark = _mark()
    if mark is None or mark.exists():
        return
    jobs = [Job(line, compile_line, (line,)) for line in lines]
    with suppress(UserError, OSError):  # workers that died: a run goes on without, and compiles what it lacks
        with progress.stage(COMPILING, len(jobs), "kernels") as bar:
            run_jobs(jobs, workers, on_done=lambda _: bar.advance())
        mark.touch()


def compile_line(line: str) -> None:
    """A line is a module, whose kernels are compiled when it is imported, or `module.kernel: types`."""
    name, _, texts = line.partition(": ")
    if not texts:
        import_module(name)
        return
    module, _, kernel = name.rpartition(".")
    found: Any = getattr(import_module(module), kernel, None)
    if not hasattr(found, "py_func"):  # an old line, or compilation is switched off
        return
    from numba.core.errors import NumbaError

    with suppress(NumbaError):  # an old line
        found.compile(tuple(_type(*match.groups()) for match in _TYPE.finditer(texts)))


def line_of(module: str, kernel: str, types: tuple[Any, ...]) -> str:
    """The line of a kernel that is called with these types; "" if they cannot be written so."""
    texts = ", ".join(map(str, types))
    is_plain = tuple(_type(*match.groups()) for match in _TYPE.finditer(texts)) == types
    return f"{module}.{kernel}: {texts}" if is_plain else ""


def _type(readonly: str | None, dtype: str | None, ndim: str | None, layout: str | None, plain: str) -> Any:
    from numba.core import types

    if dtype is None:
        return getattr(types, "boolean" if plain == "bool" else plain, None)
    array: Any = types.Array  # its layout is one of five texts, which a list in a file is not known to hold
    return array(getattr(types, dtype), int(ndim or 1), layout, readonly=bool(readonly))


@cache
def _mark() -> Path | None:
    """The file that says that all this was compiled for these sources and libraries; None without a cache.

    Made without loading numba: a look at it takes no time. It may be wrong, as every hint may.
    """
    digest = hashlib.blake2b(LIST.read_bytes(), digest_size=12)
    for folder in (PACKAGE, *(folder_of(name) for name in BESIDE)):
        for file in sorted(folder.rglob("*.py")):
            text = file.read_bytes()
            if b"numba" in text or b"import kernel" in text:
                digest.update(text)
    settings = sorted(item for item in os.environ.items() if item[0].startswith("NUMBA_"))
    versions = [version(name) for name in ("numba", "llvmlite", "numpy")]
    digest.update(repr([settings, versions, sys.version, platform.platform()]).encode())
    cache_folder = compilation.folder()
    return None if cache_folder is None else cache_folder / f"precompiled-{digest.hexdigest()}"


if __name__ == "__main__":
    from cascade_sim.foundation import precompile as module  # by its name: workers know no __main__

    with Progress() as shown:
        module.precompile(shown, workers=usable_cores())
