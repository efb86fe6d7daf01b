"""Objectives compared on learning-to-rank files: read, train the grid, choose, calibrate, measure, write.

A cell is an objective with its alpha, a learning rate and a seed. For each objective and seed one cell is
chosen by the validation lists alone:
- an objective without scale: the greatest NDCG@10;
- one with scale: the least log loss (or squared error) among the cells whose NDCG@10 is within one standard
  error of the objective's best. With few validation lists that is nearly all of them, with many nearly none.
Calibrators are fitted to the chosen cell's scores on the validation lists. `measure` says what a ranker is
worth on a file: order and scale of every list, and the file's means. The results are plain numbers: rows over
seeds with paired tests, cells, wins, curves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cascade_sim.analysis import metrics
from cascade_sim.analysis.metrics import Stability, stability
from cascade_sim.analysis.statistics.bootstrap import seed_spread
from cascade_sim.analysis.statistics.moves import holm, paired_p, strict_wins
from cascade_sim.errors import UserError
from cascade_sim.ltr.files import RankingFile, read_file
from cascade_sim.ltr.training import (
    Settings,
    Table,
    Trained,
    list_columns,
    make_table,
    outputs_of,
    train,
    usual_batch,
    usual_epochs,
    usual_layers,
)
from cascade_sim.models.nets.ltr_net import RankingNet
from cascade_sim.models.objectives import OBJECTIVES, Calibrated, Objective, make_objective, split_family
from cascade_sim.progress import Progress

DEPTH = 10  # places that NDCG looks at

BASELINE = "pointwise"

LOSS_NAMES = {"binary": "LogLoss", "graded": "MSE"}

KEPT_ASIDE = 5  # without a validation file every fifth training list is one to choose by

# Calibrators of the rows that are added where none are asked for.
USUAL_CALIBRATORS: Mapping[str, tuple[str, ...]] = {"sbcr": ("platt", "piecewise_linear")}

_WITHOUT_SCALE = ("platt",)

_TESTED = ("ndcg", "loss", "ece")


@dataclass(frozen=True)
class Files:
    """The three parts of the data: to learn from, to choose by, to measure on."""

    train: Table
    valid: Table
    test: Table


@dataclass(frozen=True)
class Plan:
    """What is trained: objectives, the grid of each, seeds, and calibrators for the chosen cells."""

    objectives: tuple[str, ...]  # names, or families such as multi_objective-mean
    task: str = "binary"
    alphas: tuple[float, ...] = (0.1, 0.5, 0.9)
    learning_rates: tuple[float, ...] = (0.003,)
    seeds: tuple[int, ...] = (1,)
    calibrators: tuple[str, ...] | None = None  # None: the usual ones
    options: Mapping[str, Any] = field(default_factory=dict)  # y0, …: for the objectives that have them
    settings: Settings = field(default_factory=Settings)

    def cells_of(self, name: str) -> list[tuple[Objective, float | None, float]]:
        """The grid of one objective: itself, its alpha if it has one, the learning rate."""
        name, own = split_family(name)
        known = OBJECTIVES[name].options
        fixed = {**{key: value for key, value in self.options.items() if key in known}, **own}
        alphas: Sequence[float | None] = self.alphas if "alpha" in known else (None,)
        return [
            (
                make_objective(name, self.task, **fixed, **({} if alpha is None else {"alpha": alpha})),
                alpha,
                rate,
            )
            for alpha in alphas
            for rate in self.learning_rates
        ]

    def calibrators_of(self, name: str) -> tuple[str, ...]:
        if self.task != "binary":
            return ()
        if self.calibrators is not None:
            return self.calibrators
        objective, _ = split_family(name)
        return USUAL_CALIBRATORS.get(objective, () if OBJECTIVES[objective].has_scale else _WITHOUT_SCALE)

    def sized(
        self, data: Table, *, layers: tuple[int, ...] | None, epochs: int | None, batch: int | None
    ) -> Plan:
        """The plan for this training file; what is not given is usual for a file of its size."""
        batch = batch or usual_batch(data.n_lists)
        settings = replace(
            self.settings,
            layers=layers or usual_layers(len(data.labels)),
            epochs=epochs or usual_epochs(data.n_lists, batch),
            batch=batch,
        )
        return replace(self, settings=settings)

    @property
    def n_epochs(self) -> int:
        """Epochs of all trainings together."""
        cells = sum(len(self.cells_of(name)) for name in self.objectives)
        return cells * len(self.seeds) * self.settings.epochs


@dataclass(frozen=True)
class Cell:
    """One training and what became of it."""

    objective: Objective
    alpha: float | None
    learning_rate: float
    seed: int
    epoch: int  # of the weights kept
    trend: Stability | None  # None: too few steps to judge
    curve: np.ndarray
    valid: Measured
    test: Measured
    valid_outputs: torch.Tensor
    test_outputs: torch.Tensor
    is_learning: bool | None = None  # whether more epochs would have helped

    def without_outputs(self) -> Cell:
        """A cell that was not chosen: what it said of every item is no longer needed."""
        return replace(self, valid_outputs=torch.empty(0), test_outputs=torch.empty(0))


@dataclass(frozen=True)
class Row:
    """A line of the table for one seed: an objective at its chosen cell, perhaps with a calibrator."""

    name: str
    cell: Cell
    test: Measured


@dataclass(frozen=True)
class StudyResult:
    """All cells, and the rows of every seed in the order of the plan."""

    cells: list[Cell]
    rows: list[Row]
    diverged: list[dict[str, Any]]  # cells without an epoch of finite scores


@dataclass(frozen=True)
class Measured:
    """Metrics of Q lists. NaN where a list does not count."""

    ndcg: np.ndarray  # [Q] NDCG@10
    loss: np.ndarray  # [Q] log loss or squared error, summed over the items
    ece: np.ndarray  # [Q] calibration error over ten bins of equal count
    predicted: np.ndarray  # [Q] sum of predictions
    observed: np.ndarray  # [Q] sum of labels
    items: np.ndarray  # [Q]

    @property
    def means(self) -> dict[str, float]:
        """The file's figures: NDCG and ECE per list, the loss per item, PCOC of all predictions."""
        observed = float(self.observed.sum())
        return {
            "ndcg": _mean(self.ndcg),
            "loss": float(self.loss.sum() / self.items.sum()),
            "ece": _mean(self.ece),
            "pcoc": float(self.predicted.sum() / observed) if observed else float("nan"),
        }

    @property
    def ndcg_error(self) -> float:
        """Standard error of the mean NDCG over lists; 0 for fewer than two."""
        values = self.ndcg[~np.isnan(self.ndcg)]
        return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0


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
    files: dict[str, RankingFile] = {}
    columns: np.ndarray | None = None
    for part, path in (("train", train), ("valid", valid), ("test", test)):
        if path is None:
            continue
        size = path.stat().st_size if path.is_file() else None
        with progress.stage(f"read {part}", size, "bytes") as stage:
            files[part] = read_file(path, columns, stage.advance)
        columns = files["train"].columns
    if valid is None:
        files["train"], files["valid"] = split(files["train"], train)
    sources = {"train": train, "valid": valid or train, "test": test}
    least = positive_from if positive_from is not None else np.finfo(np.float32).tiny
    for part, data in files.items():
        if not (data.labels >= least).any():
            wanted = "above 0" if positive_from is None else f"of {positive_from:g} or more"
            raise UserError(f"{sources[part]}: no label {wanted}, so there is no order to judge")
    if positive_from is not None and (files["train"].labels >= positive_from).all():
        raise UserError(f"{train}: every label is {positive_from:g} or more, so there is nothing to learn")
    own = list_columns(files["train"])
    return Files(
        *(make_table(files[part], own, positive_from, device) for part in ("train", "valid", "test"))
    )


def split(data: RankingFile, path: Path) -> tuple[RankingFile, RankingFile]:
    """Lists to train on, and every fifth to choose by."""
    if data.n_lists < KEPT_ASIDE:
        raise UserError(f"{path}: {data.n_lists} lists are too few to set some aside; give a validation file")
    is_aside = np.arange(data.n_lists) % KEPT_ASIDE == KEPT_ASIDE - 1
    return data.take_lists(np.flatnonzero(~is_aside)), data.take_lists(np.flatnonzero(is_aside))


def compare(files: Files, plan: Plan, progress: Progress, n_threads: int = 1) -> dict[str, Any]:
    """Run the study; its findings as plain numbers."""
    with threads(n_threads), progress.stage("train", plan.n_epochs, "epochs") as stage:
        return results(run_study(files, plan, stage.advance), files, plan)


@contextmanager
def threads(n: int) -> Iterator[None]:
    """So many torch threads for a while: float sums depend on their number."""
    before = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def run_study(files: Files, plan: Plan, advance: Callable[[int], None] = lambda n: None) -> StudyResult:
    """Train and measure everything; `advance` is told of epochs done."""
    cells: list[Cell] = []
    rows: list[Row] = []
    diverged: list[dict[str, Any]] = []
    for name in plan.objectives:
        for seed in plan.seeds:
            trained = []
            for objective, alpha, rate in plan.cells_of(name):
                cell = _train_cell(files, plan.settings, objective, alpha, rate, seed, advance)
                if cell is None:
                    diverged.append({"objective": name, "alpha": alpha, "learning_rate": rate, "seed": seed})
                else:
                    trained.append(cell)
            if not trained:
                raise UserError(f"no training of {name} gave finite scores: take a lower learning rate")
            chosen = choose(trained)
            cells += [cell if cell is chosen else cell.without_outputs() for cell in trained]
            rows += _rows(files, plan, chosen)
    return StudyResult(cells, rows, diverged)


def _train_cell(
    files: Files,
    settings: Settings,
    objective: Objective,
    alpha: float | None,
    rate: float,
    seed: int,
    advance: Callable[[int], None],
) -> Cell | None:
    """Train one cell; None if it never had finite scores, or has not on the test lists."""

    def judge(net: RankingNet) -> float:
        outputs = outputs_of(net, files.valid.features)
        if not bool(torch.isfinite(objective.predict(outputs.double())).all()):
            return float("nan")
        means = measured(objective, outputs, files.valid).means
        return -means["loss"] if objective.has_scale else means["ndcg"]

    done: Trained = train(objective, files.train, settings, rate, seed, judge, lambda: advance(1))
    if done.epoch == 0:
        return None
    valid_outputs = outputs_of(done.net, files.valid.features)
    test_outputs = outputs_of(done.net, files.test.features)
    if not bool(torch.isfinite(objective.predict(test_outputs.double())).all()):
        return None
    return Cell(
        objective,
        alpha,
        rate,
        seed,
        done.epoch,
        stability(done.curve) if len(done.curve) > 2 else None,
        done.curve,
        measured(objective, valid_outputs, files.valid),
        measured(objective, test_outputs, files.test),
        valid_outputs,
        test_outputs,
        done.is_learning,
    )


def choose(cells: Sequence[Cell]) -> Cell:
    """The cell that the validation lists prefer, by the rule at the top of the file; the first of equals."""
    best = max(cells, key=lambda cell: cell.valid.means["ndcg"])
    if not best.objective.has_scale:
        return best
    least = best.valid.means["ndcg"] - best.valid.ndcg_error
    near = [cell for cell in cells if cell.valid.means["ndcg"] >= least]
    return min(near, key=lambda cell: cell.valid.means["loss"])


def _rows(files: Files, plan: Plan, cell: Cell) -> Iterator[Row]:
    """The objective itself, then with each calibrator."""
    name = cell.objective.family
    yield Row(name, cell, cell.test)
    for calibrator in plan.calibrators_of(name):
        options = {"hidden": (32,)} if calibrator == "piecewise_linear" else {}
        served = Calibrated.fit(
            cell.objective,
            calibrator,
            cell.valid_outputs.double(),
            files.valid.labels.cpu(),
            files.valid.request,
            **options,
        )
        yield Row(served.name, cell, measured(served, cell.test_outputs, files.test))


def measured(ranker: Objective | Calibrated, outputs: torch.Tensor, table: Table) -> Measured:
    """A ranker's outputs on a file, measured."""
    if isinstance(ranker, Calibrated):
        predictions = ranker.predict(outputs.double(), table.request)
        task = "binary"
    else:
        predictions, task = ranker.predict(outputs.double()), ranker.task
    labels = table.labels.double().cpu().numpy()
    return measure(ranker.score(outputs.double()).numpy(), predictions.numpy(), labels, table.lists, task)


def measure(
    scores: np.ndarray, predictions: np.ndarray, labels: np.ndarray, lists: np.ndarray, task: str
) -> Measured:
    """Order and scale of every list: scores rank, predictions are on the labels' scale.  [N] each"""
    items = np.diff(lists)
    loss = (metrics.logloss if task == "binary" else metrics.mse)(predictions, labels, lists)
    owner = np.repeat(np.arange(len(items)), items)
    return Measured(
        ndcg=metrics.ndcg(scores, labels, lists, k=DEPTH).value,
        loss=np.where(items > 0, loss.value, 0.0) * items,
        ece=metrics.ece_per_request(predictions, labels, lists).value,
        predicted=np.bincount(owner, predictions, len(items)),
        observed=np.bincount(owner, labels, len(items)),
        items=items,
    )


def constant_loss(files: Files, task: str) -> float:
    """The loss on the test lists of who predicts the mean label of the training lists for every item."""
    labels = files.test.labels.double().cpu().numpy()
    always = np.full(len(labels), float(files.train.labels.double().mean()))
    return measure(always, always, labels, files.test.lists, task).means["loss"]


def _mean(values: np.ndarray) -> float:
    counted = values[~np.isnan(values)]
    return float(counted.mean()) if len(counted) else float("nan")


def results(findings: StudyResult, files: Files, plan: Plan) -> dict[str, Any]:
    """Everything as JSON-ready numbers.

    A row's value is the mean over seeds. Its p compares it with the baseline list by list (each list averaged
    over seeds first), adjusted for all comparisons of the table: None for the baseline and without one.
    """
    grouped: dict[str, list[Row]] = {}
    for row in findings.rows:
        grouped.setdefault(row.name, []).append(row)
    rows = [_row(name, group) for name, group in grouped.items()]
    compared = _compare(rows, grouped)
    best = {metric: _best(rows, grouped, metric) for metric in ("ndcg", "loss")}
    cells = [_cell(cell) for cell in findings.cells]
    ndcg = findings.rows[0].test.ndcg
    return {
        "task": plan.task,
        "loss": LOSS_NAMES[plan.task],
        "seeds": list(plan.seeds),
        "lists": {part: getattr(files, part).n_lists for part in ("train", "valid", "test")},
        "features": int(files.train.features.shape[1]),
        "skipped": float(np.isnan(ndcg).mean()),
        "constant_loss": constant_loss(files, plan.task),
        "layers": list(plan.settings.layers),
        "epochs": plan.settings.epochs,
        "batch": plan.settings.batch,
        "steps": plan.settings.epochs * -(-files.train.n_lists // plan.settings.batch),
        "baseline": BASELINE,
        "comparisons": compared,
        "best": best,
        "rows": rows,
        "cells": cells,
        "diverged": findings.diverged,
        "wins": strict_wins(cells),
        "curves": {
            name: {str(row.cell.seed): _curve(row.cell) for row in group}
            for name, group in grouped.items()
            if "+" not in name
        },
    }


def _row(name: str, group: list[Row]) -> dict[str, Any]:
    means = [row.test.means for row in group]
    judged = [_mark(row.cell) for row in group if row.cell.trend is not None]
    objective, _, calibrator = name.partition("+")
    return {
        "name": name if "+" in name or group[0].cell.objective.has_scale else f"{name} *",
        "objective": objective,
        "calibrator": calibrator or None,
        "has_scale": bool(calibrator) or group[0].cell.objective.has_scale,
        **{metric: seed_spread([seed_means[metric] for seed_means in means]) for metric in means[0]},
        "n_stable": sum(bool(mark) for mark in judged),
        "n_judged": len(judged),
        "n_learning": sum(bool(row.cell.is_learning) for row in group),
        "chosen": [
            {
                "seed": row.cell.seed,
                "alpha": row.cell.alpha,
                "learning_rate": row.cell.learning_rate,
                "epoch": row.cell.epoch,
            }
            for row in group
        ],
    }


def _compare(rows: list[dict[str, Any]], grouped: dict[str, list[Row]]) -> int:
    """Put gap and adjusted p into the rows; returns the number of comparisons."""
    if BASELINE not in grouped:
        return 0
    places: list[dict[str, Any]] = []
    ps: list[float] = []
    for row, (name, group) in zip(rows, grouped.items(), strict=True):
        for metric in _TESTED if name != BASELINE else ():
            values, base = _per_list(group, metric), _per_list(grouped[BASELINE], metric)
            row[metric]["gap"] = _number(float(np.nanmean(values - base)))
            places.append(row[metric])
            ps.append(paired_p(values, base))
    for place, p in zip(places, holm(ps), strict=True):
        place["p"] = _number(p)
    return sum(not math.isnan(p) for p in ps)


def _best(rows: list[dict[str, Any]], grouped: dict[str, list[Row]], metric: str) -> dict[str, Any] | None:
    """The best ranker of a metric, and which others are not told apart from it, list by list.

    For order a calibrator changes nothing and is left out; for scale, whatever has none.
    """
    from cascade_sim.analysis.report.sections.ltr import LEVEL

    names = {row["name"]: name for row, name in zip(rows, grouped, strict=True)}
    able = [
        row
        for row in rows
        if row[metric]["value"] is not None
        and (row["has_scale"] if metric == "loss" else row["calibrator"] is None)
    ]
    if not able:
        return None
    best = (max if metric == "ndcg" else min)(able, key=lambda row: row[metric]["value"])
    others = [row["name"] for row in able if row is not best]
    own = _per_list(grouped[names[best["name"]]], metric)
    ps = holm([paired_p(_per_list(grouped[names[name]], metric), own) for name in others])
    near = [name for name, p in zip(others, ps, strict=True) if not p < LEVEL]
    return {"name": best["name"], "near": near, "others": len(others)}


def _per_list(group: list[Row], metric: str) -> np.ndarray:
    """A metric of every test list, averaged over seeds.  [Q]"""
    return np.mean([getattr(row.test, metric) for row in group], axis=0)


def _cell(cell: Cell) -> dict[str, Any]:
    trend = cell.trend
    return {
        "objective": cell.objective.family,
        "alpha": cell.alpha,
        "learning_rate": cell.learning_rate,
        "seed": cell.seed,
        "epoch": cell.epoch,
        **{name: _number(value) for name, value in cell.test.means.items()},
        "valid": {name: _number(value) for name, value in cell.valid.means.items()},
        "learning": cell.is_learning,
        "stable": _mark(cell),
        "change": None if trend is None else _number(trend.change),
        "residual": None if trend is None else _number(trend.residual),
    }


def _curve(cell: Cell) -> dict[str, Any]:
    return {"points": [_number(x) for x in cell.curve], "stable": _mark(cell)}


def _mark(cell: Cell) -> bool | None:
    return None if cell.trend is None else cell.trend.is_stable


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def write_study(findings: dict[str, Any], out: Path) -> list[Path]:
    """Write the page, the rows as CSV, the figures as PNG and SVG, and all numbers as JSON."""
    from cascade_sim.analysis.report.figures.parts import png_bytes
    from cascade_sim.analysis.report.figures.style import style, svg_text
    from cascade_sim.analysis.report.sections.ltr import ltr_csv, ltr_figures
    from cascade_sim.analysis.report.short_page import ltr_page
    from cascade_sim.storage.files import write_file
    from cascade_sim.storage.folder import json_text

    contents: dict[str, bytes] = {}
    svgs = {}
    for figure in ltr_figures(findings):
        with style(figure.name):
            drawn = figure.draw(findings)
            contents[f"{figure.name}.png"] = png_bytes(drawn, dpi=160)
            svgs[figure.name] = svg_text(drawn, figure.name, figure.title)
    contents |= {f"{name}.svg": svg.encode() for name, svg in svgs.items()}
    contents["ltr.csv"] = ltr_csv(findings).encode()
    contents["ltr.html"] = ltr_page(findings, svgs).encode()
    contents["ltr.json"] = json_text(findings).encode()
    for name, content in contents.items():
        write_file(out / name, content)
    return [out / "ltr.html", out / "ltr.csv", out / "ltr.json"]
