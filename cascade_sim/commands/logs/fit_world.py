"""`cascade_sim fit-world`: a world fitted to an imported log."""

from __future__ import annotations

from pathlib import Path

import click

from cascade_sim.commands.options import PATH, accept_option, out_option, quiet_option
from cascade_sim.foundation.terminal import echo


@click.command("fit-world")
@click.argument("log", type=PATH)
@click.option(
    "--parametric", is_flag=True,
    help="Fit the parameters of a synthetic world to summary statistics of the log: shareable, no row of "
         "the log is in it.",
)  # fmt: skip
@click.option(
    "--fit-share", "share", type=click.FloatRange(0, 1, min_open=True), default=1.0, show_default=True,
    help="Fit to this leading fraction of the log's requests only; the rest can test the world.",
)  # fmt: skip
@click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True, help="Of the world.")
@click.option(
    "--replicates", type=int, show_default="20",
    help="Fits to logs drawn from the log, from which the fit's uncertainty is estimated; 0 for none.",
)  # fmt: skip
@out_option("The scenario to write.", "FILE", required=True)
@quiet_option
@accept_option
def command(
    log: Path, parametric: bool, share: float, seed: int, replicates: int | None, out: Path, quiet: bool
) -> None:
    """Fit a simulated world to an imported log.

    The world's requests, candidates and bids are the log's, whole requests drawn in blocks of time; clicks
    come from a fitted click model. With --parametric the world is synthetic. Writes the scenario that runs
    it.
    """
    import sys

    from cascade_sim.api import fit_world
    from cascade_sim.foundation.progress import terminal_width

    done = fit_world(
        log, out, parametric=parametric, share=share, seed=seed, replicates=replicates, quiet=quiet
    )
    echo(done.fitted.text(terminal_width(least=80) + 20, sys.stdout.isatty()))
    echo(done.path)
