"""Classes of one's own: models, retrievers, bidders and click models that a scenario names.

A kind is the name of a built-in class, a name that was registered in this process, `path/to/file.py:Class` or
`package.module:Class`. A path holds from the working folder or from the folder of the scenario.

    register_bidder("mine", MyBidder)    # from here on, a scenario of this process may say `kind: mine`
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.util
import os
import re
import sys
import traceback
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from inspect import Signature
from pathlib import Path
from typing import Any

from cascade_sim.agents.registry import BIDDERS, CLICK_MODELS, Classes
from cascade_sim.foundation.errors import UserError, did_you_mean, unknown_name
from cascade_sim.foundation.signals import check_interrupt, is_interrupt
from cascade_sim.foundation.terminal import whole_signs
from cascade_sim.models.nets import NETS
from cascade_sim.scenario.market import find_profile
from cascade_sim.scenario.schema import Scenario, retrievals
from cascade_sim.scenario.sections import NAME, SIMILARITY, SIMILARITY_KEYS
from cascade_sim.scenario.user_code.process_settings import preserve_global_state
from cascade_sim.scenario.user_code.signatures import (
    Fault,
    faults_in,
    methods_in,
    signature_in,
    signature_of,
)
from cascade_sim.scenario.yaml import KeyPath
from cascade_sim.storage import user_code
from cascade_sim.storage.checksums import MANIFEST
from cascade_sim.storage.code_version import class_file, class_source, code_digest
from cascade_sim.storage.files import below, read_file
from cascade_sim.version import PACKAGE, folder_of

MODEL_KEYS = ("hidden", "dims")  # of a model's section, that are keywords of the built-in nets
INNER_PRODUCTS = ("towers",)  # built-in nets whose logit is one (models.nets.codes); of classes, those with:
ENCODERS = ("encode_users", "encode_ads")
OWN_FORMS = "path/to/file.py:Class or package.module:Class"


@dataclass(frozen=True)
class Kinds:
    """The classes of one sort that a scenario may name."""

    what: str  # as messages call one of them
    key: str  # as messages call its name
    built_in: Classes
    methods: tuple[str, ...]  # which a class must have
    first: tuple[str, ...]  # what the engine gives a class, before the options
    registered: dict[str, type] = field(default_factory=dict)
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # of a built-in one, beside its kind

    @property
    def known(self) -> dict[str, None]:
        """The names of all classes, those that come with the package first."""
        return dict.fromkeys((*self.built_in, *self.registered))

    @property
    def forms(self) -> str:
        """What a scenario may write to name a class, as messages list it."""
        return f"{', '.join(self.known)}, {OWN_FORMS}"


# The retrievers that come with the package. A new one is its class and one line here.
RETRIEVERS = Classes({SIMILARITY: "cascade_sim.cascade.retrievers.similarity:Retrieval"})

MODEL_KINDS = Kinds(
    "model",
    "kind",
    Classes(NETS),
    ("forward",),
    ("request_width", "ad_width", "pair_width"),
    keys=dict.fromkeys(NETS, MODEL_KEYS),
)
RETRIEVER_KINDS = Kinds(
    "retriever",
    "retriever",
    RETRIEVERS,
    ("retrieve", "score"),
    ("visible",),
    keys={SIMILARITY: SIMILARITY_KEYS},
)
RECIPE_KINDS = Kinds("recipe", "recipe", Classes({}), ("loss",), ())  # the built-in ones are functions
BIDDER_KINDS = Kinds(
    "bidder",
    "bidder",
    BIDDERS,
    ("bids", "participation", "observe", "state", "restore"),
    ("portfolio",),
)
CLICK_MODEL_KINDS = Kinds(
    "click model", "click model", CLICK_MODELS, ("expected", "clicks"), ("slot_effects",)
)


def register_model(name: str, model: type, *, replace: bool = False) -> None:
    """Register a model: from now on scenarios of this process may name it.

    Args:
        name: letters, digits, "_" and "-"; not the name of a built-in model.
        model: a torch.nn.Module class.
        replace: replace a class that was registered under this name.

    Raises:
        UserError: a name that is taken or invalid, or a class without the methods that are needed.
    """
    from torch import nn

    if isinstance(model, type) and not issubclass(model, nn.Module):
        raise UserError(f"register_model: {model.__name__} is not a torch.nn.Module class")
    _register(MODEL_KINDS, name, model, replace, base=nn.Module)


def register_bidder(name: str, bidder: type, *, replace: bool = False) -> None:
    """Register a bidder: from now on scenarios of this process may name it.

    Args:
        name: letters, digits, "_" and "-"; not the name of a built-in bidder.
        bidder: a class that keeps `cascade_sim.protocols.Bidder`.
        replace: replace a class that was registered under this name.

    Raises:
        UserError: a name that is taken or invalid, or a class without the methods that are needed.
    """
    _register(BIDDER_KINDS, name, bidder, replace)


def register_retriever(name: str, retriever: type, *, replace: bool = False) -> None:
    """From here on a scenario of this process may say `kind: name` of a retriever."""
    _register(RETRIEVER_KINDS, name, retriever, replace)


def register_click_model(name: str, click_model: type, *, replace: bool = False) -> None:
    """Register a click model: from now on scenarios of this process may name it.

    Args:
        name: letters, digits, "_" and "-"; not the name of a built-in click model.
        click_model: a class that keeps `cascade_sim.protocols.ClickModel`.
        replace: replace a class that was registered under this name.

    Raises:
        UserError: a name that is taken or invalid, or a class without the methods that are needed.
    """
    _register(CLICK_MODEL_KINDS, name, click_model, replace)


def _register(kinds: Kinds, name: str, own: type, replace: bool, base: type | None = None) -> None:
    """`replace` gives way to another class of the same name, as when a notebook's cell is run again."""
    call = f"register_{kinds.what.replace(' ', '_')}"
    if not isinstance(name, str) or not re.fullmatch(NAME, name):
        raise UserError(f"{call}: expected a name of letters, digits, '_' and '-', found {name!r}")
    if name in kinds.built_in:
        raise UserError(f"{call}: '{name}' is a built-in {kinds.what}; choose another name")
    if not isinstance(own, type):
        raise UserError(f"{call}: expected a class, found {own!r}")
    missing = [method for method in kinds.methods if not _has_own(own, method, base)]
    if missing:
        raise UserError(
            f"{call}: {own.__name__} has no {', '.join(missing)}; a {kinds.what} needs the methods "
            f"{', '.join(kinds.methods)}"
        )
    taken = kinds.registered.get(name)
    if taken is not None and taken is not own and not replace:
        raise UserError(
            f"{call}: '{name}' is taken by {taken.__module__}.{taken.__qualname__}; choose another name, "
            "or give replace=True"
        )
    kinds.registered[name] = own


def _has_own(own: type, method: str, base: type | None) -> bool:
    """Whether a class has a method other than what `base` leaves to be filled in."""
    attribute = getattr(own, method, None)
    return callable(attribute) and attribute is not getattr(base, method, None)


def find_class(kinds: Kinds, kind: str, home: Path = Path(".")) -> type[Any]:
    """The class that a kind names; its file or module is imported."""
    if kind in kinds.built_in:
        return kinds.built_in[kind]
    if kind in kinds.registered:
        return kinds.registered[kind]
    where, _, name = kind.rpartition(":")
    if not where:
        raise UserError(_unknown_kind(kinds, kind))
    file = find_file(kind, home)
    if file is None and is_file_reference(kind):
        raise UserError(f"no file '{where}' in the working folder or beside the scenario")
    user_code.begin_loading()
    before = user_code.loaded()
    with errors_of(f"{kinds.what} {kind!r} cannot be imported", kind):
        module = _load_module(where) if file is None else _load_file(file)
    own = getattr(module, name, None)
    if not isinstance(own, type):
        classes = [key for key, value in vars(module).items() if isinstance(value, type)]
        hint = did_you_mean(name, classes)
        raise UserError(f"{where} has no class '{name}'{hint}; it has: {', '.join(classes) or 'none'}")
    user_code.note_late(own, before)
    return own


def _module_name(file: Path) -> str:
    # The path is part of the name: two files of one name must not be taken for each other.
    return f"{user_code.PREFIX}{file.stem}_{zlib.crc32(str(file.resolve()).encode()):08x}"


def _load_file(file: Path) -> Any:
    name = _module_name(file)
    loader = user_code.AsWritten(name, str(file))
    spec = importlib.util.spec_from_loader(name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    loader.exec_module(module)
    return module


def _load_module(where: str) -> Any:
    """A module of the Python path, or below the working folder (which an installed command leaves out)."""
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))
    return importlib.import_module(where)


def where_and_what(error: BaseException, kind: str) -> str:
    """`file:line: Type: message`, at the last line of the user's own file that was under way."""
    what = f"{type(error).__name__}: {_own_words(error)}"
    if isinstance(error, SyntaxError) and error.filename:
        return f"{_short(error.filename)}:{error.lineno}: {type(error).__name__}: {error.msg}"
    frames = traceback.extract_tb(error.__traceback__)
    own = kind.rpartition(":")[0]
    mine = [frame for frame in frames if own.endswith(".py") and Path(frame.filename).name == Path(own).name]
    if not mine:
        mine = [frame for frame in frames if not _is_ours(frame.filename)]
    return f"{_short(mine[-1].filename)}:{mine[-1].lineno}: {what}" if mine else what


def _own_words(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f"it ends the program, by sys.exit({'' if error.code is None else repr(error.code)})"
    try:
        return whole_signs(str(error))
    except BaseException:  # an exception of the user's own, whose text fails as well
        return "(without a readable message)"


def _is_ours(filename: str) -> bool:
    """Whether a file is one of this project's packages, or of torch's."""
    if filename.startswith("<frozen") or f"{os.sep}torch{os.sep}" in filename:
        return True
    folders = (PACKAGE, *(folder_of(name) for name in ("agents", "models", "analysis")))
    return any(folder in Path(filename).resolve().parents for folder in folders)


def _short(filename: str) -> str:
    """A path from the working folder where it lies below it."""
    path = Path(filename)
    try:
        return path.resolve().relative_to(Path.cwd()).as_posix()
    except (ValueError, OSError):  # it lies elsewhere, or the working folder was removed
        return filename


@contextmanager
def errors_of(place: str, kind: str) -> Iterator[None]:
    """Whatever a user's class raises inside becomes an error that says which class it is, and the line.

    Anything: `sys.exit()` is no way to end a study well. A real interrupt alone passes, even if the class
    swallows it. What the class sets for the whole process is put back.
    """
    try:
        with preserve_global_state():
            yield
    except UserError as error:
        raise UserError(f"{place}: {error}") from error
    except BaseException as error:
        if is_interrupt(error):
            raise
        name = kind.rpartition(":")[2]
        named = place if name in place else f"{place}: {name}"
        raise UserError(f"{named}: {where_and_what(error, kind)}") from error
    check_interrupt()


@dataclass(frozen=True)
class Reference:
    """A class that a scenario names."""

    kinds: Kinds
    kind: str
    options: Mapping[str, Any]
    section: KeyPath = ()  # where it is named, and its options are
    key: str = "kind"  # of its name there
    options_key: str = "options"

    @property
    def place(self) -> str:
        """The key of its name, as messages have it."""
        return ".".join(map(str, (*self.section, self.key)))


def references(scenario: Scenario) -> Iterator[Reference]:
    """Every class that a scenario names."""
    for name, model in scenario.models.items():
        yield Reference(MODEL_KINDS, model.kind, model.options, ("models", name))
        if model.has_custom_recipe:
            told = model.recipe_options
            yield Reference(RECIPE_KINDS, model.recipe, told, ("models", name), "recipe", "recipe_options")
    for section, retrieval in retrievals(scenario):
        for place, route in retrieval.parts.items():
            yield Reference(RETRIEVER_KINDS, route.kind, route.options, (*section, *place))
    if scenario.market is not None:
        for name, bidder in scenario.market.bidders.items():
            at = ("market", "bidders", name)
            yield Reference(BIDDER_KINDS, bidder.kind, bidder.options, at)
        users = scenario.market.users
        section = ("market", "users")
        yield Reference(CLICK_MODEL_KINDS, users.click_model, users.options, section, "click_model")


def kept_retrievers(scenario: Scenario) -> dict[str, str]:
    """{name: kind} of custom retrievers, named as files that a run keeps; no model has a dot in its name."""
    asked = (one.kind for one in references(scenario) if one.kinds is RETRIEVER_KINDS)
    own = [kind for kind in dict.fromkeys(asked) if kind not in RETRIEVER_KINDS.known]
    return {f"retriever.{number}": kind for number, kind in enumerate(own)}


def written_faults(reference: Reference, folder: Path) -> Iterator[Fault]:
    """What is wrong with the options of a class, as far as its text tells; nothing is run.

    A class that has its keys in its section would not see any options.
    """
    kinds, kind = reference.kinds, reference.kind
    if kind in kinds.keys:
        for option in reference.options:
            hint = did_you_mean(option, kinds.keys[kind])
            yield option, f"{kind} takes no options; write {', '.join(kinds.keys[kind])} beside kind{hint}"
        return
    if kind in kinds.built_in and not reference.options:
        return  # nothing to import it for
    signature = written_signature(reference, folder)
    name = kind.rpartition(":")[2]
    if signature is not None:
        yield from faults_in(signature, name, kinds.first, reference.options)


def written_signature(reference: Reference, folder: Path) -> Signature | None:
    """What a class takes, as far as its text tells; nothing of one's own is run."""
    kinds, kind = reference.kinds, reference.kind
    known = kinds.built_in if kind in kinds.built_in else kinds.registered
    if kind in known:
        return signature_of(known[kind])
    where, _, name = kind.rpartition(":")
    file = find_file(kind, folder) if is_file_reference(kind) else find_module(where)
    return signature_in(file, name, find_module) if file is not None else None


def inner_product_fault(kind: str, folder: Path) -> str:
    """Why the logit of a model is no inner product of two codes; empty if it is, or the text cannot tell."""
    if kind in INNER_PRODUCTS:
        return ""
    needs = f"needs a logit that is an inner product: {', '.join(INNER_PRODUCTS)}, or a class with "
    needs += " and ".join(ENCODERS)
    if kind in MODEL_KINDS.built_in:
        return f"{needs}, found {kind}"
    if kind in MODEL_KINDS.registered:
        methods: set[str] | None = {name for name in ENCODERS if hasattr(MODEL_KINDS.registered[kind], name)}
    else:
        where, _, name = kind.rpartition(":")
        file = find_file(kind, folder) if is_file_reference(kind) else find_module(where)
        methods = None if file is None else methods_in(file, name, find_module)
    missing = () if methods is None else [name for name in ENCODERS if name not in methods]
    return f"{needs}; {kind.rpartition(':')[2]} has no {' and no '.join(missing)}" if missing else ""


def require_options(scenario: Scenario, home: Path) -> None:
    """Ask every custom class, loaded, whether it takes its options; a UserError if one does not.

    And one that a retriever searches by, whether it encodes requests and ads.
    """
    retrieving = {(model,) for _, retrieval in retrievals(scenario) for model in retrieval.models}
    for reference in references(scenario):
        kinds, kind = reference.kinds, reference.kind
        if kind in kinds.built_in:
            for option, text in written_faults(reference, home):
                raise UserError(
                    f"{'.'.join((*map(str, reference.section), reference.options_key))}.{option}: {text}"
                )
            continue
        with errors_of(reference.place, kind):
            own = find_class(kinds, kind, home)
            signature = signature_of(own)
        if kinds is MODEL_KINDS and reference.section[1:] in retrieving:
            lacks = [name for name in ENCODERS if not callable(getattr(own, name, None))]
            if lacks:
                raise UserError(
                    f"{reference.place}: a retriever searches by {own.__name__}, which needs the methods "
                    f"{' and '.join(ENCODERS)}, found no {' and no '.join(lacks)}"
                )
        if signature is None:
            continue
        for option, text in faults_in(signature, own.__name__, kinds.first, reference.options):
            at = (*reference.section, reference.options_key, *(() if option is None else (option,)))
            raise UserError(f"{'.'.join(map(str, at))}: {text}")


def named_files(scenario: Scenario, home: Path) -> list[Path | None]:
    """The files that a scenario names, None for one that is not there (or a built-in traffic profile)."""
    kinds = [reference.kind for reference in references(scenario) if is_file_reference(reference.kind)]
    profile = [] if scenario.market is None else [find_profile(scenario.market.profile, home)]
    return profile + [find_file(kind, home) for kind in kinds]


def travelling_files(scenario: Scenario, home: Path) -> list[Path]:
    """The user's own files that a scenario needs where it runs: what it names, and what that imports."""
    files = [file.resolve() for file in named_files(scenario, home) if file is not None]
    for reference in references(scenario):
        kinds, kind = reference.kinds, reference.kind
        if kind in kinds.built_in or kind in kinds.registered:
            continue
        file = find_file(kind, home)
        start = (_module_name(file), file.resolve()) if file is not None else kind.rpartition(":")[0]
        files += user_code.files_from(start)
    return list(dict.fromkeys(files))


def user_code_of(scenario: Scenario, home: Path) -> dict[str, str]:
    """{label: digest} of the code of every class that a scenario names and that is none of this project's.

    Also of modules that such a class imports. Once the classes are loaded, what they hold in memory counts.
    """
    code: dict[str, str] = {}
    for reference in references(scenario):
        kinds, kind = reference.kinds, reference.kind
        if kind in kinds.built_in:
            continue
        if kind in kinds.registered:
            own = _registered_code(kinds.registered[kind])
            code |= {f"{kind}: {label}": value for label, value in own.items()}
            continue
        if is_file_reference(kind):
            code |= code_of_file(kind, home)
        else:
            code |= user_code.code_from(kind.rpartition(":")[0])
    return code


def attribute_late_code(scenario: Scenario, home: Path, names: Iterable[str]) -> None:
    """Modules that came in while a scenario's own classes were at work belong to all of them: which asked
    for it is unknown, and a later run in this process would not see them come in again."""
    modules = []
    for reference in references(scenario):
        kinds, kind = reference.kinds, reference.kind
        if kind in kinds.built_in:
            continue
        file = find_file(kind, home) if is_file_reference(kind) else None
        if kind in kinds.registered:
            modules.append(kinds.registered[kind].__module__)
        else:
            modules.append(kind.rpartition(":")[0] if file is None else _module_name(file))
    user_code.attribute(modules, names)


def code_of_file(kind: str, home: Path) -> dict[str, str]:
    """{label: digest} of a `path/to/file.py:Class` and what it imports; the file is called as written here.

    There may be files of that name in several folders.
    """
    where, file = kind.rpartition(":")[0], find_file(kind, home)
    if file is None:
        return {}
    own = user_code.code_from((_module_name(file), file.resolve()))
    return {where if label == file.name else label: value for label, value in own.items()}


def code_changed_since(before: Mapping[str, str], scenario: Scenario, home: Path) -> list[str]:
    """Labels of `user_code_of` whose file on the disk is no longer what it was.

    Registered classes are as this process has them, whatever becomes of their files.
    """
    user_code.begin_loading()
    now = user_code_of(scenario, home)
    return [label for label, was in before.items() if ": " not in label and now.get(label, was) != was]


def _registered_code(own: type) -> dict[str, str]:
    return user_code.code_of(own) or {own.__qualname__: class_source(own).hex()}


def named_files_digest(scenario: Scenario, home: Path) -> str:
    """Of the files that a scenario names and of all code of its classes (`user_code_of`)."""
    total = hashlib.blake2b(digest_size=8)
    for file in named_files(scenario, home):
        total.update((b"" if file is None else read_file(file, follows=True)) + b"\0")
    total.update(code_digest(user_code_of(scenario, home)).encode())
    return total.hexdigest()


def refuse_far_logs(scenario: Scenario) -> None:
    """UserError for a log that other machines would need: it may be of any size, so it does not travel."""
    if scenario.world.replay is not None:
        raise UserError(
            f"world.replay.log: {scenario.world.replay.log} lies on this machine, and logs do not "
            "travel to others; leave out --engine"
        )


def refuse_registered(scenario: Scenario) -> None:
    """A UserError where a class is known to this process alone; other processes only find what has a path."""
    for reference in references(scenario):
        kinds, kind = reference.kinds, reference.kind
        if kind in kinds.registered:
            raise UserError(
                f"{reference.place}: '{kind}' is registered in this process alone, and each world runs in a "
                f"process of its own; put the class into a file and name it as path/to/file.py:Class, "
                f"here {kind_of(kinds.registered[kind])}"
            )


def has_registered(scenario: Scenario) -> bool:
    """Whether a class of the scenario is known to this process alone."""
    return any(reference.kind in reference.kinds.registered for reference in references(scenario))


def kind_of(own: type) -> str:
    """How a scenario would name a class: by its file or, where it has none, by its module."""
    file = class_file(own)
    where = own.__module__ if file is None else path_from_working_folder(file)
    return f"{where}:{own.__name__}"


def is_file_reference(kind: str) -> bool:
    """Whether a kind is of the form path/to/file.py:Class."""
    return kind.rpartition(":")[0].endswith(".py")


def find_file(kind: str, folder: Path) -> Path | None:
    """The file of a `path/to/file.py:Class`: looked for from the working folder, then beside the scenario.

    At last `scenarios/…` among the shipped ones.
    """
    name = kind.rpartition(":")[0]
    if not name.endswith(".py"):
        return None
    return next((path for path in (Path(name), folder / name) if path.is_file()), shipped_file(Path(name)))


def shipped_file(path: Path) -> Path | None:
    """The file that came with this package under a path such as scenarios/quick.yaml, as docs write it.

    None if it is no such path, or there is a file of the user's own.
    """
    if path.parts[:1] != ("scenarios",) or ".." in path.parts or path.exists():
        return None
    file = folder_of("scenarios").joinpath(*path.parts[1:])
    return file if file.is_file() else None


def kept_copy(kind: str, folder: Path) -> Path | None:
    """The copy of a class's file that the run in this folder keeps; who runs it checks what it is."""
    name = kind.rpartition(":")[2]
    copies = sorted(below(folder, "models").glob("*.py")) if below(folder, MANIFEST).is_file() else ()
    return next((copy for copy in copies if not _class_fault(copy, copy.name, name, syntax=True)), None)


def from_working_folder(kind: str, folder: Path) -> str:
    """The same reference with a path that holds from the working folder; any other kind unchanged."""
    path = find_file(kind, folder)
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


def check_reference(kind: str, folder: Path, kinds: Kinds = MODEL_KINDS, *, syntax: bool = True) -> str:
    """What is wrong with a kind, or an empty string. The file is parsed, never imported.

    Without `syntax` a file that is not Python passes, for who imports it next and shows the line.
    """
    if ":" not in kind:
        return "" if kind in kinds.known else _unknown_kind(kinds, kind)
    where, _, name = kind.rpartition(":")
    if not name.isidentifier():
        return f"'{name}' is not the name of a class; expected {kinds.forms}"
    if not is_file_reference(kind):
        return _module_fault(where, name, kinds.forms, syntax)
    path = kept_copy(kind, folder) or find_file(kind, folder)
    if path is None:
        hint = f"; expected {kinds.forms}"
        if below(folder, MANIFEST).is_file():  # of a run: the path held where it was started
            hint = "; ask from the folder where the run was started, or put the file into the working folder"
        near = did_you_mean(Path(where).name, _python_files(where, folder))
        return f"no file '{where}' in the working folder or beside the scenario{near or hint}"
    return _class_fault(path, where, name, syntax)


def require_reference(kind: str, folder: Path, kinds: Kinds) -> None:
    """A UserError where a kind names no class; nothing is imported."""
    fault = check_reference(kind, folder, kinds, syntax=False)
    if fault:
        raise UserError(f"{kind}: {fault}")


def _unknown_kind(kinds: Kinds, kind: str) -> str:
    if kind.endswith(".py"):
        return f"'{kind}' names no class; write {kind}:ClassName"
    return f"{unknown_name(kinds.key, kind, kinds.known)}, {OWN_FORMS}"


def _python_files(where: str, folder: Path) -> list[str]:
    """Python files in the folders where the file was looked for."""
    return [
        p.name
        for base in (Path(where).parent, (folder / where).parent)
        if base.is_dir()
        for p in base.glob("*.py")
    ]


def _module_fault(module: str, name: str, forms: str, syntax: bool) -> str:
    if not all(part.isidentifier() for part in module.split(".")):
        return f"'{module}' is neither a .py file nor a module; expected {forms}"
    spec, missing = user_code.module_spec(module)
    if spec is None:
        return f"no module '{missing}' is installed or in the working folder; expected {forms}"
    if spec.origin is None or not spec.origin.endswith(".py"):
        return ""  # compiled or a namespace: only importing it could tell
    return _class_fault(Path(spec.origin), module, name, syntax)


def find_module(module: str) -> Path | None:
    """The Python file of a module; None if there is none to read."""
    spec, _ = user_code.module_spec(module)
    return Path(spec.origin) if spec is not None and spec.origin and spec.origin.endswith(".py") else None


def _class_fault(path: Path, where: str, name: str, syntax: bool) -> str:
    try:
        tree = ast.parse(read_file(path, follows=True))
    except (SyntaxError, ValueError) as error:
        if not syntax:
            return ""
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
