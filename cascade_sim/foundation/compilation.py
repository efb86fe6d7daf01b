"""Kernels: loops that numba compiles, all by one decorator, and one cache of their machine code.

numba's own cache looks at the file of a function alone: after an edit of a file that it calls into, the old
code would run under the new sources. Here machine code is kept by what it was made of: the files of every
function that the kernel reaches, the constants it reads, the types it is called with, the versions of Python,
numpy, numba and llvmlite, the processor and numba's settings. Whatever changes, another file is asked for.

The files lie below the user's cache folder, so that every copy of the same sources shares them:
CASCADE_SIM_KERNELS, else NUMBA_CACHE_DIR, else XDG_CACHE_HOME or ~/.cache, else a temporary folder. A file is
loaded only if it and its folder belong to the user, no other user may write to them, and its checksum fits:
what is damaged is compiled anew. Of two processes that want the same kernel one compiles, the other waits.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import pickle  # machine code is code, in whatever format: hence the owner and the checksum
import platform
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial
from inspect import isfunction
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

FOLDER_VARIABLE = "CASCADE_SIM_KERNELS"
ENVIRONMENTS, EDITIONS = 4, 8  # that are kept: folders of stacks; of one kernel and its types, source states
_CHECKSUM = 32  # bytes
# What their functions do is said by their versions.
_LIBRARIES = {"numba", "llvmlite", "numpy", "builtins", "math", "operator"}
# Settings that say where things lie or what is printed, not which code is made.
_NO_MATTER = (
    "CACHE_",
    "CUDA_",
    "COLOR_",
    "NUMBA_",
    "THREADING_",
    "DISABLE_JIT",
    "DISABLE_PERFORMANCE",
    "HTML",
)

Watcher = Callable[
    [str, bool], None
]  # hears a kernel's name when it begins to be compiled, and when it is done
_watchers: list[Watcher] = []


def kernel(first: Any = None, **options: Any) -> Any:
    """A function as a kernel: compiled without the GIL, its machine code kept.

    `@kernel`, or with numba's options. With a signature, or a list of them, it is compiled at once, and for
    no other types.
    """
    if isfunction(first):
        return _kernel(first, [], options)
    signatures = first if isinstance(first, list) else [] if first is None else [first]
    return partial(_kernel, signatures=signatures, options=options)


def _kernel(function: Any, signatures: list[Any], options: dict[str, Any]) -> Any:
    from numba import njit
    from numba.core import typeinfer

    made = njit(nogil=True, **options)(function)
    if made is function:  # compilation is switched off
        return function
    _note_files(function.__module__)
    made._compiler.compile = partial(_compiled, made, made._compiler.compile)
    if signatures:
        with typeinfer.register_dispatcher(made):
            for signature in signatures:
                made.compile(signature)
            made.disable_compile()
    return made


@contextmanager
def watched(on_compile: Watcher) -> Iterator[None]:
    """Inside, `on_compile` hears of every kernel that this process compiles."""
    _watchers.append(on_compile)
    try:
        yield
    finally:
        _watchers.remove(on_compile)


def _compiled(made: Any, compile_: Callable[..., Any], types: Any, return_type: Any) -> Any:
    """The compiled kernel for these types: from the cache, or compiled and put there."""
    context = made.targetctx
    context.refresh()
    path = _path(made, types, return_type)
    if path is None:
        return _fresh(made, compile_, types, return_type)
    found = _load(path, context)
    if found is not None:
        return found
    with _alone(path):
        found = _load(path, context)  # another process may have compiled it meanwhile
        if found is None:
            found = _fresh(made, compile_, types, return_type)
            _save(path, found)
        return found


def _fresh(made: Any, compile_: Callable[..., Any], types: Any, return_type: Any) -> Any:
    name = f"{made.py_func.__module__}.{made.py_func.__qualname__}"
    _tell(name, is_done=False)
    try:
        return compile_(types, return_type)
    finally:
        _tell(name, is_done=True)


def _tell(name: str, is_done: bool) -> None:
    for on_compile in tuple(_watchers):
        on_compile(name, is_done)


def _path(made: Any, types: Any, return_type: Any) -> Path | None:
    """Where this kernel for these types is kept; None where it cannot be."""
    function = made.py_func
    sources = _Sources()
    try:
        sources.add_function(function)
    except _UnknownContent:
        return None
    inside = _environment_folder(made.targetctx.codegen().magic_tuple())
    if inside is None:
        return None
    wanted = _hex(*map(str, types), str(return_type), str(function.__code__.co_firstlineno))
    return inside / f"{function.__module__}.{function.__qualname__}-{wanted}-{_hex(*sources.parts)}.kernel"


# What a kernel is made of.


class _UnknownContent(Exception):
    """A kernel reads something that cannot be described, so its machine code is not kept."""


class _Sources:
    """All that decides what a function does, as texts, in the order in which it is met."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self._met: set[int] = set()

    def add_function(self, function: FunctionType) -> None:
        """Its file, and whatever its code reads from its module and from around it."""
        if id(function) in self._met:
            return
        self._met.add(id(function))
        self.parts.append(f"{function.__module__} {_file_digest(function.__code__.co_filename)}")
        names = sorted(_names(function.__code__))
        for name in names:
            if name in function.__globals__:
                self.add(name, function.__globals__[name], names)
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            self.add(name, cell.cell_contents, names)
        self.add("defaults", function.__defaults__, names)

    def add(self, name: str, value: Any, names: list[str]) -> None:
        """What a name stands for; `names` may be looked up in it if it is a module."""
        import numpy as np

        inner = getattr(value, "py_func", getattr(value, "_defn", value))  # a kernel's or an intrinsic's
        if isinstance(inner, FunctionType) and not _is_library(inner.__module__):
            self.add_function(inner)
        elif isinstance(value, ModuleType):
            self._add_module(value, names)
        elif value is None or isinstance(value, bool | int | float | complex | str | bytes | np.generic):
            self.parts.append(f"{name} {type(value).__name__} {value!r}")
        elif isinstance(value, np.ndarray) and not value.dtype.hasobject:
            content = hashlib.blake2b(np.ascontiguousarray(value).tobytes()).hexdigest()
            self.parts.append(f"{name} {value.dtype.str} {value.shape} {content}")
        elif isinstance(value, tuple):
            for i, one in enumerate(value):
                self.add(f"{name}[{i}]", one, names)
        else:
            self._add_other(name, value)

    def _add_module(self, module: ModuleType, names: list[str]) -> None:
        if _is_library(module.__name__) or module.__name__ in self.parts:
            return
        self.parts.append(module.__name__)
        for name in names:
            if hasattr(module, name):
                self.add(f"{module.__name__}.{name}", getattr(module, name), names)

    def _add_other(self, name: str, value: Any) -> None:
        """A class, a type of numba's or a function of a library."""
        from numba.core import types

        is_type = isinstance(value, types.Type | type)
        if not is_type and not _is_library(getattr(value, "__module__", None) or ""):
            raise _UnknownContent(name)
        module = value.__module__
        content = "" if _is_library(module) else _file_digest(sys.modules[module].__file__)
        self.parts.append(f"{name} {module} {getattr(value, '__qualname__', value)} {content}")


def _names(code: CodeType) -> set[str]:
    """Names that a function looks up, and the functions inside it."""
    inside = (_names(one) for one in code.co_consts if isinstance(one, CodeType))
    return set(code.co_names).union(*inside)


def _is_library(module: str) -> bool:
    return module.partition(".")[0] in _LIBRARIES


@cache
def _file_digest(file: str | None) -> str:
    """Read once per process, when its module has just been imported: a later edit is not what runs."""
    try:
        return hashlib.blake2b(Path(file or "").read_bytes(), digest_size=16).hexdigest()
    except OSError as error:
        raise _UnknownContent(file) from error


@cache
def _note_files(module: str) -> None:
    """Digest the files of a module and of those whose names it has imported so far."""
    reached = {getattr(value, "__module__", None) for value in vars(sys.modules[module]).values()}
    for name in {module, *filter(None, reached)}:
        if isinstance(name, str) and not _is_library(name):
            with suppress(_UnknownContent):
                _file_digest(getattr(sys.modules.get(name), "__file__", None))


def _hex(*parts: str) -> str:
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=12).hexdigest()


# Where it is kept.


def _environment_folder(processor: tuple[Any, ...]) -> Path | None:
    """The folder of this Python, these libraries, this processor and these settings; None without one."""
    import llvmlite
    import numba
    import numpy as np

    settings = {
        name: str(value)
        for name, value in sorted(vars(numba.config).items())
        if name.isupper() and not name.startswith(_NO_MATTER)
    }
    versions = (sys.version, platform.platform(), np.__version__, numba.__version__, llvmlite.__version__)
    key = _hex(*map(str, versions), str(processor), str(settings), _file_digest(__file__))
    outer = folder()
    inner = outer / f"numba-{numba.__version__}-{key}" if outer is not None else None
    return inner if inner is not None and _is_usable(inner) else None


def folder() -> Path | None:
    """The folder of the cache, the first that is usable; None if there is none."""
    return next(filter(_is_usable, _candidates()), None)


def _candidates() -> Iterator[Path]:
    """Folders for the cache, best first."""
    if os.environ.get(FOLDER_VARIABLE):
        yield Path(os.environ[FOLDER_VARIABLE]).absolute()
    if os.environ.get("NUMBA_CACHE_DIR"):
        yield Path(os.environ["NUMBA_CACHE_DIR"]).absolute() / "cascade_sim"
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    if os.path.isabs(home):
        yield Path(home) / "cascade_sim" / "kernels"
    yield Path(tempfile.gettempdir()) / f"cascade_sim-kernels-{os.getuid()}"


def _is_usable(place: Path) -> bool:
    """Whether the folder is there, or could be made, is the user's own, and no other user may write to it."""
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            place.mkdir(mode=0o700)
        return _is_own(place.lstat(), stat.S_ISDIR) and os.access(place, os.W_OK | os.X_OK)
    except OSError:
        return False


def _is_own(found: os.stat_result, is_kind: Callable[[int], bool]) -> bool:
    return is_kind(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """One process at a time; where locks are not to be had, each compiles for itself.

    A kernel waits for those it calls while it holds its own lock, never the other way round: no deadlock.
    """
    lock = path.with_suffix(".lock")
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError:
        yield
        return
    try:
        with suppress(OSError):
            fcntl.lockf(descriptor, fcntl.LOCK_EX)  # goes with the process, and is not inherited by a fork
        yield
    finally:
        with suppress(OSError):
            lock.unlink()
        os.close(descriptor)


def _load(path: Path, context: Any) -> Any:
    """The compiled kernel of a file; None if there is none that may be loaded."""
    from numba.core.compiler import CompileResult

    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with open(descriptor, "rb") as file:
        content = file.read() if _is_own(os.fstat(descriptor), stat.S_ISREG) else b""
    checksum, code = content[:_CHECKSUM], content[_CHECKSUM:]
    if checksum != _checksum(path, code):
        return None
    found = CompileResult._rebuild(context, *pickle.loads(code))
    context.insert_user_function(found.entry_point, found.fndesc, [found.library])
    return found


def _save(path: Path, compiled: Any) -> None:
    """Keep a compiled kernel, unless numba says that its code is good for this process alone."""
    from numba.core.serialize import dumps

    if compiled.library.has_dynamic_globals or compiled.lifted:
        return
    code = dumps(compiled._reduce())
    with suppress(OSError):  # a full disk: the next process compiles again
        _tidy(path)
        descriptor, name = tempfile.mkstemp(dir=path.parent, suffix=".part")
        try:
            with open(descriptor, "wb") as file:
                file.write(_checksum(path, code) + code)
            os.replace(name, path)
        except BaseException:
            os.unlink(name)
            raise


def _checksum(path: Path, code: bytes) -> bytes:
    """Of the content and of the name that it was kept under."""
    return hashlib.blake2b(path.name.encode() + b"\0" + code, digest_size=_CHECKSUM).digest()


def _tidy(path: Path) -> None:
    """Remove what a new file puts among the old: all but the last states of its sources, and old folders."""
    same = path.name.rsplit("-", 1)[0]
    for old in _oldest(path.parent.glob(f"{same}-*.kernel"), but=EDITIONS - 1):
        old.unlink(missing_ok=True)
    for environment in _oldest(path.parent.parent.glob("numba-*"), but=ENVIRONMENTS):
        for old in environment.iterdir():
            old.unlink(missing_ok=True)
        environment.rmdir()
    for mark in _oldest(path.parent.parent.glob("precompiled-*"), but=EDITIONS):
        mark.unlink(missing_ok=True)


def _oldest(paths: Iterator[Path], but: int) -> list[Path]:
    """All but the newest."""
    return sorted(paths, key=lambda path: path.lstat().st_mtime_ns, reverse=True)[but:]
