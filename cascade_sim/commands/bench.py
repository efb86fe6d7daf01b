"""`cascade_sim bench`: how fast it is here."""

import sys

import click

from cascade_sim.commands.options import json_option, quiet_option

PARTS = ("simulator", "auction", "market", "losses", "metrics", "scale")


@click.command()
@click.argument("part", type=click.Choice(PARTS), default="simulator")
@click.option("--requests", type=click.IntRange(min=1024), default=20_000, show_default=True)
@json_option("Print the figures as JSON.")
@quiet_option
def command(part: str, requests: int, as_json: bool, quiet: bool) -> None:
    """Requests per second on one core, the scoring floor, the share of each stage, training rates.

    One part alone: `bench auction` (bids/s, with the log), `bench market` (requests/s with budgets and
    feedback against plain serving), `bench losses` (time and memory of value and gradient), `bench metrics`,
    `bench scale` (cost and memory as ads, users and requests grow; `--requests 10000000` for the longest).
    """
    from cascade_sim.progress import Progress

    # Lines only: drawing a bar all the while would take from the time that is measured.
    with Progress(quiet or sys.stderr.isatty()) as progress, progress.stage(f"bench {part}", 1, "tables"):
        if part == "simulator":
            _simulator(requests, as_json)
        elif part == "scale":
            _scale(requests, as_json)
        else:
            {"auction": _auction, "market": _market, "losses": _losses, "metrics": _metrics}[part](as_json)


def _simulator(requests: int, as_json: bool) -> None:
    from cascade_sim.bench.serving import run

    figures = run(requests)
    if as_json:
        import json

        click.echo(json.dumps(figures, indent=1))
        return
    n, c, k = figures["sizes"]
    rate = figures["serving"]
    micros = 1e6 / rate
    click.echo(
        f"serving, one core (n = {n}, c = {c}, k = {k}; traffic, clicks, charges and log on disk included)"
    )
    click.echo(
        f"  built-in models      {rate:12,.0f} requests/s {rate * n:16,.0f} candidates/s {micros:8.1f} us"
    )
    own = figures["own_model"]
    click.echo(
        f"  own torch pre-ranker {own:12,.0f} requests/s {own * n:16,.0f} candidates/s {own / rate:8.2f} x"
    )
    longer = figures["serving_longer"]
    click.echo(
        f"  4 x as many requests {longer:12,.0f} requests/s   "
        f"peak memory grew by {figures['memory_growth_mb']:.0f} MB"
    )
    click.echo(f"  a user's first visit: {figures['first_visit_us']:,.0f} us of exact retrieval, then kept")
    click.echo("scoring alone, on the same candidates")
    for name, floor in figures["floors"].items():
        click.echo(
            f"  {name:<20} {1e6 / floor:12,.0f} requests/s   serving takes {micros / floor:.2f} x as long"
        )
    click.echo("share of time per stage")
    total = sum(figures["stages"].values())
    for name, value in figures["stages"].items():
        click.echo(f"  {name:<20} {value:8.2f} us {value / total:6.1%}")
    click.echo(f"  {'rest (SimPy, Python)':<20} {max(micros - total, 0.0):8.2f} us")
    _echo_auction(figures["auction"])
    _echo_market(figures["market"], rate)
    click.echo("training, one core")
    for name, value in figures["training"].items():
        click.echo(f"  {name:<20} {value:12,.0f} samples/s")


def _losses(as_json: bool) -> None:
    import json

    from cascade_sim.bench.losses import bench_losses, losses_text

    rows = bench_losses()
    click.echo(json.dumps(rows, indent=1) if as_json else losses_text(rows))


def _metrics(as_json: bool) -> None:
    import json

    from cascade_sim.bench.metrics import bench_metrics, metrics_text

    milliseconds = bench_metrics()
    click.echo(json.dumps(milliseconds, indent=1) if as_json else metrics_text(milliseconds))


def _scale(requests: int, as_json: bool) -> None:
    import json

    from cascade_sim.bench.scale import bench_scale, scale_text, sizes

    rows = bench_scale(sizes(requests))
    click.echo(json.dumps(rows, indent=1) if as_json else scale_text(rows))


def _echo_auction(rates: dict[str, float]) -> None:
    click.echo("auction alone, one core (log on disk included)")
    for name, value in rates.items():
        click.echo(f"  {name:<20} {value:12,.0f} bids/s")


def _echo_market(market: float, serving: float) -> None:
    click.echo("market in time (budgets, pacing, conversions and log on disk included)")
    click.echo(
        f"  {'settled in order':<20} {market:12,.0f} requests/s {market / serving:8.2f} x plain serving"
    )


def _auction(as_json: bool) -> None:
    import json

    from cascade_sim.bench.market import auction_rates

    rates = auction_rates()
    if as_json:
        click.echo(json.dumps(rates, indent=1))
    else:
        _echo_auction(rates)


def _market(as_json: bool) -> None:
    import json

    from cascade_sim.bench.market import market_rate
    from cascade_sim.bench.serving import build, serving

    n = 20_000
    sim, arm = build()
    serving(sim, arm, 2048)  # compiles the kernels, fills the retrieval cache
    market_rate(sim, arm, n)
    plain, market = 0.0, 0.0
    for _ in range(3):  # in turn: a busy moment meets both
        plain = max(plain, n / serving(sim, arm, n))
        market = max(market, market_rate(sim, arm, n))
    if as_json:
        click.echo(json.dumps({"serving": plain, "market": market}, indent=1))
    else:
        _echo_market(market, plain)
