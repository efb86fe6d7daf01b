"""The drill: plant each bug of seeded_bugs.py in a copy of the packages, run what must catch it, take it out.

`python tests/drills/bug_drill.py FOLDER` prints JSON: {"clean": [...], "bugs": {name: {...}}}. A run
is a fork of this process, which has loaded the libraries (not the packages): a run costs what its tests cost.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from drills.seeded_bugs import BUGS, CHECK, Bug  # noqa: E402

LIBRARIES = (
    *(
        "numpy",
        "scipy.special",
        "torch",
        "numba",
        "simpy",
        "pydantic",
        "ruamel.yaml",
        "click",
        "rich.progress",
    ),
    *("pyarrow.dataset", "pyarrow.parquet", "safetensors.torch", "pytest", "hypothesis"),
)
COPIED = ("cascade_sim", "agents", "models", "analysis", "tests", "scenarios", "pyproject.toml")


def make_copy(folder: Path) -> Path:
    """The packages and tests with their times and compiled files, which therefore stay valid."""
    copy = folder / "copy"
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(
                ROOT / name, copy / name, ignore=shutil.ignore_patterns("pictures", ".mypy_cache")
            )
        else:
            shutil.copy2(ROOT / name, copy / name)
    return copy


def planted(source: str, bug: Bug) -> str:
    """The source with the bug; ValueError unless its place is there exactly once."""
    if source.count(bug.old) != 1:
        raise ValueError(
            f"{bug.name}: {bug.file} has its line {source.count(bug.old)} times, expected once: the source "
            "has changed, so say in tests/drills/seeded_bugs.py where the bug goes now"
        )
    return source.replace(bug.old, bug.new)


def in_fork(copy: Path, tests: list[str], is_compiled: bool, baseline: Path) -> dict[str, Any]:
    """Run tests, and the check if it is among them, as a process of its own; {"code", "failed", "text"}."""
    report, log = copy.parent / "report.json", copy.parent / "log.txt"
    report.unlink(missing_ok=True)
    child = os.fork()
    if child == 0:
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(out, 1)
        os.dup2(out, 2)
        try:
            report.write_text(json.dumps(_run(copy, tests, is_compiled, baseline)))
        except BaseException:
            import traceback

            traceback.print_exc()
        sys.stdout.flush()
        os._exit(0)
    os.waitpid(child, 0)
    found = json.loads(report.read_text()) if report.is_file() else {"codes": [-1], "failed": []}
    return {**found, "text": log.read_text(errors="replace")[-2000:]}


def _run(copy: Path, tests: list[str], is_compiled: bool, baseline: Path) -> dict[str, Any]:
    import numba
    import pytest

    os.chdir(copy)
    sys.path[:0] = [str(copy)]
    sys.dont_write_bytecode = True
    numba.config.DISABLE_JIT = is_compiled
    os.environ["CASCADE_SIM_CACHE"] = str(copy.parent / "models")
    failed: list[str] = []

    class Listener:
        def pytest_runtest_logreport(self, report: Any) -> None:
            if report.failed:
                failed.append(report.nodeid)

    codes = []
    named = [test for test in tests if test != CHECK]
    if named:
        options = ["-q", "-p", "no:cacheprovider", "-p", "no:unraisableexception", "-p", "no:xdist"]
        codes.append(int(pytest.main([*options, *named], plugins=[Listener()])))
    if CHECK in tests:
        codes.append(_check(baseline))
        if codes[-1] == 1:
            failed.append(CHECK)
    loaded = sys.modules.get("cascade_sim")
    assert loaded is not None and str(copy) in str(loaded.__file__), f"not the copy: {loaded}"
    return {"codes": codes, "failed": failed}


def _check(baseline: Path) -> int:
    """`check` of the plain market; makes the baseline first if there is none."""
    sys.path.insert(0, str(Path("tests").resolve()))
    from cascade_sim.cli import main
    from cascade_sim.regression.baseline import write_baseline
    from worlds.guarded_market import measure_plain, write_plain

    if not baseline.is_file():
        write_baseline(measure_plain(baseline.parent), baseline)
    scenario = write_plain(baseline.parent)
    return main(["check", str(scenario), "--against", str(baseline), "--quiet", "--workers", "1"])


def drill(folder: Path) -> dict[str, Any]:
    """Everything: the copy without a bug, then with each."""
    copy, baseline = make_copy(folder), folder / "market" / "plain.json"
    baseline.parent.mkdir()
    for name in LIBRARIES:
        importlib.import_module(name)
    clean = []
    for is_compiled in (False, True):
        tests = sorted({test for bug in BUGS if bug.is_compiled == is_compiled for test in bug.caught_by})
        clean.append(in_fork(copy, tests, is_compiled, baseline))
    found = {}
    for number, bug in enumerate(BUGS):
        file, started = copy / bug.file, time.perf_counter()
        source, times = file.read_text(), file.stat()
        try:
            text = planted(source, bug)
        except ValueError as error:
            found[bug.name] = {"codes": [-1], "failed": [], "text": str(error), "seconds": 0.0}
            continue
        file.write_text(text)
        os.utime(file, (times.st_atime, times.st_mtime + 10 * (number + 1)))  # not the compiled file's time
        try:
            result = in_fork(copy, list(bug.caught_by), bug.is_compiled, baseline)
        finally:
            file.write_text(source)
            os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
        found[bug.name] = {**result, "seconds": time.perf_counter() - started}
    return {"clean": clean, "bugs": found}


def table(found: dict[str, Any]) -> str:
    """Bug -> caught by, one line each."""
    width = max(len(name) for name in found["bugs"])
    lines = []
    for name, one in found["bugs"].items():
        tests = dict.fromkeys(test.removeprefix("tests/").partition("[")[0] for test in one["failed"])
        caught = ", ".join(tests) or "NOT CAUGHT"
        lines.append(f"{name:<{width}}  {caught}")
    return "\n".join(lines)


if __name__ == "__main__":
    result = drill(Path(sys.argv[1]))
    print(table(result), file=sys.stderr)
    print(json.dumps(result))
