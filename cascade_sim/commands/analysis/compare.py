"""`cascade_sim compare`: how finished runs differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cascade_sim.commands.options import PATH, accept_option, arm_option, out_option
from cascade_sim.foundation.terminal import echo, joined


@click.command()
@click.argument("runs", nargs=-1, required=True, type=PATH, metavar="RUN RUN [RUN…]")
@arm_option("Only this arm.  [default: all that both runs have]")
@click.option(
    "--unpaired",
    is_flag=True,
    help="Compare even runs that met other requests: other seed, world or traffic.",
)
@out_option("Write compare.json, compare.csv and compare.html here as well.", "FOLDER")
@accept_option
def command(runs: tuple[Path, ...], arm: str | None, unpaired: bool, out: Path | None) -> None:
    """Compare finished runs: scenario differences and metric differences.

    Every other run is compared with the first. Prints the conclusion, the scenario keys that differ, and
    the metrics of each arm. Runs of the same world, traffic and seed have the same requests, so their
    differences are paired, from the evaluation's logs.
    """
    from cascade_sim.counterfactual.whatif import check_out
    from cascade_sim.diagnostics.compare import compare_runs

    if out is not None:
        check_out(out)
    comparisons = compare_runs(runs, arm, unpaired)
    echo(compare_text(comparisons))
    if out is not None:
        for path in write_comparison(comparisons, out):
            echo(path)


def compare_text(comparisons: list[dict[str, Any]]) -> str:
    """The verdict, then scenario, arms and notes for a terminal; reference arms only if asked for."""
    import sys
    import textwrap

    from cascade_sim.analysis.report.compare_verdict import (
        compare_verdict,
        folded_keys,
        is_identical,
        judged_arms,
        lead_arm,
        only_in_one,
        shared_measures,
    )
    from cascade_sim.analysis.report.sections.compare import MAIN, PAIRED_BY, arm_table, scenario_table
    from cascade_sim.analysis.report.statement import statement_lines
    from cascade_sim.analysis.report.terminal import table_text
    from cascade_sim.analysis.report.text_helpers import listed
    from cascade_sim.foundation.progress import terminal_width

    width = terminal_width(least=80)
    color = sys.stdout.isatty()
    parts = []
    for pair in comparisons:
        shown = sorted(judged_arms(pair), key=lambda arm: arm != lead_arm(pair))
        headline, *more = compare_verdict(pair)
        parts.append(f"{pair['first']} → {pair['other']}")
        parts.append(textwrap.fill(headline, width) + "\n" * (not more))
        if more:
            parts.append(textwrap.fill(" ".join(more), width) + "\n")
        changed = scenario_table(folded_keys(pair), width)
        parts.append(
            "The scenarios are the same.\n"
            if changed is None
            else table_text(changed, color=color, width=width)
        )
        same = [name for name in shown if is_identical(pair["arms"][name])]
        lines = [f"No measure differs in {listed(same)}."] if 0 < len(same) < len(shown) else []
        lines += only_in_one(pair, shown)
        for name in shown:
            if name not in same:
                table = arm_table(shared_measures(pair), name, MAIN)
                parts.append(table_text(table, color=color, width=width + 20))
        lines += [PAIRED_BY[pair["paired_by"]], *(f"Note: {note}." for note in pair["notes"])]
        parts += [textwrap.fill(line, width) + "\n" for line in lines]
        parts += statement_lines(pair, width)
    return joined(parts)


def write_comparison(comparisons: list[dict[str, Any]], out: Path) -> list[Path]:
    """compare.json, compare.csv and compare.html in a folder."""
    from cascade_sim.analysis.report.sections.compare import compare_csv, compare_figures, compare_page
    from cascade_sim.counterfactual.whatif import check_out
    from cascade_sim.storage.files import write_file
    from cascade_sim.storage.folder import json_text

    check_out(out)
    contents = {
        "compare.json": json_text(comparisons),
        "compare.csv": compare_csv(comparisons),
        "compare.html": compare_page(comparisons, compare_figures(comparisons)),
    }
    for name, content in contents.items():
        write_file(out / name, content.encode())
    return [out / name for name in contents]
