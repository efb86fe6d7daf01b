"""What a model's kind refers to: a built-in net or a class of one's own, found without running its code."""

from __future__ import annotations

import ast
import os
import sys
from importlib.machinery import PathFinder
from pathlib import Path

from cascade_sim.errors import did_you_mean, unknown_name

BUILT_IN_KINDS = ("towers", "coaction")
FORMS = "towers, coaction, path/to/file.py:Class or package.module:Class"


def is_file_reference(kind: str) -> bool:
    """Whether a kind is of the form path/to/file.py:Class."""
    return kind.rpartition(":")[0].endswith(".py")


def find_model_file(kind: str, folder: Path) -> Path | None:
    """The file of a `path/to/file.py:Class`: looked for from the working folder, then beside the scenario."""
    name = kind.rpartition(":")[0]
    return next((path for path in (Path(name), folder / name) if path.is_file()), None)


def from_working_folder(kind: str, folder: Path) -> str:
    """The same reference with a path that holds from the working folder; any other kind unchanged."""
    path = find_model_file(kind, folder) if is_file_reference(kind) else None
    if path is None or path == Path(kind.rpartition(":")[0]):
        return kind
    return f"{path_from_working_folder(path)}:{kind.rpartition(':')[2]}"


def path_from_working_folder(path: Path) -> str:
    """The path of an existing file as it holds from the working folder."""
    try:
        path = Path(os.path.relpath(path))
    except ValueError:  # another drive
        path = path.resolve()
    return path.as_posix()


def check_reference(kind: str, folder: Path) -> str:
    """What is wrong with a kind, or an empty string. The file is parsed, never imported."""
    if ":" not in kind:
        return "" if kind in BUILT_IN_KINDS else _unknown_kind(kind)
    where, _, name = kind.rpartition(":")
    if not name.isidentifier():
        return f"'{name}' is not the name of a class; expected {FORMS}"
    if not is_file_reference(kind):
        return _check_module(where, name)
    path = find_model_file(kind, folder)
    if path is None:
        near = did_you_mean(Path(where).name, _python_files(where, folder))
        return (
            f"no file '{where}' in the working folder or beside the scenario{near or '; expected ' + FORMS}"
        )
    return _check_class(path, where, name)


def _unknown_kind(kind: str) -> str:
    if kind.endswith(".py"):
        return f"'{kind}' names no class; write {kind}:ClassName"
    return unknown_name("kind", kind, BUILT_IN_KINDS) + ", path/to/file.py:Class or package.module:Class"


def _python_files(where: str, folder: Path) -> list[str]:
    """Python files in the folders where the file was looked for."""
    return [
        p.name
        for base in (Path(where).parent, (folder / where).parent)
        if base.is_dir()
        for p in base.glob("*.py")
    ]


def _check_module(module: str, name: str) -> str:
    if not all(part.isidentifier() for part in module.split(".")):
        return f"'{module}' is neither a .py file nor a module; expected {FORMS}"
    locations: list[str] | None = [os.getcwd(), *sys.path]
    spec = None
    parts = module.split(".")
    for i in range(len(parts)):
        # PathFinder, unlike importlib.util.find_spec, does not import the parent packages.
        spec = PathFinder.find_spec(".".join(parts[: i + 1]), locations) if locations is not None else None
        if spec is None:
            missing = ".".join(parts[: i + 1])
            return f"no module '{missing}' is installed or in the working folder; expected {FORMS}"
        locations = (
            list(spec.submodule_search_locations) if spec.submodule_search_locations is not None else None
        )
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return ""  # compiled or a namespace: only importing it could tell
    return _check_class(Path(spec.origin), module, name)


def _check_class(path: Path, where: str, name: str) -> str:
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError) as error:
        line = f" (line {error.lineno})" if isinstance(error, SyntaxError) else ""
        return f"'{where}' is not valid Python{line}: {getattr(error, 'msg', error)}"
    except OSError as error:
        return f"cannot read '{where}': {error.strerror}"
    classes, others, open_ended = _bound_names(tree)
    if name in classes or name in others or open_ended:
        return ""
    return f"in '{where}': {unknown_name('class', name, classes)}"


def _bound_names(tree: ast.Module) -> tuple[list[str], set[str], bool]:
    """Classes, other names bound at the top level, and whether a star import may bind more."""
    classes: list[str] = []
    others: set[str] = set()
    open_ended = False
    pending: list[ast.AST] = list(tree.body)
    while pending:
        node = pending.pop(0)
        if isinstance(node, ast.ClassDef):
            classes.append(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names = [(alias.asname or alias.name).split(".")[0] for alias in node.names]
            open_ended |= "*" in names
            others.update(names)
        elif isinstance(node, ast.Assign):
            others.update(target.id for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, (ast.If, ast.Try, ast.With, ast.ExceptHandler)):
            pending.extend(ast.iter_child_nodes(node))
    return classes, others, open_ended
