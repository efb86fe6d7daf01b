"""`cascade_sim check-bidder`: test a bidder class before it is used."""

from __future__ import annotations

from pathlib import Path

import click

from cascade_sim.commands.checks.check_model import tell
from cascade_sim.commands.options import class_option, json_option, keywords
from cascade_sim.foundation.terminal import echo

EXIT_CODES = """\b
Exit code  0  every check is ok; notes are allowed
           1  a check FAILED
           2  a mistake in the command, or no such file, class or bidder"""


@click.command(epilog=EXIT_CODES)
@click.argument("spec", metavar="SPEC")
@class_option
@json_option("Print JSON, once all checks are through.")
def command(spec: str, options: tuple[str, ...], as_json: bool) -> int:
    """Test a custom bidder class for conformance.

    SPEC is path/to/file.py:Class, package.module:Class, or a built-in bidder (fixed, shading, target_cpa,
    multiplier, adaptive, pid, throttling). The class is built, asked, told, saved and restored as the engine
    would, for advertisers made up here; each check is a line: ok, note, skipped or FAILED.
    """
    given = keywords(options)

    from cascade_sim.checks.bidder import check_bidder
    from cascade_sim.scenario.plugins import BIDDER_KINDS, require_reference

    require_reference(spec, Path("."), BIDDER_KINDS)
    if not as_json:
        echo(spec)
    about = {"bidder": spec, "options": given}
    return tell(
        lambda listener: check_bidder(spec, options=given, on_finding=listener),
        about,
        as_json,
        "The bidder can be used.",
    )
