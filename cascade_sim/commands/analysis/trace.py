"""`cascade_sim trace`: one request of a finished run, explained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cascade_sim.commands.options import accept_option, arm_option, json_option, run_argument, trust_option
from cascade_sim.foundation.terminal import echo

EXIT_CODES = """\b
Exit code  0  explained
           1  explained, but the run logged another page, or other prices for the same ads
           2  a mistake in the command, or no such run, request, ad or arm"""


@click.command(epilog=EXIT_CODES)
@run_argument
@click.option(
    "--request", required=True, metavar="ID",
    help="Id in the evaluate logs, or number from 0; of an imported log also its name.",
)  # fmt: skip
@click.option("--ad", metavar="ID", help="Also explain this ad: funnel position and winning bid.")
@arm_option("Arm that serves the request.  [default: the baseline]")
@trust_option
@json_option("Print JSON; money in *_micros is in millionths.")
@accept_option
def command(run: Path, request: str, ad: str | None, arm: str | None, as_json: bool, **options: Any) -> int:
    """Explain one request: why an ad won or lost at each stage.

    Serves the request again as the run did and prints its page. With --ad also the ad's rank, score and
    cut-off at each stage, where it was dropped, and the minimum init-bid with which it would have won.
    """
    from cascade_sim.api import trace
    from cascade_sim.diagnostics.trace import difference_words
    from cascade_sim.storage.folder import json_text

    result = trace(run, request, ad=ad, arm=arm, **options)
    echo(json_text(result.trace) if as_json else str(result), nl=False)
    if result.trace["same_as_log"] is False:
        is_log = "names" in result.trace
        why = "audit-logs says which rule the log follows" if is_log else "something has changed since"
        echo(f"warning: {run}: {difference_words(result.trace)}; {why}", err=True)
        return 1
    return 0
