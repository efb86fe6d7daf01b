"""What the last digits of a run depend on beside its scenario, seed and code: the packages and the processor.

Libraries choose their instructions by the processor, sums are then added in another order, and a net that
starts to differ in its last digit ends with other weights. The same bytes are to be expected only where all
of this is the same. Nothing here names the machine or its user.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = ("numpy", "scipy", "torch", "simpy", "numba", "pandas", "pyarrow", "matplotlib")
WORDS = {"packages": "other versions of Python or its packages", "processor": "another kind of processor"}
MAX_NAMED = 4  # differences
_CPUINFO = Path("/proc/cpuinfo")


def stack() -> dict[str, dict[str, str]]:
    """{"packages": {name: version}, "processor": {what: which}} of this process."""
    return {"packages": packages(), "processor": processor()}


def packages() -> dict[str, str]:
    """The versions of Python and of the packages that results pass through."""
    return {"python": platform.python_version(), **{name: metadata.version(name) for name in PACKAGES}}


def processor() -> dict[str, str]:
    """The processor, and which of its instructions torch, numpy and numba use; "" for what is unknown."""
    import llvmlite.binding  # type: ignore[import-untyped]
    import numba  # type: ignore[import-untyped]
    import numpy
    import torch

    simd = numpy.show_config(mode="dicts").get("SIMD Extensions") or {}  # type: ignore[call-overload]
    config: Any = numba.config
    compiled_for = config.CPU_NAME or llvmlite.binding.get_host_cpu_name()
    return {
        "machine": platform.machine(),
        "model": model_name(),
        "torch": torch.backends.cpu.get_cpu_capability(),
        "numpy": " ".join(simd.get("found", [])),
        "numba": " ".join(filter(None, (compiled_for, config.CPU_FEATURES))),
    }


def model_name(cpuinfo: Path = _CPUINFO) -> str:
    """As the processor calls itself, where the system says so."""
    try:
        lines = cpuinfo.read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    named = [line.partition(":")[2].strip() for line in lines if line.split(":")[0].strip() == "model name"]
    return named[0] if named else platform.processor()


def stack_notes(first: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Clauses for two runs (their manifests, or baselines) whose packages or processors differ.

    Silent about what either side does not say: files of earlier versions name no processor.
    """
    notes = []
    for part, words in WORDS.items():
        before, after = first.get(part), other.get(part)
        if not isinstance(before, Mapping) or not isinstance(after, Mapping) or before == after:
            continue
        names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
        told = [f"{name} {before.get(name) or '?'}, then {after.get(name) or '?'}" for name in names]
        more = f"; and {len(told) - MAX_NAMED} more" if len(told) > MAX_NAMED else ""
        notes.append(f"made with {words} ({'; '.join(told[:MAX_NAMED])}{more})")
    return notes
