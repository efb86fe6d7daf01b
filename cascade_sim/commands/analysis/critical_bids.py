"""`cascade_sim critical-bids`: what each impression of a finished run would have had to bid."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cascade_sim.commands.options import (
    accept_option,
    arms_option,
    echo_table,
    out_option,
    quiet_option,
    run_argument,
    trust_option,
    write_files,
)
from cascade_sim.foundation.terminal import echo

if TYPE_CHECKING:
    from cascade_sim.counterfactual.critical_bids import CriticalBids
    from cascade_sim.environments.names import Names

EXIT_CODES = """\b
Exit code  0  done
           1  done, but the run logged other pages: something has changed since
           2  a mistake in the command, or no such run or arm"""
CSV_COLUMNS = (
    *("arm", "request", "slot", "ad", "init_bid", "local", "cascade", "gap"),
    *("auction_bid", "cpc"),
)


@click.command(epilog=EXIT_CODES)
@run_argument
@arms_option("May be repeated.  [default: every arm]")
@click.option(
    "--impressions", type=click.IntRange(1), default=2000, show_default=True, metavar="N",
    help="About N per arm: all those of the first requests of the evaluation.",
)  # fmt: skip
@out_option("Write every impression here.", "CSV")
@trust_option
@quiet_option
@accept_option
def command(
    run: Path, arms: tuple[str, ...], impressions: int, out: Path | None, trust: bool, quiet: bool
) -> int:
    """Minimum bids that keep each slot, in the auction and through the cascade.

    For each impression: the minimum init-bid that keeps the slot among the ads that reached the auction, the
    minimum that keeps it through the whole cascade, and the gap between the two.
    """
    import textwrap

    from cascade_sim.analysis.report.sections.critical_bids import critical_words, narrow_tables
    from cascade_sim.counterfactual.critical_bids import critical_bids_by_arm, section
    from cascade_sim.diagnostics.reopen import reopen
    from cascade_sim.foundation.progress import Progress, terminal_width
    from cascade_sim.scenario.schema import resolved_arms

    opened = reopen(run, trust)
    served = {name: opened.arm(name) for name in arms or resolved_arms(opened.scenario)}
    total = opened.scenario.phases.evaluate
    n = min(total, -(-impressions // max(arm.slots for arm in served.values())))
    with Progress(quiet) as progress:
        by_arm = critical_bids_by_arm(opened.sim, served, n, progress)
    metrics = {
        "baseline": opened.scenario.report.baseline,
        "arms": {name: {} for name in served},
        "critical_bids": section(opened.sim, served, by_arm, n),
    }
    width = terminal_width()
    for table in narrow_tables(metrics):
        echo_table(table, width)
    shown = sum(len(bids) for bids in by_arm.values())
    echo(f"{shown:,} impressions of the first {n:,} of {total:,} requests, 95 % intervals")
    echo(textwrap.fill(critical_words(metrics), max(width, 40)))
    if out is not None:
        write_files({out: csv_text(by_arm, opened.sim.environment.names).encode()})
    return _compare_with_log(run, by_arm, n)


def csv_text(by_arm: Mapping[str, CriticalBids], names: Names) -> str:
    """A line per impression; money in units, exact to the micro-unit where it is counted in those."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for arm, bids in by_arm.items():
        for i in range(len(bids)):
            money = (bids.local_micros[i], bids.cascade_micros[i], bids.gap_micros[i])
            cells = [
                arm,
                names.request_name(int(bids.request[i])),
                str(bids.slot[i] + 1),
                names.name("ads", int(bids.ad[i])),
                repr(float(bids.init_bid[i])),
            ]
            cells += [_units(int(amount)) for amount in money]
            cells += [repr(float(bids.init_bid[i] * bids.factor[i])), _units(int(bids.cpc_micros[i]))]
            writer.writerow(cells)
    return stream.getvalue()


def _units(micros: int) -> str:
    return f"{micros // 1_000_000}.{micros % 1_000_000:06d}"


def _compare_with_log(run: Path, by_arm: Mapping[str, CriticalBids], n_requests: int) -> int:
    """1 and a warning where the run logged other pages than were served here."""
    from cascade_sim.diagnostics.reopen import logged

    code = 0
    for arm, bids in by_arm.items():
        rows = logged(run, arm, n_requests, ("request", "slot", "ad", "cpc_micros"))
        if rows is None:
            continue
        if any(rows[name].tolist() != getattr(bids, name).tolist() for name in rows):
            echo(f"warning: {run} logged other pages for arm {arm}: something has changed since", err=True)
            code = 1
    return code
