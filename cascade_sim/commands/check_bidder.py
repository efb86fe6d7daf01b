"""`cascade_sim check-bidder`: test a bidder class before it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cascade_sim.commands.options import class_option, json_option, keywords

if TYPE_CHECKING:
    from cascade_sim.checks.bidder import Subject
    from cascade_sim.checks.contract import Finding

EXIT_CODES = """\b
Exit code  0  every check is ok; notes are allowed
           1  a check FAILED
           2  a mistake in the command, or no such file, class or bidder"""


@click.command(epilog=EXIT_CODES)
@click.argument("spec", metavar="SPEC")
@class_option
@json_option("Print JSON, once all checks are through.")
def command(spec: str, options: tuple[str, ...], as_json: bool) -> int:
    """Test a bidder class of your own before using it.

    SPEC is path/to/file.py:Class, package.module:Class, or a built-in bidder (fixed, shading, target_cpa,
    multiplier, adaptive, pid, throttling). The class is built, asked, told, saved and restored as the engine
    would, for advertisers made up here; each check is a line: ok, note, skipped or FAILED.
    """
    given = keywords(options)

    from cascade_sim.checks.bidder import Subject, check_bidder
    from cascade_sim.training.modules import check_bidder_reference

    check_bidder_reference(spec)
    subject = Subject(spec, given)
    if not as_json:
        click.echo(spec)
    findings = check_bidder(subject, on_finding=lambda found: None if as_json else click.echo(found.line()))
    n_failed = sum(found.status == "FAILED" for found in findings)
    if as_json:
        click.echo(_json(subject, findings), nl=False)
    elif n_failed:
        click.echo(f"{n_failed} of {len(findings)} checks FAILED")
    else:
        click.echo("The bidder can be used.")
    return 1 if n_failed else 0


def _json(subject: Subject, findings: list[Finding]) -> str:
    from dataclasses import asdict

    from cascade_sim.storage.folder import json_text

    return json_text(
        {
            "bidder": subject.kind,
            "options": dict(subject.options),
            "ok": all(found.status != "FAILED" for found in findings),
            "checks": [asdict(found) for found in findings],
        }
    )
