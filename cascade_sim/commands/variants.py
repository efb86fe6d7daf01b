"""`cascade_sim variants`: the same study under other settings."""

from pathlib import Path

import click

from cascade_sim.commands.going_on import says_how_to_go_on
from cascade_sim.commands.run import usable_cores

TABLES = {
    "RCS, %": ("rcs", False),
    "single-objective RCS, %": ("single_objective_rcs", False),
    "CTR lift, %": ("expected_ctr", True),
    "RPM lift, %": ("expected_rpm", True),
    "proxy-ECE, % of a click": ("proxy_ece", False),
    "CTR of the win set, %": ("expected_ctr", False),
}


@click.command()
@click.argument("variants", type=click.Path(path_type=Path))
@click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key in every variant."
)
@click.option("--seeds", type=click.IntRange(min=1), default=3, show_default=True, help="Worlds per variant.")
@click.option("--out", type=click.Path(path_type=Path), help="Folder.  [default: runs/<file name>]")
@click.option("--workers", type=click.IntRange(min=1), help="Processes.  [default: the usable cores]")
@click.option(
    "--device", type=click.Choice(["auto", "cpu", "cuda", "mps"]), default="auto", show_default=True
)
@click.option("--quiet", is_flag=True, help="No progress bars.")
def command(
    variants: Path,
    overrides: tuple[str, ...],
    seeds: int,
    out: Path | None,
    workers: int | None,
    device: str,
    quiet: bool,
) -> None:
    """Run a study under several settings, side by side.

    Prints, as Markdown, how RCS, lifts and the culprit table change.
    """
    from cascade_sim import sweeps as study

    scenarios = study.load_variants(variants, overrides)
    folder = out or Path("runs") / variants.stem
    with says_how_to_go_on():
        results = study.run_variants(scenarios, folder, seeds, workers or usable_cores(), device, quiet)
    arms = list(dict.fromkeys(arm for scenario in scenarios.values() for arm in scenario.arms))
    for title, (metric, lift) in TABLES.items():
        click.echo(f"\n**{title}** (mean over {seeds} seeds ± half the 95 % interval between them)\n")
        click.echo(study.table(results, arms, metric, lift))
    click.echo("\n**RCS with pre-ranking seats replaced, %**\n")
    click.echo(study.culprit_table(results))
