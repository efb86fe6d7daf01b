"""Where the answer to a what-if is written: JSON, CSV, a page and its figure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cascade_sim.errors import UserError
from cascade_sim.scenario.changes import Point, arm_knobs
from cascade_sim.storage.files import storage_errors, write_file
from cascade_sim.storage.folder import json_text

FOLDER = "whatif"  # of a run
LONGEST_NAME = 80


def answer_name(points: list[Point], arm: str | None, requests: int | None = None) -> str:
    """A folder's name that says what was asked: `reserve_cpc-0.2`, `slots-2_3_4-distill`.

    Where the words leave something out (values in the middle, signs that no file's name can have), the
    beginning of a hash of them all follows: no two questions share a folder.
    """
    ends = [knob[-1] for knob in arm_knobs()]
    parts, asked, is_whole = [], [], True
    for changes in zip(*points, strict=True):
        knob, values = changes[0].knob, list(dict.fromkeys(str(change.value) for change in changes))
        shown = [values[0], f"to-{values[-1]}"] if len(values) > 4 else values
        is_whole &= shown == values
        own = knob[-1] if ends.count(knob[-1]) == 1 else "-".join(knob)  # two stages have a size, and a model
        parts.append(f"{own}-{'_'.join(shown)}")
        asked.append([knob, values])
    name = "-".join([*parts, *([arm] if arm else []), *([f"first-{requests}"] if requests else [])])
    safe = "".join(sign if sign.isalnum() or sign in "._-" else "-" for sign in name)
    short = safe[:LONGEST_NAME].strip(".-")
    if is_whole and short == name:
        return short
    return f"{short}-{hashlib.sha256(json.dumps([asked, arm, requests]).encode()).hexdigest()[:6]}"


def check_out(out: Path) -> None:
    """Refuse a place that cannot be written to before any work is done."""
    if out.exists() and not out.is_dir():
        raise UserError(f"--out: {out} is a file; give a folder")
    with storage_errors(out):
        out.mkdir(parents=True, exist_ok=True)


def write_answer(answer: Mapping[str, Any], out: Path) -> list[Path]:
    """whatif.json, whatif.csv, whatif.html, whatif.svg and whatif.png in `out`; returns their paths."""
    from cascade_sim.analysis.report.figures.whatif import answer_image
    from cascade_sim.analysis.report.sections.whatif import what_if_csv
    from cascade_sim.analysis.report.short_page import what_if_page

    check_out(out)
    svg = answer_image(answer, "svg")
    contents = {
        "whatif.json": json_text(answer).encode(),
        "whatif.csv": what_if_csv(answer).encode(),
        "whatif.html": what_if_page(answer, svg.decode()).encode(),
        "whatif.svg": svg,
        "whatif.png": answer_image(answer, "png"),
    }
    for name, content in contents.items():
        write_file(out / name, content)
    return [out / name for name in contents]
