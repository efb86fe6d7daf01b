"""`cascade_sim export-logs`: a finished run's auctions as the log tables that import-logs reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cascade_sim.commands.options import accept_option, arm_option, quiet_option, run_argument, trust_option
from cascade_sim.foundation.terminal import echo

EXIT_CODES = """\b
Exit code  0  done
           2  a mistake in the command, or no such run or arm, or the run is not what it was"""


@click.command(epilog=EXIT_CODES)
@run_argument
@click.option(
    "--out", type=click.Path(path_type=Path), required=True, metavar="FOLDER",
    help="The folder to make. One that is there is not written over.",
)  # fmt: skip
@arm_option("Arm whose auctions are written.  [default: the baseline]")
@click.option(
    "--phase", type=click.Choice(("evaluate", "slates")), default="evaluate", show_default=True,
    help="slates: the randomised pages of off_policy.slates, with their propensities.",
)  # fmt: skip
@trust_option
@quiet_option
@accept_option
def command(run: Path, out: Path, arm: str | None, phase: str, trust: Any, quiet: bool) -> int:
    """Write a run's auctions as log tables, with the mapping that imports them.

    The evaluation is served again and compared with the run's own log. `import-logs FOLDER/mapping.yaml`
    makes a log store of it whose replay is exact.
    """
    from cascade_sim.api import export_logs

    echo(export_logs(run, out, arm=arm, phase=phase, trust=trust, quiet=quiet))
    return 0
