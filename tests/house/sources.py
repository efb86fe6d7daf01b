"""The project's own source files, read and not run: which modules there are, and what each imports."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from places import ROOT

FOLDERS = ("agents", "models", "analysis", "cascade_sim")
LEAVES = ("agents", "models", "analysis")  # installed inside cascade_sim, beside it in a checkout
SOURCES = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


@cache
def walk(tree: ast.Module) -> tuple[ast.AST, ...]:
    """All nodes of a file, listed once: several rules look at each."""
    return tuple(ast.walk(tree))


def module_name(path: Path) -> str:
    """The import name of a source file: models/losses/__init__.py is cascade_sim.models.losses."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    parts = parts if parts[0] == "cascade_sim" else ("cascade_sim", *parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in SOURCES}


def imported(tree: ast.Module, *, only_at_start: bool = False) -> set[str]:
    """Modules that a file imports, dotted; at start: not those inside functions or `if TYPE_CHECKING`."""
    nodes: list[ast.AST] = list(walk(tree))
    if only_at_start:
        nodes = []
        waiting: list[ast.AST] = list(tree.body)
        while waiting:
            node = waiting.pop()
            nodes.append(node)
            is_type_checking = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
            if not is_type_checking and not isinstance(
                node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
            ):
                waiting += list(ast.iter_child_nodes(node))
    modules: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: a relative import hides where it leads"
            assert node.module is not None
            modules |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return modules


def edges(modules: dict[str, Path]) -> dict[str, set[str]]:
    """Which of these modules each of them imports, inside functions and for type checkers too."""
    return {name: _targets(parse(path), modules) - {name} for name, path in modules.items()}


def _targets(tree: ast.Module, modules: dict[str, Path]) -> set[str]:
    """`from package import module` leads to the module, `from module import name` too."""
    reached: set[str] = set()
    for node in walk(tree):
        if isinstance(node, ast.Import):
            reached |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                reached.add(inner if inner in modules else node.module)
    return reached & set(modules)
