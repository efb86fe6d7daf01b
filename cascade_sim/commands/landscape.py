"""`cascade_sim landscape`: what one ad of a finished run would have got at other bids."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cascade_sim.errors import UserError

if TYPE_CHECKING:
    from cascade_sim.questions.landscape import Landscape

EXIT_CODES = """\b
Exit code  0  done
           1  done, but at its own bid the ad did not get what the run logged: something has changed since
           2  a mistake in the command, or no such run, ad or arm"""
MOST_BID = 1e9
POINTS = 21
PLOT_KINDS = (".png", ".svg")


@click.command(epilog=EXIT_CODES)
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--ad", type=int, required=True, metavar="ID")
@click.option("--arm", metavar="NAME", help="Arm that serves the requests.  [default: the baseline]")
@click.option("--bids", metavar="B,B,…", help="The init-bids to look at.")
@click.option(
    "--points", type=click.IntRange(1, 10_000), metavar="N",
    help=f"So many bids from a quarter of the ad's own to four times as much.  [default: {POINTS}]",
)  # fmt: skip
@click.option(
    "--requests", type=click.IntRange(1), metavar="N", help="Only the first so many.  [default: all]"
)
@click.option("--out", type=click.Path(path_type=Path), metavar="CSV", help="Write the table here as well.")
@click.option("--plot", type=click.Path(path_type=Path), metavar="FILE", help="Draw it: a .png or .svg file.")
@click.option("--quiet", is_flag=True, help="No progress bar.")
def command(
    run: Path,
    ad: int,
    arm: str | None,
    bids: str | None,
    points: int | None,
    requests: int | None,
    out: Path | None,
    plot: Path | None,
    quiet: bool,
) -> int:
    """Impressions, clicks and cost of one ad as a function of its bid.

    Over the run's evaluation, with its models and its luck, all else equal. Expected figures replace each
    click by its true probability. Value is what the expected clicks are worth at the ad's own bid.
    """
    if bids is not None and points is not None:
        raise UserError("--bids and --points: give one of them")
    if plot is not None and plot.suffix.lower() not in PLOT_KINDS:
        raise UserError(f"--plot: {plot} should end in .png or .svg")
    given = None if bids is None else parse_bids(bids)

    import numpy as np

    from cascade_sim.progress import Progress
    from cascade_sim.questions.landscape import bid_grid, landscape
    from cascade_sim.questions.reopen import reopen
    from cascade_sim.storage.files import storage_errors, write_file

    opened = reopen(run)
    n_ads = opened.sim.world.n_ads
    if not 0 <= ad < n_ads:
        raise UserError(f"--ad: no ad {ad}; the run has ads 0 to {n_ads - 1}")
    seat = opened.arm(arm)
    grid = np.array(given) if given else bid_grid(float(opened.sim.world.init_bid[ad]), points or POINTS)
    n = min(requests or opened.scenario.phases.evaluate, opened.scenario.phases.evaluate)
    with Progress(quiet) as progress, progress.stage("landscape", n) as bar:
        found = landscape(opened.sim, seat, ad, grid, n, bar.advance)
    click.echo(landscape_text(found))
    files: list[tuple[Path, bytes]] = []
    if out is not None:
        files.append((out, csv_text(found).encode()))
    if plot is not None:
        from cascade_sim.analysis.report.figures.landscape import landscape_image

        files.append((plot, landscape_image(columns(found), found.init_bid, plot.suffix.lower()[1:])))
    for path, content in files:
        with storage_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, content)
        click.echo(path)
    return _compare_with_log(run, found)


def parse_bids(text: str) -> list[float]:
    """Ascending bids of a list such as 0.1,0.2; UserError if it is none."""
    try:
        bids = sorted({float(part) for part in text.split(",")})
    except ValueError:
        raise UserError(
            f"--bids: expected numbers with commas between them, as in 0.1,0.2, not {text!r}"
        ) from None
    if not all(0 < bid <= MOST_BID for bid in bids):
        raise UserError(f"--bids: each must be above 0 and at most {MOST_BID:g}, in {text!r}")
    return bids


def columns(found: Landscape) -> dict[str, list[float]]:
    """The table column by column, as plain numbers."""
    names = (
        *("bid", "impressions", "expected_clicks", "clicks", "expected_cost", "cost"),
        *("expected_cpc", "mean_cpc", "value"),
    )
    return {name: getattr(found, name).tolist() for name in names}


def csv_text(found: Landscape) -> str:
    """A line per bid; an undefined CPC is empty."""
    table = columns(found)
    rows = zip(*table.values(), strict=True)
    lines = [",".join("" if cell != cell else repr(cell) for cell in row) for row in rows]
    return "\n".join([",".join(table), *lines]) + "\n"


def landscape_text(found: Landscape) -> str:
    """The table for a terminal; the ad's own bid is marked."""
    heads = (
        "bid",
        "× own",
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
    for i, bid in enumerate(found.bid.tolist()):
        cpc = (found.expected_cpc[i], found.mean_cpc[i])
        own = "own" if bid == found.init_bid else f"{bid / found.init_bid:.2f}"
        rows.append(
            (
                f"{bid:.6f}", own, f"{found.impressions[i]:,}", f"{found.expected_clicks[i]:,.2f}",
                f"{found.clicks[i]:,}", f"{found.expected_cost[i]:,.4f}", f"{found.cost[i]:,.4f}",
                *("–" if value != value else f"{value:.4f}" for value in cpc), f"{found.value[i]:,.4f}",
            )
        )  # fmt: skip
    widths = [max(len(row[j]) for row in rows) for j in range(len(heads))]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    head = (
        f"ad {found.ad} in arm {found.arm}: {found.retrieved:,} of {found.requests:,} requests retrieve it; "
        f"its own bid is {found.init_bid:.6f}"
    )
    return "\n".join([head, "", *lines])


def _compare_with_log(run: Path, found: Landscape) -> int:
    """1 and a warning where the run logged something else at the ad's own bid."""
    import numpy as np

    from cascade_sim.questions.reopen import logged

    own = np.flatnonzero(found.bid == found.init_bid)
    rows = logged(run, found.arm, found.requests, ("ad", "click", "charge_micros")) if len(own) else None
    if rows is None:
        return 0
    shown = rows["ad"] == found.ad
    in_log = (int(shown.sum()), int(rows["click"][shown].sum()), int(rows["charge_micros"][shown].sum()))
    here = tuple(int(one[own[0]]) for one in (found.impressions, found.clicks, found.cost_micros))
    if here == in_log:
        return 0
    click.echo(
        f"warning: {run} logged (impressions, clicks, micro-units) {in_log} for this ad, not {here}: "
        "something has changed since",
        err=True,
    )
    return 1
