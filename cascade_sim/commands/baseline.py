"""`cascade_sim baseline`: what a finished run earned, as a small file to hold later runs against."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), required=True, metavar="FILE", help="Write it here.")
@click.option(
    "--arm", "arms", multiple=True, metavar="NAME", help="May be repeated.  [default: the scenario's]"
)
def command(run: Path, out: Path, arms: tuple[str, ...]) -> None:
    """Keep what a finished run earned, for `check`.

    The file holds the metrics of each arm and their sums over groups of consecutive requests, so that a later
    run on the same traffic is compared request by request, luck apart.
    """
    from cascade_sim.revenue.baseline import measured_run, write_baseline

    write_baseline(measured_run(run), out, arms)
    click.echo(f"{out}   ({out.stat().st_size / 1000:.0f} kB)")
