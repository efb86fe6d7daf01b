"""`cascade_sim check-model`: test a model class before it is used."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cascade_sim.commands.options import class_option, json_option, keywords
from cascade_sim.errors import UserError
from cascade_sim.models.recipes import RECIPES

if TYPE_CHECKING:
    from cascade_sim.checks.contract import Finding
    from cascade_sim.checks.model import Subject

EXIT_CODES = """\b
Exit code  0  every check is ok; notes are allowed
           1  a check FAILED
           2  a mistake in the command, or no such file, class or model"""


@click.command(epilog=EXIT_CODES)
@click.argument("spec", metavar="SPEC")
@click.option("--model", metavar="NAME", help="The model to test, when SPEC is a scenario.")
@click.option(
    "--features", metavar="A,B,C", help="What it sees.  [default: all but bid, conversion and pairs]"
)
@click.option("--recipe", type=click.Choice(list(RECIPES)), help="How it is trained.")
@class_option
@json_option("Print JSON, once all checks are through.")
def command(
    spec: str,
    model: str | None,
    features: str | None,
    recipe: str | None,
    options: tuple[str, ...],
    as_json: bool,
) -> int:
    """Test a model class of your own before using it.

    SPEC is path/to/file.py:Class, package.module:Class, a built-in kind (towers, coaction), or a scenario
    file with --model NAME. The class is built, served, trained and stored as the engine would, in a small
    world of its own; each check is a line: ok, note, skipped or FAILED.
    """
    changes: dict[str, Any] = {}
    if features is not None:
        changes["features"] = tuple(dict.fromkeys(name.strip() for name in features.split(",")))
    if recipe is not None:
        changes["recipe"] = recipe
    if options:
        changes["options"] = keywords(options)
    subject = _subject(spec, model, changes)

    from cascade_sim.checks.model import check_model

    if not as_json:
        click.echo(f"{subject.spec.kind}, seeing {', '.join(subject.spec.features)}")
    findings = check_model(subject, on_finding=lambda found: None if as_json else click.echo(found.line()))
    n_failed = sum(found.status == "FAILED" for found in findings)
    if as_json:
        click.echo(_json(subject, findings), nl=False)
    elif n_failed:
        click.echo(f"{n_failed} of {len(findings)} checks FAILED")
    else:
        click.echo("The model can be used.")
    return 1 if n_failed else 0


def _subject(spec: str, model: str | None, changes: dict[str, Any]) -> Subject:
    """The model that SPEC names. The scenario first: mistakes are answered before torch is imported."""
    from cascade_sim.errors import unknown_name
    from cascade_sim.scenario.schema import ModelSpec

    if not spec.endswith((".yaml", ".yml")):
        if model is not None:
            raise UserError("--model goes with a scenario file; SPEC is a class here")
        from cascade_sim.checks.model import make_subject

        return make_subject(ModelSpec(kind=spec).model_copy(update=changes))
    from cascade_sim.scenario.file import load_scenario

    scenario = load_scenario(spec)
    if model is None:
        raise UserError(
            f"{spec}: say which model with --model; it has: {', '.join(scenario.models) or 'none'}"
        )
    if model not in scenario.models:
        raise UserError(f"{spec}: {unknown_name('model', model, scenario.models)}")
    from cascade_sim.checks.model import make_subject

    return make_subject(
        scenario.models[model].model_copy(update=changes), scenario.world, home=Path(spec).parent
    )


def _json(subject: Subject, findings: list[Finding]) -> str:
    from dataclasses import asdict

    from cascade_sim.storage.folder import json_text

    return json_text(
        {
            "model": subject.spec.kind,
            "features": list(subject.spec.features),
            "recipe": subject.spec.recipe,
            "ok": all(found.status != "FAILED" for found in findings),
            "checks": [asdict(found) for found in findings],
        }
    )
