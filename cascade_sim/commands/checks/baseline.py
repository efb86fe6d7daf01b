"""`cascade_sim baseline`: what a finished run earned, as a small file to compare later runs with."""

from __future__ import annotations

from pathlib import Path

import click

from cascade_sim.commands.options import arms_option, out_option, run_argument
from cascade_sim.foundation.terminal import echo


@click.command()
@run_argument
@out_option("Write it here.", "FILE", required=True)
@arms_option("May be repeated.  [default: the scenario's]")
def command(run: Path, out: Path, arms: tuple[str, ...]) -> None:
    """Store a run's revenue baseline for `check`.

    The file holds the metrics of each arm and their sums over groups of consecutive requests, so that a later
    run on the same traffic is compared request by request, with common random numbers.
    """
    from cascade_sim.api import baseline

    path = baseline(run, out, arm=arms).path
    echo(f"{path}   ({path.stat().st_size / 1000:.0f} kB)")
