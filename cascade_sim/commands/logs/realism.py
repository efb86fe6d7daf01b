"""`cascade_sim realism`: how like a world is to a log."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from cascade_sim.commands.options import PATH, accept_option, json_option, out_option
from cascade_sim.foundation.terminal import echo, joined


@click.command()
@click.argument("log", type=PATH)
@click.argument("world", type=PATH)
@click.option(
    "--log-part", "part", type=click.Choice(["all", "first", "second"]), default="all", show_default=True,
    help="Which half of the log is compared: the one that the world was not fitted to says more.",
)  # fmt: skip
@click.option(
    "--seed", type=click.IntRange(min=0), default=1, show_default=True, help="Of folds and resamples."
)
@json_option("Print what realism.json holds.")
@out_option("Where realism.json and realism.html go.  [default: WORLD/realism]", "FOLDER")
@accept_option
def command(log: Path, world: Path, part: str, seed: int, as_json: bool, out: Path | None) -> None:
    """Test the realism of a fitted world against its log.

    WORLD is a log store, exported from a run and imported, or a scenario or run of a world fitted to a log,
    from which as many requests are drawn as the log has.

    Numbers of both side by side; how well a classifier distinguishes them, and two periods of the log;
    lifts of the same what-ifs, where both were asked; and what the world does not have.
    """
    from cascade_sim.api import realism
    from cascade_sim.storage.folder import json_text

    beside = world.with_suffix("") if world.is_file() else world
    found = realism(log, world, part=part, seed=seed, out=out or beside / "realism")
    echo(json_text(found.answer) if as_json else realism_text(found.answer))
    for path in found.files:
        echo(path, err=as_json)


def realism_text(found: Mapping[str, Any]) -> str:
    """The answer in a line, the test, the known gaps, and the statistics that differ, for a terminal."""
    import sys
    import textwrap

    from cascade_sim.analysis.report.sections.realism import (
        GROUPS,
        facts,
        realism_headline,
        realism_words,
        statistics_table,
        test_table,
        whatif_table,
    )
    from cascade_sim.analysis.report.terminal import table_text
    from cascade_sim.foundation.progress import terminal_width

    width, color = terminal_width(least=80), sys.stdout.isatty()
    tables = [test_table(found), whatif_table(found), *(statistics_table(found, group) for group in GROUPS)]
    lines = [textwrap.fill(realism_headline(found), width), "; ".join(facts(found)), ""]
    lines += [textwrap.fill(line, width) for line in realism_words(found)]
    lines += ["", "Known gaps:"]
    lines += [textwrap.fill(f"- {line}", width, subsequent_indent="  ") for line in found["gaps"]]
    lines += [
        "",
        *(table_text(table, color=color, width=width + 20) for table in tables if table is not None),
    ]
    return joined(lines)
