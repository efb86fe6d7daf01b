"""Objectives compared on learning-to-rank files: read, train, measure, print, write."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cascade_sim.errors import UserError
from cascade_sim.ltr.files import RankingFile, read_file
from cascade_sim.ltr.results import results
from cascade_sim.ltr.study import Files, Plan, run_study
from cascade_sim.ltr.training import list_columns, make_table
from cascade_sim.progress import Progress

KEPT_ASIDE = 5  # without a validation file every fifth training list is one to choose by


def load_files(
    train: Path,
    valid: Path | None,
    test: Path,
    positive_from: float | None,
    device: str,
    progress: Progress,
) -> Files:
    """The three parts as tables. Features that the training file does not have are not read.

    positive_from: labels of at least that become 1, the others 0; None keeps the grades.
    """
    found: dict[str, RankingFile] = {}
    columns: np.ndarray | None = None
    for part, path in (("train", train), ("valid", valid), ("test", test)):
        if path is None:
            continue
        size = path.stat().st_size if path.is_file() else None
        with progress.stage(f"read {part}", size, "bytes") as stage:
            found[part] = read_file(path, columns, stage.advance)
        columns = found["train"].columns
    if valid is None:
        found["train"], found["valid"] = split(found["train"], train)
    sources = {"train": train, "valid": valid or train, "test": test}
    least = positive_from if positive_from is not None else np.finfo(np.float32).tiny
    for part, data in found.items():
        if not (data.labels >= least).any():
            wanted = "above 0" if positive_from is None else f"of {positive_from:g} or more"
            raise UserError(f"{sources[part]}: no label {wanted}, so there is no order to judge")
    if positive_from is not None and (found["train"].labels >= positive_from).all():
        raise UserError(f"{train}: every label is {positive_from:g} or more, so there is nothing to learn")
    own = list_columns(found["train"])
    return Files(
        *(make_table(found[part], own, positive_from, device) for part in ("train", "valid", "test"))
    )


def split(data: RankingFile, path: Path) -> tuple[RankingFile, RankingFile]:
    """Lists to train on, and every fifth to choose by."""
    if data.n_lists < KEPT_ASIDE:
        raise UserError(f"{path}: {data.n_lists} lists are too few to set some aside; give a validation file")
    is_aside = np.arange(data.n_lists) % KEPT_ASIDE == KEPT_ASIDE - 1
    return data.take_lists(np.flatnonzero(~is_aside)), data.take_lists(np.flatnonzero(is_aside))


@contextmanager
def threads(n: int) -> Iterator[None]:
    """So many torch threads for a while: float sums depend on their number."""
    before = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def compare(files: Files, plan: Plan, progress: Progress, n_threads: int = 1) -> dict[str, Any]:
    """Run the study; its findings as plain numbers."""
    with threads(n_threads), progress.stage("train", plan.n_epochs, "epochs") as stage:
        return results(run_study(files, plan, stage.advance), files, plan)


def write_figures(findings: dict[str, Any], out: Path) -> None:
    """pareto and drift as PNG and SVG, and ltr.json."""
    from cascade_sim.analysis.report.figures import ltr as plots_ltr
    from cascade_sim.analysis.report.figures.style import style, svg_text
    from cascade_sim.storage.files import write_file
    from cascade_sim.storage.folder import json_text

    figures = {
        "pareto": (plots_ltr.pareto_figure, f"NDCG@10 against {findings['loss']}, by objective"),
        "drift": (plots_ltr.drift_figure, "Mean score while training, by objective"),
    }
    for name, (make, title) in figures.items():
        with style(name):
            figure = make(findings)
            image = io.BytesIO()
            figure.savefig(image, format="png", dpi=160, metadata={"Software": None})
            write_file(out / f"{name}.png", image.getvalue())
            write_file(out / f"{name}.svg", svg_text(figure, name, title).encode())
    write_file(out / "ltr.json", json_text(findings).encode())
