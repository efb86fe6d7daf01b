"""`cascade_sim check-power`: measure how small a change of revenue a check finds, and how often it errs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cascade_sim.commands.options import (
    accept_option,
    device_option,
    quiet_option,
    scenario_argument,
    set_option,
)
from cascade_sim.foundation.terminal import echo

if TYPE_CHECKING:
    from cascade_sim.regression.power import NominalRate, Rate

EXIT_CODES = """\b
Exit code  0  both rates are the nominal ones, within the error of these replications
           1  fewer found than 95 %, or more false positives than 5 %: outside the band of chance
           2  a mistake in the command or the scenario"""


@click.command(epilog=EXIT_CODES)
@scenario_argument
@click.option(
    "--effect-size",
    "change",
    default="0.5%",
    show_default=True,
    metavar="SHARE",
    help="Injected revenue loss.",
)
@click.option(
    "--replications",
    "runs",
    type=click.IntRange(10, 100_000),
    default=200,
    show_default=True,
    help="Number of traffic samples.",
)
@click.option(
    "--requests", type=click.IntRange(64, 1_000_000), metavar="N",
    help="Requests per sample.  [default: 4096, or the scenario's phases.evaluate if that is longer]",
)  # fmt: skip
@set_option(" of the scenario")
@device_option()
@quiet_option
@accept_option
def command(
    scenario: Path,
    change: str,
    runs: int,
    requests: int | None,
    overrides: tuple[str, ...],
    device: str,
    quiet: bool,
) -> int:
    """Measure the power and false-positive rate of `check`.

    The baseline arm serves many traffic samples; on each, what was earned is compared with the same
    under an injected change. Changes that move nothing on average give the false positives. A rate counts
    against the check only outside the band in which chance leaves one that is as promised; more runs,
    narrower bands.
    """
    from cascade_sim.foundation.errors import UserError
    from cascade_sim.regression.check import parse_share
    from cascade_sim.scenario.file import load_scenario

    size = parse_share(change, "--effect-size")
    if not 0 < size <= 0.5:
        raise UserError(f"--effect-size: {change} is not above 0 and at most 50%")
    loaded = load_scenario(scenario, overrides)

    from cascade_sim.context import scratch_context
    from cascade_sim.foundation.progress import Progress
    from cascade_sim.regression.power import measure_power, nominal_rates, runs_needed

    n = requests or max(4096, loaded.phases.evaluate)
    with scratch_context(device=device, progress=Progress(quiet)) as context:
        rates = measure_power(loaded, context, change=size, runs=runs, requests=n)
    echo(
        f"{scenario}, arm {loaded.report.baseline}: {runs} traffic samples of {n:,} requests, "
        f"revenue lowered by {change}\n"
    )
    echo(rates_text(rates))
    both = nominal_rates(rates)
    for promise in both:
        echo(verdict_text(promise, change))
    hint = runs_hint(runs, both, runs_needed(rates))
    if hint:
        echo(hint)
    return 0 if all(promise.is_met for promise in both) else 1


def rates_text(rates: Sequence[Rate]) -> str:
    """A line per planted change: how often the check failed, with its 95 % band."""
    lines = []
    for is_change, title in ((False, "moves nothing on average"), (True, "lowers revenue")):
        lines.append(f"{title:<52}{'alarms':>12}{'rate':>9}   95 % band")
        for rate in rates:
            if rate.is_change != is_change:
                continue
            low, high = rate.band
            note = "" if rate.is_counted else "   (not counted: what traffic hides)"
            lines.append(
                f"  {rate.name:<50}{f'{rate.alarms} of {rate.runs}':>12}{rate.share:>8.1%}   "
                f"[{low:.1%}, {high:.1%}]{note}"
            )
        lines.append("")
    return "\n".join(lines)


def verdict_text(promise: NominalRate, change: str) -> str:
    """A line: the rate that speaks most against the promise, and whether it lies in the band of chance."""
    rate, (low, high) = promise.worst, promise.band
    title = f"power for {change}" if promise.is_change else "false positives"
    wanted = f"{'at least' if promise.is_change else 'at most'} {promise.nominal:.0%} promised"
    return (
        f"{title}: {'as promised' if promise.is_met else 'NOT as promised'}: {rate.alarms} of {rate.runs}, "
        f"{rate.share:.1%} ({rate.name}), is {'inside' if promise.is_met else 'outside'} the band "
        f"[{low:.1%}, {high:.1%}] of {rate.runs} runs; {wanted}"
    )


def runs_hint(runs: int, both: Sequence[NominalRate], needed: int) -> str:
    """Where a promise may be kept only because its band is wide: how many runs make it useful; else empty."""
    from cascade_sim.regression.power import USEFUL

    if runs >= needed or not any(promise.is_met for promise in both):
        return ""
    power, false = (promise.band for promise in both)
    return (
        f"{runs} runs leave wide bands: a power of {power[0]:.0%}, or {false[1]:.0%} of false positives, "
        "would "
        f"count as promised. With --replications {needed} they end at {1 - USEFUL:.0%} and {USEFUL:.0%}"
    )
