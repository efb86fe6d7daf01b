"""`cascade_sim landscape`: what one ad of a finished run would have got at other bids."""

from __future__ import annotations

from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import click

from cascade_sim.api import POINTS, checked_bids
from cascade_sim.commands.options import (
    accept_option,
    arm_option,
    json_option,
    out_option,
    plot_option,
    quiet_option,
    run_argument,
    trust_option,
    write_files,
)
from cascade_sim.foundation.errors import UserError
from cascade_sim.foundation.terminal import echo

if TYPE_CHECKING:
    from cascade_sim.counterfactual.landscape import Landscape

EXIT_CODES = """\b
Exit code  0  done
           1  done, but at its own bid the ad did not get what the run logged: something has changed since
           2  a mistake in the command, or no such run, ad or arm"""


@click.command(epilog=EXIT_CODES)
@run_argument
@click.option("--ad", required=True, metavar="ID")
@arm_option("Arm that serves the requests.  [default: the baseline]")
@click.option("--bids", metavar="B,B,…", help="Init-bids to evaluate.")
@click.option(
    "--points", type=click.IntRange(1, 10_000), metavar="N",
    help=f"N bids from a quarter of the ad's own to four times as much.  [default: {POINTS}]",
)  # fmt: skip
@click.option(
    "--requests", type=click.IntRange(1), metavar="N", help="Use only the first N requests.  [default: all]"
)
@out_option("Write the table here as well.", "CSV")
@plot_option
@json_option("Print JSON.")
@trust_option
@quiet_option
@accept_option
def command(
    run: Path,
    ad: str,
    bids: str | None,
    out: Path | None,
    plot: Path | None,
    as_json: bool,
    **options: Any,
) -> int:
    """Impressions, clicks and cost of one ad as a function of its bid.

    Over the run's evaluation, with its models and its draws, all else equal. Expected figures replace each
    click by its true probability. Value is what the expected clicks are worth at the ad's own bid.

    Bids are init-bids, as the advertiser sets them. Where the platform optimises them, a click may cost more:
    "in auction" is the mean bid that entered the auction, and * marks a CPC above the init-bid.
    """
    from cascade_sim.api import landscape

    given = None if bids is None else parse_bids(bids)
    answer = landscape(run, ad, bids=given, **options).landscape
    if as_json:
        from cascade_sim.storage.folder import json_text

        echo(json_text(answer.as_json()), nl=False)
    else:
        echo(landscape_text(answer))
    files: dict[Path, bytes] = {}
    if out is not None:
        files[out] = csv_text(answer).encode()
    if plot is not None:
        from cascade_sim.analysis.report.figures.landscape import landscape_image

        files[plot] = landscape_image(answer.columns(), answer.init_bid, plot.suffix.lower()[1:])
    write_files(files, is_output_json=as_json)
    return _compare_with_log(run, answer)


def parse_bids(text: str) -> list[float]:
    """Ascending bids of a list such as 0.1,0.2; UserError if it is none."""
    try:
        bids = [float(part) for part in text.split(",")]
    except ValueError:
        raise UserError(
            f"--bids: expected numbers with commas between them, as in 0.1,0.2, not {text!r}"
        ) from None
    return checked_bids(bids)


def csv_text(answer: Landscape) -> str:
    """A line per bid; an undefined CPC is empty."""
    table = answer.columns()
    rows = zip(*table.values(), strict=True)
    lines = [",".join("" if cell != cell else repr(cell) for cell in row) for row in rows]
    return "\n".join([",".join(table), *lines]) + "\n"


def landscape_text(answer: Landscape) -> str:
    """The table for a terminal; the ad's own bid is marked, and so is a CPC above the init-bid."""
    is_optimised = bool(answer.note)
    heads = (
        "init-bid" if is_optimised else "bid",
        "× own",
        *(["in auction"] if is_optimised else []),
        "impressions",
        "exp. clicks",
        "clicks",
        "exp. cost",
        "cost",
        "exp. CPC",
        "CPC",
        "value",
    )
    rows: list[tuple[str, ...]] = [heads]
    mark = " " if is_optimised else ""  # so that the digits of marked and unmarked prices align
    for i, bid in enumerate(answer.bid.tolist()):
        cpc = (answer.expected_cpc[i], answer.mean_cpc[i])
        own = "own" if bid == answer.init_bid else f"{bid / answer.init_bid:.2f}"
        entered = [_money(answer.auction_bid[i], "")] if is_optimised else []
        rows.append(
            (
                f"{bid:.6f}", own, *entered, f"{answer.impressions[i]:,}",
                f"{answer.expected_clicks[i]:,.2f}", f"{answer.clicks[i]:,}",
                f"{answer.expected_cost[i]:,.4f}", f"{answer.cost[i]:,.4f}",
                *(_money(value, "*" if value > bid * (1 + 1e-12) else mark) for value in cpc),
                f"{answer.value[i]:,.4f}",
            )
        )  # fmt: skip
    widths = [max(len(row[j]) for row in rows) for j in range(len(heads))]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    head = (
        f"ad {answer.label} in arm {answer.arm}: {answer.retrieved:,} of {answer.requests:,} requests "
        f"retrieve it; its own bid is {answer.init_bid:.6f}"
    )
    notes = ["", *wrap(f"{answer.note}.", 100)] if answer.note else []
    if answer.is_cpc_above_bid.any():
        notes.append("*  above the init-bid")
    return "\n".join([head, "", *lines, *notes])


def _money(value: float, mark: str) -> str:
    return f"–{mark.replace('*', ' ')}" if value != value else f"{value:.4f}{mark}"


def _compare_with_log(run: Path, answer: Landscape) -> int:
    """1 and a warning where the run logged something else at the ad's own bid."""
    import numpy as np

    from cascade_sim.diagnostics.reopen import logged

    own = np.flatnonzero(answer.bid == answer.init_bid)
    rows = logged(run, answer.arm, answer.requests, ("ad", "click", "charge_micros")) if len(own) else None
    if rows is None:
        return 0
    shown = rows["ad"] == answer.ad
    in_log = (int(shown.sum()), int(rows["click"][shown].sum()), int(rows["charge_micros"][shown].sum()))
    here = tuple(int(counts[own[0]]) for counts in (answer.impressions, answer.clicks, answer.cost_micros))
    if here == in_log:
        return 0
    echo(
        f"warning: {run} logged (impressions, clicks, micro-units) {in_log} for this ad, not {here}: "
        "something has changed since",
        err=True,
    )
    return 1
