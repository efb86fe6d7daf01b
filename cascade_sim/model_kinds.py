"""From a model's section in the scenario to a torch module, and from a module to a scorer."""

import importlib
import importlib.util
import sys
from pathlib import Path

import torch
from torch import nn

from cascade_sim.errors import UserError
from cascade_sim.seats import CoActionScorer, ModelScorer, TorchScorer, TowersScorer
from models.coaction import CoAction
from models.features import FeatureView
from models.towers import TwoTowers
from models.training import LINKS

KINDS = {"towers": TwoTowers, "coaction": CoAction}
SCORERS = {TwoTowers: TowersScorer, CoAction: CoActionScorer}


def find_class(kind: str, home: Path = Path(".")) -> type[nn.Module]:
    """The class of a kind: built in, `path/to/file.py:Class`, or `package.module:Class`.

    A path is looked for below the working directory, then beside the scenario (`home`).
    """
    if kind in KINDS:
        return KINDS[kind]
    where, _, name = kind.rpartition(":")
    if not where:
        raise UserError(f"unknown model kind {kind!r}; known: {', '.join(KINDS)}, or path/to/file.py:Class")
    try:
        module = _load_file(where, home) if where.endswith(".py") else importlib.import_module(where)
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"model kind {kind!r} cannot be imported: {type(error).__name__}: {error}") from error
    found = getattr(module, name, None)
    if found is None:
        classes = [key for key, value in vars(module).items() if isinstance(value, type)]
        raise UserError(f"{where} has no class {name!r}; it has: {', '.join(classes) or 'none'}")
    if not (isinstance(found, type) and issubclass(found, nn.Module)):
        raise UserError(f"{kind} is not a torch.nn.Module class")
    return found


def _load_file(path: str, home: Path):
    file = next((p for p in (Path(path), home / path) if p.is_file()), None)
    if file is None:
        raise UserError(f"model file {path} does not exist")
    name = f"cascade_sim_user_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def build_module(name: str, spec, view: FeatureView, seed: int, home: Path = Path(".")) -> nn.Module:
    """A fresh module with weights drawn from the seed. A class of one's own gets `options` as keywords."""
    cls = find_class(spec.kind, home)
    widths = (view.request_width, view.ad_width, view.pair_width)
    options = {"hidden": spec.hidden, "dims": spec.dims} if spec.kind in KINDS else dict(spec.options)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            return cls(*widths, **options)
        except TypeError as error:
            raise UserError(
                f"model {name!r}: {spec.kind}(request_width, ad_width, pair_width, "
                f"{', '.join(options) or 'no options'}) failed: {error}"
            ) from error


def make_scorer(name: str, recipe: str, view: FeatureView, module: nn.Module) -> ModelScorer:
    """The fused scorer of a built-in net, the batched one of any other."""
    return SCORERS.get(type(module), TorchScorer)(name, view, LINKS[recipe], module.eval())
