"""From a model's section in the scenario to a torch module, and from a module to a scorer.

From a bidder's kind in the scenario to its class, and from the class to a bidder.
"""

import importlib
import importlib.util
import os
import sys
import traceback
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from cascade_sim.agents.bidders import BIDDERS
from cascade_sim.agents.bidding import Portfolio
from cascade_sim.cascade.links import with_calibrator, with_link
from cascade_sim.cascade.seats import CoActionScorer, ModelScorer, TorchScorer, TowersScorer
from cascade_sim.errors import UserError, did_you_mean, unknown_name
from cascade_sim.models.calibrators import Calibrator
from cascade_sim.models.features import FeatureView
from cascade_sim.models.nets.coaction import CoAction
from cascade_sim.models.nets.towers import TwoTowers
from cascade_sim.models.recipes import recipe_named
from cascade_sim.scenario.models import ModelSpec, objective_of
from cascade_sim.scenario.plugins import check_reference, find_model_file

KINDS = {"towers": TwoTowers, "coaction": CoAction}
SCORERS = {TwoTowers: TowersScorer, CoAction: CoActionScorer}


def find_class(kind: str, home: Path = Path(".")) -> type[nn.Module]:
    """The class of a model kind: built in, `path/to/file.py:Class`, or `package.module:Class`.

    A path is looked for below the working directory, then beside the scenario (`home`).
    """
    if kind in KINDS:
        return KINDS[kind]
    if ":" not in kind:
        raise UserError(f"unknown model kind {kind!r}; known: {', '.join(KINDS)}, or path/to/file.py:Class")
    found = find_any_class(kind, home)
    if not issubclass(found, nn.Module):
        raise UserError(f"{kind} is not a torch.nn.Module class")
    return found


def find_any_class(kind: str, home: Path = Path(".")) -> type:
    """The class named as `path/to/file.py:Class` or `package.module:Class`."""
    where, _, name = kind.rpartition(":")
    try:
        file = source_file(kind, home)
        module = _load_module(where) if file is None else _load_file(file)
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"model kind {kind!r} cannot be imported: {where_and_what(error, kind)}") from error
    found = getattr(module, name, None)
    if not isinstance(found, type):
        classes = [key for key, value in vars(module).items() if isinstance(value, type)]
        raise UserError(f"{where} has no class {name!r}; it has: {', '.join(classes) or 'none'}")
    return found


def source_file(kind: str, home: Path = Path(".")) -> Path | None:
    """The file of a kind written as `path/to/file.py:Class`; None for any other kind.

    A path is looked for below the working folder, then below `home`.
    """
    path = kind.rpartition(":")[0]
    if not path.endswith(".py"):
        return None
    file = next((p for p in (Path(path), home / path) if p.is_file()), None)
    if file is None:
        raise UserError(f"model file {path} does not exist")
    return file


def _load_file(file: Path):
    # The path is part of the name: two files of one name must not be taken for each other.
    name = f"cascade_sim_user_{file.stem}_{zlib.crc32(str(file.resolve()).encode()):08x}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _load_module(where: str):
    """A module of the Python path, or below the working folder (which an installed command leaves out)."""
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))
    return importlib.import_module(where)


def build_module(
    name: str, spec, view: FeatureView, seed: int, home: Path = Path("."), heads: int = 1
) -> nn.Module:
    """A fresh module with weights drawn from the seed. A class of one's own gets `options` as keywords.

    Several heads are for training a built-in net; what is served has one.
    """
    cls = find_class(spec.kind, home)
    widths = (view.request_width, view.ad_width, view.pair_width)
    options = {"hidden": spec.hidden, "dims": spec.dims} if spec.kind in KINDS else dict(spec.options)
    if heads > 1:
        options["heads"] = heads
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            return cls(*widths, **options)
        except Exception as error:  # the user's code may raise anything
            raise UserError(
                f"model {name!r}: {spec.kind}(request_width, ad_width, pair_width, "
                f"{', '.join(options) or 'no options'}) failed: {where_and_what(error, spec.kind)}"
            ) from error


def make_scorer(name: str, recipe: str, view: FeatureView, module: nn.Module) -> ModelScorer:
    """The fused scorer of a built-in net, the batched one of any other."""
    return SCORERS.get(type(module), TorchScorer)(name, view, recipe_named(recipe).link, module.eval())


def served_scorer(
    name: str, spec: ModelSpec, view: FeatureView, module: nn.Module, calibrator: Calibrator | None = None
) -> ModelScorer:
    """The scorer of a trained model as its section wants it served: with its link, or its calibrator."""
    scorer = make_scorer(name, spec.recipe, view, module)
    if calibrator is not None:
        return with_calibrator(scorer, calibrator)
    return with_link(scorer, objective_of(spec))


def where_and_what(error: BaseException, kind: str) -> str:
    """`file:line: Type: message`, at the last line of the user's own file that was under way."""
    what = f"{type(error).__name__}: {error}"
    if isinstance(error, SyntaxError) and error.filename:
        return f"{_short(error.filename)}:{error.lineno}: {type(error).__name__}: {error.msg}"
    frames = traceback.extract_tb(error.__traceback__)
    own = kind.rpartition(":")[0]
    mine = [frame for frame in frames if own.endswith(".py") and Path(frame.filename).name == Path(own).name]
    if not mine:
        ours = (f"{os.sep}cascade_sim{os.sep}", f"{os.sep}torch{os.sep}", "<frozen")
        mine = [frame for frame in frames if not any(part in frame.filename for part in ours)]
    return f"{_short(mine[-1].filename)}:{mine[-1].lineno}: {what}" if mine else what


def _short(filename: str) -> str:
    """A path from the working folder where it lies below it."""
    path = Path(filename)
    try:
        return path.resolve().relative_to(Path.cwd()).as_posix()
    except ValueError:
        return filename


METHODS = ("bids", "participation", "observe", "state", "restore")


def check_bidder_reference(kind: str, home: Path = Path(".")) -> None:
    """A UserError where a kind names no bidder, file or class. A file is parsed, never imported."""
    where, _, name = kind.rpartition(":")
    if not where:
        find_bidder(kind, home)  # built in, or an error that says what there is
        return
    if not name.isidentifier():
        raise UserError(f"{kind}: '{name}' is not the name of a class")
    problem = check_reference(kind, home).partition("; expected")[0]
    if problem and "is not valid Python" not in problem:  # that is shown with its line, when it is imported
        raise UserError(f"{kind}: {problem}")


def find_bidder(kind: str, home: Path = Path(".")) -> type:
    """The class of a kind: built in, `path/to/file.py:Class`, or `package.module:Class`.

    A path is looked for below the working directory, then beside the scenario (`home`).
    """
    if kind in BIDDERS:
        return BIDDERS[kind]
    where, _, name = kind.rpartition(":")
    if not where:
        if kind.endswith(".py"):
            raise UserError(f"'{kind}' names no class; write {kind}:ClassName")
        raise UserError(f"{unknown_name('bidder', kind, BIDDERS)}, or path/to/file.py:Class")
    file = find_model_file(kind, home)
    if where.endswith(".py") and file is None:
        raise UserError(f"no file '{where}' in the working folder or beside the scenario")

    try:
        module = _load_module(where) if file is None else _load_file(file)
    except Exception as error:  # the user's code may raise anything
        raise UserError(f"bidder {kind!r} cannot be imported: {where_and_what(error, kind)}") from error
    found = getattr(module, name, None)
    if not isinstance(found, type):
        classes = [key for key, value in vars(module).items() if isinstance(value, type)]
        hint = did_you_mean(name, classes)
        raise UserError(f"{where} has no class '{name}'{hint}; it has: {', '.join(classes) or 'none'}")
    return found


def build_bidder(
    kind: str, portfolio: Portfolio, options: Mapping[str, Any] | None = None, home: Path = Path(".")
) -> Any:
    """A bidder for the advertisers of a portfolio; `options` are keywords of its class."""
    cls = find_bidder(kind, home)
    try:
        return cls(portfolio, **(options or {}))
    except Exception as error:  # the user's code may raise anything
        is_ours = kind in BIDDERS and isinstance(error, (ValueError, TypeError))
        what = str(error) if is_ours else where_and_what(error, kind)
        raise UserError(f"bidder {kind!r}: {what}") from error
