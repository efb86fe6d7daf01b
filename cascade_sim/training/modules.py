"""From what a scenario says of a model or a bidder to the object that is trained, served or asked."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from cascade_sim.agents.bidding import Portfolio
from cascade_sim.cascade.links import with_calibrator, with_link
from cascade_sim.cascade.scorers import (
    CoActionScorer,
    GatedScorer,
    InterTowersScorer,
    ModelScorer,
    TorchScorer,
    TowersScorer,
)
from cascade_sim.foundation.errors import UserError
from cascade_sim.models.calibrators import Calibrator
from cascade_sim.models.features import FeatureView
from cascade_sim.models.nets.coaction import CoAction
from cascade_sim.models.nets.cold import GatedNet
from cascade_sim.models.nets.ids import IdTables, with_tables
from cascade_sim.models.nets.inttower import InterTowers
from cascade_sim.models.nets.towers import TwoTowers
from cascade_sim.models.recipes import Recipe, custom_recipe, recipe_named
from cascade_sim.scenario import plugins
from cascade_sim.scenario.models import ModelSpec, objective_of
from cascade_sim.scenario.plugins import BIDDER_KINDS, MODEL_KINDS, RECIPE_KINDS, errors_of

KINDS = MODEL_KINDS.built_in
SCORERS: dict[type[nn.Module], Callable[..., ModelScorer]] = {
    TwoTowers: TowersScorer,
    CoAction: CoActionScorer,
    InterTowers: InterTowersScorer,
    GatedNet: GatedScorer,
}


def find_class(kind: str, home: Path = Path(".")) -> type[nn.Module]:
    """The class of a model's kind (cascade_sim/scenario/plugins.py)."""
    model = plugins.find_class(MODEL_KINDS, kind, home)
    if not issubclass(model, nn.Module):
        raise UserError(f"{kind} is not a torch.nn.Module class")
    return model


def find_bidder(kind: str, home: Path = Path(".")) -> type[Any]:
    """The class of a bidder's kind (cascade_sim/scenario/plugins.py)."""
    return plugins.find_class(BIDDER_KINDS, kind, home)


def build_module(
    name: str,
    spec: ModelSpec,
    view: FeatureView,
    seed: int,
    home: Path = Path("."),
    cls: type[nn.Module] | None = None,
) -> nn.Module:
    """A fresh module of one head, its weights drawn from the seed, of a class of that kind or of the given.

    Sections of one kind with the same features and sizes have the same weights, whatever their objective:
    that trains the heads that `net_to_train` adds.
    """
    cls = cls or find_class(spec.kind, home)
    options = module_options(spec)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        tables = IdTables(view, spec.embedding) if view.has_ids else None
        widths = input_widths(view, tables)
        call = f"{spec.kind}(request_width, ad_width, pair_width, {', '.join(options) or 'no options'})"
        with errors_of(f"model {name!r}: {call} failed", spec.kind):
            return with_tables(cls(*widths, **options), tables)


def input_widths(view: FeatureView, tables: IdTables | None) -> tuple[int, int, int]:
    """Request, ad and pair columns of a net: its features, and the rows of tables that join them."""
    request, ad = (0, 0) if tables is None else (tables.request_width, tables.ad_width)
    return view.request_width + request, view.ad_width + ad, view.pair_width


def module_options(spec: ModelSpec) -> dict[str, Any]:
    """The keywords of a model's class after the widths; `options` are for custom classes."""
    return {"hidden": spec.hidden, "dims": spec.dims} if spec.kind in KINDS else dict(spec.options)


def find_recipe(name: str, spec: ModelSpec, home: Path = Path(".")) -> Recipe:
    """The recipe of a model's section, with its loss: a custom one is loaded and built with its options."""
    if not spec.has_custom_recipe:
        return spec.trained_by
    loss = plugins.find_class(RECIPE_KINDS, spec.recipe, home)
    if not callable(getattr(loss, "loss", None)):
        raise UserError(f"recipe {spec.recipe!r}: expected the method loss(scores, lists), found none")
    with errors_of(f"recipe of model {name!r}: {loss.__name__} failed", spec.recipe):
        return custom_recipe(spec.link, loss(**spec.recipe_options))


def make_scorer(name: str, recipe: str | Recipe, view: FeatureView, module: nn.Module) -> ModelScorer:
    """The fused scorer of a built-in net, the batched one of any other."""
    return SCORERS.get(type(module), TorchScorer)(name, view, recipe_named(recipe).link, module.eval())


def served_scorer(
    name: str, spec: ModelSpec, view: FeatureView, module: nn.Module, calibrator: Calibrator | None = None
) -> ModelScorer:
    """The scorer of a trained model as its section wants it served: with its link, or its calibrator."""
    scorer, objective = make_scorer(name, spec.trained_by, view, module), objective_of(spec)
    if calibrator is not None:
        return with_calibrator(scorer, calibrator, of_logits=objective.gives_logits())
    return with_link(scorer, objective)


def build_bidder(
    kind: str, portfolio: Portfolio, options: Mapping[str, Any] | None = None, home: Path = Path(".")
) -> Any:
    """A bidder for the advertisers of a portfolio; `options` are keywords of its class."""
    bidder = find_bidder(kind, home)
    with errors_of(f"bidder {kind!r}", kind):
        try:
            return bidder(portfolio, **(options or {}))
        except (ValueError, TypeError) as error:
            if kind in BIDDER_KINDS.built_in:  # its own words are meant for people
                raise UserError(str(error)) from error
            raise
