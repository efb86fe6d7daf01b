"""Settings of models, chosen on pages that no model learned from, with as many trials for each.

In each world the cascade writes its log once. Every setting of every model is trained on the log less a part
of its requests, and measured on the clicks of that part: GAUC, log loss, ECE and PCOC. The evaluation
and the truth have no say in it.
"""

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cascade_sim.context import RunContext
from cascade_sim.models.calibrators import Calibrator
from cascade_sim.models.features import FeatureView
from cascade_sim.models.objectives import make_objective
from cascade_sim.models.page_training import ClickedPages, scores, slot_predictions
from cascade_sim.models.training import pick_device
from cascade_sim.scenario.models import OPTIONS, ModelSpec, objective_of
from cascade_sim.scenario.schema import Scenario
from cascade_sim.storage.model_store import ModelStore
from cascade_sim.study.prepare import Preparation
from cascade_sim.study.simulation import Simulation
from cascade_sim.training.curves import is_held_out, page_measures
from cascade_sim.training.data import pages

MEASURES = ("gauc", "logloss", "ece", "pcoc")
RULES = ("balanced", "gauc", "logloss")
NEAR = 0.005  # of the least log loss: settings within it have as good a scale


@dataclass(frozen=True)
class Trial:
    """A setting of a model, under the name that it is trained by."""

    model: str
    name: str
    settings: Mapping[str, Any]

    def assignments(self) -> list[str]:
        """Its settings as overrides of a scenario."""
        return [f"models.{self.model}.{key}={json.dumps(value)}" for key, value in self.settings.items()]


def takes(spec: ModelSpec, key: str) -> bool:
    """Whether a key means anything for a model; options are those of its objective."""
    return key not in OPTIONS or key in objective_of(spec).options


def trials_of(
    model: str, spec: ModelSpec, over: Mapping[str, Sequence[Any]], own: Mapping[str, Sequence[Any]]
) -> list[Trial]:
    """Every combination of the values: `own` are of this model alone, `over` of all that take the key."""
    values = {**{key: found for key, found in over.items() if takes(spec, key)}, **own}
    grid = itertools.product(*values.values())
    return [
        Trial(model, f"{model}-setting-{i}", dict(zip(values, chosen, strict=True)))
        for i, chosen in enumerate(grid)
    ]


def with_trials(scenario: Scenario, specs: Mapping[str, ModelSpec], seed: int, validation: float) -> Scenario:
    """The scenario in a world, with the sections of trials by name; of each a part of the log is held out."""
    held_out = {name: spec.model_copy(update={"validation": validation}) for name, spec in specs.items()}
    return scenario.model_copy(update={"seed": seed, "models": {**scenario.models, **held_out}})


def tune_world(
    scenario: Scenario,
    names: Sequence[str],
    context: RunContext,
    *,
    store: ModelStore | None = None,
) -> dict[str, dict[str, float]]:
    """The measures of trials by name, in the world of a scenario `with_trials`. Logs go to `out`."""
    sim = Simulation(scenario, scenario.seed, context.workers, context.home)
    device = pick_device(context.device)
    made = Preparation(sim, context.out, store or ModelStore(), context.progress, device)
    made.write_logs()
    specs = {name: scenario.models[name] for name in names}
    made.train_logged(specs)
    measured, held_out = {}, {}
    for name, spec in specs.items():
        if spec.data not in held_out:
            data = pages(context.out, made.logged(spec.data), sim.seed)
            held_out[spec.data] = data.take(is_held_out(data, spec.validation, sim.seed))
        apart = held_out[spec.data]
        effects = made.lines[name].get("slot_effects")
        apart = apart if effects is None else apart.examined(effects)
        view, calibrator = sim.view(spec.features), made.calibrators.get(name)
        measured[name] = _measured(spec, made.modules[name], view, apart, calibrator)
    return measured


def _measured(
    spec: ModelSpec, module: Any, view: FeatureView, apart: ClickedPages, calibrator: Calibrator | None
) -> dict[str, float]:
    """What a served net, with its calibrator if it has one, predicts of pages, against their clicks."""
    objective = objective_of(spec)
    if objective.n_heads > 1:  # what is served has one head, with the sigmoid
        objective = make_objective("pointwise")
    score, expected = slot_predictions(module, view, apart.shown, objective)
    if calibrator is not None:
        request = None
        if calibrator.uses_request:
            request = view.request_features(apart.users, apart.shown.context)
        probability = calibrator(scores(module, view, apart.shown), request)
        expected = np.asarray(probability) * apart.shown.examination
    return page_measures(score, expected, apart, objective.has_scale or calibrator is not None)


def means(worlds: Sequence[Mapping[str, Mapping[str, float]]]) -> dict[str, dict[str, float]]:
    """The mean of every measure over worlds, by trial."""
    return {
        name: {key: float(np.mean([world[name][key] for world in worlds])) for key in measures}
        for name, measures in worlds[0].items()
    }


def picked(trials: Sequence[Trial], mean: Mapping[str, Mapping[str, float]], by: str) -> Trial:
    """The setting of one model that a rule chooses; the first of equals.

    balanced: the highest GAUC of the settings whose log loss is within `NEAR` of the model's least. A model
    without scale has no log loss, and goes by GAUC whatever the rule.
    """
    has_scale = all("logloss" in mean[trial.name] for trial in trials)
    if by == "logloss" and has_scale:
        return min(trials, key=lambda trial: mean[trial.name]["logloss"])
    if by == "balanced" and has_scale:
        least = min(mean[trial.name]["logloss"] for trial in trials)
        trials = [trial for trial in trials if mean[trial.name]["logloss"] <= (1 + NEAR) * least]
    return max(trials, key=lambda trial: mean[trial.name]["gauc"])
