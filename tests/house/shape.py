"""The shape of the code in figures, and what a run opens and enters before its first request.

    python -m tests.house.shape [--tree DIR] [--against DIR] [--words FILE] [--no-run]

Of this checkout or the one in DIR, and of an earlier one where --against names it. Source is parsed, and its
own `run scenarios/quick.yaml` is traced in a process of its own. A column per checkout:

- stage fields by name, as attribute, keyword or declaration: of an arm (A1) and of a decision (A2),
- places outside of `environments/` that ask which kind of world it is, and those that look at the scenario's
  section of a log,
- functions with nine or more parameters (`self` and compiled kernels aside), overrides that mypy is told to
  ignore, and lines by package,
- tests that compare with a sentence (`tests.house.wording` says which),
- with --words hits of each rule of a table (regex, tab, replacement) in source, docs, scenarios and tests,
- files of the project that are imported, those of which a function is entered, and functions entered, before
  the first request and in all.

Names are counted, not meanings: an attribute of the same name on something else counts, too.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
from house.wording import wording  # noqa: E402  (beside this file, whether run as a module or imported)

FOLDERS = ("cascade_sim", "agents", "models", "analysis")
OF_ARMS = {
    *("pre_ranking", "ranking", "pre_rank", "size_rule"),
    *("retrieval_size", "pre_ranking_size", "competitive_size", "ranking_size"),
}
OF_DECISIONS = {"pre_ranking_set", "competitive_set", "pre_prediction", "pre_score"}
KINDS = {"replay", "fitted", "is_drawn", "is_replay"}
OF_A_WORLD = {"sim", "_sim", "environment", "_environment", "world", "replay", "logged"}
SECTION = {
    ("world", "replay"),
    ("world", "logged"),
}  # of a scenario: the spec of a log, by its later and earlier name
CLASSES = {
    "Synthetic",
    "Replayed",
    "Fitted",
    "LoggedWorld",
    "FittedWorld",
    "ReplayedArrivals",
    "ResampledArrivals",
}
KERNEL = ("kernel", "jit", "vectorize", "compiled")
MANY = 9
READ, ENDINGS = (*FOLDERS, "docs", "scenarios", "tests"), {".py", ".md", ".yaml", ".html", ".js", ".css"}

# Run in the tree: functions of its files that are entered, and its files whose module code is run.
TRACED = """
import json, os, sys, threading
tree, out, *words = sys.argv[1:]
sys.path.insert(0, tree)
sys.argv[0] = os.path.join(tree, "cascade_sim", "__main__.py")
own = tuple(os.path.join(tree, name) + os.sep for name in ("cascade_sim", "agents", "models", "analysis"))
files, entered, before = set(), set(), []

def found():
    return len(files), len({file for file, line in entered}), len(entered)

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
            before.extend(found())

threading.setprofile(look)
sys.setprofile(look)
from cascade_sim.cli import main
try:
    code = main(words)
finally:
    sys.setprofile(None)
    with open(out, "w") as file:
        json.dump({"code": code, "before": before, "all": found()}, file)
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
    """Functions that are compiled: decorated, or given to what compiles, under whatever name that goes."""
    found, compilers = set(), set()

    def compiles(node: ast.AST) -> bool:
        name = name_of(node)
        return name in compilers or any(word in name.lower() for word in KERNEL)

    for node in tree.body:  # `_inner = partial(njit, ...)`
        target = node.target if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [None])[0]
        if target is not None and node.value and any(compiles(inner) for inner in ast.walk(node.value)):
            compilers.add(name_of(target))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and any(compiles(one) for one in node.decorator_list):
            found.add(node.name)
        if isinstance(node, ast.Call) and compiles(node):
            found |= {name_of(argument) for argument in node.args}
    return found


def asks_kind(node: ast.AST) -> bool:
    """Whether a node looks at the kind of a world."""
    if isinstance(node, ast.Call) and name_of(node) in ("isinstance", "issubclass"):
        return bool({name_of(part) for given in node.args[1:] for part in ast.walk(given)} & CLASSES)
    if not isinstance(node, ast.Attribute) or (name_of(node.value), node.attr) in SECTION:
        return False
    return node.attr in KINDS and name_of(node.value) in OF_A_WORLD


def package(path: str) -> str:
    """The package of a file: `cascade_sim/market`, `models`."""
    parts = path.split("/")
    return "/".join(parts[: 2 if parts[0] == "cascade_sim" and len(parts) > 2 else 1])


def shape(tree: Path) -> tuple[Counter[str], list[str]]:
    """The counts of a checkout by name, and its functions with many parameters."""
    counts: Counter[str] = Counter()
    many: list[str] = []
    for path, text in sources(tree):
        parsed = ast.parse(text, path)
        for name in ("lines, in all", f"lines, {package(path)}"):
            counts[name] += text.count("\n")
        counts["override ignores"] += text.count("type: ignore[override]")
        is_cascade, compiled = path.startswith("cascade_sim/cascade/"), kernels(parsed)
        is_environment = path.startswith("cascade_sim/environments/")
        for node in ast.walk(parsed):
            if isinstance(node, ast.Attribute | ast.keyword | ast.AnnAssign):
                used = (
                    name_of(node.target)
                    if isinstance(node, ast.AnnAssign)
                    else getattr(node, "attr", getattr(node, "arg", ""))
                )
                for label, names in (("A1", OF_ARMS), ("A2", OF_DECISIONS)):
                    counts[f"uses of stage fields, {label}"] += used in names
                    counts[f"uses of stage fields, {label}, outside cascade/"] += (
                        used in names and not is_cascade
                    )
            if isinstance(node, ast.Attribute):
                at_section = (name_of(node.value), node.attr) in SECTION
                counts["looks at the section of a log, outside environments/"] += (
                    at_section and not is_environment
                )
            counts["kinds asked outside environments/"] += asks_kind(node) and not is_environment
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                n = parameters(node)
                if n >= MANY and node.name not in compiled:
                    counts[f"functions with {MANY} or more parameters"] += 1
                    many.append(f"{path}:{node.lineno} {node.name} {n}")
    return counts, many


def hits(tree: Path, table: Path) -> Counter[str]:
    """Hits of each rule of a table of words, and of all."""
    rules = [line.split("\t")[0] for line in table.read_text(encoding="utf-8").splitlines() if "\t" in line]
    files = [file for folder in READ for file in sorted((tree / folder).rglob("*")) if file.suffix in ENDINGS]
    counts: Counter[str] = Counter()
    for file in (*files, *tree.glob("[RC][EO][AN]*.md")):  # README and CONTRIBUTING
        text = "" if "made" in file.parts else file.read_text(encoding="utf-8")
        for rule in rules:
            n = len(re.findall(rule, text))
            counts["words, in all"] += n
            counts[f"words, {rule}"] += n
    return counts


def traced(tree: Path, scenario: str) -> Counter[str]:
    """Files and functions of `run`, by a process that looks at every call of the project's code."""
    with tempfile.TemporaryDirectory() as folder:
        out, script = Path(folder) / "found.json", Path(folder) / "traced.py"
        script.write_text(TRACED)
        words = ["run", scenario, "--out", f"{folder}/run", "--workers", "1", "--quiet"]
        subprocess.run(
            [sys.executable, str(script), str(tree), str(out), *words],
            cwd=tree, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": str(tree)},
        )  # fmt: skip
        found = json.loads(out.read_text())
    kinds = ("files imported", "files entered", "functions entered")
    names = [f"{what}, {when}" for when in ("before the first request", "in all") for what in kinds]
    return Counter(dict(zip(names, (*found["before"], *found["all"]), strict=True)))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tree", type=Path, default=ROOT, help="a checkout; this one when absent")
    parser.add_argument("--against", type=Path, help="an earlier checkout, whose figures come first")
    parser.add_argument("--words", type=Path, help="a table: regex, tab, replacement")
    parser.add_argument("--scenario", default="scenarios/quick.yaml")
    parser.add_argument("--no-run", action="store_true", help="count the source alone")
    given = parser.parse_args(arguments)
    columns: list[Counter[str]] = []
    for tree in filter(None, (given.against, given.tree)):
        counts, many = shape(tree.resolve())
        counts += wording(tree.resolve() / "tests")[0]
        counts += hits(tree.resolve(), given.words) if given.words else Counter()
        counts += Counter() if given.no_run else traced(tree.resolve(), given.scenario)
        columns.append(counts)
        print(f"{tree}, functions with {MANY} or more parameters:", *many, sep="\n    ")
    for name in sorted(set().union(*columns)):
        print(f"{name:64}", *(f"{counts[name]:>9,}" for counts in columns))


if __name__ == "__main__":
    main()
