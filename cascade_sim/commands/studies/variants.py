"""`cascade_sim variants`: the same study under other settings, which a file names."""

from pathlib import Path
from typing import Any

import click

from cascade_sim.commands.options import (
    PATH,
    accept_option,
    device_option,
    engine_options,
    out_option,
    quiet_option,
    says_how_to_go_on,
    seeds_option,
    set_option,
    workers_option,
)
from cascade_sim.foundation.terminal import echo

TABLES = {
    "RCS, %": ("rcs", False),
    "single-objective RCS, %": ("single_objective_rcs", False),
    "CTR lift, %": ("expected_ctr", True),
    "RPM lift, %": ("expected_rpm", True),
    "proxy-ECE, % of a click": ("proxy_ece", False),
    "CTR of the win set, %": ("expected_ctr", False),
}
ORDERS = {"RCS": "rcs", "expected CTR": "expected_ctr", "expected RPM": "expected_rpm"}


@click.command()
@click.argument("variants", type=PATH)
@set_option(" in every variant")
@seeds_option("Worlds per variant.", default=3)
@out_option("Folder.  [default: runs/<file name>]")
@workers_option("Processes.")
@device_option()
@engine_options
@quiet_option
@accept_option
def command(variants: Path, overrides: tuple[str, ...], seeds: int, out: Path | None, **means: Any) -> None:
    """Run a study under several settings, side by side.

    Prints, as Markdown, how RCS, lifts and the ablation table change, and how many worlds keep each order.
    """
    from cascade_sim.context import run_context
    from cascade_sim.storage.folder import default_folder
    from cascade_sim.study.sweeps import (
        ablation_table,
        load_variants,
        orders_kept,
        run_variants,
        variants_table,
    )

    cells = load_variants(variants, overrides)
    scenarios = [cell.scenario for cell in cells]
    with says_how_to_go_on():
        context = run_context(out or default_folder(variants.stem), scenarios, **means)
        results = run_variants(cells, context, seeds=seeds)
    arms = list(dict.fromkeys(arm for cell in cells for arm in cell.scenario.arms))
    for title, (metric, lift) in TABLES.items():
        echo(f"\n**{title}** (mean over {seeds} seeds ± half the 95 % interval between them)\n")
        echo(variants_table(results, arms, metric, lift))
    echo("\n**RCS with bid and model of pre-ranking replaced, %**\n")
    echo(ablation_table(results))
    for title, metric in ORDERS.items():
        table = orders_kept(results, metric)
        if table:
            echo(f"\n**Worlds that keep the order by {title}**\n")
            echo(table)
