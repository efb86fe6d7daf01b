"""The study of objectives on learning-to-rank files: train the grid, choose, calibrate, measure.

A cell is an objective with its alpha, a learning rate and a seed. For each objective and seed one cell is
chosen by the validation lists alone:
- an objective without scale: the greatest NDCG@10;
- one with scale: the least log loss (or squared error) among the cells whose NDCG@10 is within one standard
  error of the objective's best. With few validation lists that is nearly all of them, with many nearly none.
Calibrators are fitted to the chosen cell's scores on the validation lists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from cascade_sim.analysis.metrics import Stability, stability
from cascade_sim.errors import UserError
from cascade_sim.ltr.measure import Measured, measure
from cascade_sim.ltr.training import Settings, Table, Trained, outputs_of, train
from cascade_sim.models.nets.ltr_net import RankingNet
from cascade_sim.models.objectives import OBJECTIVES, Calibrated, Objective, make_objective

# Calibrators of the rows that are added where none are asked for.
USUAL_CALIBRATORS: Mapping[str, tuple[str, ...]] = {"sbcr": ("platt", "piecewise_linear")}
_WITHOUT_SCALE = ("platt",)


@dataclass(frozen=True)
class Files:
    """The three parts of the data."""

    train: Table
    valid: Table
    test: Table


@dataclass(frozen=True)
class Plan:
    """What is trained."""

    objectives: tuple[str, ...]
    task: str = "binary"
    alphas: tuple[float, ...] = (0.1, 0.5, 0.9)
    learning_rates: tuple[float, ...] = (0.003,)
    seeds: tuple[int, ...] = (1,)
    calibrators: tuple[str, ...] | None = None  # None: the usual ones
    options: Mapping[str, float] = field(default_factory=dict)  # y0, beta: for the objectives that have them
    settings: Settings = field(default_factory=Settings)

    def cells_of(self, name: str) -> list[tuple[Objective, float | None, float]]:
        """The grid of one objective: itself, its alpha if it has one, the learning rate."""
        known = OBJECTIVES[name].options
        fixed = {key: value for key, value in self.options.items() if key in known}
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
        return USUAL_CALIBRATORS.get(name, () if OBJECTIVES[name].has_scale else _WITHOUT_SCALE)

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
class Findings:
    """All cells, and the rows of every seed in the order of the plan."""

    cells: list[Cell]
    rows: list[Row]
    diverged: list[dict[str, Any]]  # cells without an epoch of finite scores


def run_study(files: Files, plan: Plan, advance: Callable[[int], None] = lambda n: None) -> Findings:
    """Train and measure everything; `advance` is told of epochs done."""
    cells: list[Cell] = []
    rows: list[Row] = []
    diverged: list[dict[str, Any]] = []
    for name in plan.objectives:
        for seed in plan.seeds:
            found = []
            for objective, alpha, rate in plan.cells_of(name):
                cell = _train_cell(files, plan.settings, objective, alpha, rate, seed, advance)
                if cell is None:
                    diverged.append({"objective": name, "alpha": alpha, "learning_rate": rate, "seed": seed})
                else:
                    found.append(cell)
            if not found:
                raise UserError(f"no training of {name} gave finite scores: take a lower learning rate")
            chosen = choose(found)
            cells += [cell if cell is chosen else cell.without_outputs() for cell in found]
            rows += _rows(files, plan, chosen)
    return Findings(cells, rows, diverged)


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
    )


def measured(ranker: Objective | Calibrated, outputs: torch.Tensor, table: Table) -> Measured:
    """A ranker's outputs on a file, measured."""
    if isinstance(ranker, Calibrated):
        predictions = ranker.predict(outputs.double(), table.request)
        task = "binary"
    else:
        predictions, task = ranker.predict(outputs.double()), ranker.task
    labels = table.labels.double().cpu().numpy()
    return measure(ranker.score(outputs.double()).numpy(), predictions.numpy(), labels, table.lists, task)


def choose(cells: Sequence[Cell]) -> Cell:
    """The cell that the validation lists prefer, by the rule above; the first of equals."""
    best = max(cells, key=lambda cell: cell.valid.means["ndcg"])
    if not best.objective.has_scale:
        return best
    least = best.valid.means["ndcg"] - best.valid.ndcg_error
    near = [cell for cell in cells if cell.valid.means["ndcg"] >= least]
    return min(near, key=lambda cell: cell.valid.means["loss"])


def _rows(files: Files, plan: Plan, cell: Cell) -> Iterator[Row]:
    """The objective itself, then with each calibrator."""
    name = cell.objective.name
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
