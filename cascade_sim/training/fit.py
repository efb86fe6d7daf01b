"""From a model's section and its data to weights and calibrator, for the study and for markets that learn."""

import copy
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import nn

from cascade_sim.cascade.links import export_calibrator, load_calibrator
from cascade_sim.foundation.errors import UserError
from cascade_sim.models.calibrators import Calibrator, PiecewiseLinear, calibrator_class
from cascade_sim.models.calibrators.position_debiased import fit_examined
from cascade_sim.models.features import FeatureView
from cascade_sim.models.page_training import ClickedPages, scores, train_pages
from cascade_sim.models.recipes import Recipe
from cascade_sim.models.slot_effects import SlotEffects
from cascade_sim.models.training import (
    Lists,
    TrainingMonitor,
    TrainingPlan,
    learned_numbers,
    list_scores,
    train,
    train_together,
)
from cascade_sim.scenario.joint import Joint
from cascade_sim.scenario.models import ModelSpec, objective_of
from cascade_sim.scenario.plugins import errors_of
from cascade_sim.storage.model_store import ModelStore, content_key
from cascade_sim.training.curves import Samples, learning_curve_of, monitor_for
from cascade_sim.training.modules import KINDS

# Of a calibrator with a net of its own: the part held out is small, and soon learnt by heart.
REQUEST_EPOCHS = 2
STANDARDISED_BY = 100_000  # requests, whose features say well enough what is usual


def plan_of(spec: ModelSpec | Joint, seed: int, **instead: Any) -> TrainingPlan:
    """What a model's section says of its training; what is given here and is not None is taken instead."""
    keys = ("epochs", "batch", "learning_rate", "weight_decay")
    given = {key: value for key, value in instead.items() if value is not None}
    return TrainingPlan(**{**{key: getattr(spec, key) for key in keys}, "seed": seed % 2**31, **given})


@dataclass(frozen=True)
class Fitted:
    """What came of a training beside the weights of its net.

    `line`, as JSON: how it went on the part it was watched on, and `slot_effects` if it estimates them.
    `calibrator`: the one that was trained in the same batches, of a section that wants it so.
    """

    line: dict[str, Any]
    calibrator: Calibrator | None = None


def fit(
    module: nn.Module,
    spec: ModelSpec,
    view: FeatureView,
    data: Samples,
    plan: TrainingPlan,
    *,
    what: str,
    recipe: Recipe | None = None,
    calibrator: Calibrator | None = None,
    part: Samples | None = None,
) -> Fitted:
    """Train a net in place by the recipe of its section; on pages, for its objective, whose heads it has.

    `recipe`: the section's with its loss, where that is a class of the user's. `calibrator`: what one that is
    trained in the same batches goes on from, if not from the sigmoid. `part`: validation samples of the
    training. UserError, which begins with `what`, if a loss is not finite or the user's own class fails.
    """
    joint = None
    if spec.is_joint and isinstance(data, ClickedPages):
        before = calibrator if isinstance(calibrator, PiecewiseLinear) else None
        joint = joint_map(view, data, plan.seed) if before is None else copy.deepcopy(before)
    recipe = recipe or spec.trained_by
    own = spec.recipe if spec.has_custom_recipe else spec.kind
    # A defect of a built-in net and loss is ours, and shows as one.
    is_own = spec.has_custom_recipe or spec.kind not in KINDS
    slots = None
    if spec.examination == "estimated" and isinstance(data, ClickedPages):
        slots = SlotEffects(data.n_slots)
    # Single impressions with known slots have a loss of their own, which is faster.
    by_sample = isinstance(data, ClickedPages) and spec.learns_by_sample and slots is None
    if part is not None and len(part.users):
        plan = replace(plan, monitor=monitor_for(spec, view, part, slots, by_sample))
    with errors_of(what, own) if is_own else nullcontext():
        try:
            if not isinstance(data, ClickedPages):
                train(module, view, data, recipe, plan, spec.recipe_options)
            elif by_sample:
                train(module, view, data.shown, recipe, plan)
            else:
                objective = objective_of(spec)
                train_pages(
                    module, view, data, objective, plan, slots=slots,
                    batching=spec.batching or ("samples" if objective.is_log_loss else None),
                    beside=None if joint is None else joint.map,
                )  # fmt: skip
        except ValueError as error:
            raise UserError(str(error) if is_own else f"{what}: {error}") from error
    line = {} if plan.monitor is None else learning_curve_of(plan.monitor)
    return Fitted(line if slots is None else {**line, "slot_effects": slots.effects().tolist()}, joint)


def fit_together(
    nets: Sequence[tuple[nn.Module, FeatureView]],
    joint: Joint,
    quotas: Sequence[int],
    data: Lists,
    plan: TrainingPlan,
    *,
    what: str,
    kinds: Sequence[str],
    part: Lists | None = None,
) -> Fitted:
    """Train the nets of a joint section in place, on one batch at a time, by its objective.

    `quotas`: ads of a list that each hands on. `part`: validation samples. UserError, which begins with
    `what`, if a loss is not finite or one of the users' own `kinds` fails.
    """
    objective, values = joint.trained_for, joint.values
    start = {f"log_weight_{at}": 0.0 for at in range(len(nets))} if objective.weighs_stages else {}
    learned = learned_numbers(start, plan.device)
    own = [kind for kind in kinds if kind not in KINDS]
    if part is not None and len(part.users):
        plan = replace(plan, monitor=TrainingMonitor(part, is_of_own_class=bool(own)))

    def form(logits: list[torch.Tensor], sample: Mapping[str, torch.Tensor]) -> torch.Tensor:
        return objective.of_batch(logits, sample, quotas, values, list(learned.values()))

    with errors_of(what, own[0]) if own else nullcontext():
        try:
            train_together(nets, data, form, plan, learned)
        except ValueError as error:
            raise UserError(str(error) if own else f"{what}: {error}") from error
    return Fitted({} if plan.monitor is None else learning_curve_of(plan.monitor))


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
    spec: ModelSpec,
    apart: ClickedPages,
    fit_new: Callable[[], Calibrator],
) -> Calibrator:
    """The calibrator kept for this model, section and data, else a new one, which is then kept."""
    key = content_key({"calibrator": spec.calibrator}, apart.arrays(), model=model_key)
    kept = _kept_calibrator(store, key)
    if kept is not None:
        return kept
    calibrator = fit_new()
    _keep_calibrator(store, key, calibrator)
    return calibrator


def load_trained(store: ModelStore, key: str, module: nn.Module, spec: ModelSpec) -> Fitted | None:
    """Put the weights kept under a key into the module; what came of their training beside them.

    None, and the module untouched, if there are none, or no calibrator where one was trained with them.
    """
    calibrator = _kept_calibrator(store, key) if spec.is_joint else None
    if (spec.is_joint and calibrator is None) or not store.load(key, module):
        return None
    return Fitted(store.note(key).get("line") or {}, calibrator)


def save_trained(
    store: ModelStore, key: str, module: nn.Module, fitted: Fitted, meta: Mapping[str, Any]
) -> None:
    """Keep what `load_trained` gives back."""
    if fitted.calibrator is not None:
        _keep_calibrator(store, key, fitted.calibrator)
    store.save(key, module, {**meta, "line": fitted.line})


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
