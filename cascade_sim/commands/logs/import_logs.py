"""`cascade_sim import-logs`: your auction logs into a log store, which every command opens like a run."""

from __future__ import annotations

from pathlib import Path

import click

from cascade_sim.commands.options import quiet_option
from cascade_sim.foundation.terminal import echo

EXIT_CODES = """\b
Exit code  0  done
           2  a mistake in the command or the mapping, or a log that is refused: nothing is written"""


@click.command(epilog=EXIT_CODES)
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="MAPPING")
@click.option(
    "--out", type=click.Path(path_type=Path), required=True, metavar="LOG",
    help="The folder to make. One that is there is not written over.",
)  # fmt: skip
@click.option(
    "--format", "form", metavar="NAME",
    help="Files in a known format, in place of a mapping: auction-net, open-bandit, open-rtb, rec-flow.",
)  # fmt: skip
@quiet_option
def command(files: tuple[Path, ...], out: Path, form: str | None, quiet: bool) -> int:
    """Import auction logs for replay; every command opens them like a run.

    MAPPING is a YAML file that says which of your tables and columns is what, and in which units
    (docs/how_to/import_logs.md). Every row is checked; what is wrong is counted by kind, with file, row and
    column, and refused above the share that the mapping allows (default 0). Then the log completeness is
    printed: what the log can answer, and what it cannot.
    """
    from cascade_sim.api import import_logs

    echo(import_logs(files, out, format=form, quiet=quiet))
    return 0
