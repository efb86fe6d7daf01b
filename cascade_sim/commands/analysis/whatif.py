"""`cascade_sim whatif`: a finished run's evaluation, served again with some parameters changed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from cascade_sim.commands.options import (
    accept_option,
    arm_option,
    out_option,
    quiet_option,
    run_argument,
    trust_option,
)
from cascade_sim.foundation.terminal import echo, joined

EXIT_CODES = """\b
Exit code  0  done
           1  done, but the untouched arm did not get what the run measured: something has changed since
           2  a mistake in the command, or no such run, arm or parameter"""


@click.command(epilog=EXIT_CODES)
@run_argument
@click.option(
    "--set", "changes", multiple=True, required=True, metavar="PARAM=VALUE",
    help="Change a parameter, e.g. auction.reserve_cpc=0.2; may be repeated. One of them may list several "
         "values: "
    "auction.reserve_cpc=0.1,0.2,0.3.",
)  # fmt: skip
@arm_option("Arm whose parameters are changed.  [default: the baseline]")
@click.option(
    "--requests", type=click.IntRange(1), metavar="N",
    help="Use only the first N requests, rounded up to whole blocks.  [default: all]",
)  # fmt: skip
@out_option("[default: RUN/whatif/WHAT-WAS-ASKED]", "FOLDER")
@trust_option
@quiet_option
@accept_option
def command(
    run: Path,
    changes: tuple[str, ...],
    arm: str | None,
    requests: int | None,
    out: Path | None,
    trust: bool,
    quiet: bool,
) -> int:
    """Re-evaluate a run under other serving parameters (same requests, common random numbers).

    Serves the run's evaluation again with some parameters changed (stage sizes, models, bids, fusions, slots,
    auction, bid rule); its trained models are used as they are, and advertisers do not react.
    """
    from cascade_sim.counterfactual.whatif import WhatIfStudy, answer_name, check_out, write_answer
    from cascade_sim.foundation.progress import Progress
    from cascade_sim.scenario.overrides import Refused, refuse
    from cascade_sim.storage.files import below, folder_inside
    from cascade_sim.storage.folder import ANSWERS

    try:
        study, question = WhatIfStudy.asked(run, changes, arm, trust)
        metrics = study.metrics
        if out is None:
            below(run, ANSWERS)  # a link is refused before any work is done
        if out is not None:
            check_out(out)
        with Progress(quiet) as progress:
            answer = study.answer(question, requests or 0, progress)
    except Refused as reason:
        raise refuse(reason, changes, "--set ") from None
    echo(answer_text(answer))
    name = answer_name(question.points, arm, requests)
    for path in write_answer(answer, out or folder_inside(run, ANSWERS, name)):
        echo(path)
    return compared_with_run(run, answer, metrics)


def answer_text(answer: Mapping[str, Any]) -> str:
    """The answer in a line, then tables and words, for a terminal."""
    import sys
    import textwrap
    from dataclasses import replace

    from cascade_sim.analysis.report.guardrails import guardrail_line
    from cascade_sim.analysis.report.sections.asked import what_if_changes, what_if_headline
    from cascade_sim.analysis.report.sections.whatif import (
        MAIN,
        measures_table,
        pairing_words,
        points_table,
        what_if_words,
    )
    from cascade_sim.analysis.report.short_page import answer_facts
    from cascade_sim.analysis.report.statement import statement_lines
    from cascade_sim.analysis.report.terminal import table_text
    from cascade_sim.foundation.progress import terminal_width

    width = terminal_width()
    table = measures_table(answer, MAIN) if len(answer["points"]) == 1 else points_table(answer, narrow=True)
    lines = [guardrail_line(what_if_changes(answer)), what_if_words(answer), pairing_words(answer)]
    lines = [line for line in (*lines, *answer["notes"]) if line]
    wide = max(width, 160)  # a table is not cut, but what does not fit is left to the page
    n_columns = len(table.columns)
    least, last = (3, 1) if len(answer["points"]) == 1 else (4, 0)  # one change: its lifts stay
    while len(table.columns) > least and _width_of(table_text(table, width=wide)) > max(width, 80):
        at = len(table.columns) - 1 - last
        rows = [replace(row, cells=[*row.cells[:at], *row.cells[at + 1 :]]) for row in table.rows]
        table = replace(table, columns=[*table.columns[:at], *table.columns[at + 1 :]], rows=rows)
    if len(table.columns) < n_columns:
        lines.append("More columns are in whatif.html and whatif.csv.")
    return joined(
        [
            textwrap.fill(what_if_headline(answer), max(width, 40)),
            ", ".join(answer_facts(answer)),
            "",
            table_text(table, color=sys.stdout.isatty(), width=wide),
            *(textwrap.fill(line, max(width, 40)) for line in lines),
            "",
            *statement_lines(answer, width),
        ]
    )


def _width_of(text: str) -> int:
    return max(len(line.rstrip()) for line in text.splitlines())


def compared_with_run(run: Path, answer: Mapping[str, Any], metrics: Mapping[str, Any]) -> int:
    """1 and a warning if the arm as it is did not come out as the run has it; 0 otherwise."""
    if answer["requests"] != metrics.get("requests"):
        return 0  # a part of the evaluation
    own = (metrics.get("arms") or {}).get(answer["arm"]) or {}
    for metric, now in answer["current"]["metrics"].items():
        before = own.get(metric)
        if before is not None and any(before.get(key) != now.get(key) for key in ("value", "low", "high")):
            echo(
                f"warning: {run} measured {metric} {before.get('value')} for arm {answer['arm']}, "
                f"not {now.get('value')}: something has changed since",
                err=True,
            )
            return 1
    return 0
