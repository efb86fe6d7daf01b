"""`cascade_sim contrast`: arms of a study over several worlds, each compared with one of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cascade_sim.commands.options import accept_option, out_option, run_argument, write_files
from cascade_sim.foundation.terminal import echo

if TYPE_CHECKING:
    from cascade_sim.counterfactual.contrast import Contrast


@click.command()
@run_argument
@click.option("--against", required=True, metavar="ARM", help="The arm that all others are compared with.")
@click.option("--arms", metavar="A,B,…", help="Only these.  [default: all of the scenario]")
@click.option(
    "--metrics", "measures", metavar="M,N,…",
    default="gauc,logloss,ece,cpc_error,expected_rpm%", show_default=True,
    help="Measures of an arm, or of the model in its ranking stage; with % behind: in percent.",
)  # fmt: skip
@click.option(
    "--candidates", default="win_set", show_default=True, metavar="SET",
    help="Candidates on which models are measured: win_set, competitive_set, pre_ranking_set, or STEP_set of "
    "an earlier step of pre-ranking.",
)  # fmt: skip
@out_option("Write the comparisons here as well.", "JSON")
@accept_option
def command(
    run: Path, against: str, arms: str | None, measures: str, candidates: str, out: Path | None
) -> None:
    """Paired contrasts of arms over seeds, against one arm (Holm-adjusted).

    Prints, as Markdown, the mean difference over worlds with an interval that holds for all comparisons of
    the table together, in how many worlds the arm is better, and in bold the significant differences.
    """
    from cascade_sim.counterfactual.contrast import contrasts
    from cascade_sim.storage.folder import json_text

    metrics = tuple(part.strip() for part in measures.split(",") if part.strip())
    named = tuple(part.strip() for part in (arms or "").split(",") if part.strip())
    made = contrasts(run, against, named, metrics, candidates)
    echo(contrast_text(made, against))
    if out is not None:
        write_files({out: json_text([each.data() for each in made]).encode()})


def contrast_text(made: Sequence[Contrast], against: str) -> str:
    """A row an arm, a column a measure."""
    measures, arms = (list(dict.fromkeys(getattr(each, key) for each in made)) for key in ("measure", "arm"))
    cells = {(each.arm, each.measure): each for each in made}
    lines = [f"| arm | {' | '.join(measures)} |", "|---|" + "---|" * len(measures)]
    base = [next(each for each in made if each.measure == measure) for measure in measures]
    lines.append(f"| {against} | {' | '.join(_number(each.other, each) for each in base)} |")
    for arm in arms:
        lines.append(f"| {arm} | {' | '.join(_cell(cells[arm, measure]) for measure in measures)} |")
    told = sum(each.is_told for each in made)
    worlds = max(each.worlds for each in made)
    lines.append("")
    lines.append(
        f"Differences from {against}, means over {worlds} worlds; intervals hold for all {len(made)} "
        "comparisons together. In brackets: worlds in which it is better. "
        f"Bold: significant (Holm-adjusted, 5 %): {told}."
    )
    return "\n".join(lines)


def _digits(each: Contrast) -> int:
    """Decimals that show a tenth of the interval's half width."""
    import math

    if each.low is None or each.high is None or each.high <= each.low:
        return 4
    return max(1, min(6, 1 - math.floor(math.log10((each.high - each.low) / 2))))


def _number(value: float | None, each: Contrast) -> str:
    return "–" if value is None else f"{value:.{min(_digits(each) + 1, 5)}f}"


def _cell(each: Contrast) -> str:
    if each.difference is None or each.low is None or each.high is None:
        return "–"
    digits = _digits(each)
    half = (each.high - each.low) / 2
    text = f"{each.difference:+.{digits}f} ± {half:.{digits}f}"
    return f"{f'**{text}**' if each.is_told else text} ({each.ahead}/{each.worlds})"
