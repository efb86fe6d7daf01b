"""`cascade_sim fit-world`: a world fitted to an imported market."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cascade_sim.commands.options import PATH, out_option, quiet_option

if TYPE_CHECKING:
    from cascade_sim.realism.parametric import Fit


@click.command("fit-world")
@click.argument("market", type=PATH)
@click.option(
    "--parametric", is_flag=True,
    help="Fit the parameters of a drawn world to the log's moments: shareable, no row of the log is in it.",
)  # fmt: skip
@click.option(
    "--share", type=click.FloatRange(0, 1, min_open=True), default=1.0, show_default=True,
    help="Fit to the first requests of the log alone, so much of them: the rest can judge the world.",
)  # fmt: skip
@click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True, help="Of the world.")
@out_option("The scenario to write.", "FILE", required=True)
@quiet_option
def command(market: Path, parametric: bool, share: float, seed: int, out: Path, quiet: bool) -> None:
    """Fit a world to MARKET, and write the scenario in which it can be run.

    The world's requests, candidates and bids are the log's, whole requests drawn in blocks of time; clicks
    come from a response that is fitted to the log. With --parametric the world is drawn, as all others are.
    """
    from cascade_sim.errors import UserError
    from cascade_sim.logged.store import open_store

    if out.suffix not in (".yaml", ".yml"):
        raise UserError(f"--out: {out} should end in .yaml")
    if out.exists():
        raise UserError(f"--out: {out} exists already; name another file, or remove it")
    store = open_store(market)
    if parametric:
        _parametric(store, seed, out)
    else:
        _empirical(market, store, share, seed, out, quiet)


def _parametric(store: Any, seed: int, out: Path) -> None:
    from cascade_sim.commands.options import echo_table, write_files
    from cascade_sim.progress import terminal_width
    from cascade_sim.realism.parametric import fit_parametric, fit_table, fit_words, fitted_yaml

    fit: Fit = fit_parametric(store, seed, out.stem)
    echo_table(fit_table(fit), terminal_width(least=80) + 20)
    click.echo("\n".join(fit_words(fit)))
    write_files({out: fitted_yaml(fit, store.about.name).encode()})


def _empirical(market: Path, store: Any, share: float, seed: int, out: Path, quiet: bool) -> None:
    from cascade_sim.progress import Progress
    from cascade_sim.realism.fitted import checks_text, fit_world

    with Progress(quiet) as progress:
        checks = fit_world(market, store, out, share=share, seed=seed, progress=progress)
    click.echo(checks_text(checks))
    click.echo(out)
