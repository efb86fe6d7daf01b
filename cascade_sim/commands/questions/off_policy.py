"""`cascade_sim off-policy`: what another policy would have earned, from a run's randomised logs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cascade_sim.commands.options import (
    echo_table,
    quiet_option,
    reward_option,
    run_argument,
    trust_option,
)

if TYPE_CHECKING:
    from cascade_sim.api import OffPolicyResult

EXIT_CODES = """\b
Exit code  0  done
           1  done, but every estimator that weighs what was logged refused
           2  a mistake in the command, or a run without randomised logs"""


@click.command(epilog=EXIT_CODES)
@run_argument
@click.option(
    "--set", "changes", multiple=True, metavar="KEY=VALUE",
    help="What the other policy changes; may be repeated.  [default: the targets of the scenario]",
)  # fmt: skip
@click.option(
    "--jitter", type=click.Choice(["drop", "keep"]), default=None,
    help="drop: a launch, the knobs fixed at their values. keep: the log's own noise around the value.  "
    "[default: as the scenario says, drop if it does not]",
)  # fmt: skip
@click.option("--estimator", multiple=True, metavar="NAME", help="May be repeated.  [default: all]")
@reward_option
@click.option("--truth/--no-truth", default=True, help="Whether the simulator's own answer is printed, too.")
@trust_option
@quiet_option
def command(run: Path, changes: tuple[str, ...], **options: Any) -> int:
    """What another policy would have earned, from randomised logs alone.

    Keys: auction.reserve_cpc, auction.squashing (where the knobs were randomised); slates.temperature,
    ranking.model (where pages were). Knobs are asked about as a launch: fixed at their values, the lift being
    over today's values, fixed as well, as in whatif. Estimates see logs and the platform's own models; the
    truth is served by the simulator afterwards, on the same requests, and marked as such.
    """
    from cascade_sim.api import off_policy

    result = off_policy(run, changes, **options)
    echo_answers(result)
    return 1 if result.is_refused else 0


def echo_answers(result: OffPolicyResult) -> None:
    """The answer in a line, a table per target with the reasons of refusals beneath, then that of slopes."""
    import textwrap

    from cascade_sim.analysis.report.sections.off_policy import answer_table, question, reasons, slopes_table
    from cascade_sim.progress import terminal_width

    width = terminal_width(least=110, usual=120)
    lead = headline(result)
    if lead:
        click.echo(textwrap.fill(lead, width) + "\n")
    for name, answer in result.answers.items():
        click.echo(textwrap.fill(question(answer), width))
        echo_table(answer_table(name, answer, result.reward), width)
        for line in reasons(answer, result.reward):
            click.echo(textwrap.fill(line, width, subsequent_indent="  "))
        click.echo()
    slopes = slopes_table({"slopes": result.slopes})
    if slopes is not None:
        echo_table(slopes, width)


def headline(result: OffPolicyResult) -> str:
    """What the log says of the change asked about, of several the best it vouches for; empty without any."""
    from cascade_sim.analysis.report.sections.asked import logged_lift
    from cascade_sim.analysis.statistics.estimates import percent_text

    asked = {name: answer for name, answer in result.answers.items() if answer["changes"]}
    if not asked:
        return ""
    lifts = {name: logged_lift(answer, result.reward) for name, answer in asked.items()}
    what = f"{result.reward} per request"
    clear = [name for name, lift in lifts.items() if lift.is_above_zero]
    best = max(clear, key=lambda name: lifts[name].value or 0.0, default=None)
    if len(asked) == 1:
        ((name, lift),) = lifts.items()
        change = asked[name]["changes"].replace("=", " = ")
        if lift.value is None:
            return f"From the log alone, {change}: it cannot tell what that does to {what}."
        sure = "" if lift.is_above_zero or lift.is_below_zero else "no clear change, "
        return f"From the log alone, {change}: {sure}{percent_text(lift)} {what}."
    n_refused = sum(lift.value is None for lift in lifts.values())
    refused = f"; {n_refused} of {len(lifts)} questions refused" if n_refused else ""
    if best is None:
        return f"From the log alone, no change asked about clearly brings more {what}{refused}."
    change = asked[best]["changes"].replace("=", " = ")
    return f"From the log alone, {change} brings most: {percent_text(lifts[best])} {what}{refused}."
