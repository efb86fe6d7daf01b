"""`cascade_sim theory`: which losses lead to which orders, checked on random distributions."""

from __future__ import annotations

from pathlib import Path

import click

from cascade_sim.commands.options import out_option, quiet_option
from cascade_sim.foundation.terminal import echo

EXIT_CODES = """\b
Exit code  0  every bound held
           1  a regret was above its bound
           2  a mistake in the command, or the folder cannot be written"""


@click.command(epilog=EXIT_CODES)
@out_option("Folder.", default=Path("runs/theory"), show_default=True)
@click.option(
    "--distributions", type=click.IntRange(min=1), default=30, show_default=True, help="Drawn per measure."
)
@click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True)
@click.option(
    "--k", type=click.IntRange(min=1), default=3, show_default=True, help="Cut of measures like NDCG@k."
)
@quiet_option
def command(out: Path, distributions: int, seed: int, k: int, quiet: bool) -> int:
    """Verify regret bounds of surrogate losses numerically.

    Draws random distributions of labels, minimises each order-preserving loss on them, and compares the
    regret of six ranking measures with its bound. Counter-examples for other measures and losses follow.
    Prints the findings; writes theory.json and regret_bounds.png and .svg.
    """
    from cascade_sim.analysis.report.figures.parts import png_bytes
    from cascade_sim.analysis.report.figures.style import style, svg_text
    from cascade_sim.analysis.theory import report as theory_report
    from cascade_sim.analysis.theory.losses import LOSSES
    from cascade_sim.analysis.theory.measures import gppms
    from cascade_sim.analysis.theory.study import ranknet_misorders, study_bounds
    from cascade_sim.foundation.progress import Progress
    from cascade_sim.storage.files import storage_errors, write_file
    from cascade_sim.storage.folder import json_text

    with storage_errors(out):
        out.mkdir(parents=True, exist_ok=True)
    with Progress(quiet) as progress:
        with progress.stage("regret bounds", len(LOSSES) * len(gppms(k)), "pairs of loss and measure") as bar:
            checks = study_bounds(distributions, seed, k, advance=bar.advance)
        with progress.stage("RankNet's orders", 1, "tables"):
            misorders = ranknet_misorders(4 * distributions, seed, k=k)
    echo(theory_report.text(checks, misorders), nl=False)
    write_file(out / "theory.json", json_text(theory_report.numbers(checks, misorders)).encode())
    with style("regret_bounds"):
        figure = theory_report.regret_figure(checks)
        write_file(out / "regret_bounds.png", png_bytes(figure, dpi=160))
        title = "Regret against surrogate regret with its bound, by loss"
        write_file(out / "regret_bounds.svg", svg_text(figure, "regret_bounds", title).encode())
    echo(f"written to {out}")
    broken = any(check.violations for by_measure in checks.values() for check in by_measure.values())
    return 1 if broken else 0
