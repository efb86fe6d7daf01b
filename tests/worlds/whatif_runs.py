"""The tiny study as a run folder whose metrics are those of the study, and runs made from it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from cascade_sim.scenario.file import dump_scenario, load_scenario
from cascade_sim.storage.folder import json_text
from worlds.tiny_market import Study
from worlds.traced_run import as_run_folder

LOGS = ("evaluate-logloss", "evaluate-distill-pre", "log")


def measured_run(study: Study, path: Path) -> Path:
    """A finished run with everything that a question to it needs."""
    as_run_folder(study, path)
    (path / "metrics.json").write_text(json_text(study.metrics))
    return path


def other_run(run: Path, path: Path, *changes: str, metrics: dict[str, Any] | None = None) -> Path:
    """A copy of a run under another scenario."""
    shutil.copytree(run, path)
    (path / "scenario.yaml").write_text(dump_scenario(load_scenario(run / "scenario.yaml", changes)))
    if metrics is not None:
        (path / "metrics.json").write_text(json_text(metrics))
    return path
