"""`cascade_sim bench`: how fast it is here."""

import json
import sys
from pathlib import Path
from typing import Any

import click

from cascade_sim.commands.options import PATH, json_option, quiet_option
from cascade_sim.foundation.errors import UserError
from cascade_sim.foundation.terminal import echo

PARTS = ("simulator", "auction", "market", "losses", "metrics", "peers", "scale", "live")
PART_OF = {"auction-gym": "peers", "auction-net": "peers", "rax": "losses"}
GIVEN = "Folder of a checkout of {}, to run beside us; needs --peer-python."


@click.command()
@click.argument("part", type=click.Choice(PARTS), default="simulator")
@click.option("--requests", type=click.IntRange(min=1024), default=20_000, show_default=True)
@click.option("--auction-gym", type=PATH, help=GIVEN.format("amzn/auction-gym"))
@click.option("--auction-net", type=PATH, help=GIVEN.format("alimama-tech/AuctionNet"))
@click.option("--rax", type=PATH, help=GIVEN.format("google/rax"))
@click.option("--peer-python", type=PATH, help="The Python of an environment that has what they need.")
@click.option(
    "--run", type=PATH, help="A finished run for `bench live`.  [default: scenarios/ads.yaml, run first]"
)
@json_option("Print the figures as JSON.")
@quiet_option
def command(
    part: str,
    requests: int,
    auction_gym: Path | None,
    auction_net: Path | None,
    rax: Path | None,
    peer_python: Path | None,
    run: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Measure the speed of serving, scoring and training.

    Microseconds of CPU time a request on one core, with spread, and the share of the roofline bound. One part
    alone: `bench auction` (bids/s bare and of whole scenarios, with the log), `bench market` (with
    budgets and feedback against plain serving), `bench losses` (time and memory of value and gradient),
    `bench metrics`, `bench peers` (scenarios of the size of AuctionGym's and AuctionNet's auctions, and
    those beside us if they are here), `bench scale` (cost and memory as ads, users and requests grow;
    `--requests 10000000` for the longest), `bench live` (a change of a parameter on the page of `serve`).
    """
    from cascade_sim.foundation.progress import Progress

    checkouts = {"auction-gym": auction_gym, "auction-net": auction_net, "rax": rax}
    given = {name: folder for name, folder in checkouts.items() if folder is not None}
    check_peers(part, given, peer_python)
    # Lines only: drawing a bar all the while would take from the time that is measured.
    with Progress(quiet or sys.stderr.isatty()) as progress, progress.stage(f"bench {part}", 1, "tables"):
        if part == "simulator":
            _simulator(requests, as_json)
        elif part == "peers":
            _peers(given, peer_python or Path(sys.executable), as_json)
        elif part == "scale":
            _scale(requests, as_json)
        elif part == "losses":
            _losses(rax, peer_python, as_json)
        elif part == "live":
            _live(run, as_json)
        else:
            {"auction": _auction, "market": _market, "metrics": _metrics}[part](as_json)


def _live(run: Path | None, as_json: bool) -> None:
    from tempfile import TemporaryDirectory

    from cascade_sim.api import run as run_scenario
    from cascade_sim.bench.live import live_text, measure
    from cascade_sim.version import folder_of

    with TemporaryDirectory() as folder:
        if run is None:
            run = run_scenario(folder_of("scenarios") / "ads.yaml", out=Path(folder) / "ads").path
        figures = measure(run)
    echo(json.dumps(figures, indent=1) if as_json else live_text(figures))


def check_peers(part: str, given: dict[str, Path], python: Path | None) -> None:
    """UserError if the options of the peers do not go together."""
    for name in given:
        if part != PART_OF[name]:
            raise UserError(f"--{name} is for `bench {PART_OF[name]}`, not for `bench {part}`")
        if python is None:
            raise UserError(f"--{name} needs --peer-python: the Python of an environment with its libraries")
    if python is not None and not given:
        options = " or ".join(f"--{name}" for name in PART_OF)
        raise UserError(f"--peer-python needs {options}: what shall it run?")


def _simulator(requests: int, as_json: bool) -> None:
    from cascade_sim.bench.serving import run

    figures = run(requests)
    echo(json.dumps(figures, indent=1) if as_json else simulator_text(figures))


def simulator_text(figures: dict[str, Any]) -> str:
    """The figures of `bench` as lines for a terminal."""
    from cascade_sim.bench import Spread

    def micros(name: str, given: dict[str, Any], note: str = "") -> str:
        return f"  {name:<22} {Spread(**given).text()} us{note}"

    n, c, k = figures["sizes"]
    served, floor = figures["serving_us"]["median"], figures["floor"]
    rate = 1e6 / served

    def beside(name: str) -> str:
        return f"   {figures[name]['median'] / served:.2f} x built-in"

    lines = [
        f"CPU time a request, one core (n = {n}, c = {c}, k = {k}; traffic, clicks, charges and log on disk "
        "included); median of repeats in turn",
        micros("built-in models", figures["serving_us"]),
        f"  {'':<22} {rate:,.0f} requests/s, {rate * n:,.0f} candidates/s",
        micros("own torch pre-ranker", figures["own_model_us"], beside("own_model_us")),
        micros("market, with budgets", figures["market_us"], beside("market_us")),
        f"  {'4 x as many requests':<22} {figures['longer_us']:.1f} us, "
        f"peak memory grew by {figures['memory_growth_mb']:.0f} MB",
        f"  a user's first visit: {figures['first_visit_us']:,.0f} us of exact retrieval, then kept",
        f"arithmetic floor: this core does {floor['gflops_per_s']:.0f} GFLOP/s at most and reads "
        f"{floor['gb_per_s']:.0f} GB/s from {floor['table_mb']:.0f} MB",
    ]
    for name, work in floor["stages"].items():
        lines.append(
            f"  {name:<22} {work['flops']:10,.0f} FLOP {work['bytes']:10,.0f} bytes {work['us']:8.2f} us"
        )
    lines.append(f"  {'a request':<22} {floor['us']:.2f} us, {floor['share']:.1%} of what serving takes")
    lines.append("scoring alone, on the same candidates")
    lines += [micros(name, spread) for name, spread in figures["scoring_us"].items()]
    lines.append("by stage")
    lines += [micros(name, spread) for name, spread in figures["stages_us"].items()]
    rest = served - sum(spread["median"] for spread in figures["stages_us"].values())
    lines.append(f"  {'rest (SimPy, Python)':<22} {max(rest, 0.0):.1f} us")
    lines.append(auction_text(figures["auction"], figures["scenario"]))
    lines.append("training, one core")
    lines += [f"  {name:<22} {value:12,.0f} samples/s" for name, value in figures["training"].items()]
    return "\n".join(lines)


def auction_text(bare: dict[str, Any], whole: dict[str, Any]) -> str:
    """Bids per CPU-second of auctions alone, and of scenarios of such auctions."""
    from cascade_sim.bench import Spread

    lines = ["bids per CPU-second of bare auctions (log on disk included)"]
    lines += [f"  {name:<24} {Spread(**spread).text(0)}" for name, spread in bare.items()]
    lines.append("bids per CPU-second of whole scenarios (arrivals, serve, draws, charges, log on disk)")
    lines += [f"  {name:<24} {Spread(**spread).text(0)}" for name, spread in whole.items()]
    return "\n".join(lines)


def _auction(as_json: bool) -> None:
    from cascade_sim.bench import plain
    from cascade_sim.bench.market import auction_rates
    from cascade_sim.bench.peers import scenario_rates

    figures = {"auction": plain(auction_rates()), "scenario": plain(scenario_rates())}
    echo(json.dumps(figures, indent=1) if as_json else auction_text(*figures.values()))


def _market(as_json: bool) -> None:
    from cascade_sim.bench import Spread, in_turn, plain
    from cascade_sim.bench.market import market_seconds
    from cascade_sim.bench.serving import build, serving

    n = 20_000
    sim, arm = build()
    serving(sim, arm, 2048)  # compiles the kernels, fills the retrieval cache
    market_seconds(sim, arm, 2048)
    ways = {"serving_us": lambda: serving(sim, arm, n), "market_us": lambda: market_seconds(sim, arm, n)}
    taken: dict[str, Spread] = {name: spread.times(1e6 / n) for name, spread in in_turn(ways, 5).items()}
    if as_json:
        echo(json.dumps(plain(taken), indent=1))
        return
    echo("CPU time a request, one core (log on disk included)")
    echo(f"  {'plain serving':<22} {taken['serving_us'].text()} us")
    times = taken["market_us"].median / taken["serving_us"].median
    echo(f"  {'market, with budgets':<22} {taken['market_us'].text()} us   {times:.2f} x plain serving")


def _peers(checkouts: dict[str, Path], python: Path, as_json: bool) -> None:
    from cascade_sim.bench import plain
    from cascade_sim.bench.peers import bench_peers, peers_text

    rows = bench_peers(checkouts, python)
    echo(json.dumps(plain(rows), indent=1) if as_json else peers_text(rows))


def _losses(rax: Path | None, python: Path | None, as_json: bool) -> None:
    from cascade_sim.bench import plain
    from cascade_sim.bench.losses import bench_losses, losses_text

    rows = bench_losses(rax=rax, python=python)
    echo(json.dumps(plain(rows), indent=1) if as_json else losses_text(rows))


def _metrics(as_json: bool) -> None:
    from cascade_sim.bench.metrics import bench_metrics, metrics_text

    milliseconds = bench_metrics()
    echo(json.dumps(milliseconds, indent=1) if as_json else metrics_text(milliseconds))


def _scale(requests: int, as_json: bool) -> None:
    from cascade_sim.bench.scale import bench_scale, scale_text, sizes

    rows = bench_scale(sizes(requests))
    echo(json.dumps(rows, indent=1) if as_json else scale_text(rows))
