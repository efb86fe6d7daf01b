"""Objectives compared on learning-to-rank files: read, train the grid, choose, calibrate, measure, write.

A cell is an objective at a point of its grid (alpha, learning rate, …) with a seed. For each objective and
seed one cell is chosen by the validation lists alone; `tuning` has the grid and the rules. The test lists are
measured after that, and have no say. Calibrators are fitted to the chosen cell's scores on the validation
lists. `measure` says what a ranker is worth on a file: order and scale of every list, and the file's means.
The results are plain numbers: rows over seeds with paired tests, cells, wins, curves. With folds every list
is tested on once, by nets that did not see it; a seed's folds are put together before seeds are averaged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cascade_sim.analysis import metrics
from cascade_sim.analysis.metrics import Stability, stability
from cascade_sim.analysis.statistics.bootstrap import seed_spread
from cascade_sim.analysis.statistics.estimates import t_quantile
from cascade_sim.analysis.statistics.moves import holm, paired_p, strict_wins
from cascade_sim.foundation import random as draws
from cascade_sim.foundation.errors import UserError
from cascade_sim.foundation.progress import Progress
from cascade_sim.ltr.files import RankingFile, read_file
from cascade_sim.ltr.line import LinearlyCalibrated
from cascade_sim.ltr.training import (
    Settings,
    Table,
    default_batch,
    default_epochs,
    default_layers,
    list_columns,
    make_table,
    outputs_of,
    train,
)
from cascade_sim.ltr.tuning import LOSS, NEAR, PAPER_RULES, Grid, Point, choose, entrant_of, measure_of
from cascade_sim.models.nets.ltr_net import RankingNet
from cascade_sim.models.objectives import Calibrated, Objective

DEPTH = 10  # places that NDCG looks at

BASELINE = "pointwise"

# What the paper on regression compatible ranking compares others with, the first that is there.
RIVALS = ("multi_objective-mean", "multi_objective")

# Its groups of objectives; another objective is a group of its own.
APPROACHES = {
    "ranknet": "listwise",
    "softmax": "listwise",
    "approx_ndcg": "listwise",
    "listce": "listwise",
    "multi_objective": "multi-objective",
    "rcr_regression": "rcr",
    "mse_softplus": "pointwise",
}

LOSS_NAMES = {"binary": "LogLoss", "graded": "MSE"}

KEPT_ASIDE = 5  # without a validation file every fifth training list is one to choose by

# Calibrators of the rows that are added where none are asked for.
USUAL_CALIBRATORS: Mapping[str, tuple[str, ...]] = {"sbcr": ("platt", "piecewise_linear")}

_WITHOUT_SCALE = ("platt",)

_TESTED = ("ndcg", "loss", "ece")

PER_LIST = ("ndcg", "ndcg_1", "ece")  # what is a mean over lists


@dataclass(frozen=True)
class Files:
    """The three parts of the data: to learn from, to choose by, to measure on.

    `whole` is the training file if each seed draws lists to choose by of its own; `train` and `valid` are
    then those of seed 1. With folds it is all files together, and the three are those of fold 0.
    """

    train: Table
    valid: Table
    test: Table
    whole: Table | None = None

    def of_seed(self, seed: int) -> Files:
        """The parts that a seed sees. The test lists are the same for all."""
        if self.whole is None:
            return self
        is_aside = drawn_aside(self.whole.n_lists, seed)
        train, valid = (self.whole.take_lists(np.flatnonzero(part)) for part in (~is_aside, is_aside))
        return Files(train, valid, self.test, self.whole)

    def of_fold(self, fold: int, folds: int) -> Files:
        """One fold to test on, the next to choose by, the others to learn from."""
        assert self.whole is not None
        return fold_files(self.whole, fold, folds)


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
    dropouts: tuple[float, ...] = ()  # empty: that of the settings; so for momenta
    momenta: tuple[float, ...] = ()
    y0s: tuple[float, ...] = ()  # empty: as in the options
    budget: int | None = None  # trainings of each objective and seed; None: the whole grid of each
    baseline: str = BASELINE  # the row that others are tested against
    papers: bool = False  # choose also by the rules of the papers, and have their tables
    folds: int | None = None  # None: the files are the parts; else every list is tested on in one of them

    @property
    def grid(self) -> Grid:
        return Grid(
            self.learning_rates,
            self.dropouts or (self.settings.dropout,),
            self.momenta or (self.settings.momentum,),
            self.alphas,
            self.y0s,
            self.budget,
        )

    def cells_of(self, name: str) -> list[Point]:
        """What is trained of one objective for each seed. ValueError where that is not possible."""
        return self.grid.points(name, self.task, self.options)

    def rows_of(self, name: str) -> list[str]:
        """The rows of one objective: itself, and with each calibrator."""
        return [name, *(f"{name}+{calibrator}" for calibrator in self.calibrators_of(name))]

    def calibrators_of(self, name: str) -> tuple[str, ...]:
        kind = entrant_of(name).kind
        if self.task != "binary":
            return ("line",) if self.papers and not kind.has_scale else ()
        if self.calibrators is not None:
            return self.calibrators
        return USUAL_CALIBRATORS.get(kind.name, () if kind.has_scale else _WITHOUT_SCALE)

    def sized(
        self, data: Table, *, layers: tuple[int, ...] | None, epochs: int | None, batch: int | None
    ) -> Plan:
        """The plan for this training file; what is not given is usual for a file of its size."""
        batch = batch or default_batch(data.n_lists)
        settings = replace(
            self.settings,
            layers=layers or default_layers(len(data.labels)),
            epochs=epochs or default_epochs(data.n_lists, batch),
            batch=batch,
        )
        return replace(self, settings=settings)

    @property
    def n_epochs(self) -> int:
        """Epochs of all trainings together."""
        cells = sum(len(self.cells_of(name)) for name in self.objectives)
        return cells * len(self.seeds) * (self.folds or 1) * self.settings.epochs


@dataclass(frozen=True)
class Cell:
    """One training and what became of it, at its best epoch by one measure."""

    point: Point
    seed: int
    epoch: int  # of the weights kept
    trend: Stability | None  # None: too few steps to judge
    curve: np.ndarray
    valid: Measured
    test: Measured  # all NaN if the scores of the test lists are not finite
    valid_outputs: torch.Tensor
    test_outputs: torch.Tensor
    is_learning: bool | None = None  # whether more epochs would have helped
    fold: int | None = None

    @property
    def objective(self) -> Objective:
        return self.point.objective

    @property
    def name(self) -> str:
        return self.point.name or self.point.objective.family

    def without_outputs(self) -> Cell:
        """A cell that was not chosen: what it said of every item is no longer needed."""
        return replace(self, valid_outputs=torch.empty(0), test_outputs=torch.empty(0))


@dataclass(frozen=True)
class Row:
    """A line of the table for one seed or fold: an objective at its chosen cell, perhaps calibrated."""

    name: str
    cell: Cell
    test: Measured


@dataclass(frozen=True)
class StudyResult:
    """All cells, and the rows of every seed in the order of the plan."""

    cells: list[Cell]
    rows: list[Row]
    diverged: list[dict[str, Any]]  # cells without an epoch of finite scores, or with none of the test lists
    by_rule: Mapping[str, list[Row]] = field(default_factory=dict)  # rows of the papers' rules


@dataclass(frozen=True)
class Measured:
    """Metrics of Q lists. NaN where a list does not count."""

    ndcg: np.ndarray  # [Q] NDCG@10, of the grades
    ndcg_1: np.ndarray  # [Q] NDCG@1, of the grades
    loss: np.ndarray  # [Q] log loss or squared error, summed over the items
    ece: np.ndarray  # [Q] calibration error over ten bins of equal count
    predicted: np.ndarray  # [Q] sum of predictions
    observed: np.ndarray  # [Q] sum of labels
    items: np.ndarray  # [Q]
    auc_pr: float = math.nan  # area under the curve of precision and recall, all items together; binary only

    @classmethod
    def undefined(cls, lists: np.ndarray) -> Measured:
        """Of a ranker that has no finite scores of these lists."""
        none = np.full(len(lists) - 1, math.nan)
        return cls(none, none, none, none, none, none, np.diff(lists))

    @classmethod
    def pooled(cls, folds: Sequence[Measured]) -> Measured:
        """The lists of all folds; AUC-PR is the mean over folds, whose predictions are of different nets."""
        if len(folds) == 1:
            return folds[0]
        columns = ("ndcg", "ndcg_1", "loss", "ece", "predicted", "observed", "items")
        joined = {name: np.concatenate([getattr(fold, name) for fold in folds]) for name in columns}
        return replace(folds[0], **joined, auc_pr=float(np.mean([fold.auc_pr for fold in folds])))

    @property
    def is_defined(self) -> bool:
        return not np.isnan(self.predicted).any()

    @property
    def means(self) -> dict[str, float]:
        """The file's figures: NDCG and ECE per list, loss per item, PCOC and AUC-PR of all predictions."""
        observed = float(self.observed.sum())
        return {
            "ndcg": _mean(self.ndcg),
            "ndcg_1": _mean(self.ndcg_1),
            "loss": float(self.loss.sum() / self.items.sum()),
            "ece": _mean(self.ece),
            "pcoc": float(self.predicted.sum() / observed) if observed else float("nan"),
            "auc_pr": self.auc_pr,
        }

    @property
    def ndcg_error(self) -> float:
        """Standard error of the mean NDCG over lists; 0 for fewer than two."""
        values = self.ndcg[~np.isnan(self.ndcg)]
        return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0


def load_files(
    train: Path,
    valid: Path | None,
    test: Path | None,
    positive_from: float | None,
    device: str,
    progress: Progress,
    *,
    log1p: bool = True,
    split_by_seed: bool = False,
    folds: int | None = None,
) -> Files:
    """The three parts as tables. Features that the training file does not have are not read.

    positive_from: labels of at least that become 1, the others 0; None keeps the grades. split_by_seed: where
    there is no validation file each seed draws its own lists to choose by. folds: all files are one, and
    those are drawn from it; then there may be no test file.
    """
    files = _read_parts(train, valid, test, progress)
    whole = files["train"]
    if folds is not None:
        whole = _joined(list(files.values()))
        if whole.n_lists < folds:
            raise UserError(f"--folds: {folds} is more than there are lists, {whole.n_lists}")
        files = {"train": whole}
    elif valid is None:
        files["train"], files["valid"] = split(whole, train, drawn=split_by_seed)
    sources = {"train": train, "valid": valid or train, "test": test}
    least = positive_from if positive_from is not None else np.finfo(np.float32).tiny
    for part, data in files.items():
        if not (data.labels >= least).any():
            wanted = "above 0" if positive_from is None else f"of {positive_from:g} or more"
            raise UserError(f"{sources[part]}: no label {wanted}, so there is no order to judge")
    if positive_from is not None and (files["train"].labels >= positive_from).all():
        raise UserError(f"{train}: every label is {positive_from:g} or more, so there is nothing to learn")
    own = list_columns(files["train"])
    if folds is not None:
        return fold_files(make_table(whole, own, positive_from, device, log1p), 0, folds)
    if valid is None and split_by_seed:
        files["whole"] = whole
    return Files(
        **{part: make_table(data, own, positive_from, device, log1p) for part, data in files.items()}
    )


def _read_parts(
    train: Path, valid: Path | None, test: Path | None, progress: Progress
) -> dict[str, RankingFile]:
    """The files that there are, with the features of the training file."""
    files: dict[str, RankingFile] = {}
    columns: np.ndarray | None = None
    for part, path in (("train", train), ("valid", valid), ("test", test)):
        if path is None:
            continue
        size = path.stat().st_size if path.is_file() else None
        with progress.stage(f"read {part}", size, "bytes") as stage:
            files[part] = read_file(path, columns, stage.advance)
        columns = files["train"].columns
    return files


def _joined(files: Sequence[RankingFile]) -> RankingFile:
    """The lists of files with the same features, one after another."""
    sizes = np.concatenate([np.diff(data.lists) for data in files])
    return RankingFile(
        np.concatenate([data.features for data in files]),
        np.concatenate([data.labels for data in files]),
        np.concatenate([[0], np.cumsum(sizes)]),
        files[0].columns,
    )


def fold_files(whole: Table, fold: int, folds: int) -> Files:
    """One fold to test on, the next to choose by, the others to learn from."""
    of = drawn_folds(whole.n_lists, folds)
    after = (fold + 1) % folds
    train, valid, test = (
        whole.take_lists(np.flatnonzero(part))
        for part in ((of != fold) & (of != after), of == after, of == fold)
    )
    return Files(train, valid, test, whole)


def drawn_folds(n_lists: int, folds: int) -> np.ndarray:
    """The fold of each list: the same in every study, their sizes within one of each other.  [Q]"""
    order = np.argsort(draws.uniform(0, "ltr folds", np.arange(n_lists)))
    fold = np.empty(n_lists, np.int64)
    fold[order] = np.arange(n_lists) % folds
    return fold


def split(data: RankingFile, path: Path, drawn: bool = False) -> tuple[RankingFile, RankingFile]:
    """Lists to train on, and every fifth to choose by; or the fifth that seed 1 draws."""
    n = data.n_lists
    if n < KEPT_ASIDE:
        raise UserError(f"{path}: {n} lists are too few to set some aside; give a validation file")
    is_aside = drawn_aside(n, 1) if drawn else np.arange(n) % KEPT_ASIDE == KEPT_ASIDE - 1
    return data.take_lists(np.flatnonzero(~is_aside)), data.take_lists(np.flatnonzero(is_aside))


def drawn_aside(n_lists: int, seed: int) -> np.ndarray:
    """Whether each list is one to choose by: a fifth of them, rounded down, drawn by the seed.  [Q]"""
    draw = draws.uniform(seed, "ltr lists to choose by", np.arange(n_lists))
    is_aside = np.zeros(n_lists, bool)
    is_aside[np.argsort(draw)[: n_lists // KEPT_ASIDE]] = True
    return is_aside


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
    found = StudyResult([], [], [], {rule: [] for rule in PAPER_RULES} if plan.papers else {})
    for name in plan.objectives:
        for seed in plan.seeds:
            if plan.folds is None:
                _run_seed(files.of_seed(seed), plan, name, seed, found, advance)
            for fold in range(plan.folds or 0):
                _run_seed(files.of_fold(fold, plan.folds or 0), plan, name, seed, found, advance, fold)
    return found


def _run_seed(
    files: Files,
    plan: Plan,
    name: str,
    seed: int,
    found: StudyResult,
    advance: Callable[[int], None],
    fold: int | None = None,
) -> None:
    """Train the grid of an objective with a seed, and put what came of it into `found`."""
    rules = (NEAR, *found.by_rule)
    trained: dict[str, list[Cell]] = {}  # by the measure of which it is the best epoch
    for point in plan.cells_of(name):
        measures = {measure_of(rule, point.objective) for rule in rules}
        cells = _train_cell(files, plan.settings, point, seed, measures, advance, fold)
        for measure, cell in cells.items():
            trained.setdefault(measure, []).append(cell)
        if not all(cells[measure].test.is_defined for measure in cells) or not cells:
            where = "test" if cells else "training"
            found.diverged.append({"objective": name, **point.setting, "seed": seed, "where": where})
    if not trained:
        raise UserError(f"no training of {name} gave finite scores: take a lower learning rate")
    for rule in rules:
        of_rule = trained.get(measure_of(rule, next(iter(trained.values()))[0].objective))
        if of_rule is None:
            raise UserError(
                f"the lists that seed {seed} chooses by have no order to judge: no positive label"
            )
        chosen = choose(of_rule, rule)
        if rule == NEAR:
            defined = [cell for cell in of_rule if cell.test.is_defined]
            found.cells.extend(cell if cell is chosen else cell.without_outputs() for cell in defined)
            found.rows.extend(_rows(files, plan, chosen))
        else:
            found.by_rule[rule].append(Row(name, chosen.without_outputs(), chosen.test))


def _train_cell(
    files: Files,
    settings: Settings,
    point: Point,
    seed: int,
    measures: Collection[str],
    advance: Callable[[int], None],
    fold: int | None = None,
) -> dict[str, Cell]:
    """Train a point; the cell of its best epoch by each measure. Empty if it never had finite scores."""
    objective = point.objective

    def judge(net: RankingNet) -> dict[str, float]:
        outputs = outputs_of(net, files.valid.features)
        if not _is_finite(objective, outputs):
            return dict.fromkeys(measures, math.nan)
        means = measured(objective, outputs, files.valid).means
        return {measure: -means[LOSS] if measure == LOSS else means[measure] for measure in measures}

    settings = replace(settings, dropout=point.dropout, momentum=point.momentum)
    data = replace(files.train, labels=files.train.grades) if point.on_grades else files.train
    done = train(objective, data, settings, point.learning_rate, seed, judge, lambda: advance(1))
    trend = stability(done.curve) if len(done.curve) > 2 else None
    cells = {}
    for measure, kept in done.best.items():
        if kept.epoch == 0:
            continue
        valid_outputs = outputs_of(kept.net, files.valid.features)
        test_outputs = outputs_of(kept.net, files.test.features)
        cells[measure] = Cell(
            point,
            seed,
            kept.epoch,
            trend,
            done.curve,
            measured(objective, valid_outputs, files.valid),
            measured(objective, test_outputs, files.test),
            valid_outputs,
            test_outputs,
            kept.is_learning,
            fold,
        )
    return cells


def _is_finite(ranker: Objective | Calibrated | LinearlyCalibrated, outputs: torch.Tensor) -> bool:
    return bool(torch.isfinite(outputs).all() and torch.isfinite(ranker.predict(outputs.double())).all())


def _rows(files: Files, plan: Plan, cell: Cell) -> Iterator[Row]:
    """The objective itself, then with each calibrator."""
    name = cell.name
    yield Row(name, cell, cell.test)
    for calibrator in plan.calibrators_of(name):
        labels, outputs = files.valid.labels.cpu(), cell.valid_outputs.double()
        served: Calibrated | LinearlyCalibrated
        if calibrator == "line":
            served = LinearlyCalibrated.fit(cell.objective, outputs, labels)
        else:
            options = {"hidden": (32,)} if calibrator == "piecewise_linear" else {}
            served = Calibrated.fit(
                cell.objective, calibrator, outputs, labels, files.valid.request, **options
            )
        yield Row(f"{name}+{calibrator}", cell, measured(served, cell.test_outputs, files.test))


def measured(
    ranker: Objective | Calibrated | LinearlyCalibrated, outputs: torch.Tensor, table: Table
) -> Measured:
    """A ranker's outputs on a file, measured; undefined if any is not finite."""
    if not bool(torch.isfinite(outputs).all()):
        return Measured.undefined(table.lists)
    if isinstance(ranker, Objective):
        predictions, task = ranker.predict(outputs.double()), ranker.task
    else:
        predictions, task = ranker.predict(outputs.double(), table.request), ranker.objective.task
    if not bool(torch.isfinite(predictions).all()):
        return Measured.undefined(table.lists)
    labels, grades = (x.double().cpu().numpy() for x in (table.labels, table.grades))
    scores = ranker.score(outputs.double()).numpy()
    return measure(scores, predictions.numpy(), labels, table.lists, task, grades)


def measure(
    scores: np.ndarray,
    predictions: np.ndarray,
    labels: np.ndarray,
    lists: np.ndarray,
    task: str,
    grades: np.ndarray | None = None,
) -> Measured:
    """Order and scale of every list: scores rank, predictions are on the labels' scale.  [N] each

    grades: what the order is measured on, as the papers do where the labels are 0 and 1; None: the labels.
    """
    grades = labels if grades is None else grades
    items = np.diff(lists)
    loss = (metrics.logloss if task == "binary" else metrics.mse)(predictions, labels, lists)
    owner = np.repeat(np.arange(len(items)), items)
    return Measured(
        ndcg=metrics.ndcg(scores, grades, lists, k=DEPTH).value,
        ndcg_1=metrics.ndcg(scores, grades, lists, k=1).value,
        loss=np.where(items > 0, loss.value, 0.0) * items,
        ece=metrics.ece_per_request(predictions, labels, lists).value,
        predicted=np.bincount(owner, predictions, len(items)),
        observed=np.bincount(owner, labels, len(items)),
        items=items,
        auc_pr=metrics.auc_pr(predictions, labels) if task == "binary" else math.nan,
    )


def constant(files: Files, task: str) -> Measured:
    """On the test lists, who predicts the mean label of the training lists for every item."""
    labels, grades = (x.double().cpu().numpy() for x in (files.test.labels, files.test.grades))
    always = np.full(len(labels), float(files.train.labels.double().mean()))
    return measure(always, always, labels, files.test.lists, task, grades)


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
    compared = _compare([(rows, grouped)], plan.baseline)
    best = {metric: _best(rows, grouped, metric) for metric in ("ndcg", "loss")}
    cells = [_cell(cell) for cell in findings.cells]
    parts = [files.of_fold(fold, plan.folds) for fold in range(plan.folds)] if plan.folds else [files]
    same = Measured.pooled([constant(part, plan.task) for part in parts])
    trainings = {name: len(plan.cells_of(name)) for name in plan.objectives}
    return {
        "task": plan.task,
        "loss": LOSS_NAMES[plan.task],
        "seeds": list(plan.seeds),
        "lists": {part: getattr(files, part).n_lists for part in ("train", "valid", "test")},
        "features": int(files.train.features.shape[1]),
        "skipped": float(np.isnan(same.ndcg).mean()),
        "constant_loss": same.means["loss"],
        "constant_auc_pr": _number(same.auc_pr),
        "layers": list(plan.settings.layers),
        "epochs": plan.settings.epochs,
        "batch": plan.settings.batch,
        "steps": plan.settings.epochs * -(-files.train.n_lists // plan.settings.batch),
        "trainings": trainings,
        "tuned": [
            name for name in ("dropout", "momentum", "y0") if len({cell[name] for cell in cells} - {None}) > 1
        ],
        "split_by_seed": files.whole is not None and plan.folds is None,
        **({"folds": plan.folds} if plan.folds else {}),
        "baseline": plan.baseline,
        "comparisons": compared,
        "best": best,
        "rows": rows,
        "cells": cells,
        "diverged": findings.diverged,
        "wins": strict_wins(cells, same=("learning_rate", "seed", "fold")),
        "curves": {
            name: {_training_name(row.cell): _curve(row.cell) for row in group}
            for name, group in grouped.items()
            if "+" not in name
        },
        **(_by_rule(findings.by_rule) if plan.papers else {}),
    }


def _by_rule(by_rule: Mapping[str, list[Row]]) -> dict[str, Any]:
    """Rows chosen by each rule of the paper on regression compatible ranking, and the games of its groups.

    A row's p compares it with the rival under the same rule, adjusted for all comparisons of both rules.
    """
    grouped: dict[str, dict[str, list[Row]]] = {rule: {} for rule in by_rule}
    for rule, chosen in by_rule.items():
        for row in chosen:
            grouped[rule].setdefault(row.name, []).append(row)
    tables = {rule: [_row(name, group) for name, group in groups.items()] for rule, groups in grouped.items()}
    rival = next((name for name in RIVALS if all(name in groups for groups in grouped.values())), None)
    pairs = [(tables[rule], grouped[rule]) for rule in by_rule]
    compared = _compare(pairs, rival, ("ndcg", "loss")) if rival is not None else 0
    players = [
        {
            **{"objective": approach_of(row.name), "rule": rule},
            **{"seed": row.cell.seed, "fold": row.cell.fold, **row.test.means},
        }
        for rule, rows in by_rule.items()
        for row in rows
    ]
    return {
        "by_rule": tables,
        "rival": rival,
        "rule_comparisons": compared,
        "approaches": strict_wins(players, same=("rule", "seed", "fold")),
    }


def approach_of(name: str) -> str:
    """The group of an objective or family in the paper's table of wins."""
    objective = entrant_of(name).kind.name
    return APPROACHES.get(name) or APPROACHES.get(objective, objective)


def _row(name: str, group: list[Row]) -> dict[str, Any]:
    means = [test.means for test in _of_seeds(group)]
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
        "chosen": [{**_origin(row.cell), **row.cell.point.setting, "epoch": row.cell.epoch} for row in group],
    }


def _compare(
    tables: Sequence[tuple[list[dict[str, Any]], dict[str, list[Row]]]],
    baseline: str,
    tested: Sequence[str] = _TESTED,
) -> int:
    """Put gap and adjusted p into the rows of tables, each against its own baseline.

    The adjustment is for all tables together; returns the number of comparisons.
    """
    places: list[dict[str, Any]] = []
    ps: list[float] = []
    for rows, grouped in tables:
        if baseline not in grouped:
            continue
        for row, (name, group) in zip(rows, grouped.items(), strict=True):
            for metric in tested if name != baseline else ():
                values, base = _per_list(group, metric), _per_list(grouped[baseline], metric)
                row[metric]["gap"] = _number(_mean(values - base))
                places.append(row[metric])
                ps.append(paired_p(values, base))
            if name != baseline and group[0].cell.fold is not None:
                row["gaps"] = {metric: _paired_gap(group, grouped[baseline], metric) for metric in PER_LIST}
    for place, p in zip(places, holm(ps), strict=True):
        place["p"] = _number(p)
    return sum(not math.isnan(p) for p in ps)


def _best(rows: list[dict[str, Any]], grouped: dict[str, list[Row]], metric: str) -> dict[str, Any] | None:
    """The best ranker of a metric, and which others are not significantly different from it, list by list.

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
    return np.mean([getattr(test, metric) for test in _of_seeds(group)], axis=0)


def _of_seeds(group: list[Row]) -> list[Measured]:
    """What each seed is worth on the test lists, its folds one after another."""
    seeds = dict.fromkeys(row.cell.seed for row in group)
    return [Measured.pooled([row.test for row in group if row.cell.seed == seed]) for seed in seeds]


def _paired_gap(group: list[Row], base: list[Row], metric: str) -> dict[str, float | None]:
    """The mean gap of a metric over the lists, and half of its 95 % t intervals over lists and over folds.

    Seeds are averaged first. Over lists: from the spread of the gap between lists, whatever net had them.
    Over folds: from that between the folds' means, in which each fold counts as one.
    """
    gap = _per_list(group, metric) - _per_list(base, metric)
    sizes = [len(row.test.items) for row in group if row.cell.seed == group[0].cell.seed]
    folds = np.array([_mean(part) for part in np.split(gap, np.cumsum(sizes)[:-1])])
    halves = {"lists": _half(gap[~np.isnan(gap)]), "folds": _half(folds[~np.isnan(folds)])}
    return {"gap": _number(_mean(gap)), **{name: _number(half) for name, half in halves.items()}}


def _half(values: np.ndarray) -> float:
    """Half of the 95 % t interval of a mean."""
    if len(values) < 2:
        return math.nan
    return float(t_quantile(0.975, len(values) - 1) * values.std(ddof=1) / math.sqrt(len(values)))


def _origin(cell: Cell) -> dict[str, int]:
    """Seed, and fold if there are any."""
    return {"seed": cell.seed} if cell.fold is None else {"seed": cell.seed, "fold": cell.fold}


def _training_name(cell: Cell) -> str:
    return ".".join(map(str, _origin(cell).values()))


def _cell(cell: Cell) -> dict[str, Any]:
    trend = cell.trend
    return {
        "objective": cell.name,
        **cell.point.setting,
        **_origin(cell),
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
