"""The report of a run as files: its page and its figures."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

MARK = b'<meta name="generator" content="cascade_sim">'  # of every page, near its beginning


def write_report(
    folder: Path,
    metrics: Mapping[str, Any],
    manifest: Mapping[str, Any],
    scenario_text: str,
    *,
    out: Path | None = None,
) -> Path:
    """Draw the figures; write report.html and figures/*.svg into the folder, or the page alone to `out`."""
    from cascade_sim.analysis.report.page import draw_all, render
    from cascade_sim.storage.files import below, folder_inside, refuse_other, storage_errors, write_file

    if out is None:
        folder_inside(folder, "figures")  # before anything is drawn
    else:
        refuse_other(out, "report of cascade_sim", MARK)
    metrics = {**with_arm_changes(metrics, scenario_text), "micros": manifest.get("micros")}
    figures = draw_all(metrics)
    page = out or below(folder, "report.html")
    with storage_errors(page):
        page.parent.mkdir(parents=True, exist_ok=True)
    if out is None:
        for name, svg in figures.items():
            write_file(folder_inside(folder, "figures") / f"{name}.svg", svg.encode())
    write_file(page, render(metrics, manifest, scenario_text, figures).encode())
    return page


def with_arm_changes(metrics: Mapping[str, Any], scenario_text: str) -> dict[str, Any]:
    """The metrics with what each arm does otherwise than the baseline: texts are about that."""
    from cascade_sim.scenario.diff import arm_changes

    return {**metrics, "arm_changes": arm_changes(scenario_text, str(metrics["baseline"]))}
