"""`cascade_sim audit-logs`: do the winners and prices of a log follow its rule, and which if not?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cascade_sim.commands.options import PATH, json_option, out_option
from cascade_sim.foundation.terminal import echo, joined

EXIT_CODES = """\b
Exit code  0  every page matches the log
           1  some do not; the table says why. Or the log tells nothing of its auction
           2  a mistake in the command or the log"""


@click.command(epilog=EXIT_CODES)
@click.argument("log", type=PATH)
@click.option("--infer", is_flag=True, help="Find the rule that the log follows, also where it declares one.")
@click.option("--adopt", is_flag=True, help="Find the rule, and declare it in the log store.")
@out_option("Write audit.json, audit.csv and audit.html here as well.", "FOLDER")
@json_option("Print audit.json in place of the tables.")
def command(log: Path, infer: bool, adopt: bool, out: Path | None, as_json: bool) -> int:
    """Re-run every logged auction under the declared rule and report mismatches.

    Where pages differ, the commonest reasons are listed with example requests: ties, rounding, hidden
    reserves, unlogged boosts and more. Each is a test on the log; what passes none is called unexplained.
    Where no rule is declared the one that explains the log best is found, and judged on requests that did not
    choose it.
    """
    from cascade_sim.api import audit_logs
    from cascade_sim.storage.folder import json_text

    found = audit_logs(log, infer=infer, adopt=adopt, out=out)
    answer = found.answer
    echo(json_text(answer) if as_json else audit_text(answer))
    for path in found.files:
        echo(path, err=as_json)
    is_whole = answer["tally"]["pages_matched"] == answer["tally"]["requests"]
    return 0 if is_whole and not answer["nothing_told"] else 1


def audit_text(answer: dict[str, Any]) -> str:
    """The answer, then the tables for a terminal."""
    import sys
    import textwrap

    from cascade_sim.analysis.report.sections.audit import (
        audit_facts,
        audit_headline,
        audit_words,
        parameters_table,
        reason_lines,
        reasons_table,
        rule_lines,
        rules_table,
        slots_table,
        tally_table,
        value_lines,
    )
    from cascade_sim.analysis.report.terminal import table_text
    from cascade_sim.foundation.progress import terminal_width
    from cascade_sim.logs.audit.adoption import adopted_words

    width, color = terminal_width(least=80), sys.stdout.isatty()

    def filled(text: str, indent: str = "") -> str:
        return textwrap.fill(text, width, initial_indent=indent, subsequent_indent=" " * len(indent))

    parts = [*adopted_words(answer["adopted"]), ""] if "adopted" in answer else []
    parts += [" · ".join(audit_facts(answer)), filled(f"{audit_headline(answer)}.")]
    parts += [filled(line) for line in audit_words(answer)]
    tables = [] if answer["nothing_told"] else [tally_table(answer), reasons_table(answer)]
    for table in tables:
        if table is not None:
            parts += ["", table_text(table, color=color, width=width).rstrip()]
    parts += [filled(line, "  ") for line in value_lines(answer)]
    parts += ["", *(filled(line) for line in reason_lines(answer))] if answer["reasons"] else []
    for table in (slots_table(answer) if answer["reasons"] else None, rules_table(answer)):
        if table is not None:
            parts += ["", table_text(table, color=color, width=width).rstrip()]
    parts += [filled(line, "  ") for line in rule_lines(answer)]
    parameters = parameters_table(answer)
    if parameters is not None:
        parts += ["", table_text(parameters, color=color, width=width).rstrip()]
    if answer["notes"]:
        parts += ["", *(filled(f"Note: {note}.") for note in answer["notes"])]
    return joined(parts)
