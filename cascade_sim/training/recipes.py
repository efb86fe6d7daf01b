"""From a model's section and its data to weights and calibrator, for the study and for markets that learn."""

import copy
import warnings
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from torch import nn

from cascade_sim.cascade.links import export_calibrator, load_calibrator
from cascade_sim.errors import UserError
from cascade_sim.models.calibrators import Calibrator, PiecewiseLinear, calibrator_class
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
STANDARDISED_BY = 100_000  # requests, whose features say well enough what is usual


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
    calibrator: Calibrator | None = None,
    **settings: Any,
) -> Calibrator | None:
    """Train a net in place by the recipe of its section; on pages, for its objective, whose heads it has.

    Returns the calibrator that was trained in the same batches, of a section that wants it so; `calibrator`
    is what that one goes on from, if not from the sigmoid. `settings`: of `settings_of`, and more of
    `training.train`. UserError, which begins with `what`, if a loss is not finite or the user's own class
    fails.
    """
    joint = None
    if spec.is_joint and isinstance(data, ClickedPages):
        before = calibrator if isinstance(calibrator, PiecewiseLinear) else None
        joint = joint_map(view, data, settings["seed"]) if before is None else copy.deepcopy(before)
    is_own = spec.kind not in KINDS  # a defect of a built-in net is ours, and shows as one
    with errors_of(what, spec.kind) if is_own else nullcontext():
        try:
            if isinstance(data, ClickedPages):
                objective = objective_of(spec)
                batching = spec.batching or ("samples" if objective.is_log_loss else None)
                beside = None if joint is None else joint.map
                train_pages(module, view, data, objective, batching=batching, beside=beside, **settings)
            else:
                train(module, view, data, spec.recipe, **settings)
        except ValueError as error:
            raise UserError(str(error) if is_own else f"{what}: {error}") from error
    return joint


def joint_map(view: FeatureView, data: ClickedPages | None, seed: int) -> PiecewiseLinear:
    """A calibrator before it is trained with its model: the sigmoid itself.

    `data`: pages whose requests say what features are usual; without any they will be taken as they are.
    """
    users, context = np.zeros(0, np.int32), np.zeros(0, np.float32)
    if data is not None:
        rows = data.lists[:-1][:: max(1, len(data.request) // STANDARDISED_BY)]
        users, context = data.shown.users[rows], data.shown.context[rows]
    return PiecewiseLinear.untrained(view.request_features(users, context), seed=seed)


def stored_calibrator(
    store: ModelStore,
    model_key: str,
    name: str,
    spec: ModelSpec,
    view: FeatureView,
    module: nn.Module,
    apart: ClickedPages,
    seed: int,
    device: torch.device,
) -> Calibrator:
    """The calibrator kept for this model, section and data, else a new one, which is then kept."""
    key = content_key({"calibrator": spec.calibrator}, apart.arrays(), model=model_key)
    kept = _kept_calibrator(store, key)
    if kept is not None:
        return kept
    calibrator = fit_calibrator(name, spec, view, module, apart, seed, device)
    _keep_calibrator(store, key, calibrator)
    return calibrator


def load_trained(
    store: ModelStore, key: str, module: nn.Module, spec: ModelSpec
) -> tuple[bool, Calibrator | None]:
    """Put the weights kept under a key into the module, and the calibrator that was trained with them.

    False, and the module untouched, if there are none, or only one of the two where there should be both.
    """
    if not spec.is_joint:
        return store.load(key, module), None
    calibrator = _kept_calibrator(store, key)
    return calibrator is not None and store.load(key, module), calibrator


def save_trained(
    store: ModelStore, key: str, module: nn.Module, calibrator: Calibrator | None, meta: Mapping[str, Any]
) -> None:
    """Keep what `load_trained` gives back."""
    if calibrator is not None:
        _keep_calibrator(store, key, calibrator)
    store.save(key, module, meta)


def _kept_calibrator(store: ModelStore, key: str) -> Calibrator | None:
    path = store.beside(key)
    if path is None or not path.is_file():
        return None
    try:
        return load_calibrator(path, key)
    except UserError as error:
        warnings.warn(f"a stored calibrator is not usable and is made anew: {error}", stacklevel=3)
        return None


def _keep_calibrator(store: ModelStore, key: str, calibrator: Calibrator) -> None:
    path = store.beside(key)
    if path is None:
        return
    try:
        export_calibrator(calibrator, path, key)
    except UserError as error:
        warnings.warn(f"this calibrator is not kept for the next run: {error}", stacklevel=3)


def fit_calibrator(
    name: str,
    spec: ModelSpec,
    view: FeatureView,
    module: nn.Module,
    apart: ClickedPages,
    seed: int,
    device: torch.device,
) -> Calibrator:
    """The calibrator of a section, from the scores of a trained module on pages it has not seen.

    Only one with a net of its own is trained on the device.
    """
    assert spec.calibrator is not None
    shown = apart.shown
    if not shown.click.any():
        raise UserError(
            f"the calibrator of model {name!r} has {len(shown.click)} impressions and no click to learn by; "
            "raise held_out or the requests of the phases"
        )
    has_net = calibrator_class(spec.calibrator).uses_request
    options = {"seed": seed, "epochs": REQUEST_EPOCHS, "device": device} if has_net else {}
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
