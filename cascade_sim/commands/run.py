"""`cascade_sim run`: a whole study from a scenario."""

from __future__ import annotations

import os
from pathlib import Path

import click

from cascade_sim.commands.going_on import says_how_to_go_on


def usable_cores() -> int:
    """Cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@click.command()
@click.argument("scenario", type=click.Path(path_type=Path))
@click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key; may be repeated."
)
@click.option("--seed", type=click.IntRange(min=0), help="Seed, in place of the scenario's.")
@click.option(
    "--seeds",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Repeat the study over so many worlds and report the spread between them.",
)
@click.option("--out", type=click.Path(path_type=Path), help="Run folder.  [default: runs/<name>]")
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    help="Threads for one world, processes for several.  [default: the usable cores]",
)
@click.option(
    "--device",
    type=click.Choice(["auto", "cpu", "cuda", "mps"]),
    default="auto",
    show_default=True,
    help="Where models are trained.",
)
@click.option("--resume", is_flag=True, help="Go on with the run that was stopped in the run folder.")
@click.option("--quiet", is_flag=True, help="No progress bars.")
def command(
    scenario: Path,
    overrides: tuple[str, ...],
    seed: int | None,
    seeds: int,
    out: Path | None,
    workers: int | None,
    device: str,
    resume: bool,
    quiet: bool,
) -> None:
    """Run a study: simulate, train, compare the arms, write the report."""
    from cascade_sim.scenario.file import load_scenario

    # The scenario first: a mistake in it is answered before anything slow is imported.
    loaded = load_scenario(scenario, overrides, seed)

    with says_how_to_go_on("--resume"):
        from cascade_sim.study import run_study

        run_study(
            loaded,
            out=out or Path("runs") / loaded.name,
            seeds=seeds,
            workers=workers or usable_cores(),
            device=device,
            quiet=quiet,
            resume=resume,
        )
