"""`cascade_sim off-policy`: off-policy estimates of other policies from a run's randomised logs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cascade_sim.commands.options import (
    accept_option,
    echo_table,
    quiet_option,
    run_argument,
    trust_option,
)
from cascade_sim.foundation.terminal import echo

if TYPE_CHECKING:
    from cascade_sim.api import OffPolicyResult

EXIT_CODES = """\b
Exit code  0  done
           1  done, but no estimator that weighs what was logged gives an estimate
           2  a mistake in the command, or a run without randomised logs"""


@click.command(epilog=EXIT_CODES)
@run_argument
@click.option(
    "--set", "changes", multiple=True, metavar="KEY=VALUE",
    help="What the other policy changes; may be repeated.  [default: the targets of the scenario]",
)  # fmt: skip
@click.option(
    "--estimand", type=click.Choice(["launch", "jittered"]), default=None,
    help="launch: the parameters fixed at their values. jittered: the log's own noise around the value.  "
    "[default: that of the scenario, else launch]",
)  # fmt: skip
@click.option("--estimator", multiple=True, metavar="NAME", help="May be repeated.  [default: all]")
@click.option(
    "--reward", type=click.Choice(["revenue", "clicks"]), default=None,
    help="[default: revenue; of a log without prices clicks]",
)  # fmt: skip
@click.option("--truth/--no-truth", default=True, help="Whether the simulator's own answer is printed, too.")
@trust_option
@quiet_option
@accept_option
def command(run: Path, changes: tuple[str, ...], **options: Any) -> int:
    """Off-policy estimates of other policies from randomised logs.

    Keys: auction.reserve_cpc, auction.squashing (where the parameters were randomised); slates.temperature,
    ranking.model (where pages were). Parameters are asked about as a launch: fixed at their values, the lift
    being over the current values, fixed as well, as in whatif. Estimates see logs and the platform's own
    models; the truth is served by the simulator afterwards, on the same requests, and marked as such.

    Of a log of shown ads alone the keys are slates.temperature=T (the ad of a slot drawn from all ads of the
    log by predicted click rate^(1/T)) and ranking.model=constant (drawn evenly).
    """
    from cascade_sim.api import off_policy

    result = off_policy(run, changes, **options)
    echo_answers(result)
    return 1 if result.is_refused else 0


def echo_answers(result: OffPolicyResult) -> None:
    """The answer in a line, a table per target with the reasons of refusals beneath, then that of slopes."""
    import textwrap

    from cascade_sim.analysis.report.log_verdict import log_answers, log_verdict
    from cascade_sim.analysis.report.sections.off_policy import answer_table, question, reasons, slopes_table
    from cascade_sim.foundation.progress import terminal_width

    width = terminal_width(least=110, default=120)
    lead = log_verdict(log_answers(result.answers, result.reward), result.reward).headline
    if lead:
        echo(textwrap.fill(lead, width) + "\n")
    for name, answer in result.answers.items():
        echo(textwrap.fill(question(answer), width))
        echo_table(answer_table(name, answer, result.reward), width)
        for line in reasons(answer, result.reward):
            echo(textwrap.fill(line, width, subsequent_indent="  "))
        echo()
    slopes = slopes_table({"slopes": result.slopes})
    if slopes is not None:
        echo_table(slopes, width)
