"""`cascade_sim tune`: choose settings of models on pages that none of them learned from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cascade_sim.commands.options import (
    accept_option,
    device_option,
    echo_table,
    out_option,
    quiet_option,
    scenario_argument,
    set_option,
    workers_option,
    write_files,
)
from cascade_sim.foundation.errors import UserError, unknown_name
from cascade_sim.foundation.terminal import echo

if TYPE_CHECKING:
    from cascade_sim.analysis.report.tables import Table
    from cascade_sim.scenario.schema import Scenario
    from cascade_sim.study.tuning import Trial

Values = dict[str, list[Any]]
RULES = {
    "balanced": "the highest GAUC among settings whose log loss is within 0.5 % of the model's least; "
    "without a scale, the highest GAUC",
    "gauc": "the highest GAUC",
    "logloss": "the least log loss; without a scale, the highest GAUC",
}


@click.command()
@scenario_argument
@click.option(
    "--models",
    metavar="A,B,…",
    help="Models to tune.  [default: all that learn from clicks without calibrator]",
)
@click.option(
    "--over", multiple=True, required=True, metavar="KEY=A,B,…",
    help="Values of a key of every model that takes it, or of one model: MODEL.KEY=…; may be repeated.",
)  # fmt: skip
@click.option(
    "--criterion", "by", type=click.Choice(list(RULES)), default="balanced", show_default=True,
    help="Rule of the choice: " + "; ".join(f"{name}: {rule}" for name, rule in RULES.items()) + ".",
)  # fmt: skip
@click.option("--seeds", required=True, metavar="A,B,…", help="Worlds to tune in; not those to be reported.")
@click.option(
    "--validation", type=click.FloatRange(0, 0.5, min_open=True), default=0.1, show_default=True,
    help="Share of the logged requests that settings are measured on, and not trained on.",
)  # fmt: skip
@click.option(
    "--allow-unequal-grids", "uneven", is_flag=True, help="Accept different numbers of settings per model."
)
@set_option(" of the scenario")
@out_option("Write the choice here, as the models of a scenario.", "YAML")
@workers_option("Processes that train.")
@device_option()
@quiet_option
@accept_option
def command(
    scenario: Path,
    models: str | None,
    over: tuple[str, ...],
    by: str,
    seeds: str,
    validation: float,
    uneven: bool,
    overrides: tuple[str, ...],
    out: Path | None,
    workers: int,
    device: str,
    quiet: bool,
) -> None:
    """Tune model hyperparameters on held-out requests, with equal budgets.

    In each world the cascade writes its log once. Every setting is trained on the log less a part of its
    requests, and measured on the clicks of that part; the evaluation is never looked at. Prints a row per
    setting with means over worlds, and the choice of each model.
    """
    from cascade_sim.scenario.file import load_scenario

    worlds = _seeds(seeds)
    loaded = load_scenario(scenario, overrides)
    if loaded.seed in worlds:
        raise UserError(
            f"--seeds: {loaded.seed} is the scenario's own seed; tune in worlds that are not reported"
        )
    names = _models(loaded, models)
    trials = _trials(loaded, names, over)
    _require_one_budget(trials, uneven)

    from cascade_sim.context import scratch_context
    from cascade_sim.foundation.progress import Progress
    from cascade_sim.study.tuning import means, picked, tune_world, with_trials

    specs = {
        trial.name: load_scenario(scenario, [*overrides, *trial.assignments()]).models[trial.model]
        for own in trials.values()
        for trial in own
    }
    given = {"home": scenario.parent, "workers": workers, "device": device}
    measured = []
    with Progress(quiet) as progress:
        for seed in worlds:
            world = with_trials(loaded, specs, seed, validation)
            with scratch_context(**given, progress=progress) as context:
                measured.append(tune_world(world, list(specs), context))
    mean = means(measured)
    choice = {model: picked(own, mean, by) for model, own in trials.items()}
    told = _told(trials, worlds, validation, by)
    echo_table(tuning_table(trials, mean, choice), width=120)
    echo(told)
    if out is not None:
        write_files({out: _yaml(choice, told).encode()})


def _seeds(text: str) -> list[int]:
    try:
        seeds = [int(seed) for seed in text.split(",")]
    except ValueError:
        seeds = []
    if not seeds or min(seeds) < 0 or len(set(seeds)) < len(seeds):
        raise UserError(f"--seeds {text}: expected different integers, such as 101,102")
    return seeds


def _models(scenario: Scenario, given: str | None) -> list[str]:
    """The models named, or all that learn from clicks and have no calibrator."""
    specs = scenario.models
    if given is None:
        return [
            name for name, spec in specs.items() if spec.trained_by.has_objective and spec.calibrator is None
        ]
    names = list(dict.fromkeys(given.split(",")))
    for name in names:
        if name not in specs:
            raise UserError(f"--models: {unknown_name('model', name, specs)}")
        if not specs[name].trained_by.has_objective:
            how = f"learns by {specs[name].recipe}"
            if specs[name].trained_by.has_teacher:
                how = "learns from a teacher"
            raise UserError(f"--models: {name} {how}; only models that learn from clicks are tuned")
    return names


def _trials(scenario: Scenario, names: Sequence[str], over: Sequence[str]) -> dict[str, list[Trial]]:
    """The settings of each model, from the values that --over gives."""
    from cascade_sim.scenario.assignments import key_and_value, split_values, yaml_value
    from cascade_sim.scenario.models import ModelSpec
    from cascade_sim.study.tuning import takes, trials_of

    common: Values = {}
    own: dict[str, Values] = {name: {} for name in names}
    for text in over:
        try:
            path, values = key_and_value(text)
            found = [yaml_value(value) for value in split_values(values)]
        except ValueError as reason:
            raise UserError(f"--over {text}: {reason}; expected KEY=A,B or MODEL.KEY=A,B") from None
        model, _, key = path.rpartition(".")
        if key not in ModelSpec.model_fields or key == "validation":
            known = [name for name in ModelSpec.model_fields if name != "validation"]
            raise UserError(f"--over {text}: {unknown_name('key of a model', key, known)}")
        if model and model not in names:
            raise UserError(f"--over {text}: {unknown_name('model', model, names)}")
        takers = [model] if model else names
        if not any(takes(scenario.models[name], key) for name in takers):
            raise UserError(f"--over {text}: none of {', '.join(takers)} takes {key}")
        (own[model] if model else common)[key] = found
    return {name: trials_of(name, scenario.models[name], common, own[name]) for name in names}


def _require_one_budget(trials: Mapping[str, Sequence[Trial]], uneven: bool) -> None:
    counts = {model: len(own) for model, own in trials.items()}
    if len(set(counts.values())) > 1 and not uneven:
        told = ", ".join(f"{model} {n}" for model, n in counts.items())
        raise UserError(
            f"models have different numbers of settings: {told}; give those with fewer more values of their "
            "own, such as --over MODEL.learning_rate=…, or pass --allow-unequal-grids"
        )


def tuning_table(
    trials: Mapping[str, Sequence[Trial]],
    mean: Mapping[str, Mapping[str, float]],
    choice: Mapping[str, Trial],
) -> Table:
    """A row per setting, means over worlds; the choice of each model is marked."""
    from cascade_sim.analysis.report.tables import Cell, Row, Table
    from cascade_sim.study.tuning import MEASURES

    def cell(value: float | None) -> Cell:
        return Cell("–" if value is None else f"{value:.5f}")

    rows = [
        Row(
            f"{model} {_settings(trial)}",
            [
                *(cell(mean[trial.name].get(name)) for name in MEASURES),
                Cell("*" if trial is choice[model] else ""),
            ],
        )
        for model, own in trials.items()
        for trial in own
    ]
    return Table("Settings, on pages held out", "model", ["GAUC", "log loss", "ECE", "PCOC", "choice"], rows)


def _settings(trial: Trial) -> str:
    return " ".join(f"{key}={value}" for key, value in trial.settings.items())


def _told(trials: Mapping[str, Sequence[Trial]], seeds: Sequence[int], validation: float, by: str) -> str:
    counts = sorted({len(own) for own in trials.values()})
    budget = (
        f"{counts[0]} settings for each model"
        if len(counts) == 1
        else f"{counts[0]} to {counts[-1]} settings"
    )
    return (
        f"{budget}, on {validation:.0%} of the logged requests of worlds {', '.join(map(str, seeds))}. "
        f"Rule: {RULES[by]}."
    )


def _yaml(choice: Mapping[str, Trial], told: str) -> str:
    import json

    lines = [f"# Chosen by `tune`: {told}", "models:"]
    lines += [
        f"  {model}: {{{', '.join(f'{key}: {json.dumps(value)}' for key, value in trial.settings.items())}}}"
        for model, trial in choice.items()
    ]
    return "\n".join(lines) + "\n"
