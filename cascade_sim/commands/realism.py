"""`cascade_sim realism`: how like a world is to a log."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from cascade_sim.commands.options import PATH, json_option, out_option


@click.command()
@click.argument("log", type=PATH)
@click.argument("world", type=PATH)
@click.option(
    "--part", type=click.Choice(["all", "first", "second"]), default="all", show_default=True,
    help="Which half of the log is compared: the one that the world was not fitted to says more.",
)  # fmt: skip
@click.option(
    "--seed", type=click.IntRange(min=0), default=1, show_default=True, help="Of folds and resamples."
)
@json_option("Print what realism.json holds.")
@out_option("Where realism.json and realism.html go.  [default: WORLD/realism]", "FOLDER")
def command(log: Path, world: Path, part: str, seed: int, as_json: bool, out: Path | None) -> None:
    """How like is a market to another: WORLD, exported from a run and imported, to LOG.

    Numbers of both side by side; whether a classifier tells them apart, beside whether it tells two periods
    of the log apart; lifts of the same what-ifs, where both were asked; and what the world does not have.
    """
    import json

    from cascade_sim.logged.store import open_store
    from cascade_sim.realism.study import answers_in, matching_whatifs, realism, split_of

    stores = open_store(log), open_store(world)
    middle = split_of(stores[0])
    parts = {"all": None, "first": (0, middle), "second": (middle, stores[0].n_requests)}
    found = realism(
        *stores, part=parts[part], whatifs=matching_whatifs(answers_in(log), answers_in(world)), seed=seed
    )
    click.echo(json.dumps(found, indent=1) if as_json else realism_text(found))
    for path in write_realism(found, out or world / "realism"):
        click.echo(path, err=as_json)


def realism_text(found: Mapping[str, Any]) -> str:
    """The answer in a line, the test, what is not captured, and the moments that differ, for a terminal."""
    import sys
    import textwrap

    from cascade_sim.analysis.report.sections.realism import (
        GROUPS,
        facts,
        moments_table,
        realism_headline,
        realism_words,
        test_table,
        whatif_table,
    )
    from cascade_sim.analysis.report.terminal import table_text
    from cascade_sim.progress import terminal_width

    width, color = terminal_width(least=80), sys.stdout.isatty()
    tables = [test_table(found), whatif_table(found), *(moments_table(found, group) for group in GROUPS)]
    lines = [textwrap.fill(realism_headline(found), width), "; ".join(facts(found)), ""]
    lines += [textwrap.fill(line, width) for line in realism_words(found)]
    lines += ["", "Not captured:"] if found["not_captured"] else []
    lines += [textwrap.fill(f"- {line}", width, subsequent_indent="  ") for line in found["not_captured"]]
    lines += [
        "",
        *(table_text(table, color=color, width=width + 20) for table in tables if table is not None),
    ]
    return "\n".join(lines)


def write_realism(found: Mapping[str, Any], out: Path) -> list[Path]:
    """realism.json and realism.html in a folder."""
    from cascade_sim.analysis.report.figures.realism import realism_svg
    from cascade_sim.analysis.report.sections.realism import realism_page
    from cascade_sim.storage.files import storage_errors, write_file
    from cascade_sim.storage.folder import json_text

    with storage_errors(out):
        out.mkdir(parents=True, exist_ok=True)
    contents = {"realism.json": json_text(found), "realism.html": realism_page(found, realism_svg(found))}
    for name, content in contents.items():
        write_file(out / name, content.encode())
    return [out / name for name in contents]
