"""Counts the shape of the code, and what a run opens and enters before its first request.

    python -m tests.house.shape [--tree DIR] [--no-run]

Of a checkout in DIR (default: this one), another version's too: its own source is parsed, and its own
`run scenarios/quick.yaml` is traced in a process of its own. Printed are

- uses of stage fields by name: of an arm (A1) and of a decision (A2), with and without `cascade/`,
- places that ask which kind of world it is, outside of `environments/`,
- functions with nine or more parameters (`self` and compiled kernels aside), overrides that mypy is told to
  ignore, and lines by package,
- files of the project whose code is run, and functions entered, before the first request and in all.

Names are counted, not meanings: an attribute of the same name on something else counts, too.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("cascade_sim", "agents", "models", "analysis")
OF_ARMS = {
    *("pre_ranking", "ranking", "pre_rank", "size_rule"),
    *("retrieval_size", "pre_ranking_size", "competitive_size", "ranking_size"),
}
OF_DECISIONS = {"pre_ranking_set", "competitive_set", "pre_prediction", "pre_score"}
KINDS = {"replay", "fitted", "is_drawn", "is_replay"}
OF_A_WORLD = {"sim", "_sim", "environment", "_environment", "world", "logged"}
KERNEL = ("kernel", "njit", "jit", "vectorize", "guvectorize", "compiled")
MANY = 9

# Run in the tree: functions of its files that are entered, and its files whose module code is run.
TRACED = """
import json, os, sys, threading
tree, out, *words = sys.argv[1:]
sys.path.insert(0, tree)
sys.argv[0] = os.path.join(tree, "cascade_sim", "__main__.py")
own = tuple(os.path.join(tree, name) + os.sep for name in ("cascade_sim", "agents", "models", "analysis"))
files, entered, before = set(), set(), []

def look(frame, event, argument):
    if event != "call":
        return
    code = frame.f_code
    if not code.co_filename.startswith(own):
        return
    if code.co_name == "<module>":
        files.add(code.co_filename)
    elif not code.co_name.startswith("<"):
        entered.add((code.co_filename, code.co_firstlineno))
        if not before and code.co_name == "serve" and code.co_filename.endswith("cascade/serve.py"):
            before.extend((len(files), len(entered)))

threading.setprofile(look)
sys.setprofile(look)
from cascade_sim.cli import main
try:
    code = main(words)
finally:
    sys.setprofile(None)
    with open(out, "w") as file:
        json.dump({"code": code, "before": before, "all": [len(files), len(entered)]}, file)
"""


def sources(tree: Path) -> Iterator[tuple[str, str]]:
    """The project's source files: path and text."""
    for folder in FOLDERS:
        for path in sorted((tree / folder).rglob("*.py")):
            yield path.relative_to(tree).as_posix(), path.read_text(encoding="utf-8")


def name_of(node: ast.AST) -> str:
    """The last part of a name or of what is called."""
    node = node.func if isinstance(node, ast.Call) else node
    return getattr(node, "attr", getattr(node, "id", ""))


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """How many a caller may give."""
    given = function.args
    names = [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return len(names) - (names[:1] in (["self"], ["cls"]))


def kernels(tree: ast.Module) -> set[str]:
    """Functions that are compiled: decorated, or given by name to what compiles."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found |= {
                node.name for one in node.decorator_list if any(k in name_of(one).lower() for k in KERNEL)
            }
        if isinstance(node, ast.Call) and any(k in name_of(node).lower() for k in KERNEL):
            found |= {name_of(argument) for argument in node.args}
    return found


def package(path: str) -> str:
    """The package of a file: `cascade_sim/market`, `models`."""
    parts = path.split("/")
    return "/".join(parts[: 2 if parts[0] == "cascade_sim" and len(parts) > 2 else 1])


def shape(tree: Path) -> dict[str, object]:
    """The counts of a checkout, by name."""
    counts: Counter[str] = Counter()
    lines: Counter[str] = Counter()
    many: list[str] = []
    for path, text in sources(tree):
        parsed = ast.parse(text, path)
        lines[package(path)] += text.count("\n")
        counts["lines"] += text.count("\n")
        counts["override ignores"] += text.count("type: ignore[override]")
        is_cascade, compiled = path.startswith("cascade_sim/cascade/"), kernels(parsed)
        is_environment = path.startswith("cascade_sim/environments/")
        for node in ast.walk(parsed):
            if isinstance(node, ast.Attribute):
                for label, names in (("A1", OF_ARMS), ("A2", OF_DECISIONS)):
                    counts[f"{label} in all"] += node.attr in names
                    counts[f"{label} outside cascade"] += node.attr in names and not is_cascade
                asks = node.attr in KINDS and name_of(node.value) in OF_A_WORLD
                counts["kinds asked outside environments"] += asks and not is_environment
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                n = parameters(node)
                if n >= MANY and node.name not in compiled:
                    many.append(f"{path}:{node.lineno} {node.name} {n}")
    return {**counts, "many": many, "lines by package": dict(sorted(lines.items()))}


def traced(tree: Path, scenario: str) -> dict[str, object]:
    """Files and functions of `run`, by a process that looks at every call of the project's code."""
    with tempfile.TemporaryDirectory() as folder:
        out, script = Path(folder) / "found.json", Path(folder) / "traced.py"
        script.write_text(TRACED)
        words = ["run", scenario, "--out", f"{folder}/run", "--workers", "1", "--quiet"]
        subprocess.run(
            [sys.executable, str(script), str(tree), str(out), *words],
            cwd=tree, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": str(tree)},
        )  # fmt: skip
        found: dict[str, object] = json.loads(out.read_text())
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tree", type=Path, default=ROOT)
    parser.add_argument("--scenario", default="scenarios/quick.yaml")
    parser.add_argument("--no-run", action="store_true", help="count the source alone")
    given = parser.parse_args()
    tree = given.tree.resolve()
    found = shape(tree)
    many, by_package = found.pop("many"), found.pop("lines by package")
    assert isinstance(many, list) and isinstance(by_package, dict)
    for name in sorted(found):
        print(f"{name:36} {found[name]:>8,}")
    print(f"{f'functions with {MANY} or more parameters':36} {len(many):>8,}")
    print(*(f"    {one}" for one in many), sep="\n")
    print("lines by package")
    print(*(f"    {name:32} {n:>8,}" for name, n in by_package.items()), sep="\n")
    if not given.no_run:
        run = traced(tree, given.scenario)
        print(f"files and functions of run {given.scenario}")
        print(f"    before the first request {run['before']}, in all {run['all']}")


if __name__ == "__main__":
    main()
