"""`cascade_sim check`: whether a scenario or a run still earns what a baseline says."""

from __future__ import annotations

from pathlib import Path

import click

EXIT_CODES = """\b
Exit code  0  nothing moved beyond chance and tolerance
           1  a guarded metric moved
           2  a mistake in the command or a file, or a baseline of other traffic or semantics"""


@click.command(epilog=EXIT_CODES)
@click.argument("what", metavar="SCENARIO|RUN", type=click.Path(path_type=Path))
@click.option(
    "--against", type=click.Path(path_type=Path), required=True, metavar="FILE", help="The baseline."
)
@click.option(
    "--tolerance", "tolerances", multiple=True, metavar="[[ARM:]METRIC=]SHARE",
    help="Moves up to this pass, as rpm=0.5%; may be repeated.  [default: 0]",
)  # fmt: skip
@click.option(
    "--metric", "metrics", multiple=True, metavar="NAME", help="Guard these alone; may be repeated."
)
@click.option("--arm", "arms", multiple=True, metavar="NAME", help="Guard these alone; may be repeated.")
@click.option(
    "--fresh", type=click.IntRange(1, 1000), metavar="N",
    help="Meet other requests of the same world, their N-th stretch, and compare unpaired.",
)  # fmt: skip
@click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key of the scenario."
)
@click.option("--workers", type=click.IntRange(min=1), help="Threads.  [default: the usable cores]")
@click.option(
    "--device", type=click.Choice(["auto", "cpu", "cuda", "mps"]), default="auto", show_default=True,
    help="Where models are trained.",
)  # fmt: skip
@click.option("--quiet", is_flag=True, help="No progress bars.")
def command(
    what: Path,
    against: Path,
    tolerances: tuple[str, ...],
    metrics: tuple[str, ...],
    arms: tuple[str, ...],
    fresh: int | None,
    overrides: tuple[str, ...],
    workers: int | None,
    device: str,
    quiet: bool,
) -> int:
    """Does a scenario, or a finished run, still earn what its baseline earned?

    Every metric of every arm is compared on the same requests under the same luck, so unchanged code is
    identical; what moved is told with its paired interval and the smallest change that would have been seen.
    """
    from cascade_sim.commands.run import usable_cores
    from cascade_sim.errors import UserError
    from cascade_sim.revenue.baseline import measured_run, read_baseline, refuse_other_traffic_of
    from cascade_sim.revenue.blocks import MARKET_METRICS
    from cascade_sim.revenue.check import check_revenue, guarded, refuse_other_days
    from cascade_sim.revenue.text import verdict_text

    baseline = read_baseline(against)
    plan = guarded(baseline, metrics, arms, tolerances)  # mistakes before work
    if what.is_dir():
        for option, value in (("--set", overrides), ("--fresh", fresh)):
            if value:
                raise UserError(f"{option}: {what} is a finished run; give a scenario to run it otherwise")
        measured = measured_run(what)
    else:
        from cascade_sim.scenario.file import load_scenario

        scenario = load_scenario(what, overrides)
        refuse_other_traffic_of(baseline, scenario, str(what), bool(fresh))
        if not fresh:
            refuse_other_days(baseline, scenario, str(what), plan)

        from cascade_sim.revenue.serving import measure_scenario

        measured = measure_scenario(
            scenario,
            str(what),
            workers=workers or usable_cores(),
            device=device,
            stretch=fresh or 0,
            with_market=any(metric in MARKET_METRICS for _, metric in plan),
            quiet=quiet,
        )
    verdict = check_revenue(baseline, measured, tolerances=tolerances, metrics=metrics, arms=arms)
    click.echo(verdict_text(verdict))
    return 0 if verdict.passed else 1
