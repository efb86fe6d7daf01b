"""`cascade_sim coverage`: how often off-policy intervals cover the truth, over many logs of one world."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cascade_sim.commands.options import (
    accept_option,
    out_option,
    plot_option,
    quiet_option,
    reward_option,
    scenario_argument,
    seed_option,
    set_option,
    write_files,
)
from cascade_sim.foundation.errors import UserError
from cascade_sim.foundation.terminal import echo

if TYPE_CHECKING:
    from cascade_sim.ope.coverage import CoverageTable
    from cascade_sim.scenario.schema import Scenario
    from cascade_sim.scenario.targets import Target

MAX_REQUESTS = 65_536
EXIT_CODES = """\b
Exit code  0  estimators that weigh what was logged cover as often as they say, where they answer
           1  one of them covers less often
           2  a mistake in the command or the scenario"""


@click.command(epilog=EXIT_CODES)
@scenario_argument
@set_option(" of the scenario")
@seed_option
@click.option("--replications", type=click.IntRange(20, 1_000_000), default=1000, show_default=True)
@click.option(
    "--requests", type=click.IntRange(20, MAX_REQUESTS), default=1000, show_default=True,
    help="Requests of each replication's log.",
)  # fmt: skip
@reward_option
@click.option("--target", "names", multiple=True, metavar="NAME", help="May be repeated.  [default: all]")
@out_option("Write the table here as well.", "CSV")
@plot_option
@quiet_option
@accept_option
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
    """Measure the coverage of off-policy intervals over replicated logs.

    One long randomised log is cut into replications. The scenario's models are trained first (or taken from
    the cache). Then every estimator answers for every
    target of the section off_policy from each replication alone, and is compared with what the simulator says
    the target earns. False positives: how often two logs of one policy differ significantly.
    """
    from cascade_sim.scenario.file import load_scenario

    loaded = load_scenario(scenario, overrides, seed)
    targets = named_targets(loaded, scenario, names)

    from cascade_sim.analysis.report.sections.coverage import coverage_csv
    from cascade_sim.foundation.progress import Progress
    from cascade_sim.ope.coverage import coverage_study, trained

    with Progress(quiet) as progress:
        sim, arm = trained(loaded, progress)
        logs = len({target.is_slate for target in targets})
        with progress.stage("coverage", replications * requests * logs) as bar:
            covered = coverage_study(sim, arm, targets, replications, requests, reward, bar.advance)
    is_good = echo_coverage(covered, reward, requests)
    files: dict[Path, bytes] = {}
    if out is not None:
        files[out] = coverage_csv(covered.rows, covered.ess_share, reward, requests).encode()
    if plot is not None:
        from cascade_sim.analysis.report.figures.coverage import coverage_image

        files[plot] = coverage_image(covered.rows, plot.suffix.lower()[1:])
    write_files(files)
    return 0 if is_good else 1


def named_targets(scenario: Scenario, file: Path, names: Sequence[str]) -> list[Target]:
    """The targets of the scenario, or those named; first the policies that wrote the logs."""
    from cascade_sim.foundation.errors import unknown_name
    from cascade_sim.scenario.targets import AS_LOGGED, Target, logged_parameters, parse_target

    section = scenario.off_policy
    if section is None:
        raise UserError(f"{file}: nothing is randomised; add off_policy: {{randomise: {{reserve_cpc: 0.3}}}}")
    targets = [parse_target(name, changes, section.estimand) for name, changes in section.targets.items()]
    if section.slates is not None:
        targets.insert(0, Target(f"pages {AS_LOGGED}", is_pages=True))
    if section.randomise is not None:
        targets.insert(0, logged_parameters(section.estimand))
    known = [target.name for target in targets]
    for name in names:
        if name not in known:
            raise UserError(f"--target: {unknown_name('target', name, known)}")
    return [target for target in targets if not names or target.name in names]


def echo_coverage(covered: CoverageTable, reward: str, requests: int) -> bool:
    """Tables and their reading; whether intervals cover as often as they say."""
    import textwrap

    from cascade_sim.analysis.report.sections.coverage import coverage_tables, coverage_words
    from cascade_sim.analysis.report.terminal import table_text
    from cascade_sim.foundation.progress import terminal_width

    for table in coverage_tables(covered.rows, covered.ess_share, reward):
        echo(table_text(table, width=120))
    words = coverage_words(covered.rows, requests)
    for line in words.lines:
        echo(textwrap.fill(line, terminal_width(least=40)))
    return bool(words.is_good)
