"""`cascade_sim check-model`: test a model class before it is used."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cascade_sim.commands.options import class_option, json_option, keywords
from cascade_sim.foundation.errors import UserError
from cascade_sim.foundation.terminal import echo
from cascade_sim.models.recipes import RECIPES

if TYPE_CHECKING:
    from cascade_sim.checks.contract import Findings, Listener
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
    """Test a custom model class for conformance.

    SPEC is path/to/file.py:Class, package.module:Class, a built-in kind (towers, coaction, dcn, inttower,
    cold), or a scenario file with --model NAME. The class is built, served, trained and stored as the engine
    would, in a small world of its own; each check is a line: ok, note, skipped or FAILED.
    """
    changes: dict[str, Any] = {}
    if features is not None:
        changes["features"] = tuple(dict.fromkeys(name.strip() for name in features.split(",")))
    if recipe is not None:
        changes["recipe"] = recipe
    if options:
        changes["options"] = keywords(options)
    subject = _subject(spec, model, changes)

    from cascade_sim.checks.model import check_subject

    if not as_json:
        echo(f"{subject.kind}, seeing {', '.join(subject.spec.features)}")
    about = {"model": subject.kind, "features": subject.spec.features, "recipe": subject.spec.recipe}
    return tell(lambda listener: check_subject(subject, listener), about, as_json, "The model can be used.")


def tell(
    run: Callable[[Listener | None], Findings], about: dict[str, Any], as_json: bool, all_well: str
) -> int:
    """Run the checks and print them: a line as each ends, or one JSON document. Returns the exit code."""
    if as_json:
        from cascade_sim.storage.folder import json_text

        findings = run(None)
        checks = [asdict(finding) for finding in findings]
        echo(json_text({**about, "ok": findings.ok, "checks": checks}), nl=False)
    else:
        findings = run(lambda finding: echo(finding.line()))
        echo(all_well if findings.ok else findings.verdict())
    return 0 if findings.ok else 1


def _subject(spec: str, model: str | None, changes: dict[str, Any]) -> Subject:
    """The model that SPEC names. The scenario first: mistakes are answered before torch is imported."""
    from cascade_sim.foundation.errors import unknown_name
    from cascade_sim.scenario.schema import ModelSpec

    if not spec.endswith((".yaml", ".yml")):
        if model is not None:
            raise UserError("--model goes with a scenario file; SPEC is a class here")
        from cascade_sim.checks.model import make_subject

        return make_subject(ModelSpec(kind=spec).model_copy(update=changes), option="--features")
    from cascade_sim.scenario.file import load_scenario

    scenario = load_scenario(spec)
    if model is None:
        raise UserError(
            f"{spec}: say which model with --model; it has: {', '.join(scenario.models) or 'none'}"
        )
    if model not in scenario.models:
        raise UserError(f"{spec}: {unknown_name('model', model, scenario.models)}")
    from cascade_sim.checks.model import make_subject

    section = scenario.models[model].model_copy(update=changes)
    return make_subject(section, scenario.world, home=Path(spec).parent, option="--features")
