"""`cascade_sim report`: the report of a finished run, written again from its metrics."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from cascade_sim.commands.options import out_option, run_argument
from cascade_sim.foundation.errors import UserError
from cascade_sim.foundation.terminal import echo
from cascade_sim.study.report import write_report


@click.command()
@run_argument
@out_option("Write the page here, and no figures beside it.", "FILE")
def command(run: Path, out: Path | None) -> None:
    """Regenerate the report of a finished run.

    Writes RUN/report.html and RUN/figures.
    """
    metrics, manifest, scenario_text = read_run(run)
    echo(write_report(run, metrics, manifest, scenario_text, out=out))


def read_run(folder: Path) -> tuple[dict[str, Any], dict[str, Any], str]:
    """metrics.json, manifest.json and the text of scenario.yaml of a finished run."""
    from cascade_sim.storage.files import below
    from cascade_sim.storage.folder import METRICS, open_run, require_measures

    run, file = open_run(folder), below(folder, METRICS)
    arms, baseline = run.metrics.get("arms"), run.metrics.get("baseline")
    if (
        not isinstance(arms, Mapping)
        or not arms
        or not all(isinstance(arm, Mapping) for arm in arms.values())
    ):
        raise UserError(f"{file}: 'arms' must be an object of arms, each an object of measures")
    if baseline not in arms:
        raise UserError(f"{file}: 'baseline' must name one of the arms: {', '.join(arms)}")
    require_measures(run)
    return run.metrics, run.manifest, _read_text(below(folder, "scenario.yaml"))


def _read_text(path: Path) -> str:
    from cascade_sim.storage.files import read_file

    try:
        return read_file(path).decode("utf-8")
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 text") from error
