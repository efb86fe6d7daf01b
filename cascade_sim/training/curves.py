"""The line of a training: how loss, log loss and GAUC moved while a model learned.

    monitor = monitor_for(spec, view, part, slots)
    train(…, TrainingPlan(…, monitor=monitor))
    learning_curve_of(monitor)    # as it is kept beside the weights, and in metrics.json

A model is watched on pages that it does not learn from (`validation` of its section), or on some of those
that it learns from.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from torch import nn

from cascade_sim.analysis.metrics import calibration, ranking
from cascade_sim.analysis.metrics.convergence import residual_improvement
from cascade_sim.foundation import random as draws
from cascade_sim.models.features import FeatureView
from cascade_sim.models.page_training import ClickedPages, slot_predictions
from cascade_sim.models.slot_effects import SlotEffects
from cascade_sim.models.training import POINTS, Impressions, Lists, Positives, TrainingMonitor
from cascade_sim.scenario.joint import Joint
from cascade_sim.scenario.models import ModelSpec, objective_of
from cascade_sim.training.modules import KINDS

MOST = 20_000  # impressions, or candidates of a student, that a training is watched on
# Of those that it learns from: two looks at a sample take about as long as half a step with it.
SHARE_OF_WORK = 0.1

Samples = ClickedPages | Lists | Positives


def is_held_out(data: Samples, share: float, seed: int) -> np.ndarray:
    """Which requests are left out of training, each by its own draw; lists by their number.  [L] bool"""
    return draws.uniform(seed, "validation", _requests(data)) < share


def kept(data: Samples, keep: np.ndarray) -> Samples:
    """Some of the requests.  keep: [L] bool"""
    if not isinstance(data, Lists):
        return data.take(keep)
    return Lists(**{name: column[keep] for name, column in data.arrays().items()})


def watched(train: Samples, held_out: Samples, spec: ModelSpec | Joint, seed: int) -> Samples:
    """What a training is watched on, of whole requests: of those held out, or else of those learned from."""
    whole, most = held_out, float(MOST)
    if not spec.validation:
        whole = train
        most = min(most, SHARE_OF_WORK * spec.epochs * _size(train) / POINTS)
    share = most / max(_size(whole), 1)
    return whole if share >= 1 else kept(whole, draws.uniform(seed, "watched", _requests(whole)) < share)


def monitor_for(
    spec: ModelSpec, view: FeatureView, part: Samples, slots: SlotEffects | None, by_sample: bool
) -> TrainingMonitor:
    """Watches a net of a section's objective; `by_sample`: one that learns from single impressions."""
    is_own = spec.kind not in KINDS or spec.has_custom_recipe
    if not isinstance(part, ClickedPages):
        return TrainingMonitor(part, is_of_own_class=is_own)
    look = partial(_measured, spec=spec, view=view, pages=part, slots=slots)
    return TrainingMonitor(part.shown if by_sample else part, look, is_of_own_class=is_own)


def learning_curve_of(monitor: TrainingMonitor) -> dict[str, Any]:
    """Learning curve of a monitored training, as JSON; {} if there is none."""
    if not monitor.steps:
        return {}
    names = list(monitor.measures[-1])
    return {
        "samples": int(monitor.part.arrays()["ads"].size),
        "steps": monitor.steps,
        "loss": monitor.loss,
        "part_loss": [_finite(float(np.mean(losses))) for losses in monitor.by_group],
        **{name: [_finite(measures.get(name)) for measures in monitor.measures] for name in names},
        "residual_improvement": residual_improvement(monitor.steps, monitor.by_group),
    }


def page_measures(
    score: np.ndarray, expected: np.ndarray, pages: ClickedPages, has_scale: bool = True
) -> dict[str, float]:
    """GAUC, log loss, ECE and PCOC of predicted clicks [N] against what was clicked.

    Of slots as they were shown. A score without scale has an order alone.
    """
    click, lists = pages.shown.click, pages.lists
    measures = {"gauc": float(ranking.gauc(score, click, lists))}
    if has_scale:
        measures["logloss"] = float(calibration.logloss(expected, click).value[0])
        measures["ece"] = float(calibration.ece(expected, click).value[0])
        measures["pcoc"] = float(calibration.pcoc(expected, click).value[0])
    return measures


def _measured(
    model: nn.Module, spec: ModelSpec, view: FeatureView, pages: ClickedPages, slots: SlotEffects | None
) -> Mapping[str, float]:
    objective = objective_of(spec)
    pages = pages if slots is None else pages.examined(slots.effects())
    score, expected = slot_predictions(model, view, pages.shown, objective)
    if not (np.isfinite(score).all() and np.isfinite(expected).all()):
        return {"gauc": np.nan}  # the training itself tells of it
    measures = page_measures(score, expected, pages, objective.has_scale)
    return {name: measures[name] for name in ("gauc", "logloss") if name in measures}


def _requests(data: Samples) -> np.ndarray:
    return np.arange(len(data.users)) if isinstance(data, Lists) else data.request


def _size(data: Samples | Impressions) -> int:
    return int(data.arrays()["ads"].size)


def _finite(value: float | None) -> float | None:
    return None if value is None or not np.isfinite(value) else float(value)
