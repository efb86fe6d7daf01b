"""`cascade_sim off-policy`: what another policy would have earned, from a run's randomised logs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cascade_sim.errors import UserError

if TYPE_CHECKING:
    from cascade_sim.scenario.schema import Scenario
    from cascade_sim.scenario.targets import Target

EXIT_CODES = """\b
Exit code  0  done
           1  done, but every estimator that weighs what was logged refused
           2  a mistake in the command, or a run without randomised logs"""


@click.command(epilog=EXIT_CODES)
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "--set", "changes", multiple=True, metavar="KEY=VALUE",
    help="What the other policy changes; may be repeated.  [default: the targets of the scenario]",
)  # fmt: skip
@click.option("--estimator", "names", multiple=True, metavar="NAME", help="May be repeated.  [default: all]")
@click.option("--reward", type=click.Choice(["revenue", "clicks"]), default="revenue", show_default=True)
@click.option("--truth/--no-truth", default=True, help="Whether the simulator's own answer is printed, too.")
def command(run: Path, changes: tuple[str, ...], names: tuple[str, ...], reward: str, truth: bool) -> int:
    """What another policy would have earned, from randomised logs alone.

    Keys: auction.reserve_cpc, auction.squashing (where the knobs were randomised); slates.temperature,
    ranking.model (where pages were). Estimates see logs and the platform's own models; the truth is served by
    the simulator afterwards, on the same requests, and marked as such.
    """
    from cascade_sim.errors import unknown_name
    from cascade_sim.scenario.targets import parse_target

    try:
        asked = [parse_target("the asked policy", changes)] if changes else []
    except UserError as error:
        raise UserError(f"--set {', '.join(changes)}: {error}") from None

    import shutil
    import sys
    import textwrap

    from cascade_sim.analysis.report.sections.off_policy import answer_table, reasons, slopes_table
    from cascade_sim.analysis.report.terminal import table_text
    from cascade_sim.estimation.estimates import ESTIMATORS
    from cascade_sim.estimation.study import (
        add_true_slopes,
        add_truth,
        answers,
        read_logs,
        slope_answers,
        with_references,
    )
    from cascade_sim.questions.reopen import reopen

    for name in names:
        if name not in ESTIMATORS:
            raise UserError(f"--estimator: {unknown_name('estimator', name, ESTIMATORS)}")
    opened = reopen(run)
    scenario = opened.scenario
    check_targets(run, scenario, asked)
    assert scenario.off_policy is not None
    targets = asked or [parse_target(name, words) for name, words in scenario.off_policy.targets.items()]
    arm = opened.arm()
    for target in targets:
        if target.model is not None:
            from cascade_sim.estimation.log import baseline_spec

            spec = baseline_spec(scenario)
            section = spec.ranking.model_copy(update={"model": target.model})
            opened.load_models(spec.model_copy(update={"ranking": section}))
    logs = read_logs(opened.sim, run)
    listed = asked or with_references(targets, logs)
    found = answers(opened.sim, arm, logs, listed, names)
    has_knobs = logs.knobs is not None and any(not target.is_slate for target in listed)
    slopes = slope_answers(opened.sim, arm, logs.knobs) if has_knobs and logs.knobs else {}
    if truth:  # only now: nothing above has seen it
        add_truth(found, opened.sim, arm, logs, listed)
        if slopes and logs.knobs:
            add_true_slopes(slopes, opened.sim, arm, logs.knobs)
    width = max(shutil.get_terminal_size((120, 24)).columns, 110)
    for name, one in found.items():
        click.echo(table_text(answer_table(name, one, reward), color=sys.stdout.isatty(), width=width))
        for line in reasons(one, reward):
            click.echo(textwrap.fill(line, width, subsequent_indent="  "))
        click.echo()
    table = slopes_table({"slopes": slopes})
    if table is not None:
        click.echo(table_text(table, color=sys.stdout.isatty(), width=width))
    verdicts = [
        row["verdict"]
        for one in found.values()
        for name, row in one["rewards"][reward]["estimators"].items()
        if name != "direct_method"
    ]
    return 1 if verdicts and all(verdict == "refuse" for verdict in verdicts) else 0


def check_targets(run: Path, scenario: Scenario, asked: list[Target]) -> None:
    """UserError where the run's logs cannot answer, naming the key to set."""
    from cascade_sim.estimation.log import baseline_spec
    from cascade_sim.scenario.questions import target_fault

    if scenario.off_policy is None:
        raise UserError(
            f"{run}: nothing was randomised in this run, so its logs cannot say what another policy "
            "would do; add off_policy: {randomise: {reserve_cpc: 0.3}} to the scenario and run it again"
        )
    for target in asked:
        fault = target_fault(target, scenario.off_policy, baseline_spec(scenario), scenario)
        if fault:
            raise UserError(f"--set {target.words}: {fault}")
    if not asked and not scenario.off_policy.targets:
        raise UserError(
            f"{run}: the scenario has no off_policy.targets; say what to change with --set KEY=VALUE"
        )
