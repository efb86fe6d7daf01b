"""From a model's section to weights and calibrator, for models with an objective of their own."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from torch import nn

from cascade_sim.cascade.links import export_calibrator, load_calibrator
from cascade_sim.errors import UserError
from cascade_sim.models.calibrators import Calibrator
from cascade_sim.models.examined_calibration import fit_examined
from cascade_sim.models.features import FeatureView
from cascade_sim.models.list_training import Pages, scores, served_net, train_pages
from cascade_sim.models.objectives import Objective, make_objective
from cascade_sim.scenario.models import ModelSpec
from cascade_sim.storage.model_store import ModelStore, content_key

# Of a calibrator with a net of its own: the part held out is small, and soon learnt by heart.
REQUEST_EPOCHS = 2


def objective_of(spec: ModelSpec) -> Objective:
    """The objective that a model's section names, with its options."""
    return make_objective(spec.objective, task="binary", **spec.objective_options)


def fit_pages(
    module: nn.Module,
    build: Callable[[int], nn.Module],
    spec: ModelSpec,
    view: FeatureView,
    data: Pages,
    **settings: Any,
) -> None:
    """Train `module`, which has one head, for the objective of its section.

    An objective with several heads trains a net with as many, from `build`, and the module gets what serves.
    """
    objective = objective_of(spec)
    trained = module if objective.n_heads == 1 else build(objective.n_heads)
    train_pages(trained, view, data, objective, batching=spec.batching, **settings)
    if trained is not module:
        module.load_state_dict(served_net(trained, objective).state_dict())
        module.eval()


def stored_calibrator(
    store: ModelStore,
    model_key: str,
    name: str,
    spec: ModelSpec,
    view: FeatureView,
    module: nn.Module,
    apart: Pages,
    seed: int,
) -> Calibrator:
    """The calibrator kept for this model, section and data, else a new one, which is then kept."""
    key = content_key({"calibrator": spec.calibrator}, apart.arrays(), model=model_key)
    path = store.beside(key)
    if path is not None and path.is_file():
        try:
            return load_calibrator(path)
        except UserError as error:
            warnings.warn(f"a stored calibrator is not usable and is made anew: {error}", stacklevel=2)
    found = fit_calibrator(name, spec, view, module, apart, seed)
    if path is not None:
        try:
            export_calibrator(found, path)
        except UserError as error:
            warnings.warn(f"this calibrator is not kept for the next run: {error}", stacklevel=2)
    return found


def fit_calibrator(
    name: str, spec: ModelSpec, view: FeatureView, module: nn.Module, apart: Pages, seed: int
) -> Calibrator:
    """The calibrator of a section, from the scores of a trained module on pages it has not seen."""
    assert spec.calibrator is not None
    shown = apart.shown
    if not shown.click.any():
        raise UserError(
            f"the calibrator of model {name!r} has {len(shown.click)} impressions and no click to learn by; "
            "raise held_out or the requests of the phases"
        )
    options: dict[str, Any] = {}
    if spec.calibrator == "piecewise_linear":
        options = {"seed": seed, "epochs": REQUEST_EPOCHS}
    return fit_examined(
        spec.calibrator,
        scores(module, view, shown),
        shown.click.astype(np.float64),
        shown.examination.astype(np.float64),
        request=view.request_features(shown.users, shown.context),
        **options,
    )
