"""The code of a user's class: its file and every module that it brings in, outside the installed packages.

A stored result must not outlive the code that made it, so all of this code is part of a run's identity and of
the key of a trained model. Two looks at it are joined: what the text says (imports anywhere in it, inside
functions as well, followed from file to file; nothing is run) and what memory shows (modules, functions and
classes that a loaded module holds, however it came by them).

Out of sight are: a module that is imported by a computed name and has not been imported yet, which is why
`late` tells afterwards what came in; files that a class reads as data; the inside of installed packages.

    code_of(MyBidder)      # {"my_bidder.py": "a3…", "helpers": "07…", "helpers.curves": "9c…"}
"""

from __future__ import annotations

import ast
import inspect
import os
import sys
import sysconfig
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from cascade_sim.storage.checksums import digest
from cascade_sim.storage.files import read_file
from cascade_sim.version import BESIDE, PACKAGE, folder_of

PREFIX = "cascade_sim_user_"  # of the names under which files of users are loaded

_OURS = (PACKAGE, *(folder_of(name) for name in BESIDE if name != "scenarios"))
_INSTALLED = ("site-packages", "dist-packages")

_loaded: dict[str, tuple[Path, str]] = {}  # own modules by name: their file, and the digest of what was run
_late: dict[str, set[str]] = {}  # module of a class -> modules that came in while it was at work


class AsWritten(SourceFileLoader):
    """Compiles the file as it is now, and writes down what it compiled.

    A kept bytecode file is identified by the second of the last change and the size alone: of two edits
    within a second the first would be run.
    """

    def get_code(self, fullname: str) -> Any:
        data = self.get_data(self.path)
        _loaded[fullname] = (Path(self.path).resolve(), digest(data))
        return self.source_to_code(data, self.path)


class _Recorder:
    """Finds modules as Python does, and has those of one's own loaded as they are written."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and type(spec.loader) is SourceFileLoader and is_own(str(spec.origin)):
            spec.loader = AsWritten(spec.name, str(spec.origin))
        return spec


def begin_loading() -> None:
    """Before a class of a user's own is loaded: what has changed on the disk since it was run is forgotten.

    From here on imports of own modules are written down; also those that a class does later, at work.
    """
    if not any(isinstance(finder, _Recorder) for finder in sys.meta_path):
        # Just before Python's own: code that watches imports at the front goes on doing so.
        place = sys.meta_path.index(PathFinder) if PathFinder in sys.meta_path else len(sys.meta_path)
        sys.meta_path.insert(place, _Recorder())
    if any(_digest_of(file) != known for name, (file, known) in _loaded.items() if name in sys.modules):
        # All of them: a module that did not change itself may hold what came from one that did.
        for name in _loaded:
            sys.modules.pop(name, None)
        _loaded.clear()


def loaded() -> set[str]:
    """Names of the own modules that have been run since the first custom class was loaded."""
    return set(_loaded)


def loaded_since(before: Iterable[str]) -> dict[str, tuple[str, str]]:
    """{module: (file, digest)} of the own modules that have been run since `before`, for another process."""
    names = sorted(loaded() - set(before))
    return {name: (str(_loaded[name][0]), _loaded[name][1]) for name in names}


def loaded_elsewhere(modules: Mapping[str, tuple[str, str]]) -> None:
    """Modules that a job of this process's work has run in another: `late` tells of them too."""
    for name, (file, content) in modules.items():
        _loaded.setdefault(name, (Path(file), content))


def note_late(own: type, before: Iterable[str]) -> set[str]:
    """The modules that came in since `before` although `code_of` the class did not know of them.

    They belong to its code from here on.
    """
    known = set(_closure(_starts(own)))
    new = {name for name in loaded() - set(before) - known if not name.startswith(PREFIX)}
    _late.setdefault(own.__module__, set()).update(new)
    return new


def attribute(modules: Iterable[str], names: Iterable[str]) -> None:
    """From here on `names` belong to the code of each of these modules."""
    for module in modules:
        _late.setdefault(module, set()).update(set(names) - {module})


def late(known: Iterable[str], before: Iterable[str] = ()) -> dict[str, str]:
    """{module: digest} of own modules that came in since `before` and are not among the `known` labels.

    Whatever asked for them: one too many costs a run that is made again, one too few a result that is not of
    this code.
    """
    names = loaded() - set(before) - set(known)
    return {name: _loaded[name][1] for name in sorted(names) if not name.startswith(PREFIX)}


def digest_now(module: str) -> str | None:
    """The digest of a module as it lies on the disk now; None if it cannot be found."""
    file = _file_of(module, loaded_first=False)
    return None if file is None else _digest_of(file)


def code_of(own: type) -> dict[str, str]:
    """{label: digest} of all code of a class of a user's own; nothing for one of this project.

    Labels are names of modules, for a file that a scenario names the file's: where it lies does not matter.
    """
    return code_from(*_starts(own))


def code_from(*starts: str | tuple[str, Path]) -> dict[str, str]:
    """The same from names of modules, or (name, file) of a file: as it was run, or as it lies there."""
    found = _closure(starts)
    return {_label(name, file): _content(name, file) for name, file in sorted(found.items())}


def files_from(*starts: str | tuple[str, Path]) -> list[Path]:
    """The files of the same code, but for installed packages, which are not the user's to carry about."""
    return [file for file in _closure(starts).values() if is_own(str(file))]


@lru_cache(4096)
def is_own(file: str) -> bool:
    """Whether a file is neither of the standard library, nor of an installed package, nor of this project."""
    path = Path(file)
    if not path.is_absolute():  # torch has pseudo-modules without a file
        return False
    path = path.resolve()
    if set(_INSTALLED) & set(path.parts) or any(folder in path.parents for folder in _OURS):
        return False
    standard = {Path(sysconfig.get_path(kind)).resolve() for kind in ("stdlib", "platstdlib")}
    return not standard & set(path.parents)


def module_spec(module: str) -> tuple[ModuleSpec | None, str]:
    """Where a module lies, or None and the first part of its name that is nowhere. Nothing is imported."""
    locations: list[str] | None = [os.getcwd(), *sys.path]
    spec = None
    parts = module.split(".")
    for i in range(len(parts)):
        # PathFinder, unlike importlib.util.find_spec, does not import the parent packages.
        spec = PathFinder.find_spec(".".join(parts[: i + 1]), locations) if locations is not None else None
        if spec is None:
            return None, ".".join(parts[: i + 1])
        locations = (
            list(spec.submodule_search_locations) if spec.submodule_search_locations is not None else None
        )
    return spec, ""


def class_file(cls: type) -> Path | None:
    """The file in which a class is defined; None for one that was typed into a shell or a notebook."""
    try:
        file = inspect.getsourcefile(cls)
    except (OSError, TypeError):
        return None
    return Path(file).resolve() if file is not None and Path(file).is_file() else None


def _starts(own: type) -> list[tuple[str, Path]]:
    """The modules of a class and of the classes it is made of."""
    found = []
    for cls in own.__mro__:
        file = class_file(cls)
        if file is None or any(folder in file.parents for folder in _OURS):
            continue
        if cls is own or is_own(str(file)):  # the class that is named counts even if it is installed
            found.append((cls.__module__, file))
    return found


def _closure(starts: Iterable[str | tuple[str, Path]]) -> dict[str, Path]:
    """{module: file} of own modules that can be reached from some; those themselves are always in it."""
    found: dict[str, Path] = {}
    waiting: list[str] = []
    for start in starts:
        name, file = (start, _file_of(start)) if isinstance(start, str) else start
        if file is not None:
            found[name] = file
            waiting += _late.get(name, ())
            if is_own(str(file)):
                waiting += _neighbours(name, file)
    seen = set(found)
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        file = _file_of(name)
        if file is not None and is_own(str(file)):
            found[name] = file
            waiting += _neighbours(name, file)
    return found


def _neighbours(name: str, file: Path) -> set[str]:
    """Names of modules that one module asks for: its packages, its imports, and what it holds in memory."""
    module = sys.modules.get(name)
    is_package = file.name == "__init__.py"
    package = name if is_package else name.rpartition(".")[0]
    names = {package}
    if file.suffix == ".py":
        with_data = _data(file)
        names |= _imports(with_data, package) if with_data is not None else set()
    for value in list(vars(module).values()) if module is not None else ():
        if isinstance(value, ModuleType):
            names.add(value.__name__)
        elif isinstance(value, type | FunctionType):
            names.add(value.__module__)
    parents = {name.rsplit(".", n)[0] for name in names if name for n in range(1, name.count(".") + 1)}
    return {name for name in names | parents if name and name.split(".")[0] not in sys.stdlib_module_names}


@lru_cache(1024)
def _imports(text: bytes, package: str) -> frozenset[str]:
    """What the imports of a text name, wherever they are in it; `from a import b` may be a module a.b."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return frozenset()
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".") if node.level else []
            parts = parts[: len(parts) - node.level + 1]
            base = ".".join([*parts, *([node.module] if node.module else [])])
            names.update((base, *(f"{base}.{alias.name}" for alias in node.names)))
    return frozenset(names)


def _file_of(name: str, loaded_first: bool = True) -> Path | None:
    """The file of a module, loaded or not; None if it has none, or is nowhere."""
    module = sys.modules.get(name) if loaded_first else None
    if module is not None:
        file = getattr(module, "__file__", None)
        return Path(file).resolve() if isinstance(file, str) and Path(file).is_file() else None
    try:
        spec, _ = module_spec(name)
    except (ImportError, ValueError, OSError):
        return None
    is_file = spec is not None and spec.has_location and spec.origin is not None
    return Path(str(spec.origin)).resolve() if spec is not None and is_file else None


def _label(name: str, file: Path) -> str:
    return file.name if name.startswith(PREFIX) else name


def _content(name: str, file: Path) -> str:
    """The digest of what was run where that was written down, else of what lies on the disk."""
    run = _loaded.get(name)
    if run is not None and run[0] == file and name in sys.modules:
        return run[1]
    return _digest_of(file) or ""


def _digest_of(file: Path) -> str | None:
    data = _data(file)
    return None if data is None else digest(data)


def _data(file: Path) -> bytes | None:
    try:
        return read_file(file, follows=True)
    except OSError:
        return None
