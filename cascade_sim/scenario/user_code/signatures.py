"""Signature of a custom class, read from the text of its file, and options checked by it.

A scenario is checked without running any user code, so the signature comes from the syntax tree: of
`__init__` in the class or in the first of its bases, through files that are imported by name. Where only
running the code could tell (a decorator, a metaclass, a name that is computed) there is no signature; the
class itself is then asked before a run begins.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from inspect import Parameter, Signature
from pathlib import Path
from typing import Any

from cascade_sim.foundation.errors import unknown_name
from cascade_sim.storage.files import read_file

Fault = tuple[str | None, str]  # the option that is wrong, None if it is none of those given; what is wrong
FindModule = Callable[[str], Path | None]

_BY_PLACE = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
_DEFAULT = object()  # stands for a default, whatever it is
_DEEPEST = 8  # classes that are looked through for an `__init__`


def faults_in(
    signature: Signature, name: str, first: Sequence[str], options: Mapping[str, Any]
) -> Iterator[Fault]:
    """What is wrong with calling a class of this name with `first`, by position, and the options."""
    parameters = list(signature.parameters.values())
    kinds = {parameter.kind for parameter in parameters}
    by_place = [p.name for p in parameters if p.kind in _BY_PLACE]
    if len(by_place) < len(first) and Parameter.VAR_POSITIONAL not in kinds:
        found = ", ".join(p.name for p in parameters)
        yield None, f"expected {name}({', '.join(first)}, …), found {name}({found})"
        return
    taken = by_place[: len(first)]
    known = {
        p.name: p
        for p in parameters
        if p.kind in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY) and p.name not in taken
    }
    for option in options:
        if option in taken:
            yield option, f"the engine gives {name} its {', '.join(taken)}; remove it"
        elif option not in known and Parameter.VAR_KEYWORD not in kinds:
            yield option, unknown_name(f"option of {name}", option, known)
    missing = [key for key, p in known.items() if p.default is Parameter.empty and key not in options]
    if missing:
        yield None, f"{name} needs a value of {', '.join(missing)}; add options: {{{missing[0]}: …}}"


def signature_of(own: type) -> Signature | None:
    """The signature of a class that is loaded; None for one that has none to show."""
    try:
        return inspect.signature(own)
    except (TypeError, ValueError):
        return None


def signature_in(file: Path, name: str, find_module: FindModule, depth: int = 0) -> Signature | None:
    """The signature of the class of this name in a file, which is not run; None if the text does not tell."""
    try:
        tree = ast.parse(read_file(file, follows=True))
    except (SyntaxError, ValueError, OSError):
        return None
    bound = [node for node in _statements(tree) if name in _names(node)]
    if len(bound) != 1 or depth > _DEEPEST:
        return None  # computed, bound twice or not at all
    node = bound[0]
    if isinstance(node, ast.ImportFrom):
        original = next(alias.name for alias in node.names if (alias.asname or alias.name) == name)
        origin = find_module(node.module) if node.module and not node.level else None
        return signature_in(origin, original, find_module, depth + 1) if origin is not None else None
    if not isinstance(node, ast.ClassDef) or node.decorator_list or node.keywords:
        return None
    made = [part for part in node.body if _names(part) & {"__init__", "__new__"}]
    if made:
        only = made[0]
        if len(made) > 1 or not isinstance(only, ast.FunctionDef):
            return None
        return _signature(only.args) if only.name == "__init__" and not only.decorator_list else None
    base = node.bases[0] if node.bases else None
    return signature_in(file, base.id, find_module, depth + 1) if isinstance(base, ast.Name) else None


def methods_in(file: Path, name: str, find_module: FindModule, depth: int = 0) -> set[str] | None:
    """The names in the body of a class and of its bases; None if the text, which is not run, does not tell.

    A base called Module is torch's.
    """
    try:
        tree = ast.parse(read_file(file, follows=True))
    except (SyntaxError, ValueError, OSError):
        return None
    bound = [node for node in _statements(tree) if name in _names(node)]
    if len(bound) != 1 or depth > _DEEPEST:
        return None
    node = bound[0]
    if isinstance(node, ast.ImportFrom):
        original = next(alias.name for alias in node.names if (alias.asname or alias.name) == name)
        origin = find_module(node.module) if node.module and not node.level else None
        return methods_in(origin, original, find_module, depth + 1) if origin is not None else None
    if not isinstance(node, ast.ClassDef) or node.decorator_list or node.keywords:
        return None
    found = {inner for part in node.body for inner in _names(part)}
    for base in node.bases:
        if (base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "")) == "Module":
            continue
        own = methods_in(file, base.id, find_module, depth + 1) if isinstance(base, ast.Name) else None
        if own is None:
            return None
        found |= own
    return found


def _statements(tree: ast.Module) -> Iterator[ast.stmt]:
    """The statements at the top level, and those below a condition or a `try` there."""
    pending: list[ast.AST] = list(tree.body)
    while pending:
        node = pending.pop(0)
        if isinstance(node, (ast.If, ast.Try, ast.With, ast.ExceptHandler)):
            pending.extend(ast.iter_child_nodes(node))
        elif isinstance(node, ast.stmt):
            yield node


def _names(node: ast.AST) -> set[str]:
    """The names that a statement binds, as far as it is a definition, an import or an assignment."""
    if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
        return {node.name}
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return {(alias.asname or alias.name).split(".")[0] for alias in node.names}
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return {target.id for target in targets if isinstance(target, ast.Name)}


def _signature(arguments: ast.arguments) -> Signature:
    """The signature of a method that is written like this, without its `self`."""
    places = [
        *((argument, Parameter.POSITIONAL_ONLY) for argument in arguments.posonlyargs),
        *((argument, Parameter.POSITIONAL_OR_KEYWORD) for argument in arguments.args),
    ]
    n_required = len(places) - len(arguments.defaults)
    parameters = [
        Parameter(argument.arg, kind, default=Parameter.empty if i < n_required else _DEFAULT)
        for i, (argument, kind) in enumerate(places)
    ][1:]
    if arguments.vararg is not None:
        parameters.append(Parameter(arguments.vararg.arg, Parameter.VAR_POSITIONAL))
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        value = Parameter.empty if default is None else _DEFAULT
        parameters.append(Parameter(argument.arg, Parameter.KEYWORD_ONLY, default=value))
    if arguments.kwarg is not None:
        parameters.append(Parameter(arguments.kwarg.arg, Parameter.VAR_KEYWORD))
    return Signature(parameters)
