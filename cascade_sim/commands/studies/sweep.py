"""`cascade_sim sweep`: a scenario over a grid of settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cascade_sim.commands.options import (
    accept_option,
    arm_option,
    device_option,
    engine_options,
    out_option,
    quiet_option,
    says_how_to_go_on,
    scenario_argument,
    seeds_option,
    set_option,
    workers_option,
)
from cascade_sim.foundation.terminal import echo, joined


@click.command()
@scenario_argument
@click.option(
    "--over", multiple=True, required=True, metavar="KEY=A,B,…", help="Values of a key; may be repeated."
)
@set_option(" in every cell")
@seeds_option("Worlds per cell.  [default: 3; of a replayed log 1]", default=None)
@arm_option("Arm that is measured.  [default: the baseline]")
@click.option("--x", metavar="MEASURE", default="expected_ctr", show_default=True)
@click.option("--y", metavar="MEASURE", default="expected_revenue_per_request", show_default=True)
@out_option("Folder.  [default: runs/<name>-sweep]")
@click.option(
    "--retrain", is_flag=True,
    help="Models learn from the log of their own cell's cascade.  [default: of the reference's]",
)  # fmt: skip
@click.option(
    "--fixed-models", is_flag=True,
    help="Train the reference alone; its models serve all cells, as in whatif.",
)  # fmt: skip
@click.option("--keep-logs", is_flag=True, help="Leave each cell's logs, for trace and other questions.")
@workers_option("Processes.")
@device_option()
@engine_options
@quiet_option
@accept_option
def command(
    scenario: Path, over: tuple[str, ...], overrides: tuple[str, ...], x: str, y: str, **options: Any
) -> None:
    """Run a grid of settings and report the Pareto-optimal ones.

    Each --over gives values of one key; all combinations are run, in several worlds each. Prints a row per
    cell with lifts over the reference, the scenario's own setting (a cell more where no value is its own),
    and what was held fixed and learned again. Writes sweep.csv, and sweep.html with the Pareto plot of --y
    against --x. Finished cells are kept: a sweep that was stopped or is given more values is resumed.
    """
    from cascade_sim.api import sweep

    with says_how_to_go_on():
        result = sweep(scenario, over, set=overrides, x=x, y=y, **options)
    echo(sweep_text(result.findings, x, y))
    for path in result.files:
        echo(path)


def sweep_text(findings: dict[str, Any], x: str, y: str) -> str:
    """The table and its reading, for a terminal."""
    import sys
    import textwrap

    from cascade_sim.analysis.report.sections.sweep import (
        cells_table,
        guardrails_of_best,
        sweep_headline,
        sweep_words,
    )
    from cascade_sim.analysis.report.short_page import about_intervals, facts
    from cascade_sim.analysis.report.statement import statement_lines
    from cascade_sim.analysis.report.terminal import table_text
    from cascade_sim.foundation.progress import terminal_width

    width = terminal_width()
    table = table_text(cells_table(findings, x, y, narrow=True), color=sys.stdout.isatty(), width=width)
    words = [guardrails_of_best(findings, x, y), *sweep_words(findings, x, y), about_intervals(findings)]
    lines = [textwrap.fill(line, max(width, 40)) for line in words if line]
    head = textwrap.fill(sweep_headline(findings, x, y), max(width, 40))
    return joined([head, " · ".join(facts(findings)), table, *lines, "", *statement_lines(findings, width)])
