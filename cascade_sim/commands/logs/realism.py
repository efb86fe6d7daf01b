"""`cascade_sim realism`: how like a world is to a log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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
    """How like is a world to LOG, an imported market.

    WORLD is a market, exported from a run and imported, or a scenario or run of a world fitted to a log, from
    which as many requests are drawn as the log has.

    Numbers of both side by side; whether a classifier tells them apart, beside whether it tells two periods
    of the log apart; lifts of the same what-ifs, where both were asked; and what the world does not have.
    """
    import json

    from cascade_sim.logged.store import open_store
    from cascade_sim.realism.study import answers_in, matching_whatifs, realism, split_of

    store = open_store(log)
    middle = split_of(store)
    parts = {"all": None, "first": (0, middle), "second": (middle, store.n_requests)}
    first, last = parts[part] or (0, store.n_requests)
    whatifs = matching_whatifs(answers_in(log), answers_in(world))
    with _world(world, last - first) as other:
        found = realism(store, other, part=parts[part], whatifs=whatifs, seed=seed)
    click.echo(json.dumps(found, indent=1) if as_json else realism_text(found))
    beside = world.with_suffix("") if world.is_file() else world
    for path in write_realism(found, out or beside / "realism"):
        click.echo(path, err=as_json)


@contextmanager
def _world(world: Path, requests: int) -> Iterator[Any]:
    """The store of a market, or what is drawn from a fitted world, for as long as it is looked at."""
    from tempfile import TemporaryDirectory

    from cascade_sim.errors import UserError
    from cascade_sim.logged.store import is_market, open_store

    if is_market(world):
        yield open_store(world)
        return
    file = world if world.is_file() else world / "scenario.yaml"
    if not file.is_file():
        raise UserError(f"{world} is neither a market nor a scenario or run of a fitted world")
    from cascade_sim.phases.simulation import Simulation
    from cascade_sim.realism.fitted import sampled_store
    from cascade_sim.scenario.file import load_scenario

    scenario = load_scenario(file)
    if scenario.world.logged is None or scenario.world.logged.fitted is None:
        raise UserError(
            f"{world} is not of a world fitted to a log; export its run and import that (export-logs, "
            "import-logs)"
        )
    with TemporaryDirectory() as folder:
        sim = Simulation(scenario, scenario.seed, home=file.parent)
        yield sampled_store(sim, Path(folder) / "world", requests)


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
