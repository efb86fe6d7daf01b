"""`cascade_sim check`: whether a scenario or a run still earns what a baseline says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cascade_sim.commands.options import (
    PATH,
    accept_option,
    arms_option,
    device_option,
    quiet_option,
    set_option,
    workers_option,
)
from cascade_sim.foundation.terminal import echo

EXIT_CODES = """\b
Exit code  0  nothing moved significantly and by more than tolerance
           1  a guarded metric moved
           2  a mistake in the command or a file, or a baseline of other traffic or semantics"""


@click.command(epilog=EXIT_CODES)
@click.argument("what", metavar="SCENARIO|RUN", type=PATH)
@click.option("--against", type=PATH, required=True, metavar="FILE", help="The baseline.")
@click.option(
    "--tolerance", multiple=True, metavar="[[ARM:]METRIC=]SHARE",
    help="Changes up to this pass, as rpm=0.5%; may be repeated.  [default: 0]",
)  # fmt: skip
@click.option("--metric", multiple=True, metavar="NAME", help="Guard these alone; may be repeated.")
@arms_option("Guard these alone; may be repeated.")
@click.option(
    "--traffic-sample", type=click.IntRange(1, 1000), metavar="N",
    help="Evaluate on the N-th independent request sample of the same world, unpaired.",
)  # fmt: skip
@click.option(
    "--retrain", is_flag=True,
    help="Models learn from the log of the changed cascade.  [default: from the log of the baseline's, so "
    "that they stay as they were]",
)  # fmt: skip
@set_option(" of the scenario")
@workers_option("Threads.")
@device_option()
@quiet_option
@accept_option
def command(
    what: Path, against: Path, arms: tuple[str, ...], overrides: tuple[str, ...], **options: Any
) -> int:
    """Test a scenario for revenue regressions against a baseline.

    Every metric of every arm is compared on the same requests with common random numbers, so unchanged code
    is identical; changes are reported with paired intervals and the minimum detectable effect. In place of a
    scenario a finished run may be given.
    """
    from cascade_sim.api import check

    result = check(what, against, arm=arms, set=overrides, **options)
    echo(str(result))
    return 0 if result.passed else 1
