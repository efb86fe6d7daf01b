"""`cascade_sim check-auctions`: the engine's auction against the plain-Python one, on random auctions."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from cascade_sim.commands.options import quiet_option, workers_option
from cascade_sim.foundation.terminal import echo

if TYPE_CHECKING:
    from cascade_sim.checks.auctions import Comparison, Difference

EXIT_CODES = """\b
Exit code  0  no auction differs
           1  some differ; the first are printed in full
           2  a mistake in the command, or a pricing rule that the reference lacks"""


@click.command(epilog=EXIT_CODES)
@click.option("--auctions", type=click.IntRange(1), default=1_000_000, show_default=True, metavar="N")
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, metavar="N")
@workers_option("Processes; the result does not depend on it.")
@quiet_option
def command(auctions: int, seed: int, workers: int, quiet: bool) -> int:
    """Compare the auction with its plain-Python reference on random auctions.

    All pricing rules, squashing, both reserves, slot effects, ties, zeros, empty slots, tiny and huge
    values. Winners and charges in micro-units must be identical, prices equal to 12 digits.
    """
    from cascade_sim.checks.auctions import check_auctions
    from cascade_sim.foundation.progress import Progress

    started = time.perf_counter()
    with Progress(quiet) as progress:
        comparison = check_auctions(auctions, seed, workers, progress)
    for difference in comparison.first:
        echo(difference_text(difference))
    if comparison.different > len(comparison.first):
        echo(f"… and {comparison.different - len(comparison.first):,} more\n")
    echo(comparison_text(comparison, time.perf_counter() - started))
    return 1 if comparison.different else 0


def comparison_text(comparison: Comparison, seconds: float) -> str:
    """What was seen, how often, which rules were not, and the verdict on it."""
    from cascade_sim.auction.pricing import PRICINGS
    from cascade_sim.checks.auctions import BLOCK

    seen = ", ".join(f"{name} {n:,}" for name, n in comparison.seen.items() if n)
    unseen = ", ".join(name for name in PRICINGS if not comparison.seen[name])
    more = f"not among them: {unseen}; a rule is drawn for {BLOCK} auctions at a time, so ask for more\n"
    return (
        f"among them: {seen}\n"
        f"{more if unseen else ''}"
        f"{comparison.by_last_bit:,} of {comparison.charges:,} charges a micro-unit apart, "
        "where the exact price is half a micro-unit but for the last bits of a double\n"
        f"{comparison.auctions:,} auctions ({comparison.bids:,} bids), "
        f"{comparison.different:,} differences, {seconds:.0f} s"
    )


def difference_text(difference: Difference) -> str:
    """An auction and both answers, in numbers that can be put back in."""
    lines = [f"auction {difference.number} differs", "  rules"]
    lines += [f"    {name:<14} {value!r}" for name, value in difference.rules.items()]
    lines += ["  candidates", f"    bid            {difference.bid}", f"    pctr           {difference.pctr}"]
    lines.append(f"    ids            {'the columns' if difference.ids is None else difference.ids}")
    for name, answer in (("engine", difference.engine), ("reference", difference.reference)):
        lines.append(f"  {name}")
        lines.append(f"    winners        {answer.winners}")
        lines.append(f"    cpc            {answer.cpc}")
        lines.append(f"    charges_micros {answer.charges_micros}")
    return "\n".join(lines) + "\n"
