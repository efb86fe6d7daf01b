"""`cascade_sim coverage`: how often off-policy intervals cover the truth, over many logs of one world."""

from __future__ import annotations

from pathlib import Path

import click

from cascade_sim.errors import UserError

MOST_REQUESTS = 65_536
PLOT_KINDS = (".png", ".svg")
EXIT_CODES = """\b
Exit code  0  estimators that weigh what was logged cover as often as they say, where they answer
           1  one of them covers less often
           2  a mistake in the command or the scenario"""


@click.command(epilog=EXIT_CODES)
@click.argument("scenario", type=click.Path(path_type=Path))
@click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key of the scenario."
)
@click.option("--seed", type=click.IntRange(min=0), help="Seed, in place of the scenario's.")
@click.option("--replications", type=click.IntRange(20, 1_000_000), default=1000, show_default=True)
@click.option(
    "--requests", type=click.IntRange(20, MOST_REQUESTS), default=1000, show_default=True,
    help="Requests of each replication's log.",
)  # fmt: skip
@click.option("--reward", type=click.Choice(["revenue", "clicks"]), default="revenue", show_default=True)
@click.option("--target", "names", multiple=True, metavar="NAME", help="May be repeated.  [default: all]")
@click.option("--out", type=click.Path(path_type=Path), metavar="CSV", help="Write the table here as well.")
@click.option("--plot", type=click.Path(path_type=Path), metavar="FILE", help="Draw it: a .png or .svg file.")
@click.option("--quiet", is_flag=True, help="No progress bars.")
def command(
    scenario: Path,
    overrides: tuple[str, ...],
    seed: int | None,
    replications: int,
    requests: int,
    reward: str,
    names: tuple[str, ...],
    out: Path | None,
    plot: Path | None,
    quiet: bool,
) -> int:
    """Do off-policy intervals cover the truth? One long randomised log, cut into many.

    The scenario's models are trained first (or taken from the cache). Then every estimator answers for every
    target of the section off_policy from each replication alone, and is held against what the simulator says
    the target earns. False alarms: how often two logs of one policy seem to differ.
    """
    from cascade_sim.errors import unknown_name
    from cascade_sim.scenario.file import load_scenario
    from cascade_sim.scenario.targets import AS_LOGGED, Target, parse_target

    if plot is not None and plot.suffix.lower() not in PLOT_KINDS:
        raise UserError(f"--plot: {plot} should end in .png or .svg")
    loaded = load_scenario(scenario, overrides, seed)
    section = loaded.off_policy
    if section is None:
        raise UserError(
            f"{scenario}: nothing is randomised; add off_policy: {{randomise: {{reserve_cpc: 0.3}}}}"
        )
    targets = [parse_target(name, changes) for name, changes in section.targets.items()]
    if section.slates is not None:
        targets.insert(0, Target(f"pages {AS_LOGGED}", is_pages=True))
    if section.randomise is not None:
        targets.insert(0, Target(AS_LOGGED))
    known = [target.name for target in targets]
    for name in names:
        if name not in known:
            raise UserError(f"--target: {unknown_name('target', name, known)}")
    targets = [target for target in targets if not names or target.name in names]

    import shutil
    import textwrap

    from cascade_sim.analysis.report.sections.coverage import coverage_csv, coverage_tables, coverage_words
    from cascade_sim.analysis.report.terminal import table_text
    from cascade_sim.estimation.coverage import coverage_study, trained
    from cascade_sim.progress import Progress
    from cascade_sim.storage.files import storage_errors, write_file

    with Progress(quiet) as progress:
        sim, arm = trained(loaded, progress)
        logs = len({target.is_slate for target in targets})
        with progress.stage("coverage", replications * requests * logs) as bar:
            found = coverage_study(sim, arm, targets, replications, requests, reward, bar.advance)
    for table in coverage_tables(found.rows, found.ess_share, reward):
        click.echo(table_text(table, width=120))
    words = coverage_words(found.rows, requests)
    for line in words.lines:
        click.echo(textwrap.fill(line, max(shutil.get_terminal_size((100, 24)).columns, 40)))
    files: list[tuple[Path, bytes]] = []
    if out is not None:
        files.append((out, coverage_csv(found.rows, found.ess_share, reward, requests).encode()))
    if plot is not None:
        from cascade_sim.analysis.report.figures.coverage import coverage_image

        files.append((plot, coverage_image(found.rows, plot.suffix.lower()[1:])))
    for path, content in files:
        with storage_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, content)
        click.echo(path)
    return 0 if words.is_good else 1
