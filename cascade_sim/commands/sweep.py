"""`cascade_sim sweep`: a scenario over a grid of settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cascade_sim.commands.going_on import says_how_to_go_on
from cascade_sim.commands.run import usable_cores


@click.command()
@click.argument("scenario", type=click.Path(path_type=Path))
@click.option(
    "--over", multiple=True, required=True, metavar="KEY=A,B,…", help="Values of a key; may be repeated."
)
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key in every cell.")
@click.option("--seeds", type=click.IntRange(min=1), default=3, show_default=True, help="Worlds per cell.")
@click.option("--arm", metavar="NAME", help="Arm that is measured.  [default: the baseline]")
@click.option("--x", "across", metavar="MEASURE", default="expected_ctr", show_default=True)
@click.option("--y", "up", metavar="MEASURE", default="expected_revenue_per_request", show_default=True)
@click.option("--out", type=click.Path(path_type=Path), help="Folder.  [default: runs/<name>-sweep]")
@click.option("--workers", type=click.IntRange(min=1), help="Processes.  [default: the usable cores]")
@click.option(
    "--device", type=click.Choice(["auto", "cpu", "cuda", "mps"]), default="auto", show_default=True
)
@click.option("--quiet", is_flag=True, help="No progress bars.")
def command(
    scenario: Path,
    over: tuple[str, ...],
    overrides: tuple[str, ...],
    seeds: int,
    arm: str | None,
    across: str,
    up: str,
    out: Path | None,
    workers: int | None,
    device: str,
    quiet: bool,
) -> None:
    """Run a scenario over a grid of settings: which combinations are beaten by none?

    Each --over gives values of one key; all combinations are run, in several worlds each. Prints a row per
    cell with lifts against the first one, and writes sweep.csv and sweep.html with the Pareto plot of
    --y against --x. Finished cells are kept: a sweep that was stopped or is given more values goes on.
    """
    from cascade_sim.sweeps import check_sweep, load_grid, parse_axes, run_sweep

    axes = parse_axes(over)
    cells = load_grid(scenario, axes, overrides)
    check_sweep(cells, arm, (across, up))
    folder = out or Path("runs") / f"{cells[0].scenario.name}-sweep"
    with says_how_to_go_on():
        findings = run_sweep(
            axes, cells, folder, arm=arm, seeds=seeds, workers=workers or usable_cores(),
            device=device, quiet=quiet,
        )  # fmt: skip
        click.echo(sweep_text(findings, across, up))
        for path in write_sweep(findings, folder, across, up):
            click.echo(path)


def sweep_text(findings: dict[str, Any], across: str, up: str) -> str:
    """The table and its reading, for a terminal."""
    import shutil
    import sys
    import textwrap

    from cascade_sim.analysis.report.sections.sweep import cells_table, sweep_words
    from cascade_sim.analysis.report.short_page import about_intervals, facts
    from cascade_sim.analysis.report.terminal import table_text

    width = shutil.get_terminal_size((100, 24)).columns
    shown = cells_table(findings, across, up, narrow=True)
    table = table_text(shown, color=sys.stdout.isatty(), width=width)
    words = [*sweep_words(findings, across, up), about_intervals(findings)]
    lines = [textwrap.fill(line, max(width, 40)) for line in words]
    return "\n".join([" · ".join(facts(findings)), table, *lines, ""])


def write_sweep(findings: dict[str, Any], folder: Path, across: str, up: str) -> list[Path]:
    """sweep.csv and sweep.html. Returns their paths."""
    from cascade_sim.analysis.report.figures.sweep import sweep_svg
    from cascade_sim.analysis.report.sections.sweep import csv_text
    from cascade_sim.analysis.report.short_page import sweep_page
    from cascade_sim.storage.files import write_file

    page = sweep_page(findings, across, up, sweep_svg(findings, across, up))
    files = {"sweep.csv": csv_text(findings, across, up), "sweep.html": page}
    for name, text in files.items():
        write_file(folder / name, text.encode())
    return [folder / name for name in files]
