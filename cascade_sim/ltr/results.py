"""From the study's findings to plain numbers: rows over seeds with paired tests, cells, wins, curves."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cascade_sim.analysis.statistics.bootstrap import seed_spread
from cascade_sim.analysis.statistics.strict_wins import holm, paired_p, strict_wins
from cascade_sim.ltr.study import Cell, Files, Findings, Plan, Row

BASELINE = "pointwise"
LOSS_NAMES = {"binary": "LogLoss", "graded": "MSE"}
_TESTED = ("ndcg", "loss", "ece")


def results(findings: Findings, files: Files, plan: Plan) -> dict[str, Any]:
    """Everything as JSON-ready numbers.

    A row's value is the mean over seeds. Its p compares it with the baseline list by list (each list averaged
    over seeds first), adjusted for all comparisons of the table: None for the baseline and without one.
    """
    grouped: dict[str, list[Row]] = {}
    for row in findings.rows:
        grouped.setdefault(row.name, []).append(row)
    rows = [_row(name, group) for name, group in grouped.items()]
    compared = _compare(rows, grouped)
    cells = [_cell(cell) for cell in findings.cells]
    ndcg = findings.rows[0].test.ndcg
    return {
        "task": plan.task,
        "loss": LOSS_NAMES[plan.task],
        "seeds": list(plan.seeds),
        "lists": {part: getattr(files, part).n_lists for part in ("train", "valid", "test")},
        "features": int(files.train.features.shape[1]),
        "skipped": float(np.isnan(ndcg).mean()),
        "baseline": BASELINE,
        "comparisons": compared,
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


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _mark(cell: Cell) -> bool | None:
    return None if cell.trend is None else cell.trend.is_stable


def _curve(cell: Cell) -> dict[str, Any]:
    return {"points": [_number(x) for x in cell.curve], "stable": _mark(cell)}


def _row(name: str, group: list[Row]) -> dict[str, Any]:
    means = [row.test.means for row in group]
    judged = [_mark(row.cell) for row in group if row.cell.trend is not None]
    objective, _, calibrator = name.partition("+")
    return {
        "name": name if "+" in name or group[0].cell.objective.has_scale else f"{name} *",
        "objective": objective,
        "calibrator": calibrator or None,
        "has_scale": bool(calibrator) or group[0].cell.objective.has_scale,
        **{metric: seed_spread([found[metric] for found in means]) for metric in means[0]},
        "n_stable": sum(bool(mark) for mark in judged),
        "n_judged": len(judged),
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


def _per_list(group: list[Row], metric: str) -> np.ndarray:
    """A metric of every test list, averaged over seeds.  [Q]"""
    return np.mean([getattr(row.test, metric) for row in group], axis=0)


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


def _cell(cell: Cell) -> dict[str, Any]:
    trend = cell.trend
    return {
        "objective": cell.objective.name,
        "alpha": cell.alpha,
        "learning_rate": cell.learning_rate,
        "seed": cell.seed,
        "epoch": cell.epoch,
        **{name: _number(value) for name, value in cell.test.means.items()},
        "valid": {name: _number(value) for name, value in cell.valid.means.items()},
        "stable": _mark(cell),
        "change": None if trend is None else _number(trend.change),
        "residual": None if trend is None else _number(trend.residual),
    }
