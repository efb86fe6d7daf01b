"""`cascade_sim check-retriever`: test a retriever class before it is used."""

from __future__ import annotations

from pathlib import Path

import click

from cascade_sim.commands.checks.check_model import tell
from cascade_sim.commands.options import class_option, json_option, keywords
from cascade_sim.foundation.terminal import echo

EXIT_CODES = """\b
Exit code  0  every check is ok; notes are allowed
           1  a check FAILED
           2  a mistake in the command, or no such file, class or scenario"""


@click.command(epilog=EXIT_CODES)
@click.argument("spec", metavar="SPEC")
@click.option(
    "--scenario",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Scenario whose feature groups it sees.  [default: G1 to G4]",
)
@class_option
@json_option("Print JSON, once all checks are through.")
def command(spec: str, scenario: Path | None, options: tuple[str, ...], as_json: bool) -> int:
    """Test a custom retriever class for conformance.

    SPEC is path/to/file.py:Class or package.module:Class. The class is built and asked as the engine would,
    in a small world whose ads come and go; each check is a line: ok, note, skipped or FAILED.
    """
    given = keywords(options)

    from cascade_sim.checks.retriever import check_retriever
    from cascade_sim.scenario.file import load_scenario
    from cascade_sim.scenario.plugins import RETRIEVER_KINDS, require_reference

    home = Path(".") if scenario is None else scenario.parent
    world = None if scenario is None else load_scenario(scenario).world
    require_reference(spec, home, RETRIEVER_KINDS)
    if not as_json:
        echo(spec)
    about = {"retriever": spec, "options": given}
    return tell(
        lambda listener: check_retriever(spec, options=given, world=world, home=home, on_finding=listener),
        about,
        as_json,
        "The retriever can be used.",
    )
