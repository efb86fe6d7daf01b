"""`cascade_sim run`: a whole study from a scenario."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cascade_sim.commands.options import (
    accept_option,
    device_option,
    engine_options,
    out_option,
    quiet_option,
    resume_option,
    says_how_to_go_on,
    scenario_argument,
    seed_option,
    seeds_option,
    set_option,
    workers_option,
)


@click.command()
@scenario_argument
@set_option()
@seed_option
@seeds_option("Repeat the study over N seeds and report the spread between them.", default=1)
@out_option("Run folder.  [default: runs/<name>]")
@workers_option("Threads for one world, processes for several.")
@device_option()
@engine_options
@resume_option
@click.option(
    "--overwrite", is_flag=True, help="Remove answers (whatif/) that were asked of another run in the folder."
)
@quiet_option
@accept_option
def command(
    scenario: Path,
    overrides: tuple[str, ...],
    seed: int | None,
    seeds: int,
    out: Path | None,
    resume: bool,
    overwrite: bool,
    **means: Any,
) -> None:
    """Run a study: simulate, train, compare the arms, write the report."""
    from cascade_sim.scenario.file import load_scenario
    from cascade_sim.storage.folder import default_folder

    # The scenario first: a mistake in it is answered before anything slow is imported.
    loaded = load_scenario(scenario, overrides, seed)

    with says_how_to_go_on("--resume"):
        from cascade_sim.context import run_context
        from cascade_sim.study.run import run_study

        context = run_context(out or default_folder(loaded.name), [loaded], **means)
        run_study(loaded, context, seeds=seeds, resume=resume, overwrite=overwrite)
