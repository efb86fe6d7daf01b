"""`cascade_sim check-power`: measure how small a change of revenue a check finds, and how often it errs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cascade_sim.commands.options import device_option, quiet_option, scenario_argument, set_option

if TYPE_CHECKING:
    from cascade_sim.revenue.power import Rate

EXIT_CODES = """\b
Exit code  0  found in at least 95 % of the runs, and at most 5 % false alarms
           1  not so
           2  a mistake in the command or the scenario"""
LEAST_POWER, MOST_FALSE = 0.95, 0.05


@click.command(epilog=EXIT_CODES)
@scenario_argument
@click.option(
    "--change", default="0.5%", show_default=True, metavar="SHARE", help="How much revenue is lowered."
)
@click.option(
    "--runs", type=click.IntRange(10, 100_000), default=200, show_default=True, help="Stretches of traffic."
)
@click.option(
    "--requests", type=click.IntRange(64, 1_000_000), metavar="N",
    help="Length of a stretch.  [default: 4096, or the scenario's phases.evaluate if that is longer]",
)  # fmt: skip
@set_option(" of the scenario")
@device_option()
@quiet_option
def command(
    scenario: Path,
    change: str,
    runs: int,
    requests: int | None,
    overrides: tuple[str, ...],
    device: str,
    quiet: bool,
) -> int:
    """Measure how small a change of revenue `check` finds, and how often it raises a false alarm.

    The baseline arm serves many stretches of traffic; on each, what was earned is compared with the same
    under a planted change. Changes that move nothing on average give the false alarms.
    """
    from cascade_sim.errors import UserError
    from cascade_sim.revenue.check import parse_share
    from cascade_sim.scenario.file import load_scenario

    size = parse_share(change, "--change")
    if not 0 < size <= 0.5:
        raise UserError(f"--change: {change} is not above 0 and at most 50%")
    loaded = load_scenario(scenario, overrides)

    from cascade_sim.revenue.power import measure_power

    n = requests or max(4096, loaded.phases.evaluate)
    rates = measure_power(loaded, change=size, runs=runs, requests=n, device=device, quiet=quiet)
    click.echo(
        f"{scenario}, arm {loaded.report.baseline}: {runs} stretches of {n:,} requests, "
        f"revenue lowered by {change}\n"
    )
    click.echo(rates_text(rates))
    return conclude(rates, change)


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


def conclude(rates: Sequence[Rate], change: str) -> int:
    """Print the weakest power and the most false alarms; 0 if both are as promised."""
    counted = [rate for rate in rates if rate.is_counted]
    weakest = min((rate for rate in counted if rate.is_change), key=lambda rate: rate.share)
    worst = max((rate for rate in counted if not rate.is_change), key=lambda rate: rate.share)
    click.echo(f"power for {change}: at least {weakest.share:.1%} ({weakest.name})")
    click.echo(f"false alarms: at most {worst.share:.1%} ({worst.name})")
    return 0 if weakest.share >= LEAST_POWER and worst.share <= MOST_FALSE else 1
