"""From a model's section and its data to weights and calibrator, for the study and for markets that learn."""

import warnings
from contextlib import nullcontext
from typing import Any

import numpy as np
from torch import nn

from cascade_sim.cascade.links import export_calibrator, load_calibrator
from cascade_sim.errors import UserError
from cascade_sim.models.calibrators import Calibrator, calibrator_class
from cascade_sim.models.calibrators.examined import fit_examined
from cascade_sim.models.features import FeatureView
from cascade_sim.models.page_training import ClickedPages, scores, train_pages
from cascade_sim.models.slot_effects import SlotEffects
from cascade_sim.models.training import Lists, train
from cascade_sim.scenario.models import ModelSpec, objective_of
from cascade_sim.scenario.plugins import errors_of
from cascade_sim.storage.model_store import ModelStore, content_key
from cascade_sim.training.modules import KINDS
from cascade_sim.training.watch import line_of, watch_for

# Of a calibrator with a net of its own: the part held out is small, and soon learnt by heart.
REQUEST_EPOCHS = 2


def settings_of(spec: ModelSpec, seed: int, **instead: Any) -> dict[str, Any]:
    """What a model's section says of its training; what is given here and is not None stands instead."""
    keys = ("epochs", "batch", "learning_rate", "weight_decay")
    given = {key: value for key, value in instead.items() if value is not None}
    return {**{key: getattr(spec, key) for key in keys}, "seed": seed % 2**31, **given}


def fit(
    module: nn.Module,
    spec: ModelSpec,
    view: FeatureView,
    data: ClickedPages | Lists,
    *,
    what: str,
    part: ClickedPages | Lists | None = None,
    **settings: Any,
) -> dict[str, Any]:
    """Train a net in place by the recipe of its section; on pages, for its objective, whose heads it has.

    `settings`: of `settings_of`, and more of `training.train`. UserError, which begins with `what`, if a loss
    is not finite or the user's own class fails. What came of it beside the net, as JSON: the line of the
    training on a `part` that it is watched on (`training.watch`), and `slot_effects` if it estimates them.
    """
    is_own = spec.kind not in KINDS  # a defect of a built-in net is ours, and shows as one
    slots = None
    if spec.examination == "estimated" and isinstance(data, ClickedPages):
        slots = SlotEffects(data.n_slots)
    # Single impressions with known slots have a loss of their own, which is faster.
    by_sample = isinstance(data, ClickedPages) and spec.learns_by_sample and slots is None
    watch = None
    if part is not None and len(part.users):
        watch = watch_for(spec, view, part, slots, by_sample)
    with errors_of(what, spec.kind) if is_own else nullcontext():
        try:
            if isinstance(data, Lists):
                train(module, view, data, spec.recipe, watch=watch, **settings)
            elif by_sample:
                train(module, view, data.shown, spec.recipe, watch=watch, **settings)
            else:
                batching = "samples" if spec.learns_by_sample else spec.batching
                objective = objective_of(spec)
                train_pages(
                    module, view, data, objective, batching=batching, slots=slots, watch=watch, **settings
                )
        except ValueError as error:
            raise UserError(str(error) if is_own else f"{what}: {error}") from error
    line = {} if watch is None else line_of(watch)
    return line if slots is None else {**line, "slot_effects": slots.effects().tolist()}


def stored_calibrator(
    store: ModelStore,
    model_key: str,
    name: str,
    spec: ModelSpec,
    view: FeatureView,
    module: nn.Module,
    apart: ClickedPages,
    seed: int,
) -> Calibrator:
    """The calibrator kept for this model, section and data, else a new one, which is then kept."""
    key = content_key({"calibrator": spec.calibrator}, apart.arrays(), model=model_key)
    path = store.beside(key)
    if path is not None and path.is_file():
        try:
            return load_calibrator(path, key)
        except UserError as error:
            warnings.warn(f"a stored calibrator is not usable and is made anew: {error}", stacklevel=2)
    calibrator = fit_calibrator(name, spec, view, module, apart, seed)
    if path is not None:
        try:
            export_calibrator(calibrator, path, key)
        except UserError as error:
            warnings.warn(f"this calibrator is not kept for the next run: {error}", stacklevel=2)
    return calibrator


def fit_calibrator(
    name: str, spec: ModelSpec, view: FeatureView, module: nn.Module, apart: ClickedPages, seed: int
) -> Calibrator:
    """The calibrator of a section, from the scores of a trained module on pages it has not seen."""
    assert spec.calibrator is not None
    shown = apart.shown
    if not shown.click.any():
        raise UserError(
            f"the calibrator of model {name!r} has {len(shown.click)} impressions and no click to learn by; "
            "raise held_out or the requests of the phases"
        )
    has_net = calibrator_class(spec.calibrator).uses_request
    options = {"seed": seed, "epochs": REQUEST_EPOCHS} if has_net else {}
    with errors_of(f"model {name!r}", spec.kind):
        given = scores(module, view, shown)
    return fit_examined(
        spec.calibrator,
        given,
        shown.click.astype(np.float64),
        shown.examination.astype(np.float64),
        request=view.request_features(shown.users, shown.context),
        **options,
    )
