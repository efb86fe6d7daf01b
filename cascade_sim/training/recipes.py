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
from cascade_sim.models.training import Impressions, Lists, list_scores, train
from cascade_sim.scenario.models import ModelSpec, objective_of
from cascade_sim.scenario.plugins import errors_of
from cascade_sim.storage.model_store import ModelStore, content_key
from cascade_sim.training.modules import KINDS

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
    data: Impressions | ClickedPages | Lists,
    *,
    what: str,
    **settings: Any,
) -> None:
    """Train a net in place by the recipe of its section; on pages, for its objective, whose heads it has.

    `settings`: of `settings_of`, and more of `training.train`. UserError, which begins with `what`, if a loss
    is not finite or the user's own class fails.
    """
    is_own = spec.kind not in KINDS  # a defect of a built-in net is ours, and shows as one
    with errors_of(what, spec.kind) if is_own else nullcontext():
        try:
            if isinstance(data, ClickedPages):
                train_pages(module, view, data, objective_of(spec), batching=spec.batching, **settings)
            else:
                train(module, view, data, spec.recipe, **settings)
        except ValueError as error:
            raise UserError(str(error) if is_own else f"{what}: {error}") from error


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


def fit_proxy_calibrator(
    name: str, spec: ModelSpec, view: FeatureView, module: nn.Module, apart: Lists
) -> Calibrator:
    """The proxy calibrator of a section: from the scores of a trained module to the ranker's predictions.

    The predictions are labels as clicks are, only not 0 or 1; all candidates weigh alike.
    """
    assert spec.proxy_calibrator is not None
    kind = calibrator_class(spec.proxy_calibrator)
    with errors_of(f"model {name!r}", spec.kind):
        given = list_scores(module, view, apart)
    labels = 1.0 / (1.0 + np.exp(-apart.teacher_logit.astype(np.float64)))
    request = None
    if kind.uses_request:
        features = view.request_features(apart.users, apart.context)
        request = np.repeat(features, apart.ads.shape[1], axis=0)
    try:
        return kind.fit(given.ravel(), labels.ravel(), request=request)
    except ValueError as error:
        raise UserError(f"the proxy calibrator of model {name!r}: {error}") from error
