"""`cascade_sim bench`: how fast it is here."""

import click


@click.command()
@click.option("--requests", type=click.IntRange(min=1024), default=20_000, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def command(requests: int, as_json: bool) -> None:
    """Requests per second on one core, the scoring floor, the share of each stage, training rates."""
    from cascade_sim.bench import run

    found = run(requests)
    if as_json:
        import json

        click.echo(json.dumps(found, indent=1))
        return
    n, c, k = found["sizes"]
    rate = found["serving"]
    micros = 1e6 / rate
    click.echo(
        f"serving, one core (n = {n}, c = {c}, k = {k}; traffic, clicks, charges and log on disk included)"
    )
    click.echo(
        f"  built-in models      {rate:12,.0f} requests/s {rate * n:16,.0f} candidates/s {micros:8.1f} us"
    )
    own = found["own_model"]
    click.echo(
        f"  own torch pre-ranker {own:12,.0f} requests/s {own * n:16,.0f} candidates/s {own / rate:8.2f} x"
    )
    longer = found["serving_longer"]
    click.echo(
        f"  4 x as many requests {longer:12,.0f} requests/s   "
        f"peak memory grew by {found['memory_growth_mb']:.0f} MB"
    )
    click.echo(f"  a user's first visit: {found['first_visit_us']:,.0f} us of exact retrieval, then kept")
    click.echo("scoring alone, on the same candidates")
    for name, floor in found["floors"].items():
        click.echo(
            f"  {name:<20} {1e6 / floor:12,.0f} requests/s   serving takes {micros / floor:.2f} x as long"
        )
    click.echo("share of time per stage")
    total = sum(found["stages"].values())
    for name, value in found["stages"].items():
        click.echo(f"  {name:<20} {value:8.2f} us {value / total:6.1%}")
    click.echo(f"  {'rest (SimPy, Python)':<20} {max(micros - total, 0.0):8.2f} us")
    click.echo("auction alone, one core")
    for name, value in found["auction"].items():
        click.echo(f"  {name:<20} {value:12,.0f} bids/s")
    market = found["market"]
    click.echo("market in time, one core (budgets, pacing, conversions and log on disk included)")
    click.echo(f"  {'settled in order':<20} {market:12,.0f} requests/s {market / rate:8.2f} x plain serving")
    click.echo("training, one core")
    for name, value in found["training"].items():
        click.echo(f"  {name:<20} {value:12,.0f} samples/s")
